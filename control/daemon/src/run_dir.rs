//! The run directory: made, and taken by one daemon at a time.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::fs::FlockOperation;

/// How long a daemon that was killed may take to let go: the kernel unmaps its memory first.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(5);
const LOCK_RETRY: Duration = Duration::from_millis(2);

/// The run directory, for as long as this lives.
#[derive(Debug)]
pub(crate) struct RunDir {
    _lock: File,
}

/// Makes the directory if need be and takes it. Fails when another daemon has it.
pub(crate) fn take(run_dir: &Path) -> anyhow::Result<RunDir> {
    make_dir(run_dir, 0o755)?;
    let path = run_dir.join("memlaned.lock");
    let lock = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .with_context(|| format!("cannot open {}", path.display()))?;
    let begun = Instant::now();
    loop {
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(RunDir { _lock: lock }),
            Err(rustix::io::Errno::WOULDBLOCK) if begun.elapsed() < LOCK_WAIT_MAX => {
                std::thread::sleep(LOCK_RETRY);
            }
            Err(rustix::io::Errno::WOULDBLOCK) => bail!(
                "another memlaned uses {}; stop it, or give this one another run-dir",
                run_dir.display()
            ),
            Err(error) => {
                return Err(error).with_context(|| format!("cannot lock {}", path.display()));
            }
        }
    }
}

/// Makes a directory and those above it, unless it exists.
pub(crate) fn make_dir(path: &Path, mode: u32) -> anyhow::Result<()> {
    let result = DirBuilder::new().recursive(true).mode(mode).create(path);
    result.with_context(|| format!("cannot make the directory {}", path.display()))
}

/// Removes what an earlier daemon left at `path`.
pub(crate) fn remove_stale(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_daemon_is_refused_until_the_first_is_gone() {
        let dir = tempfile::tempdir().expect("a directory");
        let run_dir = dir.path().join("run");
        let first = take(&run_dir).expect("the directory is free");
        let error = take(&run_dir).expect_err("the directory is taken");
        assert!(error.to_string().contains("another memlaned"), "{error}");
        drop(first);
        take(&run_dir).expect("the directory is free again");
    }
}
