//! Lock that a running broker holds, as the daemon tests it: so a broker is known also if it has
//! not connected since the daemon started.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use storage::FileLock;

/// File that a broker locks in the run directory: two of them would write to the same topics.
pub(crate) const FILE_NAME: &str = "broker.lock";

/// Path of the file that a broker locks.
#[derive(Debug)]
pub(crate) struct BrokerLock(PathBuf);

/// Keeps brokers from starting while it lives.
#[derive(Debug)]
pub(crate) struct NoBroker {
    _lock: Option<FileLock>,
}

impl BrokerLock {
    pub(crate) fn of(run_dir: &Path) -> Self {
        Self(run_dir.join(FILE_NAME))
    }

    /// Takes the lock as a broker would; `None` while a broker has it. A broker that starts
    /// meanwhile waits. Never waits itself.
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
