//! Interface between exports and volumes.

use std::io::IoSlice;

use crate::error::{Action, DeviceError, DeviceErrorKind};
use crate::range::ByteRange;

/// Logical sector size of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SectorSize {
    Bytes512,
    Bytes4096,
}

impl SectorSize {
    pub const fn bytes(self) -> u32 {
        match self {
            Self::Bytes512 => 512,
            Self::Bytes4096 => 4096,
        }
    }
}

/// Geometry of a device at one moment; `size_bytes` changes when the volume is resized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// A multiple of the sector size.
    pub size_bytes: u64,
    pub sector: SectorSize,
}

/// Volatile write cache of a device: acknowledged writes that only a flush makes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteCache {
    /// A flush has no effect, because acknowledged writes are as durable as they will ever be.
    /// Clients may be told so.
    Absent,
    Volatile,
}

/// Allocation of a range after [`BlockDevice::write_zeroes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zeroes {
    /// Deallocate: the blocks become holes, as if never written.
    Unmap,
    /// Write zeros: allocated blocks stay allocated (NBD's `NO_HOLE`), and holes stay holes.
    KeepAllocated,
}

/// Kind of the contents of a byte range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentKind {
    /// Never written, or discarded. Reads as zeros.
    Hole,
    /// Written with zeros.
    Zero,
    Data,
}

/// A byte range of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub range: ByteRange,
    pub kind: ExtentKind,
}

/// Id of a snapshot of a device; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SnapshotId(pub u64);

/// A snapshot of a device, with the name that its owner gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotInfo {
    pub id: SnapshotId,
    pub name: String,
}

/// Change of a byte range since a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// Identical to the snapshot.
    Unchanged,
    /// Written, zeroed or discarded since the snapshot, possibly with identical contents.
    Changed,
}

/// A byte range that is either changed or unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeExtent {
    pub range: ByteRange,
    pub kind: ChangeKind,
}

/// A thread-safe array of bytes.
///
/// - **Ranges** may start and end at any byte; whole blocks are fastest. A range beyond the end of
///   the device is refused as a whole. Reads and writes transfer at most [`crate::IO_BYTES_MAX`]
///   bytes.
/// - **Order.** Concurrent requests may take effect in any order. Each block is written atomically:
///   a concurrent read returns the old or the new contents, and so does a read after a failed
///   write.
/// - **Flush.** When `flush` returns `Ok`, all writes acknowledged before its call are as durable
///   as the volume's class guarantees.
/// - **Blocking.** Calls may wait for memory, but never for another caller's I/O. Only a flush may
///   wait for a disk, without a time limit, and reads and writes while
///   [`BlockDevice::data_may_be_away`] returns true.
pub trait BlockDevice: Send + Sync {
    fn geometry(&self) -> Geometry;

    /// Fills `into` with the bytes from `offset_bytes` on.
    fn read(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError>;

    /// Passes the bytes of `range` to `visit` as slices, in order, without copying data that can be
    /// accessed where it is stored. Other data is decoded into `scratch`, which must be as long as
    /// the range, rounded out to whole blocks. The range may have up to 1 MiB, which results in at
    /// most 258 slices. `visit` is called once, unless the read fails. It must not call the device
    /// and must not block, because dropped pages cannot be freed meanwhile.
    fn read_in_place(
        &self,
        range: ByteRange,
        scratch: &mut [u8],
        visit: &mut dyn FnMut(&[IoSlice<'_>]),
    ) -> Result<(), DeviceError>;

    /// Writes `from` at `offset_bytes`.
    fn write(&self, offset_bytes: u64, from: &[u8]) -> Result<(), DeviceError>;

    /// Makes `range` read as zeros. With [`Zeroes::Unmap`] whole blocks are discarded as by
    /// [`BlockDevice::discard`]. With [`Zeroes::KeepAllocated`] they may need memory as an
    /// overwrite does. Holes stay holes and need none.
    fn write_zeroes(&self, range: ByteRange, zeroes: Zeroes) -> Result<(), DeviceError>;

    /// Discards the whole blocks inside `range`: they read as zeros and their memory is freed.
    /// Blocks that the range covers partly are unchanged.
    ///
    /// Works on a full device. If snapshots or clones share the device's contents, it may need a
    /// little memory to copy map nodes, for which a reserve exists. When the reserve is used up, it
    /// fails with `NoSpace`. Each block of the range is then either unchanged or discarded.
    /// Deleting copies helps.
    fn discard(&self, range: ByteRange) -> Result<(), DeviceError>;

    /// Flushes: everything acknowledged so far becomes as durable as the volume's class guarantees.
    fn flush(&self) -> Result<(), DeviceError>;

    /// Starts writeback of the data that a flush would have to write, without its guarantee.
    /// Intended for exports that expect a flush and are otherwise idle. It may wait for a disk as a
    /// flush does. After a failure the next flush tries again and reports the error.
    fn write_back(&self) {}

    /// Returns whether a flush guarantees more than the acknowledgement of a write. May change
    /// while the device is in use.
    fn write_cache(&self) -> WriteCache {
        WriteCache::Volatile
    }

    /// Returns whether reads, and writes of partial blocks, may wait for contents that are not in
    /// memory. Called before each of them, so it must be fast.
    fn data_may_be_away(&self) -> bool {
        false
    }

    /// Returns whether the device refuses all writes for its whole lifetime, as a snapshot does. A
    /// device that refuses writes temporarily is not read-only in this sense; in both cases writes
    /// fail with [`crate::DeviceErrorKind::ReadOnly`]. A flush is never refused for this reason.
    fn is_read_only(&self) -> bool {
        false
    }

    /// Lists extents of one kind that cover `range`, in order; adjacent ones differ in kind.
    /// Returns at most `count_max` extents, so the last may end before the range does, and at least
    /// one unless the range is empty.
    fn extents(&self, range: ByteRange, count_max: usize) -> Result<Vec<Extent>, DeviceError>;

    /// Lists the snapshots that [`BlockDevice::changed_extents`] can compare with, the oldest
    /// first, by their names without the volume's name.
    fn snapshots(&self) -> Vec<SnapshotInfo> {
        Vec::new()
    }

    /// Lists the changes in `range` since a snapshot, in extents like those of
    /// [`BlockDevice::extents`]. Bytes beyond the end of the snapshot count as changed. If the
    /// device does not have the snapshot, or no longer has it, fails with
    /// [`crate::DeviceErrorKind::NoSnapshot`].
    fn changed_extents(
        &self,
        _since: SnapshotId,
        range: ByteRange,
        _count_max: usize,
    ) -> Result<Vec<ChangeExtent>, DeviceError> {
        Err(DeviceError::new(DeviceErrorKind::NoSnapshot, Action::ListChanges, range))
    }
}
