//! Guarantees of stable storage, as two traits.

use std::fmt::Debug;
use std::io::IoSlice;
use std::sync::Arc;

/// Unit of writes: offsets and lengths must be multiples of it.
pub use units::BLOCK_BYTES;

use crate::error::StorageError;

/// A file in a folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileInfo {
    pub name: String,
    pub size_bytes: u64,
}

/// A directory of files and subfolders.
///
/// - **Names.** Up to 200 bytes without `/`, not starting with a dot; others are `Invalid`.
/// - **Durability.** After a power loss, each creation, renaming and removal since the last
///   [`Folder::sync_names`] may have taken effect or not, independently of the others.
///   [`Folder::create`] and [`Folder::folder`] sync the name that they create.
/// - **Blocking.** Every call may wait for the disk.
pub trait Folder: Debug + Send + Sync {
    /// Creates a file of `size_bytes` zeros, a multiple of 4096, and opens it. When this returns,
    /// file and name are durable. The zeros are actually written, so that overwriting them changes
    /// no metadata. After a power loss during the call, the file is complete or does not exist.
    /// Fails with `AlreadyExists` if the file exists, and does not change it.
    fn create(&self, name: &str, size_bytes: u64) -> Result<Arc<dyn StableFile>, StorageError>;

    /// Opens a file for reading and writing.
    fn open(&self, name: &str) -> Result<Arc<dyn StableFile>, StorageError>;

    /// Opens the subfolder of this name. Creates it durably if it does not exist.
    fn folder(&self, name: &str) -> Result<Arc<dyn Folder>, StorageError>;

    /// Lists all files, by name, without subfolders.
    fn list(&self) -> Result<Vec<FileInfo>, StorageError>;

    /// Renames a file atomically: every lookup finds the old or the new name, also after a power
    /// loss. Replaces an existing file of the new name. Does not make unsynced contents durable.
    fn rename(&self, from: &str, to: &str) -> Result<(), StorageError>;

    /// Renames a file as [`Folder::rename`] does. Fails with `AlreadyExists` if a file of the new
    /// name exists. Of concurrent calls with one new name, at most one succeeds.
    fn publish(&self, from: &str, to: &str) -> Result<(), StorageError>;

    /// Removes a name. The file's space is freed when no handle of it is open any more.
    fn remove(&self, name: &str) -> Result<(), StorageError>;

    /// Makes all previous creations, renamings and removals durable.
    fn sync_names(&self) -> Result<(), StorageError>;

    /// Number of bytes available for new files.
    fn free_bytes(&self) -> Result<u64, StorageError>;
}

/// An open file.
///
/// - **Order.** Unsynced writes may reach the disk in any order, partially, or not at all. A write
///   may be torn between sectors of 512 bytes. Reads see every write that has returned.
/// - **Failure.** After a failed write the contents of its range are undefined. After a failed
///   [`StableFile::sync`] or [`StableFile::write_durably`], all writes since the last successful
///   one may be lost even if reads still return them, and even if a later sync succeeds. The caller
///   must write the data again, to another place.
/// - **Threads.** Calls may run concurrently. Overlapping writes take effect in any order.
/// - **Blocking.** Every call except `size_bytes` may wait for the disk.
pub trait StableFile: Debug + Send + Sync {
    /// Size of the file according to this handle.
    fn size_bytes(&self) -> u64;

    /// Fills `into` from `offset` on. Fastest if address, offset and length are multiples of 4096,
    /// which is not required. Fails with `Invalid` if the range ends beyond the end of the file.
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), StorageError>;

    /// Writes the parts, one after another, from `offset` on, which must not be beyond the end of
    /// the file. The file grows as needed. Offset and total length must be multiples of 4096, or
    /// the call fails with `Invalid`. Parts whose address and length are also multiples of 4096 are
    /// not copied.
    fn write(&self, offset: u64, parts: &[IoSlice<'_>]) -> Result<(), StorageError>;

    /// Writes as [`StableFile::write`] does. The data is on stable storage when this returns.
    /// Earlier writes are not affected.
    fn write_durably(&self, offset: u64, parts: &[IoSlice<'_>]) -> Result<(), StorageError>;

    /// Makes every write that has returned, and the file's size, durable.
    fn sync(&self) -> Result<(), StorageError>;
}
