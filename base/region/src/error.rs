//! Why a region cannot be had.

use std::io;
use std::path::PathBuf;

/// The class of a region's error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegionErrorKind {
    /// Another process has it open.
    #[error("another process has it open; end that one, or name another pool")]
    Busy,
    /// The file has another size than asked for.
    #[error(
        "it has {found_bytes} bytes, not the {asked_bytes} asked for; ask for that size, or delete \
         the file to lose its data"
    )]
    SizeDiffers { found_bytes: u64, asked_bytes: u64 },
    #[error("a size is a multiple of 2 MiB, and 4 MiB at least, not {asked_bytes} bytes")]
    InvalidSize { asked_bytes: u64 },
    /// The machine or the file system has too little memory.
    #[error(
        "{wanted_bytes} bytes are wanted and {available_bytes} can be had; make it smaller, or \
         free memory"
    )]
    NotEnoughMemory { wanted_bytes: u64, available_bytes: u64 },
    /// A system call failed; the source says how.
    #[error("{call} failed")]
    System { call: &'static str },
}

/// A region that cannot be had, and why.
#[derive(Debug, thiserror::Error)]
#[error("cannot open the region {}: {kind}", path.display())]
pub struct RegionError {
    pub kind: RegionErrorKind,
    pub path: PathBuf,
    #[source]
    pub source: Option<io::Error>,
}
