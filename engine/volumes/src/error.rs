//! Errors of a volume as a whole.

use std::error::Error;

use block_device::{DeviceError, DeviceErrorKind};
use page_store::{AddTableError, ClaimRefused, LinkError};

/// Volumes and snapshots that a pool has room for, with all table slabs.
pub(crate) const PLACE_COUNT: usize = 17_407;

/// Limit on volumes of class `image` or `journal` and their snapshots. A transaction that changes
/// the list of these volumes names all of them, and has to fit into the shortest journal segment
/// beside contents.
pub const DURABLE_COUNT_MAX: usize = 2048;

/// The class of a refused or failed operation on a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VolumeErrorKind {
    #[error("a name has 1 to 63 of a-z A-Z 0-9 . _ - and begins with a letter or a digit")]
    InvalidName,
    /// Not a multiple of 4096, zero, or over 64 TiB.
    #[error("a size is a multiple of 4 KiB, from 4 KiB to 64 TiB")]
    InvalidSize,
    #[error("a volume or snapshot of that name exists")]
    AlreadyExists,
    #[error("there is no volume or snapshot of that name")]
    NotFound,
    /// The pool holds as many volumes as its table has room for.
    #[error("all {PLACE_COUNT} places of the pool for volumes and snapshots are taken; delete one")]
    TooManyVolumes,
    /// A journal has no room for the names of more.
    #[error(
        "{DURABLE_COUNT_MAX} volumes and snapshots of class image or journal are as many as a pool \
         may have; delete one, or use class ram"
    )]
    TooManyDurable,
    /// A shrink would drop blocks that hold data.
    #[error("blocks past the new end hold data; force the resize (--force) to drop them")]
    DataPastNewEnd,
    /// The target is a snapshot; snapshots are read-only.
    #[error("a snapshot never changes; clone it to write to a copy")]
    IsSnapshot,
    /// The volume has snapshots, which cannot exist without it.
    #[error("it has snapshots; delete them first")]
    HasSnapshots,
    /// There is no memory for its map.
    #[error("the pool has too little free memory")]
    NoSpace,
    /// Its map is damaged.
    #[error("its map in memory is damaged; restore it from an image")]
    Damaged,
}

/// A refused or failed operation on a volume.
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

    /// Error of a volume table that is full and cannot grow.
    pub(crate) fn of_table(name: impl Into<String>, error: AddTableError) -> Self {
        let kind = match error {
            AddTableError::NoSpace(_) => VolumeErrorKind::NoSpace,
            AddTableError::TooMany => VolumeErrorKind::TooManyVolumes,
        };
        Self::new(kind, name)
    }

    /// Error of a claim that does not fit the pool, with the figures.
    pub(crate) fn of_claim(name: impl Into<String>, refused: ClaimRefused) -> Self {
        Self { source: Some(refused.into()), ..Self::new(VolumeErrorKind::NoSpace, name) }
    }

    /// A request of the administration's own that failed.
    pub(crate) fn of_request(name: impl Into<String>, error: DeviceError) -> Self {
        let kind = match error.kind {
            DeviceErrorKind::NoSpace => VolumeErrorKind::NoSpace,
            _ => VolumeErrorKind::Damaged,
        };
        Self { source: Some(error.into()), ..Self::new(kind, name) }
    }
}

/// Error of a request that cannot allocate a page or a node of the map.
pub(crate) fn refusal(error: LinkError) -> DeviceErrorKind {
    match error {
        LinkError::NoSpace(_) => DeviceErrorKind::NoSpace,
        LinkError::Damaged => DeviceErrorKind::Corrupt,
    }
}

/// The snapshots that keep a volume from being deleted.
#[derive(Debug, thiserror::Error)]
#[error("its snapshots are {}", list(names))]
pub(crate) struct SnapshotsLeft {
    pub(crate) names: Vec<String>,
}

/// Names that a message lists at most.
const LISTED_MAX: usize = 8;

fn list(names: &[String]) -> String {
    let listed = names[..names.len().min(LISTED_MAX)].join(", ");
    match names.len().checked_sub(LISTED_MAX) {
        None | Some(0) => listed,
        Some(more) => format!("{listed} and {more} more"),
    }
}
