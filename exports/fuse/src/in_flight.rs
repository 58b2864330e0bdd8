//! Requests in flight, in a memory file that outlives the process.
//!
//! Kernels before 6.9 cannot resend requests that a killed process had read. Therefore workers read
//! requests into a memory file, of which the fd store keeps a descriptor in addition to the
//! connection's. The next process finds the requests there that the kernel still waits for, and
//! serves them.
//!
//! ```text
//! magic u64 | count of buffers u64 | identity u64 | … one page
//! waiting flushes     unique u64 | node u64 | length of its write u64
//! buffers             one for each worker: room for the longest message
//! ```
//!
//! Requests are not marked as answered, because the kernel can be asked
//! ([`Connection::awaits`](crate::connection::Connection::awaits)), and request numbers are unique
//! in a connection. The identity ties the file to a connection, whose mount source ends with it. A
//! worker's buffer holds its message until it is answered. Flushes that wait for a slot are copied
//! to the table first, which frees the buffer.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{Ordering, compiler_fence};

use kernel::KeptMemory;

use crate::request::{self, DATA_BYTES_MAX, HEADER_BYTES, Malformed, WRITE_BYTES};

/// Magic number. Its last digit is the layout version.
const MAGIC: u64 = u64::from_ne_bytes(*b"mlnfuse1");

/// Offsets of the fields of the first page.
const MAGIC_AT: usize = 0;
const COUNT_AT: usize = 8;
const IDENTITY_AT: usize = 16;

const PAGE_BYTES: usize = KeptMemory::UNIT_BYTES;

/// Maximum number of buffers in a file.
pub(crate) const BUFFERS_MAX: usize = 64;

/// Number of entries in the table of flushes.
pub(crate) const FLUSHES_MAX: usize = 8192;
const FLUSH_BYTES: usize = 24;

const TABLE_BYTES: usize = (PAGE_BYTES + FLUSHES_MAX * FLUSH_BYTES).next_multiple_of(PAGE_BYTES);
const BUFFER_BYTES: usize = PAGE_BYTES + DATA_BYTES_MAX;

/// Flag in the length field: the flush belongs to a write.
const HAS_WRITTEN: u64 = 1 << 32;

/// A request that is answered when the contents of its file are on stable storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flush {
    pub(crate) unique: u64,
    pub(crate) node: u64,
    /// Length of the write that the flush belongs to, if any.
    pub(crate) written_bytes: Option<u32>,
    /// True if the flush may wait for a disk.
    pub(crate) may_wait: bool,
    /// Entry in the [`FlushTable`], if the flush waits or has waited.
    pub(crate) entry: Option<u16>,
}

/// Memory file of one connection's requests.
pub(crate) struct InFlight {
    /// Identity of the connection that the requests belong to.
    pub(crate) identity: u64,
    /// At least one for each worker.
    pub(crate) buffers: Vec<MessageBuffer>,
    pub(crate) flushes: FlushTable,
    /// Flushes that an earlier process left in the table.
    pub(crate) unanswered_flushes: Vec<Flush>,
}

impl InFlight {
    /// Creates a memory file for a new connection, and opens it.
    pub(crate) fn create(worker_count: usize) -> io::Result<(OwnedFd, Self)> {
        let file = KeptMemory::new_file("memlane-fuse-requests")?;
        let mut table = KeptMemory::map(file.as_fd(), 0..bytes(TABLE_BYTES))?;
        set_word(&mut table, IDENTITY_AT, getrandom::u64().map_err(io::Error::other)?);
        set_word(&mut table, MAGIC_AT, MAGIC);
        drop(table);
        let in_flight = Self::open(file.as_fd(), worker_count)?;
        Ok((file, in_flight))
    }

