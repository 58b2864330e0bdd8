//! Directories of the daemon: created, and locked by one daemon at a time.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use storage::FileLock;

use crate::broker_lock;
use crate::http::AccessRule;

/// Name of the lock file in each directory.
const LOCK: &str = "memlaned.lock";

/// Maximum wait for the lock of a killed daemon, which the kernel releases after unmapping its
/// memory.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(5);

/// Lock on a directory of this daemon, held while this exists.
#[derive(Debug)]
pub(crate) struct TakenDir {
    _lock: FileLock,
}

/// Creates the run directory if it is missing, and locks it. Fails if another daemon holds the
/// lock.
pub(crate) fn take(run_dir: &Path) -> anyhow::Result<TakenDir> {
    make_dir(run_dir, 0o755)?;
    let path = run_dir.join(LOCK);
    let lock = open_lock(&path).with_context(|| format!("cannot open {}", path.display()))?;
    lock_dir(lock, run_dir, "run-dir")
}

/// Locks the state directory before anything in it is read or changed. Returns `None` if the lock
/// file does not exist and the disk is full; two daemons are not mutually excluded then.
pub(crate) fn take_state(state_dir: &Path) -> anyhow::Result<Option<TakenDir>> {
    make_dir(state_dir, 0o700)?;
    let path = state_dir.join(LOCK);
    match open_lock(&path) {
        Ok(lock) => lock_dir(lock, state_dir, "state-dir").map(Some),
        Err(error) if is_full(&error) => {
            tracing::warn!(path = %path.display(),
                "no space for the lock file; continuing without a lock");
            Ok(None)
        }
        Err(error) => Err(error).with_context(|| format!("cannot open {}", path.display())),
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

fn open_lock(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)
}

fn lock_dir(lock: File, dir: &Path, option: &str) -> anyhow::Result<TakenDir> {
    let dir = dir.display();
    let taken = FileLock::take_within(lock, LOCK_WAIT_MAX);
    match taken.with_context(|| format!("cannot lock {dir}/{LOCK}"))? {
        Some(lock) => Ok(TakenDir { _lock: lock }),
        None => bail!("another memlaned uses {dir}; stop it, or set another {option}"),
    }
}

/// Creates the file that a broker locks while it uses the daemon. Processes that may use the
/// daemon's sockets may open it. The file is never replaced while the directory exists.
pub(crate) fn make_broker_lock(run_dir: &Path, rule: &AccessRule) -> anyhow::Result<()> {
    let path = run_dir.join(broker_lock::FILE_NAME);
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .with_context(|| format!("cannot make {}", path.display()))?;
    rule.restrict(&path)
}

/// Creates a directory and its parents, if missing. The new directory entries are durable, so files
/// that are later synced in them survive a power loss.
pub(crate) fn make_dir(path: &Path, mode: u32) -> anyhow::Result<()> {
    make_dir_with(path, mode, &mut |parent| File::open(parent)?.sync_all())
}

/// The same, with `sync` as the function that makes the entries of a directory durable.
fn make_dir_with(
    path: &Path,
    mode: u32,
    sync: &mut dyn FnMut(&Path) -> io::Result<()>,
) -> anyhow::Result<()> {
    let attempt = || format!("cannot make the directory {}", path.display());
    let is_missing = |dir: &&Path| !dir.as_os_str().is_empty() && !dir.exists();
    let missing: Vec<&Path> = path.ancestors().take_while(is_missing).collect();
    for dir in missing.into_iter().rev() {
        match DirBuilder::new().mode(mode).create(dir) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made.with_context(attempt)?,
        }
        let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        sync(parent).with_context(|| format!("cannot sync the directory {}", parent.display()))?;
    }
    ensure!(path.is_dir(), "{}: it exists and is not a directory", attempt());
    Ok(())
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

    #[test]
    fn a_state_directory_has_one_daemon() {
        let dir = tempfile::tempdir().expect("a directory");
        let state_dir = dir.path().join("state");
        let first = take_state(&state_dir).expect("the directory is free");
        let error = take_state(&state_dir).expect_err("the directory is taken");
        assert!(error.to_string().contains("another state-dir"), "{error}");
        drop(first);
        assert!(take_state(&state_dir).expect("the directory is free again").is_some());
    }

    #[test]
    fn a_directory_that_is_made_is_durable_with_all_above_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let (above, between) = (dir.path().join("a"), dir.path().join("a/b"));
        let mut synced = Vec::new();
        let mut make = |path: &Path| {
            make_dir_with(path, 0o700, &mut |parent| {
                synced.push(parent.to_owned());
                Ok(())
            })
        };
        make(&between.join("c")).expect("there is room");
        make(&between.join("c")).expect("it is there");
        std::fs::write(between.join("file"), "in the way").expect("there is room");
        make(&between.join("file")).expect_err("a file is no directory");
        assert_eq!(synced, [dir.path().to_owned(), above, between]);
    }
}
