//! A volume so simple that it is obviously correct.

use std::io::IoSlice;
use std::sync::{Mutex, MutexGuard};

use block_device::{
    Action, BLOCK_BYTES, BlockDevice, ByteRange, DeviceError, DeviceErrorKind, Extent, Geometry,
    IO_BYTES_MAX, SectorSize, Zeroes,
};

use crate::Block;
use crate::state::Blocks;

/// Maximum length of a range that is read in place.
const SHOWN_BYTES_MAX: u64 = 1 << 20;

/// A block device over a map of blocks. Every request is atomic.
#[derive(Debug)]
pub struct ModelVolume {
    sector: SectorSize,
    inner: Mutex<Inner>,
}

/// Capacity and durability class of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Promise {
    /// Its writes never fail for lack of memory.
    pub is_guaranteed: bool,
    /// Number of a durability class, below three.
    pub durability: usize,
}

#[derive(Clone, Debug)]
struct Inner {
    size_bytes: u64,
    promise: Promise,
    is_gone: bool,
    is_read_only: bool,
    blocks: Blocks,
}

impl ModelVolume {
    pub fn new(size_bytes: u64, sector: SectorSize) -> Self {
        let inner = Inner {
            size_bytes,
            promise: Promise::default(),
            is_gone: false,
            is_read_only: false,
            blocks: Blocks::default(),
        };
        Self { sector, inner: Mutex::new(inner) }
    }

    pub fn promise(&self) -> Promise {
        self.lock().promise
    }

    pub fn set_promise(&self, promise: Promise) {
        self.lock().promise = promise;
    }

    /// Returns the contents of a block, or `None` for a hole.
    pub fn block(&self, block: u64) -> Option<Block> {
        self.lock().blocks.get(block).copied()
    }

    /// Replaces the contents of a block, to match a device that failed during a request.
    pub fn set_block(&self, block: u64, contents: Option<Block>) {
        self.lock().blocks.set(block, contents);
    }

    /// Returns the indexes of all written blocks, in ascending order.
    pub fn written_blocks(&self) -> Vec<u64> {
        self.lock().blocks.indices().collect()
    }

    pub fn written_bytes(&self) -> u64 {
        self.lock().blocks.count() * BLOCK_BYTES as u64
    }

    /// Number of bytes in blocks filled with a pattern of four bytes.
    pub fn fill_bytes(&self) -> u64 {
        self.lock().blocks.fill_count() * BLOCK_BYTES as u64
    }

    /// Returns whether a whole block from byte `offset` on has contents.
    pub fn holds_data_behind(&self, offset: u64) -> bool {
        let first = offset.div_ceil(BLOCK_BYTES as u64);
        self.lock().blocks.indices().any(|block| block >= first)
    }

    /// Changes the size. Blocks past the new end are removed.
    pub fn resize(&self, size_bytes: u64) {
        let mut inner = self.lock();
        inner.size_bytes = size_bytes;
        inner.blocks.discard(ByteRange::new(size_bytes, u64::MAX - size_bytes));
    }

    /// Marks the volume as deleted: every later request fails with `Gone`.
    pub fn delete(&self) {
        self.lock().is_gone = true;
    }

    /// Creates a snapshot of the volume.
    pub fn copy_read_only(&self) -> Self {
        let copy = self.clone();
        copy.lock().is_read_only = true;
        copy
    }

    /// Creates a clone, which is not guaranteed at first.
    pub(crate) fn copy_writable(&self) -> Self {
        let copy = self.clone();
        let promise = Promise { is_guaranteed: false, ..self.promise() };
        copy.set_promise(promise);
        copy.lock().is_read_only = false;
        copy
    }

    pub(crate) fn become_equal_to(&self, other: &Self) {
        let (blocks, size_bytes) = {
            let other = other.lock();
            (other.blocks.clone(), other.size_bytes)
        };
        let mut inner = self.lock();
        (inner.blocks, inner.size_bytes) = (blocks, size_bytes);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no thread panics with the model locked")
    }

    fn admit(
        &self,
        action: Action,
        range: ByteRange,
    ) -> Result<MutexGuard<'_, Inner>, DeviceError> {
        let inner = self.lock();
        let kind = if inner.is_gone {
            DeviceErrorKind::Gone
        } else if inner.is_read_only
            && matches!(action, Action::Write | Action::WriteZeroes | Action::Discard)
        {
            DeviceErrorKind::ReadOnly
        } else if !range.fits(inner.size_bytes) {
            DeviceErrorKind::OutOfRange
        } else {
            return Ok(inner);
        };
        Err(DeviceError::new(kind, action, range))
    }
}

impl Clone for ModelVolume {
    fn clone(&self) -> Self {
        Self { sector: self.sector, inner: Mutex::new(self.lock().clone()) }
    }
}

fn check_length(action: Action, range: ByteRange, length_max: u64) -> Result<(), DeviceError> {
    if range.length > length_max {
        return Err(DeviceError::new(DeviceErrorKind::TooLong, action, range));
    }
    Ok(())
}