    /// Opens the memory file of an earlier process for this number of workers.
    pub(crate) fn open(file: BorrowedFd<'_>, worker_count: usize) -> io::Result<Self> {
        let mut table = KeptMemory::map(file, 0..bytes(TABLE_BYTES))?;
        let known_count = usize::try_from(word(&table, COUNT_AT)).unwrap_or(usize::MAX);
        if word(&table, MAGIC_AT) != MAGIC || known_count > BUFFERS_MAX {
            let words = "unknown layout of the in-flight request buffer";
            return Err(io::Error::new(io::ErrorKind::InvalidData, words));
        }
        let count = known_count.max(worker_count);
        let map = |index| KeptMemory::map(file, buffer_range(index)).map(MessageBuffer::new);
        let buffers = (0..count).map(map).collect::<io::Result<_>>()?;
        set_word(&mut table, COUNT_AT, bytes(count));
        let identity = word(&table, IDENTITY_AT);
        let free = (0..FLUSHES_MAX).rev().filter_map(|index| u16::try_from(index).ok()).collect();
        let flushes = FlushTable { memory: table, free };
        Ok(Self { identity, buffers, flushes, unanswered_flushes: Vec::new() })
    }

    /// Finds the requests that the earlier process has not answered, by asking the kernel. Returns
    /// their number.
    pub(crate) fn find_unanswered(
        &mut self,
        is_awaited: impl Fn(u64) -> io::Result<bool>,
    ) -> io::Result<usize> {
        for entry in std::mem::take(&mut self.flushes.free) {
            match self.flushes.read(entry) {
                Some(flush) if is_awaited(flush.unique)? => self.unanswered_flushes.push(flush),
                _ => self.flushes.free.push(entry),
            }
        }
        let mut count = self.unanswered_flushes.len();
        for buffer in &mut self.buffers {
            let Some((unique, length)) = buffer.whole_message() else { continue };
            // The rest of a waiting flush's request is already done.
            let waits = self.unanswered_flushes.iter().any(|flush| flush.unique == unique);
            if !waits && is_awaited(unique)? {
                buffer.unanswered = Some(length);
                count += 1;
            }
        }
        Ok(count)
    }
}

/// Table of unanswered flushes that are no longer in a buffer.
#[derive(Debug)]
pub(crate) struct FlushTable {
    memory: KeptMemory,
    free: Vec<u16>,
}

impl FlushTable {
    /// Creates an empty table.
    #[cfg(test)]
    pub(crate) fn new() -> Self {
        InFlight::create(1).expect("there is memory").1.flushes
    }

    /// Stores a flush in the table, and returns it with its entry. `None` if the table is full.
    pub(crate) fn keep(&mut self, flush: Flush) -> Option<Flush> {
        if flush.entry.is_some() {
            return Some(flush);
        }
        let entry = self.free.pop()?;
        let written = flush.written_bytes.map_or(0, |length| HAS_WRITTEN | u64::from(length));
        let start = place_of(entry);
        // Clear the request number first, so that a partially written entry is never taken for a
        // valid request.
        set_word(&mut self.memory, start, 0);
        compiler_fence(Ordering::SeqCst);
        set_word(&mut self.memory, start + 8, flush.node);
        set_word(&mut self.memory, start + 16, written);
        compiler_fence(Ordering::SeqCst);
        set_word(&mut self.memory, start, flush.unique);
        Some(Flush { entry: Some(entry), ..flush })
    }

    /// Frees the entry of an answered flush.
    pub(crate) fn free(&mut self, flush: &Flush) {
        self.free.extend(flush.entry);
    }

    fn read(&self, entry: u16) -> Option<Flush> {
        let start = place_of(entry);
        let [unique, node, written] = [0, 8, 16].map(|at| word(&self.memory, start + at));
        let written_bytes = u32::try_from(written ^ HAS_WRITTEN).ok();
        let flush = Flush { unique, node, written_bytes, may_wait: true, entry: Some(entry) };
        (unique != 0).then_some(flush)
    }
}

