//! Lock file of a running broker. The daemon tests the lock, so it detects a broker that has not
//! connected since the daemon started.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};

use storage::FileLock;

/// Name of the file in the run directory that a broker locks, so that two brokers cannot write to
/// the same topics.
pub(crate) const FILE_NAME: &str = "broker.lock";

/// Lock file, and this daemon's lock on it.
#[derive(Debug)]
pub(crate) struct BrokerLock {
    path: PathBuf,
    held: Mutex<Weak<FileLock>>,
}

/// Prevents brokers from starting while it is held. Several changes may hold it.
#[derive(Debug)]
pub(crate) struct NoBroker {
    _lock: Option<Arc<FileLock>>,
}

impl BrokerLock {
    pub(crate) fn of(run_dir: &Path) -> Self {
        Self { path: run_dir.join(FILE_NAME), held: Mutex::default() }
    }

    /// Acquires the lock as a broker would. Returns `None` while a broker holds it. A broker that
    /// starts meanwhile waits for the lock. Does not block.
    pub(crate) fn take(&self) -> io::Result<Option<NoBroker>> {
        let mut held = self.held.lock().expect("no thread panics with this lock");
        if let Some(lock) = held.upgrade() {
            return Ok(Some(NoBroker { _lock: Some(lock) }));
        }
        let lock = match File::open(&self.path) {
            Ok(lock) => lock,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Some(NoBroker { _lock: None }));
            }
            Err(error) => return Err(error),
        };
        let taken = FileLock::try_take(lock)?.map(Arc::new);
        *held = taken.as_ref().map(Arc::downgrade).unwrap_or_default();
        Ok(taken.map(|lock| NoBroker { _lock: Some(lock) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_at_the_same_time_keep_brokers_away_until_the_last_ends() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(FILE_NAME);
        File::create(&path).expect("a lock file");
        let broker = || FileLock::try_take(File::open(&path).expect("it exists")).expect("a lock");
        let lock = BrokerLock::of(folder.path());
        let take = || lock.take().expect("the file can be locked");
        let (first, second) = (take(), take());
        assert!(first.is_some() && second.is_some(), "a change was taken for a broker");
        drop(first);
        assert!(broker().is_none(), "a broker starts during a change");
        drop(second);
        let running = broker();
        assert!(running.is_some() && take().is_none());
        drop(running);
        assert!(take().is_some());
    }
}
