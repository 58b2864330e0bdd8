//! The lock that a broker holds as long as it runs, as the daemon asks for it: whether one runs is
//! known also where none has connected since the daemon started.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use storage::FileLock;

/// File that a broker locks in the run directory: two of them would write to the same topics.
pub(crate) const FILE_NAME: &str = "broker.lock";

/// The file that a broker locks, as the daemon looks at it.
#[derive(Debug)]
pub(crate) struct BrokerLock(PathBuf);

/// No broker runs, or begins to, as long as this lives.
#[derive(Debug)]
pub(crate) struct NoBroker {
    _lock: Option<FileLock>,
}

impl BrokerLock {
    pub(crate) fn of(run_dir: &Path) -> Self {
        Self(run_dir.join(FILE_NAME))
    }

    /// Takes the lock as a broker would; `None` while one has it. A broker that starts meanwhile
    /// waits. Never waits.
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
