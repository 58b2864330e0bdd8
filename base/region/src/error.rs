//! Errors of opening a region.

use std::io;
use std::path::PathBuf;

use units::Size;

/// Kind of a region's error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegionErrorKind {
    /// Another process has the region open.
    #[error("another process uses it; stop that process, or use another pool")]
    Busy,
    /// The file's size differs from the requested one.
    #[error(
        "its size is {}, not {} as requested; use that size, or delete the file, which loses its \
         data",
        Size(*found_bytes),
        Size(*asked_bytes)
    )]
    SizeDiffers { found_bytes: u64, asked_bytes: u64 },
    /// The file's size is not valid for a region.
    #[error(
        "its size of {} is not valid for a pool: it is another file, or was truncated; use \
         another file",
        Size(*found_bytes)
    )]
    NotARegion { found_bytes: u64 },
    /// Users other than this process's user can read or change the file.
    #[error(
        "it belongs to user {owner} and has mode {mode:o}; it must belong to this process's user \
         and have mode 600: if nobody else has changed it, use chown and chmod 600"
    )]
    NotPrivate { owner: u32, mode: u32 },
    #[error("invalid size {}; use a multiple of 2 MiB, at least 4 MiB", Size(*asked_bytes))]
    InvalidSize { asked_bytes: u64 },
    /// The host or the file system has too little memory.
    #[error(
        "not enough memory: {} are needed and {} are available; use a smaller size, or free memory",
        Size(*wanted_bytes),
        Size(*available_bytes)
    )]
    NotEnoughMemory { wanted_bytes: u64, available_bytes: u64 },
    /// A control group of the process has too little memory left.
    #[error(
        "not enough memory: {} are needed, and the control group has {} left of its limit of {}; \
         use a smaller size, or raise the limit (MemoryMax= of a service)",
        Size(*wanted_bytes),
        Size(*available_bytes),
        Size(*limit_bytes)
    )]
    GroupLimit { wanted_bytes: u64, available_bytes: u64, limit_bytes: u64 },
    /// A system call failed; see the source.
    #[error("{call} failed")]
    System { call: &'static str },
}

/// Error of opening a region.
#[derive(Debug, thiserror::Error)]
#[error("cannot open the pool {}: {kind}", path.display())]
pub struct RegionError {
    pub kind: RegionErrorKind,
    pub path: PathBuf,
    #[source]
    pub source: Option<io::Error>,
}
