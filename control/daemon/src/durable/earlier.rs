//! Record of the journal that this host has. Memory is not restored without this journal: after a
//! power loss, its file system may not be mounted yet.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::{fs, io};

use durable_set::EarlierJournal;
use serde::{Deserialize, Serialize};
use state_file::StateFile;
use volumes::SetId;

const FILE_NAME: &str = "journal.json";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Recorded {
    /// In hexadecimal digits.
    durable_set: String,
    has_flushes: bool,
}

/// The record in the state directory, and its contents.
#[derive(Debug)]
pub(super) struct JournalRecord {
    path: PathBuf,
    known: Mutex<Option<EarlierJournal>>,
}

impl JournalRecord {
    /// Reads the record. If it cannot be read, the daemon runs without it.
    pub(super) fn read(state_dir: &Path) -> Self {
        let path = state_dir.join(FILE_NAME);
        let known = match StateFile::<Recorded>::open(path.clone()) {
            Ok(file) => file.and_then(|file| earlier(file.state())),
            Err(error) => {
                let path = path.display();
                tracing::warn!(%error, "cannot read {path}; a missing journal is not noticed");
                None
            }
        };
        Self { path, known: Mutex::new(known) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn known(&self) -> Option<EarlierJournal> {
        *self.lock()
    }

    /// Replaces the record. Waits for the disk.
    pub(super) fn write(&self, journal: EarlierJournal) -> io::Result<()> {
        let EarlierJournal { set_id, has_flushes } = journal;
        let durable_set = format!("{:032x}", u128::from_be_bytes(set_id));
        StateFile::create(self.path.clone(), Recorded { durable_set, has_flushes })?;
        *self.lock() = Some(journal);
        Ok(())
    }

    /// Removes the record of the journal of another set: its loss was accepted.
    pub(super) fn forget_other(&self, set_id: SetId) -> io::Result<()> {
        let mut known = self.lock();
        if known.take_if(|known| known.set_id != set_id).is_some() {
            fs::remove_file(&self.path)?;
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Option<EarlierJournal>> {
        self.known.lock().expect("no thread panics with this lock")
    }
}

fn earlier(recorded: &Recorded) -> Option<EarlierJournal> {
    let set_id = u128::from_str_radix(&recorded.durable_set, 16).ok()?.to_be_bytes();
    Some(EarlierJournal { set_id, has_flushes: recorded.has_flushes })
}
