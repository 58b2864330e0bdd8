//! Storage of topics' volumes: an embedded pool, or a daemon.

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
pub(crate) use unreliable::{Asked, Failing, LostAnswers, Unreliable};

/// Size of each topic's volume: the maximum address space.
const VOLUME_BYTES: u64 = 64 << 40;

/// Names of the volumes for the state of groups and transactions, and for SQL definitions. No
/// topic's volume has such a name.
pub(crate) const STATE_VOLUMES: [&str; 2] = ["broker-state", "broker-definitions"];

/// Fraction of the pool that the state of groups may have. Its log takes up to six times as much:
/// memory for three times the state is reserved in two segments.
const STATE_SHARE: u64 = 32;

/// Minimum of that, for small pools.
const STATE_BYTES_MIN: u64 = 512 << 10;

/// Class of a volume, as set by the topic's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VolumeClass {
    pub(crate) durability: Durability,
    pub(crate) reduction: Reduction,
}

impl VolumeClass {
    /// Returns the value of a topic setting that determines the class.
    pub(crate) fn value(self, setting: &str) -> Option<&'static str> {
        match setting {
            "memlane.durability" => Some(self.durability.name()),
            "memlane.reduction" => Some(self.reduction.name()),
            _ => None,
        }
    }
}

/// An existing volume.
#[derive(Clone, Debug)]
pub(crate) struct StoredVolume {
    pub(crate) name: String,
    pub(crate) class: VolumeClass,
}

/// Kind of a failed request, as far as clients can react to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StorageErrorKind {
    Exists,
    Missing,
    NoSpace,
    /// The maximum number of volumes, or of durable ones, is reached.
    TooMany,
    /// The storage does not support the request, such as class `journal` without a journal.
    Unsupported,
    Failed,
}

/// A rejected or failed request. The text contains the attempted operation, the volume and the
/// reason.
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

/// A volume that was opened for inspection, and may not belong to the broker.
pub(crate) struct Peeked {
    pub(crate) device: Arc<dyn BlockDevice>,
    /// Marks the volume as in use by the broker.
    note_use: Option<Box<dyn FnOnce() + Send>>,
}

impl Peeked {
    fn new(device: Arc<dyn BlockDevice>) -> Self {
        Self { device, note_use: None }
    }

    /// Keeps the volume open as one of the broker.
    pub(crate) fn keep(self) -> Arc<dyn BlockDevice> {
        self.note_use.into_iter().for_each(|note_use| note_use());
        self.device
    }
}

/// A set of volumes by name. Calls may block.
pub(crate) trait Storage: Send + Sync {
    fn volumes(&self) -> Result<Vec<StoredVolume>, StorageError>;
    fn create(&self, name: &str, class: VolumeClass) -> Result<Arc<dyn BlockDevice>, StorageError>;
    fn open(&self, name: &str) -> Result<Arc<dyn BlockDevice>, StorageError>;

    /// Opens a volume for inspection that may not belong to the broker.
    fn peek(&self, name: &str) -> Result<Peeked, StorageError> {
        self.open(name).map(Peeked::new)
    }

    /// Returns the class of one volume. The time does not depend on the number of volumes.
    fn class_of(&self, name: &str) -> Result<VolumeClass, StorageError>;

    /// Renames a volume. The new name must be unused. Open volumes remain open.
    fn rename(&self, name: &str, new_name: &str) -> Result<(), StorageError>;
    fn set_class(&self, name: &str, class: VolumeClass) -> Result<(), StorageError>;
    fn delete(&self, name: &str) -> Result<(), StorageError>;

    /// Returns the size of the pool.
    fn pool_bytes(&self) -> Result<u64, StorageError>;

    /// Checks that volumes are accessible now, and that all open ones exist.
    fn reach(&self) -> Result<(), StorageError>;
}

/// Returns the maximum size of the state of groups, so that it does not fill a small pool.
pub(crate) fn state_bytes_max(storage: &dyn Storage) -> Result<usize, StorageError> {
    let bytes = (storage.pool_bytes()? / STATE_SHARE).max(STATE_BYTES_MIN);
    Ok(usize::try_from(bytes).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_groups_may_have_a_share_of_the_pool() {
        for (pool_bytes, expected) in [(8 << 20, 512 << 10), (64 << 20, 2 << 20)] {
            let folder = tempfile::tempdir_in("/dev/shm").expect("it is made");
            let file = Some(folder.path().join("pool"));
            let pool = Embedded::open(&EmbeddedPool { size_bytes: pool_bytes, file });
            let most = state_bytes_max(&pool.expect("it opens")).expect("it is part of this");
            assert_eq!(most, expected, "of {pool_bytes}");
        }
    }
}
