//! Mutual exclusion of runs, which would distort each other's results.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use storage::FileLock;

/// A lock held during a run. The kernel releases it when the process ends in any way.
#[derive(Debug)]
pub(crate) struct Alone(#[expect(dead_code, reason = "it is held, not used")] FileLock);

impl Alone {
    /// Takes the lock. Fails at once if another run holds it.
    pub(crate) fn take(path: &Path) -> Result<Self> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)
            // Another user's file can also be locked if it is only readable.
            .or_else(|_| File::open(path))
            .with_context(|| format!("cannot open the lock {}", path.display()))?;
        let taken = FileLock::try_take(file);
        match taken.with_context(|| format!("cannot lock {}", path.display()))? {
            Some(lock) => Ok(Self(lock)),
            None => bail!(
                "another run is active (it holds {}); wait until it ends, because two runs would \
                 disturb each other",
                path.display()
            ),
        }
    }

    pub(crate) fn path() -> PathBuf {
        std::env::temp_dir().join("memlane-bench.lock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_run_is_refused_until_the_first_has_ended() {
        let place = tempfile::tempdir().expect("there is room for a folder");
        let path = place.path().join("lock");
        let first = Alone::take(&path).expect("it is free");
        let error = Alone::take(&path).expect_err("it is taken");
        assert!(error.to_string().contains("another run"), "{error}");
        drop(first);
        Alone::take(&path).expect("it is free again");
    }
}
