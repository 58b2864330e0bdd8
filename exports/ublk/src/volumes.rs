//! Interface to the volumes that this export serves.

use std::sync::Arc;

use block_device::BlockDevice;

/// Id of a volume, assigned by the owner of this export and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VolumeId(pub u64);

/// Lookup of the volumes of an earlier process's devices.
pub trait Volumes: Send + Sync {
    fn by_id(&self, id: VolumeId) -> Option<Arc<dyn BlockDevice>>;
}
