//! One request: checked, served, answered, or left to those who may wait.

use std::sync::Arc;

use block_device::{BLOCK_BYTES, BlockDevice, ByteRange, DeviceError, WriteCache, Zeroes};
use shared_ring::{Entry, SLOT_BYTES, ServerRing, Taken, Ticket, flags, operation};

use crate::late::{LateQueue, LateWork};
use crate::status;
use crate::traffic::Meter;

/// A buffer's worth of bytes that begins and ends inside a block lies in so many bytes of blocks.
const SCRATCH_BYTES: usize = SLOT_BYTES + 2 * BLOCK_BYTES;

/// Answers as long as this go past the cache of this core. Shorter ones are quicker through it.
const STREAMED_FROM_BYTES: usize = SLOT_BYTES;

/// An entry whose fields were checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Read { offset: u64, length: usize },
    Write { offset: u64, length: usize, is_flushed: bool },
    Zero { range: ByteRange, zeroes: Zeroes, is_flushed: bool },
    Discard { range: ByteRange },
    Flush,
}

impl Request {
    /// `None` when the entry asks for nothing that there is.
    pub(crate) fn of(entry: &Entry) -> Option<Self> {
        let Entry { operation, flags, offset, length, .. } = *entry;
        let range = ByteRange::new(offset, length);
        let is_flushed = flags & flags::FLUSHED != 0;
        let data_length = || usize::try_from(length).ok().filter(|&length| length <= SLOT_BYTES);
        Some(match operation {
            operation::READ => Self::Read { offset, length: data_length()? },
            operation::WRITE => Self::Write { offset, length: data_length()?, is_flushed },
            operation::WRITE_ZEROES => {
                let keeps = flags & flags::KEEP_ALLOCATED != 0;
                let zeroes = if keeps { Zeroes::KeepAllocated } else { Zeroes::Unmap };
                Self::Zero { range, zeroes, is_flushed }
            }
            operation::DISCARD => Self::Discard { range },
            operation::FLUSH => Self::Flush,
            _ => return None,
        })
    }
}

/// Serves the requests of one client on one thread.
pub(crate) struct Desk {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) ring: Arc<ServerRing>,
    pub(crate) meter: Arc<Meter>,
    /// What is about to be written: the device must not see the client change it.
    data: Vec<u8>,
    scratch: Vec<u8>,
}

impl Desk {
    pub(crate) fn new(
        device: Arc<dyn BlockDevice>,
        ring: Arc<ServerRing>,
        meter: Arc<Meter>,
    ) -> Self {
        Self { device, ring, meter, data: vec![0; SLOT_BYTES], scratch: vec![0; SCRATCH_BYTES] }
    }

    /// Serves an entry, or leaves it to `late` if it may wait for a disk. Returns the lane on which
    /// somebody was answered.
    pub(crate) fn serve(&mut self, taken: Taken, late: &mut LateQueue) -> Option<usize> {
        let Taken { ticket, entry } = taken;
        let Some(request) = Request::of(&entry) else {
            return Some(self.answer(ticket, status::invalid()));
        };
        self.count(request);
        if let Some(work) = self.late_work(request) {
            self.ring.keep_for_later(&ticket);
            if let Err(ticket) = late.push(work, ticket) {
                self.meter.count_error();
                self.ring.complete_late(ticket, status::no_thread());
            }
            return None;
        }
        let status = self.perform(&ticket, request);
        if status == status::DONE && flushes(request) && self.flush_may_wait() {
            self.ring.keep_for_later(&ticket);
            if let Err(ticket) = late.push(LateWork::Flush, ticket) {
                self.meter.count_error();
                self.ring.complete_late(ticket, status::no_thread());
            }
            return None;
        }
        Some(self.answer(ticket, status))
    }

    /// Does a request of a ticket, but for the flush behind it. Returns its status.
    #[inline]
    pub(crate) fn perform(&mut self, ticket: &Ticket, request: Request) -> u32 {
        let result = match request {
            Request::Read { offset, length } => self.read(ticket, offset, length),
            Request::Write { offset, length, .. } => {
                let data = &mut self.data[..length];
                self.ring.copy_out(ticket, 0, data);
                self.device.write(offset, data)
            }
            Request::Zero { range, zeroes, .. } => self.device.write_zeroes(range, zeroes),
            Request::Discard { range } => self.device.discard(range),
            // Those that may wait never come here: there is nothing to flush.
            Request::Flush => self.device.flush(),
        };
        match result {
            Ok(()) => status::DONE,
            Err(error) => self.failed(&error),
        }
    }

    /// Flushes, however long that takes. Returns the status.
    pub(crate) fn flush(&self) -> u32 {
        match self.device.flush() {
            Ok(()) => status::DONE,
            Err(error) => self.failed(&error),
        }
    }

    #[inline]
    fn read(&mut self, ticket: &Ticket, offset: u64, length: usize) -> Result<(), DeviceError> {
        let ring = &self.ring;
        let range = ByteRange::new(offset, length as u64);
        let is_long = length >= STREAMED_FROM_BYTES;
        self.device.read_in_place(range, &mut self.scratch, &mut |slices| {
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

    /// What kind of late work a request is, if it may wait for a disk.
    fn late_work(&self, request: Request) -> Option<LateWork> {
        match request {
            Request::Flush if self.flush_may_wait() => Some(LateWork::Flush),
            Request::Flush | Request::Discard { .. } => None,
            Request::Read { .. } | Request::Write { .. } | Request::Zero { .. } => {
                self.device.data_may_be_away().then_some(LateWork::Data(request))
            }
        }
    }

    pub(crate) fn flush_may_wait(&self) -> bool {
        self.device.write_cache() == WriteCache::Volatile
    }

    fn answer(&self, ticket: Ticket, status: u32) -> usize {
        self.ring.complete(ticket, status)
    }

    #[cold]
    fn failed(&self, error: &DeviceError) -> u32 {
        self.meter.count_error();
        tracing::debug!(%error, "a request of the ring failed");
        status::of_device(error)
    }

    fn count(&self, request: Request) {
        let meter = &self.meter;
        match request {
            Request::Read { length, .. } => {
                meter.reads.add(1);
                meter.read_bytes.add(length as u64);
            }
            Request::Write { length, .. } => {
                meter.writes.add(1);
                meter.written_bytes.add(length as u64);
            }
            Request::Zero { .. } => meter.zeroes.add(1),
            Request::Discard { .. } => meter.discards.add(1),
            Request::Flush => meter.flushes.add(1),
        }
    }
}

/// Whether a flush belongs to a request that is something else.
pub(crate) fn flushes(request: Request) -> bool {
    matches!(
        request,
        Request::Write { is_flushed: true, .. } | Request::Zero { is_flushed: true, .. }
    )
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
        let write = Request::Write { offset: 5, length: 7, is_flushed: false };
        check(entry(operation::WRITE, 7), Some(write));
        check(entry(operation::FLUSH, u64::MAX), Some(Request::Flush));
        let range = ByteRange::new(5, 1 << 40);
        check(entry(operation::DISCARD, 1 << 40), Some(Request::Discard { range }));
        let zero = Request::Zero { range, zeroes: Zeroes::Unmap, is_flushed: false };
        check(entry(operation::WRITE_ZEROES, 1 << 40), Some(zero));
        let flags = flags::KEEP_ALLOCATED | flags::FLUSHED;
        let zero = Request::Zero { range, zeroes: Zeroes::KeepAllocated, is_flushed: true };
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
