//! Buffers aligned for direct I/O.

use std::ops::{Deref, DerefMut};

use crate::folder::BLOCK_BYTES;

/// Growable buffer whose contents start at a multiple of 4096.
#[derive(Debug, Default)]
pub struct AlignedBuffer {
    /// The contents start at `start`. `bytes` never grows beyond its capacity, so that it is not
    /// reallocated.
    bytes: Vec<u8>,
    start: usize,
}

impl AlignedBuffer {
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty buffer with room for `capacity` bytes.
    pub fn with_capacity(capacity: usize) -> Self {
        let mut buffer = Self::new();
        buffer.reserve(capacity);
        buffer
    }

    pub fn zeroed(length: usize) -> Self {
        let bytes = vec![0; length + BLOCK_BYTES];
        let start = distance_to_block(&bytes);
        let mut buffer = Self { bytes, start };
        buffer.bytes.truncate(start + length);
        buffer
    }

    /// Number of bytes that fit without a reallocation.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity() - self.start
    }

    /// Reserves room for `additional` more bytes.
    pub fn reserve(&mut self, additional: usize) {
        let length = self.len() + additional;
        if length > self.capacity() || self.bytes.capacity() == 0 {
            self.move_to_capacity(length.max(self.len() * 2));
        }
    }

    /// Removes the contents and keeps the memory.
    pub fn clear(&mut self) {
        self.truncate(0);
    }

    pub fn truncate(&mut self, length: usize) {
        self.bytes.truncate(self.start + length);
    }

    pub fn extend_from_slice(&mut self, from: &[u8]) {
        self.reserve(from.len());
        self.bytes.extend_from_slice(from);
    }

    /// Truncates the contents, or extends them with `value`.
    pub fn resize(&mut self, length: usize, value: u8) {
        self.reserve(length.saturating_sub(self.len()));
        self.bytes.resize(self.start + length, value);
    }

    /// Pads the contents with zeros to a whole number of blocks.
    pub fn pad_to_block(&mut self) {
        self.resize(self.len().next_multiple_of(BLOCK_BYTES), 0);
    }

    fn move_to_capacity(&mut self, capacity: usize) {
        let mut bytes = Vec::with_capacity(capacity + BLOCK_BYTES);
        let start = distance_to_block(&bytes);
        bytes.resize(start, 0);
        bytes.extend_from_slice(self);
        (self.bytes, self.start) = (bytes, start);
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..]
    }
}

/// Distance from the start of a vector's memory to the next multiple of 4096.
fn distance_to_block(bytes: &[u8]) -> usize {
    bytes.as_ptr().addr().next_multiple_of(BLOCK_BYTES) - bytes.as_ptr().addr()
}

/// Returns whether direct I/O accepts these bytes without a copy.
pub(crate) fn is_aligned(bytes: &[u8]) -> bool {
    (bytes.as_ptr().addr() | bytes.len()).is_multiple_of(BLOCK_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contents_stay_aligned_while_they_grow() {
        let mut buffer = AlignedBuffer::new();
        let mut expected = Vec::new();
        for round in 0..2000_usize {
            let piece = vec![u8::try_from(round % 251).expect("small"); round % 97];
            buffer.extend_from_slice(&piece);
            expected.extend_from_slice(&piece);
            assert!(buffer.is_empty() || buffer.as_ptr().addr().is_multiple_of(BLOCK_BYTES));
        }
        assert_eq!(&buffer[..], &expected[..]);
    }

    #[test]
    fn contents_that_fit_do_not_move() {
        let mut buffer = AlignedBuffer::with_capacity(10_000);
        let before = buffer.as_ptr();
        buffer.extend_from_slice(&[1; 10_000]);
        assert_eq!(before, buffer.as_ptr());
    }

    #[test]
    fn padding_ends_at_a_block_with_zeros() {
        let mut buffer = AlignedBuffer::new();
        buffer.extend_from_slice(&[7; 5000]);
        buffer.pad_to_block();
        assert!(is_aligned(&buffer));
        assert_eq!((buffer.len(), buffer[4999], buffer[5000]), (8192, 7, 0));
    }

    #[test]
    fn a_cleared_buffer_grows_with_zeros_again() {
        let mut buffer = AlignedBuffer::zeroed(8192);
        assert!(is_aligned(&buffer));
        buffer.fill(9);
        buffer.clear();
        buffer.resize(100, 0);
        assert_eq!(&buffer[..], &[0; 100]);
    }
}
