//! The volumes that devices show, as their owner knows them.

use std::sync::Arc;

use block_device::BlockDevice;

/// The number by which the owner of this export knows a volume. It may never mean another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VolumeId(pub u64);

/// The volumes that devices of earlier processes show.
pub trait Volumes: Send + Sync {
    fn by_id(&self, id: VolumeId) -> Option<Arc<dyn BlockDevice>>;
}
