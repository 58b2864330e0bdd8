//! Volumes and their snapshots by name: creation, copying, renaming, resizing and deletion.

use std::collections::BTreeMap;
use std::sync::Arc;

use block_device::{BlockDevice, SectorSize};

use crate::volume::ModelVolume;

/// Reason for which an operation on a volume as a whole is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelRefusal {
    AlreadyExists,
    NotFound,
    DataPastNewEnd,
    HasSnapshots,
}

/// Treatment of data past the new end by a shrinking resize.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shrink {
    KeepData,
    DropData,
}

/// The volumes of a pool without limits, and their snapshots under `VOLUME@SNAPSHOT`.
#[derive(Clone, Debug, Default)]
pub struct ModelPool {
    all: BTreeMap<String, Arc<ModelVolume>>,
}

impl ModelPool {
    pub fn create(
        &mut self,
        name: &str,
        size_bytes: u64,
        sector: SectorSize,
    ) -> Result<(), ModelRefusal> {
        self.check_free(name)?;
        let volume = Arc::new(ModelVolume::new(size_bytes, sector));
        self.all.insert(name.to_owned(), volume);
        Ok(())
    }

    pub fn delete(&mut self, name: &str) -> Result<(), ModelRefusal> {
        self.volume(name)?;
        if !self.snapshots_of(name).is_empty() {
            return Err(ModelRefusal::HasSnapshots);
        }
        self.remove(name);
        Ok(())
    }

    /// Creates a snapshot of each volume, or of none.
    pub fn create_snapshots(&mut self, names: &[&str], snapshot: &str) -> Result<(), ModelRefusal> {
        for name in names {
            self.volume(name)?;
            self.check_free(&full_name(name, snapshot))?;
        }
        for name in names {
            let copy = self.volume(name)?.copy_read_only();
            self.all.insert(full_name(name, snapshot), Arc::new(copy));
        }
        Ok(())
    }

    pub fn delete_snapshot(&mut self, name: &str, snapshot: &str) -> Result<(), ModelRefusal> {
        let full_name = full_name(name, snapshot);
        self.volume(&full_name)?;
        self.remove(&full_name);
        Ok(())
    }

    pub fn rename_snapshot(
        &mut self,
        name: &str,
        snapshot: &str,
        to: &str,
    ) -> Result<(), ModelRefusal> {
        let snapshot_volume = self.volume(&full_name(name, snapshot))?;
        if snapshot != to {
            self.check_free(&full_name(name, to))?;
            self.all.remove(&full_name(name, snapshot));
            self.all.insert(full_name(name, to), snapshot_volume);
        }
        Ok(())
    }

    /// Creates a volume as a copy of a volume or snapshot.
    pub fn clone_volume(&mut self, source: &str, name: &str) -> Result<(), ModelRefusal> {
        let source = self.volume(source)?;
        self.check_free(name)?;
        self.all.insert(name.to_owned(), Arc::new(source.copy_writable()));
        Ok(())
    }

    /// Restores a volume from its snapshot.
    pub fn restore(&mut self, name: &str, snapshot: &str) -> Result<(), ModelRefusal> {
        let volume = self.volume(name)?;
        volume.become_equal_to(&*self.volume(&full_name(name, snapshot))?);
        Ok(())
    }

    fn remove(&mut self, name: &str) {
        if let Some(volume) = self.all.remove(name) {
            volume.delete();
        }
    }

    /// Returns the names of a volume's snapshots, without the name of the volume.
    fn snapshots_of(&self, name: &str) -> Vec<String> {
        let own = |full: &String| Some(full.strip_prefix(name)?.strip_prefix('@')?.to_owned());
        self.all.keys().filter_map(own).collect()
    }

    pub fn rename(&mut self, name: &str, new_name: &str) -> Result<(), ModelRefusal> {
        self.volume(name)?;
        if name != new_name {
            self.check_free(new_name)?;
            for snapshot in self.snapshots_of(name) {
                let copy = self.volume(&full_name(name, &snapshot))?;
                self.all.remove(&full_name(name, &snapshot));
                self.all.insert(full_name(new_name, &snapshot), copy);
            }
            let volume = self.all.remove(name).ok_or(ModelRefusal::NotFound)?;
            self.all.insert(new_name.to_owned(), volume);
        }
        Ok(())
    }

    pub fn resize(
        &mut self,
        name: &str,
        size_bytes: u64,
        shrink: Shrink,
    ) -> Result<(), ModelRefusal> {
        let volume = self.volume(name)?;
        let shrinks = size_bytes < volume.geometry().size_bytes;
        if shrinks && shrink == Shrink::KeepData && volume.holds_data_behind(size_bytes) {
            return Err(ModelRefusal::DataPastNewEnd);
        }
        volume.resize(size_bytes);
        Ok(())
    }

