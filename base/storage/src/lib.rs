//! Files whose writes are on stable storage when they say so: the ground under journal and images.
//!
//! [`Folder`] and [`StableFile`] say what a disk promises and what it does not; code above relies
//! on nothing else, so that tests can put a simulated disk in its place and cut its power.
//! [`LinuxFolder`] keeps the promise on a directory: direct I/O where the file system takes it,
//! one system call for a durable write, names made durable with their files.
//!
//! [`FileLock`] keeps other processes away.
//!
//! It knows nothing of what the files hold, retries no write, and starts no thread.
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
