//! Lock file of a running broker. The daemon tests the lock, so it detects a broker that has not
//! connected since the daemon started.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use storage::FileLock;

/// Name of the file in the run directory that a broker locks, so that two brokers cannot write to
/// the same topics.
pub(crate) const FILE_NAME: &str = "broker.lock";

/// Path of the lock file.
#[derive(Debug)]
pub(crate) struct BrokerLock(PathBuf);

/// Prevents brokers from starting while it is held.
#[derive(Debug)]
pub(crate) struct NoBroker {
    _lock: Option<FileLock>,
}

impl BrokerLock {
    pub(crate) fn of(run_dir: &Path) -> Self {
        Self(run_dir.join(FILE_NAME))
    }

    /// Acquires the lock as a broker would. Returns `None` while a broker holds it. A broker that
    /// starts meanwhile waits for the lock. Does not block.
    pub(crate) fn take(&self) -> io::Result<Option<NoBroker>> {
        let lock = match File::open(&self.0) {
            Ok(lock) => lock,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Some(NoBroker { _lock: None }));
            }
            Err(error) => return Err(error),
        };
        Ok(FileLock::try_take(lock)?.map(|lock| NoBroker { _lock: Some(lock) }))
    }
}
