//! The volumes that devices show, as their owner provides them.

use std::sync::Arc;

use block_device::BlockDevice;

/// Id of a volume for the owner of this export. It is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VolumeId(pub u64);

/// Lookup of the volumes of devices that an earlier process left.
pub trait Volumes: Send + Sync {
    fn by_id(&self, id: VolumeId) -> Option<Arc<dyn BlockDevice>>;
}
