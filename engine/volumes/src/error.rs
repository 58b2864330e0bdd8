//! Errors of a volume as a whole.

use std::error::Error;

use block_device::{DeviceError, DeviceErrorKind};
use page_store::{AddTableError, ClaimRefused, LinkError};

/// Maximum number of volumes and snapshots of a pool, with all table slabs.
pub(crate) const PLACE_COUNT: usize = 17_407;

/// Limit on volumes of class `image` or `journal` and their snapshots. A transaction that changes
/// the list of these volumes names all of them, and must fit into the shortest journal segment
/// beside contents.
pub const DURABLE_COUNT_MAX: usize = 2048;

/// Kind of a rejected or failed operation on a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VolumeErrorKind {
    #[error("invalid name; use 1 to 63 of a-z A-Z 0-9 . _ -, starting with a letter or a digit")]
    InvalidName,
    /// The size is zero, not a multiple of 4096, or over 64 TiB.
    #[error("invalid size; use a multiple of 4 KiB, from 4 KiB to 64 TiB")]
    InvalidSize,
    #[error("a volume or snapshot of that name already exists")]
    AlreadyExists,
    #[error("no volume or snapshot of that name")]
    NotFound,
    /// All records of the pool's volume table are in use.
    #[error("too many volumes and snapshots; the limit of a pool is {PLACE_COUNT}; delete one")]
    TooManyVolumes,
    /// A transaction of the journal has no room for more names.
    #[error(
        "too many volumes and snapshots of class image or journal; the limit of a pool is \
         {DURABLE_COUNT_MAX}; delete one, or use class ram"
    )]
    TooManyDurable,
    /// A shrink would drop blocks that hold data.
    #[error("blocks past the new end contain data; force the resize (--force) to discard them")]
    DataPastNewEnd,
    /// The target is a snapshot; snapshots are read-only.
    #[error("a snapshot is read-only; to change its contents, clone it")]
    IsSnapshot,
    /// The volume has snapshots, which cannot exist without it.
    #[error("it has snapshots, which must be deleted first")]
    HasSnapshots,
    /// There is no memory for its map.
    #[error("the pool has too little free memory")]
    NoSpace,
    /// Its map is damaged.
    #[error("its map in memory is damaged; restore it from an image")]
    Damaged,
}

/// Error of a rejected or failed operation on a volume.
#[derive(Debug, thiserror::Error)]
#[error("volume {name:?}: {kind}")]
pub struct VolumeError {
    pub kind: VolumeErrorKind,
    pub name: String,
    #[source]
    pub source: Option<Box<dyn Error + Send + Sync>>,
}

impl VolumeError {
    pub fn new(kind: VolumeErrorKind, name: impl Into<String>) -> Self {
        Self { kind, name: name.into(), source: None }
    }

    /// Creates the error of a volume table that is full and cannot grow.
    pub(crate) fn of_table(name: impl Into<String>, error: AddTableError) -> Self {
        let kind = match error {
            AddTableError::NoSpace(_) => VolumeErrorKind::NoSpace,
            AddTableError::TooMany => VolumeErrorKind::TooManyVolumes,
        };
        Self::new(kind, name)
    }

    /// Creates the error of a claim that does not fit the pool, with the figures.
    pub(crate) fn of_claim(name: impl Into<String>, refused: ClaimRefused) -> Self {
        Self { source: Some(refused.into()), ..Self::new(VolumeErrorKind::NoSpace, name) }
    }

    /// Creates the error of an internal request that failed.
    pub(crate) fn of_request(name: impl Into<String>, error: DeviceError) -> Self {
        let kind = match error.kind {
            DeviceErrorKind::NoSpace => VolumeErrorKind::NoSpace,
            _ => VolumeErrorKind::Damaged,
        };
        Self { source: Some(error.into()), ..Self::new(kind, name) }
    }
}

/// Maps a failure to allocate a page or a map node to the error of the request.
pub(crate) fn refusal(error: LinkError) -> DeviceErrorKind {
    match error {
        LinkError::NoSpace(_) => DeviceErrorKind::NoSpace,
        LinkError::Damaged => DeviceErrorKind::Corrupt,
    }
}

/// Lists the snapshots that prevent the deletion of a volume.
#[derive(Debug, thiserror::Error)]
#[error("{}", list(names))]
pub(crate) struct SnapshotsLeft {
    pub(crate) names: Vec<String>,
}

/// Maximum number of names in a message.
const LISTED_MAX: usize = 8;

fn list(names: &[String]) -> String {
    let listed = names[..names.len().min(LISTED_MAX)].join(", ");
    match names.len().checked_sub(LISTED_MAX) {
        None | Some(0) => listed,
        Some(more) => format!("{listed} and {more} more"),
    }
}
