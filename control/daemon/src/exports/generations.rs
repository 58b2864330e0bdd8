//! Read-only volumes of a standby, as of one image.

use std::io::IoSlice;
use std::sync::Arc;

use block_device::{
    BlockDevice, ByteRange, ChangeExtent, DeviceError, Extent, Geometry, ReadOnly, SnapshotId,
    SnapshotInfo, WriteCache, Zeroes,
};
use standby::{Follower, Generation};

/// A volume, with a reference to the generation that keeps its contents.
pub(super) struct GenerationDevice {
    device: ReadOnly,
    _generation: Arc<Generation>,
}

impl GenerationDevice {
    /// Device of the volume in the last complete image.
    pub(super) fn of(follower: &Follower, name: &str) -> Option<Self> {
        let generation = follower.generation()?;
        let volume: Arc<dyn BlockDevice> = Arc::clone(generation.volume(name)?) as _;
        Some(Self { device: ReadOnly(volume), _generation: generation })
    }
}

impl BlockDevice for GenerationDevice {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    fn read(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        self.device.read(offset_bytes, into)
    }

    fn read_in_place(
        &self,
        range: ByteRange,
        scratch: &mut [u8],
        visit: &mut dyn FnMut(&[IoSlice<'_>]),
    ) -> Result<(), DeviceError> {
        self.device.read_in_place(range, scratch, visit)
    }

    fn write(&self, offset_bytes: u64, from: &[u8]) -> Result<(), DeviceError> {
        self.device.write(offset_bytes, from)
    }

    fn write_zeroes(&self, range: ByteRange, zeroes: Zeroes) -> Result<(), DeviceError> {
        self.device.write_zeroes(range, zeroes)
    }

    fn discard(&self, range: ByteRange) -> Result<(), DeviceError> {
        self.device.discard(range)
    }

    /// There are no writes to flush.
    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn write_cache(&self) -> WriteCache {
        self.device.write_cache()
    }

    fn data_may_be_away(&self) -> bool {
        self.device.data_may_be_away()
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn extents(&self, range: ByteRange, count_max: usize) -> Result<Vec<Extent>, DeviceError> {
        self.device.extents(range, count_max)
    }

    fn snapshots(&self) -> Vec<SnapshotInfo> {
        self.device.snapshots()
    }

    fn changed_extents(
        &self,
        since: SnapshotId,
        range: ByteRange,
        count_max: usize,
    ) -> Result<Vec<ChangeExtent>, DeviceError> {
        self.device.changed_extents(since, range, count_max)
    }
}
