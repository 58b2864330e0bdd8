//! The contract between exports and volumes.

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

/// The shape of a device at one moment; `size_bytes` changes when the volume is resized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// A multiple of the sector size.
    pub size_bytes: u64,
    pub sector: SectorSize,
}

/// Presence of a cache of acknowledged writes that a flush empties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteCache {
    /// Writes are as durable when they are acknowledged as they will ever be: a flush has nothing
    /// to do, and clients may be told so.
    Absent,
    Volatile,
}

/// State in which [`BlockDevice::write_zeroes`] leaves the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zeroes {
    /// A hole: the blocks count as never written.
    Unmap,
    /// Written zeros: blocks that were written stay allocated (NBD's `NO_HOLE`). Those that were
    /// not stay holes.
    KeepAllocated,
}

/// Contents of a run of bytes.
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

/// Names one snapshot of a device for good: never given to another snapshot later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SnapshotId(pub u64);

/// An earlier state of a device, by the name that its owner gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotInfo {
    pub id: SnapshotId,
    pub name: String,
}

/// Possible change of a run of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// The same as in the snapshot.
    Unchanged,
    /// Written, zeroed or discarded since, perhaps with what had been there.
    Changed,
}

/// A run of bytes that changed, or did not.
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

    /// Stores `from` at `offset_bytes`.
    fn write(&self, offset_bytes: u64, from: &[u8]) -> Result<(), DeviceError>;

    /// Makes `range` read as zeros. For whole blocks, unmapped ones as a discard, for which see
    /// there; kept ones may need memory as an overwrite does. Holes stay holes and need none.
    fn write_zeroes(&self, range: ByteRange, zeroes: Zeroes) -> Result<(), DeviceError>;

    /// Forgets the whole blocks inside `range`: they read as zeros and give their memory back.
    /// Bytes of blocks that the range cuts are left as they are.
    ///
    /// Works on a full device. Only where copies share the device's contents it may need a little
    /// memory to tell them apart, for which some is kept that nothing else takes. When that is used
    /// up it fails with `NoSpace`, and the blocks of the range are each as they were or forgotten;
    /// deleting copies helps.
    fn discard(&self, range: ByteRange) -> Result<(), DeviceError>;

    /// Makes everything acknowledged so far as durable as the volume's class promises.
    fn flush(&self) -> Result<(), DeviceError>;

    /// Does what a flush would have to do now, without its promise. For exports that expect a flush
    /// and have nothing else to do; it may wait for a disk as a flush does. What fails, the next
    /// flush tries again and tells of.
    fn write_back(&self) {}

    /// Whether a flush promises more than the acknowledgement of a write does. May change while
    /// the device is in use.
    fn write_cache(&self) -> WriteCache {
        WriteCache::Volatile
    }

    /// Whether reads, and writes of parts of blocks, may wait for contents that are not in memory.
    /// Asked before each of them, so it must be quick.
    fn data_may_be_away(&self) -> bool {
        false
    }

    /// Whether the device refuses every change for as long as it exists, as a snapshot does. One
    /// that refuses changes for a while is not read-only in this sense; both refuse with
    /// [`crate::DeviceErrorKind::ReadOnly`]. Flushing changes nothing, and is never refused so.
    fn is_read_only(&self) -> bool {
        false
    }

    /// The runs of one kind that cover `range`, in order, neighbours differing in kind; `count_max`
    /// at most, so the last may end before the range does. At least one unless the range is empty.
    fn extents(&self, range: ByteRange, count_max: usize) -> Result<Vec<Extent>, DeviceError>;

    /// The earlier states that [`BlockDevice::changed_extents`] compares with, oldest first. Names
    /// are those of the snapshots alone, without the volume's.
    fn snapshots(&self) -> Vec<SnapshotInfo> {
        Vec::new()
    }

    /// What has changed in `range` since a snapshot, in runs as of [`BlockDevice::extents`]. Bytes
    /// past the end of the snapshot count as changed. A snapshot that is not, or no longer, one
    /// of this device is refused with [`crate::DeviceErrorKind::NoSnapshot`].
    fn changed_extents(
        &self,
        _since: SnapshotId,
        range: ByteRange,
        _count_max: usize,
    ) -> Result<Vec<ChangeExtent>, DeviceError> {
        Err(DeviceError::new(DeviceErrorKind::NoSnapshot, Action::ListChanges, range))
    }
}
