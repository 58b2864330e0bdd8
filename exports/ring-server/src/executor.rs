//! Validates and executes one request, and completes it on the calling thread or defers it.

use std::sync::Arc;

use block_device::{BLOCK_BYTES, BlockDevice, ByteRange, DeviceError, WriteCache, Zeroes};
use export_kit::Counters;
use shared_ring::{Entry, SLOT_BYTES, ServerRing, Ticket, flags, operation};

use crate::status;

/// Upper bound of the bytes in all blocks that a request of one slot's size touches.
const SCRATCH_BYTES: usize = SLOT_BYTES + 2 * BLOCK_BYTES;

/// Size from which read data is copied with non-temporal stores, which bypass this core's cache.
/// Cached copies are faster for shorter reads.
const STREAMED_FROM_BYTES: usize = SLOT_BYTES;

/// A validated submission entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Read { offset: u64, length: usize },
    Write { offset: u64, length: usize, is_fua: bool },
    Zero { range: ByteRange, zeroes: Zeroes, is_fua: bool },
    Discard { range: ByteRange },
    Flush,
}

impl Request {
    /// Returns `None` if the operation is unknown or its length is invalid.
    pub(crate) fn of(entry: &Entry) -> Option<Self> {
        let Entry { operation, flags, offset, length, .. } = *entry;
        let range = ByteRange::new(offset, length);
        let is_fua = flags & flags::FUA != 0;
        let data_length = || usize::try_from(length).ok().filter(|&length| length <= SLOT_BYTES);
        Some(match operation {
            operation::READ => Self::Read { offset, length: data_length()? },
            operation::WRITE => Self::Write { offset, length: data_length()?, is_fua },
            operation::WRITE_ZEROES => {
                let keeps = flags & flags::KEEP_ALLOCATED != 0;
                let zeroes = if keeps { Zeroes::KeepAllocated } else { Zeroes::Unmap };
                Self::Zero { range, zeroes, is_fua }
            }
            operation::DISCARD => Self::Discard { range },
            operation::FLUSH => Self::Flush,
            _ => return None,
        })
    }

    /// Returns whether a write or zeroing must be durable before it is completed (FUA).
    pub(crate) fn is_fua(self) -> bool {
        matches!(self, Self::Write { is_fua: true, .. } | Self::Zero { is_fua: true, .. })
    }
}

/// An opened volume, registered so that the server can notify the client of a new size.
pub(crate) struct Use {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) ring: Arc<ServerRing>,
}

/// State shared by the threads of one client.
#[derive(Clone)]
pub(crate) struct Parts {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) ring: Arc<ServerRing>,
    pub(crate) counters: Arc<Counters>,
}

/// Executes requests of one client on one thread.
pub(crate) struct Executor {
    pub(crate) parts: Parts,
    /// Private copy of the data to write, because the client can change its shared memory during
    /// the device's write.
    data: Vec<u8>,
    scratch: Vec<u8>,
}

impl Executor {
    pub(crate) fn new(parts: Parts) -> Self {
        Self { parts, data: vec![0; SLOT_BYTES], scratch: vec![0; SCRATCH_BYTES] }
    }

    /// Returns whether a request may block on data that are not in memory.
    pub(crate) fn data_may_be_away(&self, request: Request) -> bool {
        match request {
            Request::Flush | Request::Discard { .. } => false,
            Request::Read { .. } | Request::Write { .. } | Request::Zero { .. } => {
                self.parts.device.data_may_be_away()
            }
        }
    }

    /// Returns whether a flush may block on a disk.
    pub(crate) fn flush_may_wait(&self) -> bool {
        self.parts.device.write_cache() == WriteCache::Volatile
    }

