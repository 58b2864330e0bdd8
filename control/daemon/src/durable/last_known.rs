//! Record of the journal and the newest image that this host has. Memory is not restored without
//! them: after a power loss, their file system may not be mounted yet.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::{fs, io};

use durable_set::LastKnown;
use serde::{Deserialize, Serialize};
use state_file::StateFile;
use volumes::SetId;

const FILE_NAME: &str = "durable-set.json";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Recorded {
    /// In hexadecimal digits.
    id: String,
    has_flushes: bool,
    newest_image: u32,
}

/// The record in the state directory, and its contents.
#[derive(Debug)]
pub(crate) struct SetRecord {
    path: PathBuf,
    known: Mutex<Option<LastKnown>>,
}

impl SetRecord {
    /// Reads the record. If it cannot be read, the daemon runs without it.
    pub(super) fn read(state_dir: &Path) -> Self {
        let path = state_dir.join(FILE_NAME);
        let known = match StateFile::<Recorded>::open(path.clone()) {
            Ok(file) => file.and_then(|file| last_known(file.state())),
            Err(error) => {
                let path = path.display();
                tracing::warn!(%error, "cannot read {path}; a missing journal is not detected");
                None
            }
        };
        Self { path, known: Mutex::new(known) }
    }

    /// Removes the record, if there is one: this host's journal is deleted.
    pub(crate) fn remove(state_dir: &Path) -> io::Result<()> {
        match fs::remove_file(state_dir.join(FILE_NAME)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn known(&self) -> Option<LastKnown> {
        *self.lock()
    }

    /// Replaces the record. Waits for the disk.
    pub(super) fn write(&self, known: LastKnown) -> io::Result<()> {
        let LastKnown { set_id, has_flushes, newest_image } = known;
        let id = format!("{:032x}", u128::from_be_bytes(set_id));
        StateFile::create(self.path.clone(), Recorded { id, has_flushes, newest_image })?;
        *self.lock() = Some(known);
        Ok(())
    }

    /// Removes the record of another set: its loss was accepted.
    pub(super) fn forget_other(&self, set_id: SetId) -> io::Result<()> {
        let mut known = self.lock();
        if known.take_if(|known| known.set_id != set_id).is_some() {
            fs::remove_file(&self.path)?;
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Option<LastKnown>> {
        self.known.lock().expect("no thread panics with this lock")
    }
}

fn last_known(recorded: &Recorded) -> Option<LastKnown> {
    let &Recorded { ref id, has_flushes, newest_image } = recorded;
    let set_id = u128::from_str_radix(id, 16).ok()?.to_be_bytes();
    Some(LastKnown { set_id, has_flushes, newest_image })
}