/// Buffer for the longest message, aligned so that the data of a write starts at a page boundary.
pub(crate) struct MessageBuffer {
    memory: KeptMemory,
    /// Length of a message that an earlier process read and did not answer.
    pub(crate) unanswered: Option<usize>,
}

impl MessageBuffer {
    const FIELDS_BYTES: usize = HEADER_BYTES + WRITE_BYTES;
    const START: usize = PAGE_BYTES - Self::FIELDS_BYTES;

    fn new(memory: KeptMemory) -> Self {
        Self { memory, unanswered: None }
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[Self::START..]
    }

    pub(crate) fn message(&self, length: usize) -> &[u8] {
        &self.memory[Self::START..Self::START + length]
    }

    /// Request number and length of the last message, if it is complete.
    fn whole_message(&self) -> Option<(u64, usize)> {
        let stated = u32::from_ne_bytes(*self.memory[Self::START..].first_chunk()?);
        let length = usize::try_from(stated).ok()?;
        let message = self.memory[Self::START..].get(..length)?;
        match request::parse(message) {
            Ok((header, _)) | Err(Malformed::Body(header)) => Some((header.unique, length)),
            Err(Malformed::NoHeader) => None,
        }
    }
}

fn buffer_range(index: usize) -> Range<u64> {
    let start = TABLE_BYTES + index * BUFFER_BYTES;
    bytes(start)..bytes(start + BUFFER_BYTES)
}

fn place_of(entry: u16) -> usize {
    PAGE_BYTES + usize::from(entry) * FLUSH_BYTES
}

fn word(memory: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(*memory[at..].first_chunk().expect("words lie inside the table"))
}

fn set_word(memory: &mut [u8], at: usize, word: u64) {
    memory[at..at + 8].copy_from_slice(&word.to_ne_bytes());
}

