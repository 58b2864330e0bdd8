//! Request to the daemon, for synchronous calls and for lanes.

use block_device::{ByteRange, Zeroes};
use shared_ring::{Entry, flags, operation};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) operation: u32,
    pub(crate) flags: u32,
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

impl Request {
    #[inline]
    pub(crate) fn read(offset: u64, length: usize) -> Self {
        Self::new(operation::READ, ByteRange::new(offset, length as u64))
    }

    #[inline]
    pub(crate) fn write(offset: u64, length: usize) -> Self {
        Self::new(operation::WRITE, ByteRange::new(offset, length as u64))
    }

    pub(crate) fn zeroes(range: ByteRange, zeroes: Zeroes) -> Self {
        let flags = match zeroes {
            Zeroes::Unmap => 0,
            Zeroes::KeepAllocated => flags::KEEP_ALLOCATED,
        };
        Self { flags, ..Self::new(operation::WRITE_ZEROES, range) }
    }

    pub(crate) fn discard(range: ByteRange) -> Self {
        Self::new(operation::DISCARD, range)
    }

    pub(crate) fn flush() -> Self {
        Self::new(operation::FLUSH, ByteRange::new(0, 0))
    }

    #[inline]
    fn new(operation: u32, range: ByteRange) -> Self {
        Self { operation, flags: 0, offset: range.start, length: range.length }
    }

    /// Returns whether the request transfers data in buffers of slots.
    #[inline]
    pub(crate) fn is_data(self) -> bool {
        matches!(self.operation, operation::READ | operation::WRITE)
    }

    #[inline]
    pub(crate) fn entry(self) -> Entry {
        let Self { operation, flags, offset, length } = self;
        Entry { operation, flags, offset, length, slot: 0 }
    }

    /// Name of the operation, for messages.
    pub(crate) fn action(self) -> &'static str {
        match self.operation {
            operation::READ => "read",
            operation::WRITE => "write",
            operation::WRITE_ZEROES => "write zeroes to",
            operation::DISCARD => "discard",
            _ => "flush",
        }
    }
}
