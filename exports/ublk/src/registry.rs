//! Registry of this daemon's devices and their volumes, stored in a file across restarts.
//!
//! The file is written before a device is started and after it was deleted. Therefore a device that
//! is not registered was never usable, and may be deleted if it has the registry's mark. The mark
//! is a random number of the registry that the driver stores with each device.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use state_file::StateFile;

use crate::volumes::VolumeId;

/// The devices of one daemon, on disk.
#[derive(Debug)]
pub(crate) struct Registry {
    mark: u64,
    file: StateFile<State>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    /// In hexadecimal, because not every JSON parser preserves 64-bit integers.
    mark: String,
    /// Sorted by device number.
    devices: Vec<StoredDevice>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredDevice {
    device: u32,
    volume_id: u64,
}

impl Registry {
    /// Reads the registry, or creates one with a new mark.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = match StateFile::<State>::open(path.to_owned())? {
            Some(file) => file,
            None => {
                // Devices of other programs have the mark zero.
                let mark = getrandom::u64().map_err(io::Error::other)?.max(1);
                let state = State { mark: format!("{mark:016x}"), devices: Vec::new() };
                StateFile::create(path.to_owned(), state)?
            }
        };
        let mark = u64::from_str_radix(&file.state().mark, 16)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        Ok(Self { mark, file })
    }

    /// Mark of this registry's devices.
    pub(crate) fn mark(&self) -> u64 {
        self.mark
    }

    pub(crate) fn devices(&self) -> Vec<(u32, VolumeId)> {
        let devices = self.file.state().devices.iter();
        devices.map(|it| (it.device, VolumeId(it.volume_id))).collect()
    }

    /// Adds a device in memory and on disk. On an error, neither is changed.
    pub(crate) fn insert(&mut self, device: u32, volume: VolumeId) -> io::Result<()> {
        self.file.change(|State { devices, .. }| {
            devices.retain(|it| it.device != device);
            devices.push(StoredDevice { device, volume_id: volume.0 });
            devices.sort_by_key(|it| it.device);
        })
    }

    /// Removes a device in memory and on disk. On an error, neither is changed.
    pub(crate) fn remove(&mut self, device: u32) -> io::Result<()> {
        self.file.change(|State { devices, .. }| devices.retain(|it| it.device != device))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

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