fn bytes(count: usize) -> u64 {
    u64::try_from(count).expect("addresses have 64 bits")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::tests::{read_message, write_message};

    const NODE: u64 = 9;

    fn new_file() -> OwnedFd {
        InFlight::create(1).expect("there is memory").0
    }

    fn opened(file: &OwnedFd, worker_count: usize) -> InFlight {
        InFlight::open(file.as_fd(), worker_count).expect("there is memory")
    }

    fn take(in_flight: &mut InFlight, worker: usize, message: &[u8]) {
        in_flight.buffers[worker].bytes()[..message.len()].copy_from_slice(message);
    }

    fn flush(unique: u64, written_bytes: Option<u32>) -> Flush {
        Flush { unique, node: NODE, written_bytes, may_wait: true, entry: None }
    }

    /// Unanswered messages of an earlier process, for each buffer.
    fn messages(in_flight: &InFlight) -> Vec<Option<&[u8]>> {
        let message = |buffer: &'_ MessageBuffer| buffer.unanswered;
        let lengths = in_flight.buffers.iter().map(message);
        lengths.zip(&in_flight.buffers).map(|(it, buffer)| Some(buffer.message(it?))).collect()
    }

    #[test]
    fn the_data_of_a_write_begins_at_a_page() {
        let file = new_file();
        let mut in_flight = opened(&file, 1);
        let data = &in_flight.buffers[0].bytes()[MessageBuffer::FIELDS_BYTES..];
        assert_eq!(data.as_ptr().align_offset(PAGE_BYTES), 0);
        assert_eq!(data.len(), DATA_BYTES_MAX);
    }

    #[test]
    fn what_was_taken_is_found_by_the_next_owner_if_the_kernel_waits_for_it() {
        let file = new_file();
        let mut former = opened(&file, 3);
        let (write, read) = (write_message(NODE, 512, b"data"), read_message(NODE, 0, 4));
        take(&mut former, 0, &write);
        take(&mut former, 2, &read);
        drop(former);
        let mut next = opened(&file, 3);
        let count = next.find_unanswered(|unique| Ok(unique == 77)).expect("nothing fails");
        assert_eq!((count, messages(&next)), (2, vec![Some(&write[..]), None, Some(&read[..])]));
        drop(next);
        let mut last = opened(&file, 3);
        assert_eq!(last.find_unanswered(|_| Ok(false)).expect("nothing fails"), 0);
        assert_eq!(messages(&last), [None; 3]);
    }

    #[test]
    fn flushes_that_wait_are_found_with_their_entries() {
        let file = new_file();
        let mut former = opened(&file, 1);
        let [first, answered, last] = [(2, None), (4, Some(8)), (6, Some(u32::MAX))]
            .map(|(unique, written)| former.flushes.keep(flush(unique, written)));
        former.flushes.free(&answered.expect("there is room"));
        // The next flush reuses the entry, or the entry remains and the kernel does not wait for
        // it.
        take(&mut former, 0, &write_message(NODE, 0, b"data"));
        drop(former);
        let mut next = opened(&file, 1);
        next.find_unanswered(|unique| Ok([2, 6].contains(&unique))).expect("nothing fails");
        let found: Vec<_> = next.unanswered_flushes.iter().copied().map(Some).collect();
        assert!(found == [first, last] || found == [last, first], "{found:?}");
        let more = u64::try_from(FLUSHES_MAX).expect("a small constant") - 2;
        assert!((0..more).all(|unique| next.flushes.keep(flush(100 + unique, None)).is_some()));
        assert_eq!(next.flushes.keep(flush(1, None)), None, "the table is full");
        let again = next.flushes.keep(next.unanswered_flushes[0]);
        assert_eq!(again, Some(next.unanswered_flushes[0]), "it has its entry");
    }

    #[test]
    fn a_write_whose_flush_waits_is_not_done_again() {
        let file = new_file();
        let mut former = opened(&file, 1);
        take(&mut former, 0, &write_message(NODE, 0, b"data"));
        former.flushes.keep(flush(77, Some(4))).expect("there is room");
        drop(former);
        let mut next = opened(&file, 1);
        assert_eq!(next.find_unanswered(|_| Ok(true)).expect("nothing fails"), 1);
        assert_eq!(messages(&next), [None]);
    }

    #[test]
    fn another_count_of_workers_finds_everything() {
        let file = new_file();
        let message = read_message(NODE, 0, 4);
        take(&mut opened(&file, 3), 2, &message);
        let mut fewer = opened(&file, 1);
        assert_eq!(fewer.find_unanswered(|_| Ok(true)).expect("nothing fails"), 1);
        assert_eq!(messages(&fewer), [None, None, Some(&message[..])]);
        drop(fewer);
        assert_eq!(opened(&file, 5).buffers.len(), 5);
    }

    #[test]
    fn each_connection_has_an_identity_that_stays() {
        let [(file, first), (_other_file, other)] =
            [(); 2].map(|()| InFlight::create(1).expect("there is memory"));
        assert_ne!(first.identity, other.identity);
        let identity = first.identity;
        drop(first);
        assert_eq!(opened(&file, 2).identity, identity);
    }

    #[test]
    fn memory_of_another_layout_is_refused() {
        for (at, wrong) in [(MAGIC_AT, 0), (MAGIC_AT, 1), (COUNT_AT, 65)] {
            let file = new_file();
            drop(opened(&file, 1));
            let mut table = KeptMemory::map(file.as_fd(), 0..bytes(TABLE_BYTES)).expect("memory");
            set_word(&mut table, at, wrong);
            drop(table);
            let error = InFlight::open(file.as_fd(), 1).map(|_| ()).map_err(|it| it.kind());
            assert_eq!(error, Err(io::ErrorKind::InvalidData));
        }
    }

    #[test]
    fn an_error_of_the_kernel_is_reported() {
        let file = new_file();
        let mut in_flight = opened(&file, 1);
        take(&mut in_flight, 0, &read_message(NODE, 0, 4));
        let failed = |_| Err(io::ErrorKind::NotConnected.into());
        in_flight.find_unanswered(failed).expect_err("the kernel does not say");
    }
}
