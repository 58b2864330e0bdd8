//! Implementation of [`BlockDevice`] for volumes.

use std::io::IoSlice;

use block_device::{
    Action, BlockDevice, ByteRange, ChangeExtent, DeviceError, DeviceErrorKind, Extent, Geometry,
    SnapshotId, SnapshotInfo, WriteCache, Zeroes,
};

use crate::device::volume::{Volume, own_name};
use crate::device::{discard, read, write};
use crate::map::table::Kind;

impl BlockDevice for Volume {
    fn geometry(&self) -> Geometry {
        Geometry { size_bytes: self.map.size_bytes(), sector: self.map.sector }
    }

    fn read(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        read::read(self, offset_bytes, into)
    }

    fn read_in_place(
        &self,
        range: ByteRange,
        scratch: &mut [u8],
        visit: &mut dyn FnMut(&[IoSlice<'_>]),
    ) -> Result<(), DeviceError> {
        read::read_in_place(self, range, scratch, visit)
    }

    fn write(&self, offset_bytes: u64, from: &[u8]) -> Result<(), DeviceError> {
        write::write(self, offset_bytes, from)
    }

    fn write_zeroes(&self, range: ByteRange, zeroes: Zeroes) -> Result<(), DeviceError> {
        discard::write_zeroes(self, range, zeroes)
    }

    fn discard(&self, range: ByteRange) -> Result<(), DeviceError> {
        discard::discard(self, Action::Discard, range)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        let range = ByteRange::new(0, 0);
        self.admit(&self.map.pool.store.pin(), Action::Flush, range)?;
        if !self.map.is_journaled() {
            // Acknowledged writes are in the region already, and the class guarantees no more.
            return Ok(());
        }
        self.hooks.flush(&self.map).map_err(|source| DeviceError {
            source: Some(source),
            ..DeviceError::new(DeviceErrorKind::NotDurable, Action::Flush, range)
        })
    }

    fn write_back(&self) {
        if self.map.is_journaled() {
            self.hooks.write_back(&self.map);
        }
    }

    fn write_cache(&self) -> WriteCache {
        match self.map.is_journaled() {
            false => WriteCache::Absent,
            true => WriteCache::Volatile,
        }
    }

    fn data_may_be_away(&self) -> bool {
        self.map.absent_blocks() > 0
    }

    fn is_read_only(&self) -> bool {
        self.map.kind != Kind::Volume
    }

    fn extents(&self, range: ByteRange, count_max: usize) -> Result<Vec<Extent>, DeviceError> {
        read::list_extents(self, range, count_max)
    }

    fn snapshots(&self) -> Vec<SnapshotInfo> {
        let earlier = self.earlier_states().into_iter();
        earlier.map(|one| SnapshotInfo { id: SnapshotId(one.id()), name: own_name(&one) }).collect()
    }

    fn changed_extents(
        &self,
        since: SnapshotId,
        range: ByteRange,
        count_max: usize,
    ) -> Result<Vec<ChangeExtent>, DeviceError> {
        let snapshots = self.earlier_states();
        let snapshot = snapshots.iter().find(|snapshot| snapshot.id() == since.0);
        let snapshot = snapshot.ok_or_else(|| {
            DeviceError::new(DeviceErrorKind::NoSnapshot, Action::ListChanges, range)
        })?;
        self.list_changes(snapshot, range, count_max)
    }
}
