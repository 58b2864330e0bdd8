//! Which devices are ours and what they show, kept in a file over restarts.
//!
//! The file is written before a device is started and after it was deleted. So a device that is
//! not in it was never open to anybody, and its mark says whether it is ours to delete. The mark
//! is drawn once for each registry; the driver keeps it with each device.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::export::VolumeId;

const FORMAT_VERSION: u32 = 1;

/// The devices of one daemon, on disk.
#[derive(Debug)]
pub(crate) struct Registry {
    path: PathBuf,
    mark: u64,
    volumes: BTreeMap<u32, VolumeId>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u32,
    /// In hexadecimal: not every reader of JSON keeps 64 bits.
    mark: String,
    devices: Vec<StoredDevice>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredDevice {
    device: u32,
    volume_id: u64,
}

impl Registry {
    /// Reads the registry, or begins one with a mark of its own.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let text = match fs::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Self::begin(path),
            result => result?,
        };
        let stored: Stored = serde_json::from_slice(&text).map_err(damaged)?;
        if stored.version != FORMAT_VERSION {
            let text = format!("its format is {}, not {FORMAT_VERSION}", stored.version);
            return Err(damaged(text));
        }
        let mark = u64::from_str_radix(&stored.mark, 16).map_err(damaged)?;
        let volumes = stored.devices.iter().map(|it| (it.device, VolumeId(it.volume_id)));
        Ok(Self { path: path.to_owned(), mark, volumes: volumes.collect() })
    }

    fn begin(path: &Path) -> io::Result<Self> {
        // Zero is what devices of others have.
        let mark = getrandom::u64().map_err(io::Error::other)?.max(1);
        let registry = Self { path: path.to_owned(), mark, volumes: BTreeMap::new() };
        registry.store(&registry.volumes)?;
        Ok(registry)
    }

    /// What each device of ours carries, and no other.
    pub(crate) fn mark(&self) -> u64 {
        self.mark
    }

    pub(crate) fn devices(&self) -> Vec<(u32, VolumeId)> {
        self.volumes.iter().map(|(&device, &volume)| (device, volume)).collect()
    }

    /// Adds a device, in memory and on disk; on an error in neither.
    pub(crate) fn insert(&mut self, device: u32, volume: VolumeId) -> io::Result<()> {
        let mut volumes = self.volumes.clone();
        volumes.insert(device, volume);
        self.store(&volumes)?;
        self.volumes = volumes;
        Ok(())
    }

    /// Takes a device out, in memory and on disk; on an error in neither.
    pub(crate) fn remove(&mut self, device: u32) -> io::Result<()> {
        let mut volumes = self.volumes.clone();
        if volumes.remove(&device).is_none() {
            return Ok(());
        }
        self.store(&volumes)?;
        self.volumes = volumes;
        Ok(())
    }

    fn store(&self, volumes: &BTreeMap<u32, VolumeId>) -> io::Result<()> {
        let devices = volumes.iter();
        let stored = Stored {
            version: FORMAT_VERSION,
            mark: format!("{:016x}", self.mark),
            devices: devices
                .map(|(&device, volume)| StoredDevice { device, volume_id: volume.0 })
                .collect(),
        };
        let text = serde_json::to_vec_pretty(&stored)?;
        let temporary = self.path.with_extension("json.new");
        let mut file = File::create(&temporary)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&temporary, &self.path)?;
        File::open(self.path.parent().unwrap_or(Path::new("/")))?.sync_all()
    }
}

fn damaged(why: impl ToString) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_and_the_mark_come_back() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("ublk.json");
        let mut registry = Registry::open(&path).expect("one is begun");
        registry.insert(0, VolumeId(u64::MAX)).expect("it is stored");
        registry.insert(7, VolumeId(2)).expect("it is stored");
        registry.remove(7).expect("it is stored");
        let again = Registry::open(&path).expect("it is read");
        assert_eq!(again.devices(), [(0, VolumeId(u64::MAX))]);
        assert_eq!(again.mark(), registry.mark());
        assert_ne!(again.mark(), 0);
    }

    #[test]
    fn two_registries_have_different_marks() {
        let dir = tempfile::tempdir().expect("a directory");
        let open = |name| Registry::open(&dir.path().join(name)).expect("one is begun").mark();
        assert_ne!(open("a.json"), open("b.json"));
    }

    #[test]
    fn a_change_that_cannot_be_stored_is_not_made() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut registry = Registry::open(&dir.path().join("ublk.json")).expect("one is begun");
        drop(dir);
        registry.insert(0, VolumeId(1)).expect_err("the directory is gone");
        assert_eq!(registry.devices(), []);
    }

    #[test]
    fn a_damaged_registry_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("ublk.json");
        for text in ["{", r#"{"version":2,"mark":"1","devices":[]}"#] {
            fs::write(&path, text).expect("a file");
            let error = Registry::open(&path).expect_err("it is damaged");
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        }
    }
}
