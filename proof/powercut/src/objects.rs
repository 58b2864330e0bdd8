//! Simulated object store, with the history of the disk beside it.

use storage::{FileInfo, Folder, StorageError};

use crate::folder::{Sent, SimulatedFolder};

/// A folder whose files are objects: each exists completely or not at all, never changes, and is
/// durable as soon as it is visible.
///
/// Its calls fail like those of the disk: putting an object corresponds to a create.
#[derive(Debug)]
pub struct Objects {
    folder: SimulatedFolder,
}

/// An object whose sender has given up on it before it arrived.
#[derive(Debug)]
pub struct LateObject(Sent);

impl Objects {
    pub(crate) fn new(folder: SimulatedFolder) -> Self {
        Self { folder }
    }

    /// Puts an object if there is none of that name. After an error caused by a fault, it may exist
    /// after a power failure, but not before.
    pub fn put(&self, name: &str, bytes: &[u8]) -> Result<(), StorageError> {
        self.folder.make(name, bytes.to_vec()).map(drop)
    }

    /// Puts an object that is not visible before [`Objects::arrive`]. Until then a power failure
    /// keeps it or not.
    pub fn put_late(&self, name: &str, bytes: &[u8]) -> LateObject {
        LateObject(self.folder.send(name, bytes.to_vec()))
    }

    /// Makes the object visible.
    pub fn arrive(&self, object: &LateObject) {
        self.folder.arrive(&object.0);
    }

    /// Fills `into` from `offset` of an object. Returns false if the object ends before.
    pub fn read(&self, name: &str, offset: u64, into: &mut [u8]) -> Result<bool, StorageError> {
        let object = self.folder.open(name)?;
        let end = offset.checked_add(into.len() as u64);
        match end.is_some_and(|end| end <= object.size_bytes()) {
            true => object.read(offset, into).map(|()| true),
            false => Ok(false),
        }
    }

    pub fn list(&self) -> Result<Vec<FileInfo>, StorageError> {
        self.folder.list()
    }

    pub fn remove(&self, name: &str) -> Result<(), StorageError> {
        self.folder.remove_durably(name)
    }
}