impl BlockDevice for ModelVolume {
    fn is_read_only(&self) -> bool {
        self.lock().is_read_only
    }

    fn geometry(&self) -> Geometry {
        Geometry { size_bytes: self.lock().size_bytes, sector: self.sector }
    }

    fn read(&self, offset_bytes: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let range = ByteRange::new(offset_bytes, into.len() as u64);
        check_length(Action::Read, range, IO_BYTES_MAX as u64)?;
        self.admit(Action::Read, range)?.blocks.read(range, into);
        Ok(())
    }

    fn read_in_place(
        &self,
        range: ByteRange,
        scratch: &mut [u8],
        visit: &mut dyn FnMut(&[IoSlice<'_>]),
    ) -> Result<(), DeviceError> {
        check_length(Action::Read, range, SHOWN_BYTES_MAX)?;
        let inner = self.admit(Action::Read, range)?;
        let shown = &mut scratch[..usize::try_from(range.length).expect("a mebibyte at most")];
        inner.blocks.read(range, shown);
        visit(&[IoSlice::new(shown)]);
        Ok(())
    }

    fn write(&self, offset_bytes: u64, from: &[u8]) -> Result<(), DeviceError> {
        let range = ByteRange::new(offset_bytes, from.len() as u64);
        check_length(Action::Write, range, IO_BYTES_MAX as u64)?;
        self.admit(Action::Write, range)?.blocks.write(offset_bytes, from);
        Ok(())
    }

    fn write_zeroes(&self, range: ByteRange, zeroes: Zeroes) -> Result<(), DeviceError> {
        self.admit(Action::WriteZeroes, range)?.blocks.write_zeroes(range, zeroes);
        Ok(())
    }

    fn discard(&self, range: ByteRange) -> Result<(), DeviceError> {
        self.admit(Action::Discard, range)?.blocks.discard(range);
        Ok(())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.admit(Action::Flush, ByteRange::new(0, 0)).map(drop)
    }

    fn extents(&self, range: ByteRange, count_max: usize) -> Result<Vec<Extent>, DeviceError> {
        Ok(self.admit(Action::ListExtents, range)?.blocks.extents(range, count_max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block_device::ExtentKind;

    fn volume() -> ModelVolume {
        ModelVolume::new(1 << 20, SectorSize::Bytes512)
    }

    fn read(volume: &ModelVolume, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0xEE; length];
        volume.read(offset, &mut bytes).expect("the read succeeds");
        bytes
    }

    #[test]
    fn the_last_write_to_a_byte_wins() {
        let volume = volume();
        volume.write(4000, &[1; 200]).expect("the write succeeds");
        volume.write(4090, &[2; 10]).expect("the write succeeds");
        let expected = [vec![1; 90], vec![2; 10], vec![1; 100]].concat();
        assert_eq!(read(&volume, 4000, 200), expected);
        assert_eq!(volume.written_bytes(), 8192);
    }

    #[test]
    fn a_discard_forgets_whole_blocks_only() {
        let volume = volume();
        volume.write(0, &[1; 16384]).expect("the write succeeds");
        volume.discard(ByteRange::new(1, 12287)).expect("the discard succeeds");
        let expected = [vec![1; 4096], vec![0; 8192], vec![1; 4096]].concat();
        assert_eq!(read(&volume, 0, 16384), expected);
        assert_eq!(volume.written_blocks(), [0, 3]);
    }

    #[test]
    fn zeroes_leave_holes_or_zeros() {
        let volume = volume();
        volume.write(0, &[1; 16384]).expect("the write succeeds");
        volume.write_zeroes(ByteRange::new(100, 8092), Zeroes::Unmap).expect("punched");
        volume.write_zeroes(ByteRange::new(8192, 4096), Zeroes::KeepAllocated).expect("written");
        let kinds = |extents: Vec<Extent>| -> Vec<_> {
            extents.iter().map(|extent| (extent.range.length, extent.kind)).collect()
        };
        use ExtentKind::{Data, Hole, Zero};
        let extents = volume.extents(ByteRange::new(0, 20000), 9).expect("extents are listed");
        let expected = [(4096, Data), (4096, Hole), (4096, Zero), (4096, Data), (3616, Hole)];
        assert_eq!(kinds(extents), expected);
        assert_eq!(read(&volume, 99, 2), [1, 0]);
    }

    #[test]
    fn a_deleted_volume_is_gone_and_a_cut_one_shorter() {
        let volume = volume();
        volume.write(8192, &[1; 4096]).expect("the write succeeds");
        volume.resize(8192);
        let error = volume.read(8192, &mut [0]).expect_err("past the end");
        assert_eq!(error.kind, DeviceErrorKind::OutOfRange);
        volume.resize(1 << 20);
        assert_eq!(read(&volume, 8192, 4096), vec![0; 4096]);
        volume.delete();
        assert_eq!(volume.flush().expect_err("it is gone").kind, DeviceErrorKind::Gone);
    }
}
