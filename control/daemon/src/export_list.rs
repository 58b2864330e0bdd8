//! Which volumes are exported to virtual machines, kept on disk so that their sockets are there
//! again before the machines try to come back.
//!
//! The file is replaced as a whole: whoever reads it sees the list before or after a change. It
//! names volumes by id; the name is there for people.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use api::ExportProtocol;
use serde::{Deserialize, Serialize};

use crate::attachments::replace_file;

const FORMAT_VERSION: u32 = 1;

/// An exported volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExportEntry {
    pub(crate) volume_id: u64,
    pub(crate) volume: String,
    pub(crate) protocol: ExportProtocol,
    pub(crate) queues: u16,
    /// Others may write to the volume besides.
    #[serde(default)]
    pub(crate) share: bool,
    #[serde(default, skip_serializing_if = "SocketRights::are_usual")]
    pub(crate) rights: SocketRights,
}

/// Who reaches the socket of an export, where that is not as usual.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SocketRights {
    pub(crate) owner_uid: Option<u32>,
    pub(crate) group_gid: Option<u32>,
    pub(crate) mode: Option<u32>,
}

impl SocketRights {
    fn are_usual(&self) -> bool {
        *self == Self::default()
    }
}

/// The exported volumes by id.
#[derive(Debug)]
pub(crate) struct ExportList {
    path: PathBuf,
    entries: BTreeMap<u64, ExportEntry>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u32,
    exports: Vec<ExportEntry>,
}

impl ExportList {
    /// Reads the list in `state_dir`; an empty one when there is none.
    pub(crate) fn read(state_dir: &Path) -> anyhow::Result<Self> {
        let path = state_dir.join("exports.json");
        let text = match std::fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self { path, entries: BTreeMap::new() });
            }
            result => result.with_context(|| format!("cannot read {}", path.display()))?,
        };
        let stored: Stored = serde_json::from_slice(&text).with_context(|| {
            format!("{} is damaged; delete it to start with nothing exported", path.display())
        })?;
        if stored.version != FORMAT_VERSION {
            let version = stored.version;
            bail!("{} has format {version}, this version reads {FORMAT_VERSION}", path.display());
        }
        let entries = stored.exports.into_iter().map(|entry| (entry.volume_id, entry)).collect();
        Ok(Self { path, entries })
    }

    pub(crate) fn get(&self, volume_id: u64) -> Option<&ExportEntry> {
        self.entries.get(&volume_id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &ExportEntry> {
        self.entries.values()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Adds or replaces an entry, in memory and on disk; on an error in neither.
    pub(crate) fn insert(&mut self, entry: ExportEntry) -> io::Result<()> {
        let mut entries = self.entries.clone();
        entries.insert(entry.volume_id, entry);
        self.store(entries)
    }

    /// Takes an entry out, in memory and on disk; on an error in neither.
    pub(crate) fn remove(&mut self, volume_id: u64) -> io::Result<()> {
        let mut entries = self.entries.clone();
        entries.remove(&volume_id);
        self.store(entries)
    }

    fn store(&mut self, entries: BTreeMap<u64, ExportEntry>) -> io::Result<()> {
        let exports = entries.values().cloned().collect();
        let stored = Stored { version: FORMAT_VERSION, exports };
        replace_file(&self.path, &serde_json::to_vec_pretty(&stored)?)?;
        self.entries = entries;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(volume_id: u64) -> ExportEntry {
        let volume = format!("v{volume_id}");
        ExportEntry {
            volume_id,
            volume,
            protocol: ExportProtocol::VhostUser,
            queues: 2,
            share: true,
            rights: SocketRights { mode: Some(0o600), ..SocketRights::default() },
        }
    }

    #[test]
    fn the_list_comes_back() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut list = ExportList::read(dir.path()).expect("an empty list");
        list.insert(entry(1)).expect("it is stored");
        list.insert(entry(2)).expect("it is stored");
        list.remove(1).expect("it is stored");
        let list = ExportList::read(dir.path()).expect("the list");
        assert_eq!(list.iter().collect::<Vec<_>>(), [&entry(2)]);
    }

    #[test]
    fn a_change_that_cannot_be_stored_is_not_made() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut list = ExportList::read(dir.path()).expect("an empty list");
        drop(dir);
        list.insert(entry(1)).expect_err("the directory is gone");
        assert_eq!(list.len(), 0);
    }

    #[track_caller]
    fn check_refused(contents: &str, expected: &str) {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("exports.json"), contents).expect("a file");
        let error = format!("{:#}", ExportList::read(dir.path()).expect_err("refused"));
        assert!(error.contains("exports.json") && error.contains(expected), "{error}");
    }

    #[test]
    fn a_damaged_or_newer_file_is_refused() {
        check_refused("{\"version\": 1, \"exp", "damaged");
        check_refused("{\"version\": 2, \"exports\": []}", "format 2");
    }
}
