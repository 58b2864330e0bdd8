//! Lists of volumes that survive the daemon, each in a file of the state directory.
//!
//! Entries identify volumes by id, because names change. Names in entries are only informative.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

use anyhow::Context;
use serde::de::DeserializeOwned;
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use state_file::StateFile;

/// Entry of a list for one volume.
pub(crate) trait Listed: Clone + PartialEq + Serialize + DeserializeOwned {
    /// Key of the list in its file.
    const KEY: &str;
    /// Name of the file in the state directory.
    const FILE_NAME: &str;
    /// Advice for a damaged file.
    const REMEDY: &str;

    fn volume_id(&self) -> u64;
}

/// Entries by volume id.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(bound = "E: Listed", try_from = "BTreeMap<String, Vec<E>>")]
pub(crate) struct Entries<E: Listed>(BTreeMap<u64, E>);

impl<E: Listed> Default for Entries<E> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<E: Listed> TryFrom<BTreeMap<String, Vec<E>>> for Entries<E> {
    type Error = String;

    fn try_from(mut fields: BTreeMap<String, Vec<E>>) -> Result<Self, String> {
        let entries = fields.remove(E::KEY).ok_or_else(|| format!("{} is missing", E::KEY))?;
        match fields.first_key_value() {
            Some((other, _)) => Err(format!("unknown field {other:?}")),
            None => Ok(Self(entries.into_iter().map(|entry| (entry.volume_id(), entry)).collect())),
        }
    }
}

impl<E: Listed> Serialize for Entries<E> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_map(Some(1))?;
        fields.serialize_entry(E::KEY, &self.0.values().collect::<Vec<_>>())?;
        fields.end()
    }
}

/// A thread-safe list. Its lock is held during writes to disk, and is the last one taken.
#[derive(Debug)]
pub(crate) struct VolumeList<E: Listed> {
    file: Mutex<StateFile<Entries<E>>>,
}

impl<E: Listed> VolumeList<E> {
    /// Reads the list in `state_dir`. If there is no file, the list is empty.
    pub(crate) fn read(state_dir: &Path) -> anyhow::Result<Self> {
        let file = StateFile::open_or_default(state_dir.join(E::FILE_NAME));
        let file = file.with_context(|| unreadable::<E>(&state_dir.join(E::FILE_NAME)))?;
        Ok(Self { file: Mutex::new(file) })
    }

    /// Reads the list again, because its file may have been edited, without applying it. Until the
    /// result is applied or dropped, the list cannot be changed.
    pub(crate) fn read_again(&self) -> anyhow::Result<ReadAgain<'_, E>> {
        let file = self.lock();
        let entries =
            file.read_again().with_context(|| unreadable::<E>(Path::new(E::FILE_NAME)))?;
        Ok(ReadAgain { file, entries })
    }

    pub(crate) fn get(&self, volume_id: u64) -> Option<E> {
        self.lock().state().0.get(&volume_id).cloned()
    }

    /// Lists all entries, by volume id.
    pub(crate) fn all(&self) -> Vec<E> {
        self.lock().state().0.values().cloned().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().state().0.len()
    }

    /// Adds or replaces an entry in memory and on disk. On an error, neither is changed.
    pub(crate) fn insert(&self, entry: E) -> io::Result<()> {
        self.lock().change(|Entries(entries)| {
            entries.insert(entry.volume_id(), entry);
        })
    }

    /// Removes an entry in memory and on disk. On an error, neither is changed.
    pub(crate) fn remove(&self, volume_id: u64) -> io::Result<()> {
        self.lock().change(|Entries(entries)| {
            entries.remove(&volume_id);
        })
    }

    /// Adds or replaces an entry that describes a completed action. The memory is always changed.
    /// On an error, the file is updated by the next change.
    pub(crate) fn note(&self, entry: E) -> io::Result<()> {
        self.lock().note(|Entries(entries)| {
            entries.insert(entry.volume_id(), entry);
        })
    }

    /// Removes an entry whose object no longer exists. Errors are handled as in
    /// [`VolumeList::note`].
    pub(crate) fn note_gone(&self, volume_id: u64) -> io::Result<()> {
        self.lock().note(|Entries(entries)| {
            entries.remove(&volume_id);
        })
    }

    fn lock(&self) -> MutexGuard<'_, StateFile<Entries<E>>> {
        self.file.lock().expect("no thread panics with this lock")
    }
}

/// A list that was read again and not applied yet. It holds the lock of the list, because applying
/// it would otherwise undo changes made meanwhile.
#[derive(Debug)]
pub(crate) struct ReadAgain<'list, E: Listed> {
    file: MutexGuard<'list, StateFile<Entries<E>>>,
    entries: Entries<E>,
}