    pub fn volume(&self, name: &str) -> Result<Arc<ModelVolume>, ModelRefusal> {
        self.all.get(name).cloned().ok_or(ModelRefusal::NotFound)
    }

    /// Returns all volumes, by name.
    pub fn volumes(&self) -> impl Iterator<Item = (&str, &ModelVolume)> {
        self.all().filter(|(name, _)| !name.contains('@'))
    }

    /// Returns all snapshots, by name.
    pub fn snapshots(&self) -> impl Iterator<Item = (&str, &ModelVolume)> {
        self.all().filter(|(name, _)| name.contains('@'))
    }

    /// Returns all volumes and snapshots, by name.
    pub fn all(&self) -> impl Iterator<Item = (&str, &ModelVolume)> {
        self.all.iter().map(|(name, volume)| (name.as_str(), &**volume))
    }

    /// Number of bytes in the blocks of volumes, without snapshots.
    pub fn written_bytes(&self) -> u64 {
        self.volumes().map(|(_, volume)| volume.written_bytes()).sum()
    }

    pub fn fill_bytes(&self) -> u64 {
        self.volumes().map(|(_, volume)| volume.fill_bytes()).sum()
    }

    /// Returns an independent pool with the same volumes.
    pub fn snapshot(&self) -> Self {
        let copy = |(name, volume): (&String, &Arc<ModelVolume>)| {
            (name.clone(), Arc::new(ModelVolume::clone(volume)))
        };
        Self { all: self.all.iter().map(copy).collect() }
    }

    fn check_free(&self, name: &str) -> Result<(), ModelRefusal> {
        match self.all.contains_key(name) {
            true => Err(ModelRefusal::AlreadyExists),
            false => Ok(()),
        }
    }
}

fn full_name(volume: &str, snapshot: &str) -> String {
    format!("{volume}@{snapshot}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECTOR: SectorSize = SectorSize::Bytes512;

    #[test]
    fn names_are_given_once() {
        let mut pool = ModelPool::default();
        assert_eq!(pool.create("a", 4096, SECTOR), Ok(()));
        assert_eq!(pool.create("a", 4096, SECTOR), Err(ModelRefusal::AlreadyExists));
        assert_eq!(pool.create("b", 4096, SECTOR), Ok(()));
        assert_eq!(pool.rename("a", "b"), Err(ModelRefusal::AlreadyExists));
        assert_eq!(pool.delete("b"), Ok(()));
        assert_eq!(pool.rename("a", "b"), Ok(()));
        assert_eq!(pool.delete("a"), Err(ModelRefusal::NotFound));
    }

    #[test]
    fn a_snapshot_stays_what_its_volume_was() {
        let mut pool = ModelPool::default();
        pool.create("a", 1 << 20, SECTOR).expect("the name is free");
        let volume = pool.volume("a").expect("it is there");
        volume.write(0, &[1]).expect("the write succeeds");
        assert_eq!(pool.create_snapshots(&["a"], "s"), Ok(()));
        assert_eq!(pool.create_snapshots(&["a"], "s"), Err(ModelRefusal::AlreadyExists));
        volume.write(0, &[2]).expect("the write succeeds");
        let first = |name: &str| pool.volume(name).expect("it is there").block(0).map(|one| one[0]);
        assert_eq!((first("a"), first("a@s")), (Some(2), Some(1)));
        assert!(pool.volume("a@s").expect("it is there").write(0, &[3]).is_err());
        assert_eq!(pool.delete("a"), Err(ModelRefusal::HasSnapshots));
        assert_eq!(pool.rename("a", "b"), Ok(()));
        assert_eq!(pool.restore("b", "s"), Ok(()));
        assert_eq!(volume.block(0).map(|one| one[0]), Some(1));
        assert_eq!(pool.delete_snapshot("b", "s"), Ok(()));
        assert_eq!(pool.delete("b"), Ok(()));
    }

    #[test]
    fn a_shrink_keeps_data_unless_told_otherwise() {
        let mut pool = ModelPool::default();
        pool.create("a", 1 << 20, SECTOR).expect("the name is free");
        let volume = pool.volume("a").expect("it is there");
        volume.write(8192, &[1]).expect("the write succeeds");
        let refused = pool.resize("a", 4096, Shrink::KeepData);
        assert_eq!(refused, Err(ModelRefusal::DataPastNewEnd));
        assert_eq!(pool.resize("a", 12288, Shrink::KeepData), Ok(()));
        assert_eq!(pool.resize("a", 4096, Shrink::DropData), Ok(()));
        assert_eq!(volume.written_bytes(), 0);
    }
}
