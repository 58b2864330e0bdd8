//! The interface between exports and volumes.

use std::io::IoSlice;

use crate::error::{Action, DeviceError, DeviceErrorKind};
use crate::range::ByteRange;

/// The logical sector that a volume shows to its clients.
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
    /// A flush does nothing, because acknowledged writes are as durable as they will ever be;
    /// clients may be told so.
    Absent,
    Volatile,
}

/// Allocation of a range after [`BlockDevice::write_zeroes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zeroes {
    /// Holes: the blocks count as never written.
    Unmap,
    /// Written zeros: allocated blocks stay allocated (NBD's `NO_HOLE`), holes stay holes.
    KeepAllocated,
}

/// Kind of contents of a run of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentKind {
    /// Never written, or discarded. Reads as zeros.
    Hole,
    /// Written with zeros.
    Zero,
    Data,
}

/// A run of bytes of one kind.
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

/// Change of a run of bytes since a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// The same as in the snapshot.
    Unchanged,
    /// Written, zeroed or discarded since, perhaps with the former contents.
    Changed,
}

/// A run of bytes that has changed, or has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeExtent {
    pub range: ByteRange,
    pub kind: ChangeKind,
}

/// An array of bytes that any thread may read and write.
///
/// - **Ranges** may begin and end at any byte; whole blocks are fastest. A range that does not fit
///   the device is refused whole. Reads and writes move [`crate::IO_BYTES_MAX`] bytes at most.
/// - **Order.** Requests in flight together may take effect in any order. A block read during a
///   write of it is entirely old or entirely new; so is each block of a request that fails.
/// - **Flush.** Everything acknowledged before `flush` begins survives what the volume's
///   durability class promises, once `flush` returns `Ok`.
/// - **Blocking.** Calls may wait for memory, never for another caller's I/O. Only a flush may wait
///   for a disk, for as long as that takes, and reads and writes while the device says so.
pub trait BlockDevice: Send + Sync {
    fn geometry(&self) -> Geometry;

    /// Fills `into` with the bytes from `offset_bytes` on.
    fn read(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError>;

    /// Shows the bytes of `range` to `visit` as slices, in order, without copying what can be
    /// shown where it is stored. `scratch` holds what cannot and must be as long as the range,
    /// rounded out to whole blocks; ranges of up to 1 MiB are taken, for which there are 258 slices
    /// at most. `visit` is called once, unless the read fails. It must not call the device and must
    /// not wait: pages that others drop cannot be freed meanwhile.
    fn read_in_place(
        &self,
        range: ByteRange,
        scratch: &mut [u8],
        visit: &mut dyn FnMut(&[IoSlice<'_>]),
    ) -> Result<(), DeviceError>;

    /// Writes `from` at `offset_bytes`.
    fn write(&self, offset_bytes: u64, from: &[u8]) -> Result<(), DeviceError>;

    /// Makes `range` read as zeros. With [`Zeroes::Unmap`] whole blocks are discarded as by
    /// [`BlockDevice::discard`]; with [`Zeroes::KeepAllocated`] they may need memory as an
    /// overwrite does. Holes stay holes and need none.
    fn write_zeroes(&self, range: ByteRange, zeroes: Zeroes) -> Result<(), DeviceError>;

    /// Discards the whole blocks inside `range`: they read as zeros and their memory is freed.
    /// Blocks that the range covers partly are unchanged.
    ///
    /// Works on a full device. Only where copies share the device's contents it may need a little
    /// memory to tell them apart, for which some is kept that nothing else takes. When that is used
    /// up it fails with `NoSpace`, and the blocks of the range are each as they were or forgotten;
    /// deleting copies helps.
    fn discard(&self, range: ByteRange) -> Result<(), DeviceError>;

    /// Flushes: everything acknowledged so far becomes as durable as the volume's class guarantees.
    fn flush(&self) -> Result<(), DeviceError>;

    /// Writes back early what a flush would have to write, without its guarantee. For exports that
    /// expect a flush and have nothing else to do; may wait for a disk as a flush does. After a
    /// failure the next flush tries again and reports it.
    fn write_back(&self) {}

    /// Returns whether a flush guarantees more than the acknowledgement of a write. May change
    /// while the device is in use.
    fn write_cache(&self) -> WriteCache {
        WriteCache::Volatile
    }

    /// Returns whether reads, and writes of parts of blocks, may wait for contents that are not in
    /// memory. Called before each of them, so it must be quick.
    fn data_may_be_away(&self) -> bool {
        false
    }

    /// Returns whether the device refuses all writes for as long as it exists, as a snapshot does.
    /// A device that refuses writes for a while is not read-only in this sense; both fail with
    /// [`crate::DeviceErrorKind::ReadOnly`]. A flush is never refused for this reason.
    fn is_read_only(&self) -> bool {
        false
    }

    /// Lists the runs of one kind that cover `range`, in order; neighbours differ in kind. Returns
    /// at most `count_max` runs, so the last may end before the range does, and at least one unless
    /// the range is empty.
    fn extents(&self, range: ByteRange, count_max: usize) -> Result<Vec<Extent>, DeviceError>;

    /// Lists the snapshots that [`BlockDevice::changed_extents`] can compare with, oldest first, by
    /// their names without the volume's.
    fn snapshots(&self) -> Vec<SnapshotInfo> {
        Vec::new()
    }

    /// Lists what has changed in `range` since a snapshot, in runs like those of
    /// [`BlockDevice::extents`]. Bytes past the end of the snapshot count as changed. A snapshot
    /// that is not, or no longer, one of this device is refused with
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