impl<E: Listed> ReadAgain<'_, E> {
    /// Applies the list.
    pub(crate) fn use_it(mut self) {
        self.file.replace(self.entries);
    }
}

fn unreadable<E: Listed>(path: &Path) -> String {
    format!("cannot read {}; if it is damaged, {}", path.display(), E::REMEDY)
}

#[cfg(test)]
mod tests {
    use api::{AttachAs, ExportProtocol};

    use super::*;
    use crate::attachments::Attached;
    use crate::export_list::{ExportEntry, SocketRights};

    fn attached(volume_id: u64, device: Option<&str>) -> Attached {
        Attached {
            volume_id,
            name: format!("v{volume_id}"),
            is_shared: true,
            flush_each_write: true,
            attach_as: AttachAs::Loop,
            device: device.map(str::to_owned),
        }
    }

    fn exported(volume_id: u64) -> ExportEntry {
        ExportEntry {
            volume_id,
            volume: format!("v{volume_id}"),
            protocol: ExportProtocol::VhostUser,
            queues: 2,
            share: true,
            rights: SocketRights { mode: Some(0o600), ..SocketRights::default() },
        }
    }

    /// Stores two entries, removes the first, and compares the file.
    #[track_caller]
    fn check_file<E: Listed + std::fmt::Debug>(first: E, second: E, expected: &serde_json::Value) {
        let dir = tempfile::tempdir().expect("a directory");
        let list = VolumeList::read(dir.path()).expect("an empty list");
        let first_id = first.volume_id();
        list.insert(first).expect("it is stored");
        list.insert(second.clone()).expect("it is stored");
        list.remove(first_id).expect("it is stored");
        let text = std::fs::read(dir.path().join(E::FILE_NAME)).expect("a file");
        let stored: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
        assert_eq!(stored, *expected);
        let again = VolumeList::<E>::read(dir.path()).expect("the list");
        assert_eq!((again.len(), again.get(first_id)), (1, None));
    }

    #[test]
    fn lists_come_back_and_devices_do_not() {
        let entry = serde_json::json!({
            "volume_id": 2, "volume": "v2", "as": "loop", "share": true, "flush_each_write": true,
        });
        let expected = serde_json::json!({"version": 1, "attachments": [entry]});
        let device = Some("/dev/loop0");
        check_file(attached(1, device), attached(2, device), &expected);
        let entry = serde_json::json!({
            "volume_id": 2, "volume": "v2", "protocol": "vhost-user", "queues": 2, "share": true,
            "rights": {"owner_uid": null, "group_gid": null, "mode": 0o600},
        });
        let expected = serde_json::json!({"version": 1, "exports": [entry]});
        check_file(exported(1), exported(2), &expected);
    }

    #[test]
    fn a_change_that_cannot_be_stored_is_not_made() {
        let dir = tempfile::tempdir().expect("a directory");
        let list = VolumeList::read(dir.path()).expect("an empty list");
        drop(dir);
        list.insert(attached(1, None)).expect_err("the directory is gone");
        assert_eq!(list.len(), 0);
    }

    #[test]
    fn what_is_so_is_noted_although_it_cannot_be_stored_and_is_stored_later() {
        let dir = tempfile::tempdir().expect("a directory");
        let (path, away) = (dir.path().join("state"), dir.path().join("away"));
        std::fs::create_dir(&path).expect("a directory");
        let list = VolumeList::read(&path).expect("an empty list");
        list.insert(attached(1, None)).expect("it is stored");
        std::fs::rename(&path, &away).expect("both are ours");
        list.note(attached(2, Some("/dev/loop0"))).expect_err("the directory is away");
        list.note_gone(1).expect_err("the directory is away");
        assert_eq!(list.get(2), Some(attached(2, Some("/dev/loop0"))));
        assert_eq!(list.get(1), None);
        std::fs::rename(&away, &path).expect("both are ours");
        list.insert(attached(2, Some("/dev/loop0"))).expect("it is stored");
        let again = VolumeList::<Attached>::read(&path).expect("the list");
        assert_eq!(again.all(), [attached(2, None)]);
    }

    #[track_caller]
    fn check_refused(contents: &str, expected: &str) {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("attachments.json"), contents).expect("a file");
        let refused = VolumeList::<Attached>::read(dir.path());
        let error = format!("{:#}", refused.expect_err("refused"));
        assert!(error.contains("attachments.json") && error.contains(expected), "{error}");
    }

    #[test]
    fn a_damaged_or_newer_file_is_refused() {
        check_refused("{\"version\": 1, \"attach", "damaged");
        check_refused("{\"version\": 1, \"attachments\": [], \"colour\": []}", "colour");
        check_refused("{\"version\": 2, \"attachments\": []}", "format 2");
    }
}
