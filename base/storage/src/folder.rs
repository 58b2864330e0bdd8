//! Promises of a disk, as two traits.

use std::fmt::Debug;
use std::io::IoSlice;
use std::sync::Arc;

/// The unit of writes: offsets and lengths are multiples of it.
pub use units::BLOCK_BYTES;

use crate::error::StorageError;

/// A file in a folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileInfo {
    pub name: String,
    pub size_bytes: u64,
}

/// One directory of files, and of folders within.
///
/// - **Names.** Up to 200 bytes without `/`, not beginning with a dot; others are `Invalid`.
/// - **Durability.** After a loss of power a name that was created, renamed or removed since the
///   last [`Folder::sync_names`] may be as before or as after, each for itself, in any combination.
///   [`Folder::create`] and [`Folder::folder`] sync the name they make.
/// - **Blocking.** Every call may wait for the disk.
pub trait Folder: Debug + Send + Sync {
    /// Makes a file of `size_bytes` zeros, a multiple of 4096, and opens it. File and name are
    /// durable when this returns, and the zeros are written, so that overwriting them changes
    /// nothing but the data. After a loss of power in between, the file is there whole or not at
    /// all. Fails with `AlreadyExists` if there is one, and leaves that as it is.
    fn create(&self, name: &str, size_bytes: u64) -> Result<Arc<dyn StableFile>, StorageError>;

    /// Opens a file for reading and writing.
    fn open(&self, name: &str) -> Result<Arc<dyn StableFile>, StorageError>;

    /// The folder within of this name, made durably if there is none.
    fn folder(&self, name: &str) -> Result<Arc<dyn Folder>, StorageError>;

    /// All files, by name. Folders within are not among them.
    fn list(&self) -> Result<Vec<FileInfo>, StorageError>;

    /// Gives a file another name at once: every look finds the old or the new one, also the first
    /// after a loss of power. Replaces a file that had the new name. Contents that were not synced
    /// before are not made durable by it.
    fn rename(&self, from: &str, to: &str) -> Result<(), StorageError>;

    /// Removes a name; the file's room is free when no handle of it is open any more.
    fn remove(&self, name: &str) -> Result<(), StorageError>;

    /// Makes all creations, renamings and removals so far durable.
    fn sync_names(&self) -> Result<(), StorageError>;

    /// How many bytes new files may take.
    fn free_bytes(&self) -> Result<u64, StorageError>;
}

/// An open file.
///
/// - **Order.** What is not synced may reach the disk in any order, in part, or not at all; a write
///   may be torn between sectors of 512 bytes. Reads see every write that has returned.
/// - **Failure.** After a failed write its range holds anything. After a failed
///   [`StableFile::sync`] or [`StableFile::write_durably`] all that was written since the last
///   successful one may be lost even though reads still show it, and a later success does not
///   change that: a caller that needs it writes it again, to another place.
/// - **Threads.** Calls may run at the same time; overlapping writes take effect in any order.
/// - **Blocking.** Every call but `size_bytes` may wait for the disk.
pub trait StableFile: Debug + Send + Sync {
    /// The size as this handle knows it.
    fn size_bytes(&self) -> u64;

    /// Fills `into` from `offset`. Fast when address, offset and length are multiples of 4096, and
    /// right in any case. Fails with `Invalid` when the range ends past the end of the file.
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), StorageError>;

    /// Writes the parts one after the other from `offset`, which lies at most at the end of the
    /// file; the file grows as needed. Offset and total length are multiples of 4096, or it fails
    /// with `Invalid`. Parts whose address and length are multiples of 4096 too are written
    /// without being copied.
    fn write(&self, offset: u64, parts: &[IoSlice<'_>]) -> Result<(), StorageError>;

    /// Like [`StableFile::write`], and on stable storage when it returns. Says nothing about
    /// earlier writes.
    fn write_durably(&self, offset: u64, parts: &[IoSlice<'_>]) -> Result<(), StorageError>;

    /// Returns when every write that returned before is on stable storage, and the file's size.
    fn sync(&self) -> Result<(), StorageError>;
}
