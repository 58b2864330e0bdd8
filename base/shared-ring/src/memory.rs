//! Mapping of the shared memory, with access to lines and buffers by offset.
//!
//! No function returns a slice of shared memory, because the other side may store to it at any
//! moment. Lines consist of atomics; everything else is copied.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use sync::atomic::AtomicU64;

use crate::layout;
use crate::lines::{CompletionLine, SleepLine, SubmissionLine};
use crate::sys;

/// Alignment that non-temporal stores require.
const STREAM_ALIGNMENT: usize = 16;

/// Mapping of a connection's memory by one side.
#[derive(Debug)]
pub(crate) struct Memory {
    start: NonNull<u8>,
    length: usize,
    lane_count: usize,
}

// SAFETY:
// - exclusive: the mapping belongs to no thread; all access goes through atomics or copies.
unsafe impl Send for Memory {}
// SAFETY:
// - exclusive: shared access goes through atomics, or copies that expect others to store.
unsafe impl Sync for Memory {}

/// Position in a slot's buffer, from byte `start` on.
#[derive(Clone, Copy)]
pub(crate) struct BufferPlace {
    pub(crate) lane: usize,
    pub(crate) slot: usize,
    pub(crate) start: usize,
}

impl Memory {
    pub(crate) fn map(file: BorrowedFd<'_>, lane_count: usize) -> io::Result<Self> {
        let length = layout::memory_bytes(lane_count);
        sys::check_sealed(file, length)?;
        let memory = Self { start: sys::map_shared(file, length)?, length, lane_count };
        sys::keep_out_of_dumps(memory.start, length)?;
        Ok(memory)
    }

    pub(crate) fn lane_count(&self) -> usize {
        self.lane_count
    }

    /// Size of the device.
    pub(crate) fn size_word(&self) -> &AtomicU64 {
        self.word(layout::SIZE_OFFSET)
    }

    /// Bit set of the lanes in use. The client may store any value.
    pub(crate) fn lanes_in_use(&self) -> &AtomicU64 {
        self.word(layout::LANES_IN_USE_OFFSET)
    }

    pub(crate) fn server_sleep(&self) -> &SleepLine {
        self.sleep_line(layout::SERVER_SLEEP_OFFSET)
    }

    pub(crate) fn lane_sleep(&self, lane: usize) -> &SleepLine {
        self.sleep_line(layout::lane_sleep_offset(lane))
    }

    #[inline]
    pub(crate) fn submission(&self, lane: usize, position: u64) -> &SubmissionLine {
        let at = self.place::<SubmissionLine>(layout::submission_offset(lane, position));
        // SAFETY:
        // - in bounds, aligned: `place` checked both against the mapping.
        // - alive: the mapping lives as long as `self`, which the result borrows.
        // - initialised: the file began as zeros, and a line is atomics, which take every pattern.
        unsafe { at.as_ref() }
    }

    #[inline]
    pub(crate) fn completion(&self, lane: usize, slot: usize) -> &CompletionLine {
        let at = self.place::<CompletionLine>(layout::completion_offset(lane, slot));
        // SAFETY:
        // - in bounds, aligned: `place` checked both against the mapping.
        // - alive: the mapping lives as long as `self`, which the result borrows.
        // - initialised: the file began as zeros, and a line is atomics, which take every pattern.
        unsafe { at.as_ref() }
    }

    /// Copies `from` to a slot's buffer.
    ///
    /// # Panics
    /// If it is longer than the buffer.
    #[inline]
    pub(crate) fn copy_in(&self, at: BufferPlace, from: &[u8]) {
        let to = self.buffer(at, from.len());
        // SAFETY:
        // - in bounds: `buffer` checked the length against the mapping.
        // - exclusive: `from` is ordinary memory, which no mapping of this crate is given out as.
        //   The other process may store to the same bytes; nothing here relies on what they hold.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), from.len()) };
    }

    /// Copies as [`Memory::copy_in`] does, with non-temporal stores, and prefetches `next`, which
    /// is copied afterwards. The copy is ordered before later stores to lines.
    ///
    /// # Panics
    /// If `from` is longer than the buffer.
    #[inline]
    pub(crate) fn stream_in(&self, at: BufferPlace, from: &[u8], next: &[u8]) {
        if !at.start.is_multiple_of(STREAM_ALIGNMENT) {
            return self.copy_in(at, from);
        }
        let to = self.buffer(at, from.len());
        // SAFETY:
        // - in bounds: `buffer` checked the length against the mapping.
        // - aligned: buffers begin on a page, and `start` was checked.
        // - exclusive: `from` is ordinary memory, which no mapping of this crate is given out as.
        //   The other process may store to the same bytes; nothing here relies on what they hold.
        unsafe { streaming_copy::stream_before(to, from, next) };
        streaming_copy::fence();
    }

    /// Copies from a slot's buffer. Concurrent stores by the other side may be copied partially.
    ///
    /// # Panics
    /// If `into` is longer than the buffer.
    #[inline]
    pub(crate) fn copy_out(&self, at: BufferPlace, into: &mut [u8]) {
        let from = self.buffer(at, into.len());
        // SAFETY:
        // - in bounds: `buffer` checked the length against the mapping.
        // - exclusive: `into` is ordinary memory, which no mapping of this crate is given out as.
        //   The other process may store to the source; every byte is read once, by this copy alone.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), into.as_mut_ptr(), into.len()) };
    }

    #[inline]
    fn buffer(&self, at: BufferPlace, length: usize) -> NonNull<u8> {
        let BufferPlace { lane, slot, start } = at;
        let fits = start <= layout::SLOT_BYTES && length <= layout::SLOT_BYTES - start;
        assert!(fits, "{length} bytes at {start} lie outside the buffer of a slot");
        assert!(lane < self.lane_count, "lane {lane} of {}", self.lane_count);
        assert!(slot < layout::SLOTS, "slot {slot}");
        let offset = layout::buffer_offset(lane, slot) + start;
        // SAFETY:
        // - in bounds: lane, slot, start and length were checked above, and the layout puts every
        //   buffer of every lane inside the mapping.
        unsafe { self.start.add(offset) }
    }

    fn sleep_line(&self, offset: usize) -> &SleepLine {
        // SAFETY:
        // - in bounds, aligned: `place` checked both against the mapping.
        // - alive: the mapping lives as long as `self`, which the result borrows.
        // - initialised: the file began as zeros, and a line is atomics, which take every pattern.
        unsafe { self.place::<SleepLine>(offset).as_ref() }
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY:
        // - in bounds, aligned: `place` checked both against the mapping.
        // - alive: the mapping lives as long as `self`, which the result borrows.
        // - initialised: the file began as zeros, and every bit pattern is a word.
        unsafe { self.place::<AtomicU64>(offset).as_ref() }
    }

    #[inline]
    fn place<T>(&self, offset: usize) -> NonNull<T> {
        assert!(offset < self.length, "{offset} lies outside the ring's memory");
        assert!(size_of::<T>() <= self.length - offset, "{offset} is too near the end");
        assert!(offset.is_multiple_of(align_of::<T>()), "lines are aligned");
        // SAFETY:
        // - in bounds: checked above, against one mapping.
        unsafe { self.start.add(offset) }.cast()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        sys::unmap(self.start, self.length);
    }
}
