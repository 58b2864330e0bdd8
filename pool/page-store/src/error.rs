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
    #[error("the pool has reached its maximum number of table slabs")]
    TooMany,
}

/// Reason for which a region cannot be opened as a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenErrorKind {
    /// The first bytes belong to another program.
    #[error("the file is not a pool (wrong magic number); use another file")]
    Foreign,
    #[error("a newer release wrote it; use that release")]
    Newer,
    /// An earlier release, or one with another build configuration, wrote it.
    #[error(
        "another release wrote it in a layout that this one does not support; use that release, \
         or delete the file, which loses its data"
    )]
    OtherLayout,
    /// It is a pool, but neither copy of its superblock is intact.
    #[error("both copies of its superblock are corrupt; delete the file to create a new pool")]
    Damaged,
    /// The file's size differs from the pool's capacity.
    #[error("its file was truncated or extended; restore the file's size")]
    SizeDiffers,
    #[error("the size is too small for a pool; use {} or more", Size(*needed_bytes))]
    TooSmall { needed_bytes: u64 },
    /// The source gives the reason.
    #[error("cannot allocate its memory")]
    Memory,
    /// The source gives the reason.
    #[error("cannot read its file")]
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
    #[error("invalid size; use a multiple of 2 MiB")]
    Misaligned,
    #[error("the size is too small for a pool; use {} or more", Size(*needed_bytes))]
    TooSmall { needed_bytes: u64 },
    #[error(
        "the size exceeds its capacity of {}; a new pool can have a larger capacity",
        Size(*capacity_bytes)
    )]
    BeyondCapacity { capacity_bytes: u64 },
    #[error(
        "{} are in use or reserved; use a larger size, or delete or discard data",
        Size(*in_use_bytes)
    )]
    InUse { in_use_bytes: u64 },
    /// A part of the volume table lies past the new end, and is never moved.
    #[error(
        "a part of the volume table is past that size; the minimum is {}",
        Size(*needed_bytes)
    )]
    Tables { needed_bytes: u64 },
    /// The memory cannot be taken or freed. The source gives the reason.
    #[error("cannot allocate or free its memory")]
    Memory,
    #[error("it was cancelled")]
    Cancelled,
}

/// Error of a failed resize, after which the pool keeps its size.
#[derive(Debug, thiserror::Error)]
#[error("cannot resize the pool to {}: {kind}", Size(*asked_bytes))]
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
