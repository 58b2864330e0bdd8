//! Where the volumes of topics come from: a pool of the broker's own, or a daemon's.

mod daemon;
mod embedded;
mod ring_volume;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use block_device::BlockDevice;

pub(crate) use daemon::Daemon;
pub(crate) use embedded::{Embedded, EmbeddedPool};

/// Each topic's volume has all the addresses that a volume can have.
const VOLUME_BYTES: u64 = 64 << 40;

/// How a volume keeps what is written, as the topic's owner asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VolumeClass {
    pub(crate) durability: Durability,
    pub(crate) reduction: Reduction,
}

/// What a flush promises; the names are those of volumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Durability {
    #[default]
    Ram,
    Image,
    Journal,
}

impl Durability {
    const ALL: [Self; 3] = [Self::Ram, Self::Image, Self::Journal];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ram => "ram",
            Self::Image => "image",
            Self::Journal => "journal",
        }
    }
}

/// How contents are made smaller; the names are those of volumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Reduction {
    Full,
    Compress,
    Dedup,
    /// Producers compress batches where that is worth it, and batches seldom repeat at the
    /// boundaries of blocks: more would cost processor time and bring little.
    #[default]
    None,
}

impl Reduction {
    const ALL: [Self; 4] = [Self::Full, Self::Compress, Self::Dedup, Self::None];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Compress => "compress",
            Self::Dedup => "dedup",
            Self::None => "none",
        }
    }
}

impl FromStr for Durability {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|it| it.name() == name);
        found.ok_or_else(|| "it is ram, image or journal".to_owned())
    }
}

impl FromStr for Reduction {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|it| it.name() == name);
        found.ok_or_else(|| "it is full, compress, dedup or none".to_owned())
    }
}

/// The class of a refusal, as far as clients can act on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StorageErrorKind {
    Exists,
    Missing,
    NoSpace,
    /// What was asked for cannot be had here, such as class `journal` without a journal.
    Unsupported,
    Failed,
}

/// A refused or failed request; the text says what was attempted on which volume, and why not.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub(crate) struct StorageError {
    pub(crate) kind: StorageErrorKind,
    pub(crate) what: String,
}

impl StorageError {
    pub(crate) fn new(kind: StorageErrorKind, what: impl fmt::Display) -> Self {
        Self { kind, what: what.to_string() }
    }
}

/// A set of volumes by name. Calls may wait, and are for threads that may.
pub(crate) trait Storage: Send + Sync {
    fn names(&self) -> Result<Vec<String>, StorageError>;
    fn create(&self, name: &str, class: VolumeClass) -> Result<Arc<dyn BlockDevice>, StorageError>;
    fn open(&self, name: &str) -> Result<Arc<dyn BlockDevice>, StorageError>;
    /// Gives a volume another name, which no volume has. Those who have it open keep it.
    fn rename(&self, name: &str, new_name: &str) -> Result<(), StorageError>;
    fn set_class(&self, name: &str, class: VolumeClass) -> Result<(), StorageError>;
    fn delete(&self, name: &str) -> Result<(), StorageError>;

    /// Asks whether volumes can be reached now.
    fn reach(&self) -> Result<(), StorageError>;
}
