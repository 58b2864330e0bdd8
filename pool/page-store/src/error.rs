//! Errors of a pool.

use region::RegionError;
use units::Size;

/// There is no slot left for the purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the pool has no free memory left")]
pub struct NoSpace;

/// Why a node cannot be linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    #[error(transparent)]
    NoSpace(#[from] NoSpace),
    /// The parent names something that is no node.
    #[error("a node of the map is damaged")]
    Damaged,
}

/// Why a pool gets no more root words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddTableError {
    #[error(transparent)]
    NoSpace(#[from] NoSpace),
    /// It has as many as it can have.
    #[error("the pool has all table slabs that it can have")]
    TooMany,
}

/// Why a region cannot be opened as a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenErrorKind {
    /// Its first bytes are another program's.
    #[error("the file holds something else; name another file")]
    Foreign,
    #[error("a newer release wrote it; start that release")]
    Newer,
    /// An earlier release, or one built otherwise, wrote it.
    #[error(
        "another release wrote it in a layout that this one does not read; start that release, or \
         delete the file to lose its data"
    )]
    OtherLayout,
    /// It is a pool, and neither copy of its superblock is whole.
    #[error("both copies of its superblock are damaged; delete the file to start anew")]
    Damaged,
    /// The pool was made for another capacity than its file has.
    #[error("its file was cut or extended; restore the file's size")]
    SizeDiffers,
    #[error("so small a size has no room for it; ask for more")]
    TooSmall,
    /// The source says why.
    #[error("its memory cannot be taken")]
    Memory,
    /// The source says why.
    #[error("its file cannot be read")]
    Unreadable,
}

/// A region that is no pool for us. Nothing in it was changed.
#[derive(Debug, thiserror::Error)]
#[error("cannot open the pool: {kind}")]
pub struct OpenError {
    pub kind: OpenErrorKind,
    #[source]
    pub source: Option<RegionError>,
}

impl OpenError {
    pub(crate) fn new(kind: OpenErrorKind) -> Self {
        Self { kind, source: None }
    }
}

/// Why a pool does not get the size that it was to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ResizeErrorKind {
    #[error("a size is a multiple of 2 MiB")]
    Misaligned,
    #[error("a pool does not work with so little")]
    TooSmall,
    #[error(
        "its file has room for {}; a pool that is made anew can have room for more",
        Size(*capacity_bytes)
    )]
    BeyondCapacity { capacity_bytes: u64 },
    #[error(
        "{} are in use or claimed; ask for more than that, or delete or discard data",
        Size(*in_use_bytes)
    )]
    InUse { in_use_bytes: u64 },
    /// A part of the volume table lies past the new end, and is never moved.
    #[error(
        "a part of the volume table lies further on; {} is the least that the pool can have",
        Size(*needed_bytes)
    )]
    Tables { needed_bytes: u64 },
    /// The memory cannot be taken or given back; the source says why.
    #[error("its memory cannot be changed")]
    Memory,
    #[error("it was called off")]
    Cancelled,
}

/// A pool that keeps its size, and why.
#[derive(Debug, thiserror::Error)]
#[error("cannot give the pool {}: {kind}", Size(*asked_bytes))]
pub struct ResizeError {
    pub kind: ResizeErrorKind,
    pub asked_bytes: u64,
    #[source]
    pub source: Option<RegionError>,
}

impl ResizeError {
    pub(crate) fn new(kind: ResizeErrorKind, asked_bytes: u64) -> Self {
        Self { kind, asked_bytes, source: None }
    }

    pub(crate) fn memory(source: RegionError, asked_bytes: u64) -> Self {
        Self { kind: ResizeErrorKind::Memory, asked_bytes, source: Some(source) }
    }
}
