//! Byte ranges of a device.

use std::fmt;

pub use units::BLOCK_BYTES;

/// Maximum length of a read or write in one call, in bytes. Exports split or refuse longer ones.
pub const IO_BYTES_MAX: usize = 32 << 20;

/// `length` bytes from byte `start` of a device. May be empty, and may start and end anywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ByteRange {
    pub start: u64,
    pub length: u64,
}

impl ByteRange {
    pub const fn new(start: u64, length: u64) -> Self {
        Self { start, length }
    }

    /// First byte after the range. `None` if that exceeds 64 bits.
    pub const fn end(self) -> Option<u64> {
        self.start.checked_add(self.length)
    }

    /// Returns whether the whole range is inside a device of `size_bytes`.
    pub fn fits(self, size_bytes: u64) -> bool {
        self.end().is_some_and(|end| end <= size_bytes)
    }

    /// Total size of the blocks that the range overlaps: the scratch size for
    /// [`crate::BlockDevice::read_in_place`].
    pub fn scratch_bytes(self) -> usize {
        let into_block = self.start % BLOCK_BYTES as u64;
        let bytes = (into_block + self.length).next_multiple_of(BLOCK_BYTES as u64);
        usize::try_from(bytes).expect("what is read at once fits memory")
    }
}

impl fmt::Display for ByteRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at byte {}", self.length, self.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(start: u64, length: u64, size_bytes: u64, fits: bool) {
        assert_eq!(ByteRange::new(start, length).fits(size_bytes), fits);
    }

    #[test]
    fn a_range_fits_when_its_end_is_on_the_device() {
        check(0, 4096, 4096, true);
        check(4096, 0, 4096, true);
        check(1, 4096, 4096, false);
        check(4097, 0, 4096, false);
    }

    #[test]
    fn scratch_holds_the_blocks_that_a_range_touches() {
        let scratch_bytes = |start, length| ByteRange::new(start, length).scratch_bytes();
        assert_eq!([scratch_bytes(0, 0), scratch_bytes(8192, 4096)], [0, 4096]);
        assert_eq!([scratch_bytes(4095, 2), scratch_bytes(u64::MAX - 511, 512)], [8192, 4096]);
    }

    #[test]
    fn a_range_whose_end_overflows_fits_nowhere() {
        check(u64::MAX, 2, u64::MAX, false);
    }
}
