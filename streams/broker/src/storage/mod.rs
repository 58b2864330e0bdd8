//! Where the volumes of topics come from: a pool of the broker's own, or a daemon's.

mod daemon;
mod embedded;
mod in_use;
mod resting;
mod ring_volume;
#[cfg(test)]
mod unreliable;

use std::fmt;
use std::sync::Arc;

use block_device::BlockDevice;
use volumes::{Durability, Reduction};

pub(crate) use daemon::Daemon;
pub(crate) use embedded::{Embedded, EmbeddedPool};
#[cfg(test)]
pub(crate) use unreliable::{Failing, LostAnswers, Unreliable};

/// Each topic's volume has all the addresses that a volume can have.
const VOLUME_BYTES: u64 = 64 << 40;

/// The volumes of what the broker knows of groups and transactions, and of what SQL made. No
/// topic's volume has a name like these.
pub(crate) const STATE_VOLUMES: [&str; 2] = ["broker-state", "broker-definitions"];

/// Class of a volume, as the topic's owner asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VolumeClass {
    pub(crate) durability: Durability,
    pub(crate) reduction: Reduction,
}

impl VolumeClass {
    /// Value of a setting of topics that says how their volumes are kept.
    pub(crate) fn value(self, setting: &str) -> Option<&'static str> {
        match setting {
            "memlane.durability" => Some(self.durability.name()),
            "memlane.reduction" => Some(self.reduction.name()),
            _ => None,
        }
    }
}

/// A volume that is there.
#[derive(Clone, Debug)]
pub(crate) struct StoredVolume {
    pub(crate) name: String,
    pub(crate) class: VolumeClass,
}

/// The class of a refusal, as far as clients can act on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StorageErrorKind {
    Exists,
    Missing,
    NoSpace,
    /// There are as many volumes as there can be, or as many durable ones.
    TooMany,
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
    fn volumes(&self) -> Result<Vec<StoredVolume>, StorageError>;
    fn create(&self, name: &str, class: VolumeClass) -> Result<Arc<dyn BlockDevice>, StorageError>;
    fn open(&self, name: &str) -> Result<Arc<dyn BlockDevice>, StorageError>;

    /// The same of a volume that may not be the broker's, to look at it.
    fn peek(&self, name: &str) -> Result<Arc<dyn BlockDevice>, StorageError> {
        self.open(name)
    }

    /// Gives a volume another name, which no volume has. Those who have it open keep it.
    fn rename(&self, name: &str, new_name: &str) -> Result<(), StorageError>;
    fn set_class(&self, name: &str, class: VolumeClass) -> Result<(), StorageError>;
    fn delete(&self, name: &str) -> Result<(), StorageError>;

    /// Asks whether volumes can be reached now, and all that are open are there.
    fn reach(&self) -> Result<(), StorageError>;
}
