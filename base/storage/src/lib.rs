//! Files with guaranteed durability, the basis of journal and images.
//!
//! [`Folder`] and [`StableFile`] define the guarantees of a disk. Code above relies only on them,
//! so tests can replace it by a simulated disk that loses power. [`LinuxFolder`] implements the
//! guarantees on a directory. It uses direct I/O if the file system supports it, and one system
//! call for a durable write.
//!
//! [`FileLock`] excludes other processes.
//!
//! The crate does not interpret file contents, does not retry writes, and starts no threads.
#![forbid(unsafe_code)]

mod aligned;
mod error;
mod file_lock;
mod file_name;
mod folder;
mod linux_file;
mod linux_folder;

pub use aligned::AlignedBuffer;
pub use error::{StorageAction, StorageError, StorageErrorKind};
pub use file_lock::FileLock;
pub use folder::{BLOCK_BYTES, FileInfo, Folder, StableFile};
pub use linux_folder::LinuxFolder;
