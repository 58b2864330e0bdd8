//! Volumes by name: what may be created, renamed, resized and deleted.

use std::collections::BTreeMap;
use std::sync::Arc;

use block_device::{BlockDevice, SectorSize};

use crate::volume::ModelVolume;

/// Why an operation on a volume as a whole is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelRefusal {
    AlreadyExists,
    NotFound,
    DataBehindNewEnd,
}

/// What a shrinking resize does with data behind the new end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shrink {
    KeepData,
    DropData,
}

/// The volumes of a pool without limits.
#[derive(Clone, Debug, Default)]
pub struct ModelPool {
    volumes: BTreeMap<String, Arc<ModelVolume>>,
}

impl ModelPool {
    pub fn create(&mut self, name: &str, size_bytes: u64) -> Result<(), ModelRefusal> {
        self.check_free(name)?;
        let volume = Arc::new(ModelVolume::new(size_bytes, SectorSize::Bytes4096));
        self.volumes.insert(name.to_owned(), volume);
        Ok(())
    }

    pub fn delete(&mut self, name: &str) -> Result<(), ModelRefusal> {
        let volume = self.volumes.remove(name).ok_or(ModelRefusal::NotFound)?;
        volume.delete();
        Ok(())
    }

    pub fn rename(&mut self, name: &str, new_name: &str) -> Result<(), ModelRefusal> {
        self.volume(name)?;
        if name != new_name {
            self.check_free(new_name)?;
            let volume = self.volumes.remove(name).ok_or(ModelRefusal::NotFound)?;
            self.volumes.insert(new_name.to_owned(), volume);
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
            return Err(ModelRefusal::DataBehindNewEnd);
        }
        volume.resize(size_bytes);
        Ok(())
    }

    pub fn volume(&self, name: &str) -> Result<Arc<ModelVolume>, ModelRefusal> {
        self.volumes.get(name).cloned().ok_or(ModelRefusal::NotFound)
    }

    /// All volumes, by name.
    pub fn volumes(&self) -> impl Iterator<Item = (&str, &ModelVolume)> {
        self.volumes.iter().map(|(name, volume)| (name.as_str(), &**volume))
    }

    pub fn written_bytes(&self) -> u64 {
        self.volumes.values().map(|volume| volume.written_bytes()).sum()
    }

    pub fn fill_bytes(&self) -> u64 {
        self.volumes.values().map(|volume| volume.fill_bytes()).sum()
    }

    /// A pool of its own with the same volumes.
    pub fn snapshot(&self) -> Self {
        let copy = |(name, volume): (&String, &Arc<ModelVolume>)| {
            (name.clone(), Arc::new(ModelVolume::clone(volume)))
        };
        Self { volumes: self.volumes.iter().map(copy).collect() }
    }

    fn check_free(&self, name: &str) -> Result<(), ModelRefusal> {
        match self.volumes.contains_key(name) {
            true => Err(ModelRefusal::AlreadyExists),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_given_once() {
        let mut pool = ModelPool::default();
        assert_eq!(pool.create("a", 4096), Ok(()));
        assert_eq!(pool.create("a", 4096), Err(ModelRefusal::AlreadyExists));
        assert_eq!(pool.create("b", 4096), Ok(()));
        assert_eq!(pool.rename("a", "b"), Err(ModelRefusal::AlreadyExists));
        assert_eq!(pool.delete("b"), Ok(()));
        assert_eq!(pool.rename("a", "b"), Ok(()));
        assert_eq!(pool.delete("a"), Err(ModelRefusal::NotFound));
    }

    #[test]
    fn a_shrink_keeps_data_unless_told_otherwise() {
        let mut pool = ModelPool::default();
        pool.create("a", 1 << 20).expect("the name is free");
        let volume = pool.volume("a").expect("it is there");
        volume.write(8192, &[1]).expect("the write succeeds");
        let refused = pool.resize("a", 4096, Shrink::KeepData);
        assert_eq!(refused, Err(ModelRefusal::DataBehindNewEnd));
        assert_eq!(pool.resize("a", 12288, Shrink::KeepData), Ok(()));
        assert_eq!(pool.resize("a", 4096, Shrink::DropData), Ok(()));
        assert_eq!(volume.written_bytes(), 0);
    }
}
