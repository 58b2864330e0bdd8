//! What can go wrong with a volume as a whole.

use std::error::Error;
use std::fmt;

use block_device::{DeviceError, DeviceErrorKind};
use page_store::{ClaimRefused, LinkError};

/// The class of a refused or failed operation on a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeErrorKind {
    InvalidName,
    /// Not a multiple of 4096, zero, or over 64 TiB.
    InvalidSize,
    AlreadyExists,
    NotFound,
    /// The pool holds as many volumes as its table has room for.
    TooManyVolumes,
    /// A shrink would drop blocks that hold data.
    DataBehindNewEnd,
    /// It is a snapshot, which never changes.
    IsSnapshot,
    /// It has snapshots, which would belong to no volume without it.
    HasSnapshots,
    /// There is no memory for its map.
    NoSpace,
    /// Its map is damaged.
    Damaged,
}

impl fmt::Display for VolumeErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InvalidName => {
                "a name has 1 to 63 of a-z A-Z 0-9 . _ - and begins with a letter or a digit"
            }
            Self::InvalidSize => "a size is a multiple of 4 KiB, from 4 KiB to 64 TiB",
            Self::AlreadyExists => "a volume or snapshot of that name exists",
            Self::NotFound => "there is no volume or snapshot of that name",
            Self::TooManyVolumes => "the pool's volume table is full",
            Self::DataBehindNewEnd => {
                "blocks past the new end hold data; force the resize to drop them"
            }
            Self::IsSnapshot => "a snapshot never changes; clone it to write to a copy",
            Self::HasSnapshots => "it has snapshots; delete them first",
            Self::NoSpace => "the pool has no free memory left",
            Self::Damaged => "its map in memory is damaged; restore it from an image",
        })
    }
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

    /// A claim that is refused, with the figures.
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

/// What a request is told whose page or path in the map cannot be made.
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
