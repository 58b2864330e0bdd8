//! Read-only view of a device.

use std::io::IoSlice;
use std::sync::Arc;

use crate::device::{
    BlockDevice, ChangeExtent, Extent, Geometry, SnapshotId, SnapshotInfo, WriteCache, Zeroes,
};
use crate::error::{Action, DeviceError, DeviceErrorKind};
use crate::range::ByteRange;

/// Read-only view of another device.
pub struct ReadOnly(pub Arc<dyn BlockDevice>);

fn refused(action: Action, range: ByteRange) -> Result<(), DeviceError> {
    Err(DeviceError::new(DeviceErrorKind::ReadOnly, action, range))
}

impl BlockDevice for ReadOnly {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn read(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        self.0.read(offset_bytes, into)
    }

    fn read_in_place(
        &self,
        range: ByteRange,
        scratch: &mut [u8],
        visit: &mut dyn FnMut(&[IoSlice<'_>]),
    ) -> Result<(), DeviceError> {
        self.0.read_in_place(range, scratch, visit)
    }

    fn write(&self, offset_bytes: u64, from: &[u8]) -> Result<(), DeviceError> {
        refused(Action::Write, ByteRange::new(offset_bytes, from.len() as u64))
    }

    fn write_zeroes(&self, range: ByteRange, _zeroes: Zeroes) -> Result<(), DeviceError> {
        refused(Action::WriteZeroes, range)
    }

    fn discard(&self, range: ByteRange) -> Result<(), DeviceError> {
        refused(Action::Discard, range)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.0.flush()
    }

    fn write_back(&self) {
        self.0.write_back();
    }

    fn write_cache(&self) -> WriteCache {
        self.0.write_cache()
    }

    fn data_may_be_away(&self) -> bool {
        self.0.data_may_be_away()
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn extents(&self, range: ByteRange, count_max: usize) -> Result<Vec<Extent>, DeviceError> {
        self.0.extents(range, count_max)
    }

    fn snapshots(&self) -> Vec<SnapshotInfo> {
        self.0.snapshots()
    }

    fn changed_extents(
        &self,
        since: SnapshotId,
        range: ByteRange,
        count_max: usize,
    ) -> Result<Vec<ChangeExtent>, DeviceError> {
        self.0.changed_extents(since, range, count_max)
    }
}