    /// Executes a request, except for the flush that FUA requires. Returns its status.
    #[inline]
    pub(crate) fn perform(&mut self, ticket: &Ticket, request: Request) -> u32 {
        let device = &self.parts.device;
        let result = match request {
            Request::Read { offset, length } => self.read(ticket, offset, length),
            Request::Write { offset, length, .. } => {
                let data = &mut self.data[..length];
                self.parts.ring.copy_out(ticket, 0, data);
                device.write(offset, data)
            }
            Request::Zero { range, zeroes, .. } => device.write_zeroes(range, zeroes),
            Request::Discard { range } => device.discard(range),
            Request::Flush => device.flush(),
        };
        match result {
            Ok(()) => status::DONE,
            Err(error) => self.parts.failed(&error),
        }
    }

    #[inline]
    fn read(&mut self, ticket: &Ticket, offset: u64, length: usize) -> Result<(), DeviceError> {
        let ring = &self.parts.ring;
        let range = ByteRange::new(offset, length as u64);
        let is_long = length >= STREAMED_FROM_BYTES;
        self.parts.device.read_in_place(range, &mut self.scratch, &mut |slices| {
            let mut at = 0;
            for (index, slice) in slices.iter().enumerate() {
                match is_long {
                    true => {
                        let next = slices.get(index + 1).map_or(&[][..], |next| next);
                        ring.stream_in(ticket, at, slice, next);
                    }
                    false => ring.copy_in(ticket, at, slice),
                }
                at += slice.len();
            }
        })
    }

    pub(crate) fn count(&self, request: Request) {
        let counters = &self.parts.counters;
        match request {
            Request::Read { length, .. } => {
                counters.reads.add(1);
                counters.read_bytes.add(length as u64);
            }
            Request::Write { length, .. } => {
                counters.writes.add(1);
                counters.written_bytes.add(length as u64);
            }
            Request::Zero { .. } => counters.zeroes.add(1),
            Request::Discard { .. } => counters.discards.add(1),
            Request::Flush => counters.flushes.add(1),
        }
    }
}

impl Parts {
    /// Flushes the device and blocks until that is done. Returns the status.
    pub(crate) fn flush(&self) -> u32 {
        match self.device.flush() {
            Ok(()) => status::DONE,
            Err(error) => self.failed(&error),
        }
    }

    #[cold]
    fn failed(&self, error: &DeviceError) -> u32 {
        self.counters.count_error();
        tracing::debug!(%error, "ring request failed");
        status::of_device(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(entry: Entry, expected: Option<Request>) {
        assert_eq!(Request::of(&entry), expected);
    }

    #[test]
    fn entries_ask_for_what_they_say() {
        let entry = |operation, length| Entry { operation, offset: 5, length, ..Entry::default() };
        check(entry(operation::READ, 7), Some(Request::Read { offset: 5, length: 7 }));
        let write = Request::Write { offset: 5, length: 7, is_fua: false };
        check(entry(operation::WRITE, 7), Some(write));
        check(entry(operation::FLUSH, u64::MAX), Some(Request::Flush));
        let range = ByteRange::new(5, 1 << 40);
        check(entry(operation::DISCARD, 1 << 40), Some(Request::Discard { range }));
        let zero = Request::Zero { range, zeroes: Zeroes::Unmap, is_fua: false };
        check(entry(operation::WRITE_ZEROES, 1 << 40), Some(zero));
        let flags = flags::KEEP_ALLOCATED | flags::FUA;
        let zero = Request::Zero { range, zeroes: Zeroes::KeepAllocated, is_fua: true };
        check(Entry { flags, ..entry(operation::WRITE_ZEROES, 1 << 40) }, Some(zero));
    }

    #[test]
    fn what_is_too_long_or_unknown_is_nothing() {
        for operation in [operation::READ, operation::WRITE] {
            for length in [SLOT_BYTES as u64 + 1, u64::MAX] {
                check(Entry { operation, length, ..Entry::default() }, None);
            }
        }
        for operation in [0, 6, u32::MAX] {
            check(Entry { operation, ..Entry::default() }, None);
        }
    }
}
