//! Errors of a pool.

use region::RegionError;
use units::Size;

/// Error of an allocation: no slot is left for the purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the pool has no free memory left")]
pub struct NoSpace;

/// Error of linking a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    #[error(transparent)]
    NoSpace(#[from] NoSpace),
    /// The parent refers to something that is not a node.
    #[error("a node of the map is damaged")]
    Damaged,
}

/// Error of adding root words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddTableError {
    #[error(transparent)]
    NoSpace(#[from] NoSpace),
    /// The pool has the maximum number of table slabs.
    #[error("the pool has all table slabs that it can have")]
    TooMany,
}

/// Reason for which a region cannot be opened as a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenErrorKind {
    /// The first bytes belong to another program.
    #[error("the file holds something else; name another file")]
    Foreign,
    #[error("a newer release wrote it; start that release")]
    Newer,
    /// An earlier release, or one with another build configuration, wrote it.
    #[error(
        "another release wrote it in a layout that this one does not read; start that release, or \
         delete the file to lose its data"
    )]
    OtherLayout,
    /// It is a pool, but neither copy of its superblock is intact.
    #[error("both copies of its superblock are damaged; delete the file to start anew")]
    Damaged,
    /// The file's size differs from the pool's capacity.
    #[error("its file was cut or extended; restore the file's size")]
    SizeDiffers,
    #[error("so small a size has no room for it; ask for more")]
    TooSmall,
    /// The source gives the reason.
    #[error("its memory cannot be taken")]
    Memory,
    /// The source gives the reason.
    #[error("its file cannot be read")]
    Unreadable,
}

/// Error of a region that cannot be opened as a pool. The region is unchanged.
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

/// Reason for which a pool cannot be resized.
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
    /// The memory cannot be taken or freed. The source gives the reason.
    #[error("its memory cannot be changed")]
    Memory,
    #[error("it was called off")]
    Cancelled,
}

/// Error of a failed resize, after which the pool keeps its size.
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
