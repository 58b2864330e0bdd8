//! Which volumes are attached, kept on disk so that they come back by themselves.
//!
//! The file is replaced as a whole: whoever reads it sees the list before or after a change. It
//! names volumes by id, as names change; the name is there for people.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use api::AttachAs;
use serde::{Deserialize, Serialize};

const FORMAT_VERSION: u32 = 1;

/// An attached volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The name when it was last attached or renamed.
    pub(crate) name: String,
    pub(crate) attach_as: AttachAs,
    /// Others may write to the volume besides.
    pub(crate) is_shared: bool,
    /// The block device; `None` when the host refused it at the last start.
    pub(crate) device: Option<String>,
}

/// The attached volumes by id.
#[derive(Debug)]
pub(crate) struct AttachmentList {
    path: PathBuf,
    entries: BTreeMap<u64, Entry>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u32,
    attachments: Vec<StoredEntry>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredEntry {
    volume_id: u64,
    volume: String,
    #[serde(rename = "as")]
    attach_as: AttachAs,
    #[serde(default)]
    share: bool,
}

impl AttachmentList {
    /// Reads the list in `state_dir`; an empty one when there is none. The devices are not known
    /// yet.
    pub(crate) fn read(state_dir: &Path) -> anyhow::Result<Self> {
        let path = state_dir.join("attachments.json");
        let text = match std::fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self { path, entries: BTreeMap::new() });
            }
            result => result.with_context(|| format!("cannot read {}", path.display()))?,
        };
        let stored: Stored = serde_json::from_slice(&text).with_context(|| {
            format!("{} is damaged; delete it to start with nothing attached", path.display())
        })?;
        if stored.version != FORMAT_VERSION {
            bail!(
                "{} has format {}, this version reads {FORMAT_VERSION}",
                path.display(),
                stored.version
            );
        }
        let entry = |stored: StoredEntry| {
            let StoredEntry { volume_id, volume: name, attach_as, share } = stored;
            (volume_id, Entry { name, attach_as, is_shared: share, device: None })
        };
        Ok(Self { path, entries: stored.attachments.into_iter().map(entry).collect() })
    }

    pub(crate) fn get(&self, volume_id: u64) -> Option<&Entry> {
        self.entries.get(&volume_id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Entry)> {
        self.entries.iter().map(|(&id, entry)| (id, entry))
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Adds or replaces an entry, in memory and on disk; on an error in neither.
    pub(crate) fn insert(&mut self, volume_id: u64, entry: Entry) -> io::Result<()> {
        self.change(|entries| {
            entries.insert(volume_id, entry);
        })
    }

    /// Takes an entry out, in memory and on disk; on an error in neither.
    pub(crate) fn remove(&mut self, volume_id: u64) -> io::Result<()> {
        self.change(|entries| {
            entries.remove(&volume_id);
        })
    }

    fn change(&mut self, change: impl FnOnce(&mut BTreeMap<u64, Entry>)) -> io::Result<()> {
        let mut entries = self.entries.clone();
        change(&mut entries);
        store(&self.path, &entries)?;
        self.entries = entries;
        Ok(())
    }
}

fn store(path: &Path, entries: &BTreeMap<u64, Entry>) -> io::Result<()> {
    let stored = Stored {
        version: FORMAT_VERSION,
        attachments: entries
            .iter()
            .map(|(&volume_id, entry)| StoredEntry {
                volume_id,
                volume: entry.name.clone(),
                attach_as: entry.attach_as,
                share: entry.is_shared,
            })
            .collect(),
    };
    let text = serde_json::to_vec_pretty(&stored)?;
    replace_file(path, &text)
}

/// Gives the file at `path` new contents so that after a loss of power it has the old or the new.
pub(crate) fn replace_file(path: &Path, contents: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension("json.new");
    let mut file = File::create(&temporary)?;
    file.write_all(contents)?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)?;
    let dir = path.parent().unwrap_or(Path::new("/"));
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, device: Option<&str>) -> Entry {
        Entry {
            name: name.to_owned(),
            is_shared: true,
            attach_as: AttachAs::Loop,
            device: device.map(str::to_owned),
        }
    }

    #[test]
    fn the_list_comes_back_without_the_devices() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut list = AttachmentList::read(dir.path()).expect("an empty list");
        list.insert(1, entry("a", Some("/dev/loop0"))).expect("it is stored");
        list.insert(2, entry("b", Some("/dev/loop1"))).expect("it is stored");
        list.remove(1).expect("it is stored");
        let list = AttachmentList::read(dir.path()).expect("the list");
        assert_eq!(list.iter().collect::<Vec<_>>(), [(2, &entry("b", None))]);
    }

    #[test]
    fn a_change_that_cannot_be_stored_is_not_made() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut list = AttachmentList::read(dir.path()).expect("an empty list");
        drop(dir);
        list.insert(1, entry("a", None)).expect_err("the directory is gone");
        assert_eq!(list.len(), 0);
    }

    #[track_caller]
    fn check_refused(contents: &str, expected: &str) {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("attachments.json"), contents).expect("a file");
        let error = format!("{:#}", AttachmentList::read(dir.path()).expect_err("refused"));
        assert!(error.contains("attachments.json") && error.contains(expected), "{error}");
    }

    #[test]
    fn a_damaged_or_newer_file_is_refused() {
        check_refused("{\"version\": 1, \"attach", "damaged");
        check_refused("{\"version\": 2, \"attachments\": []}", "format 2");
    }
}
