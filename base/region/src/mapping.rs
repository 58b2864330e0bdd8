//! Mapping of a region, with access to words and bytes by offset.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::ptr::NonNull;

use sync::atomic::AtomicU64;

use crate::error::{RegionError, RegionErrorKind};
use crate::file::{self, RegionSpec};
use crate::sys;

/// Amount of memory that is populated at once. Other threads that change mappings wait meanwhile.
const POPULATED_BYTES: u64 = 16 << 20;

/// A region. Dropping it unmaps it and releases its lock; the contents remain.
#[derive(Debug)]
pub struct Region {
    start: NonNull<u8>,
    length: usize,
    /// The locked file.
    file: File,
    path: PathBuf,
    asked_bytes: u64,
    #[cfg(feature = "crash-points")]
    crash_points: Option<crate::CrashPoints>,
}

// SAFETY:
// - exclusive: `start` is only used through methods that take atomics or say which threads may look
//   when; the mapping itself belongs to no thread.
unsafe impl Send for Region {}
// SAFETY:
// - exclusive: shared access goes through atomics, or through methods whose callers keep the
//   others away.
unsafe impl Sync for Region {}

impl Region {
    /// Opens or creates the file, locks it and allocates all of its memory. Waits a few seconds for
    /// a terminating process to release the lock.
    pub fn open(spec: &RegionSpec) -> Result<Self, RegionError> {
        let file = file::open(spec)?;
        let region = Self::map(file, spec, spec.size_bytes)?;
        let all = 0..spec.size_bytes;
        let held_bytes = region.held_bytes()?;
        if held_bytes < all.end {
            let taken = region.take_memory(std::slice::from_ref(&all), all.end);
            taken.inspect_err(|_| region.forget_if_new(held_bytes))?;
        }
        Ok(region)
    }

    /// Truncates a new file whose memory could not be allocated.
    fn forget_if_new(&self, held_bytes: u64) {
        if held_bytes == 0 {
            // The error of the allocation is reported instead.
            let _unlikely = self.file.set_len(0);
        }
    }

    /// Opens the file, or creates one that can grow to `capacity_bytes`, and locks it. A new file
    /// has no memory: see [`Region::take_memory`]. A caller that knows the layout of an existing
    /// file reads it with [`Region::peek`] before any memory is accessed. An existing file keeps
    /// its capacity. It must belong to this process's user and be inaccessible to others.
    pub fn open_growable(spec: &RegionSpec, capacity_bytes: u64) -> Result<Self, RegionError> {
        let (file, capacity_bytes) = file::open_growable(spec, capacity_bytes)?;
        Self::map(file, spec, capacity_bytes)
    }

    fn map(file: File, spec: &RegionSpec, capacity_bytes: u64) -> Result<Self, RegionError> {
        let failed = |call, error| RegionError {
            kind: RegionErrorKind::System { call },
            path: spec.path.clone(),
            source: Some(error),
        };
        let length = usize::try_from(capacity_bytes).expect("addresses have 64 bits");
        let start = sys::map_shared(file.as_fd(), length).map_err(|e| failed("mmap", e))?;
        let region = Self {
            start,
            length,
            file,
            path: spec.path.clone(),
            asked_bytes: spec.size_bytes,
            #[cfg(feature = "crash-points")]
            crash_points: None,
        };
        sys::keep_out_of_dumps(start, length).map_err(|e| failed("madvise", e))?;
        // Fails if the file system does not support huge pages, or has its own setting for them.
        let _refused = sys::prefer_huge_pages(start, length);
        Ok(region)
    }

    /// Maximum size of the region, and the end of its offsets.
    pub fn capacity_bytes(&self) -> u64 {
        self.length as u64
    }

    /// Size that was requested when the region was opened.
    pub fn asked_bytes(&self) -> u64 {
        self.asked_bytes
    }

    /// Allocates the memory of these ranges, so that no access to them can fail later or cause a
    /// page fault. `expected_bytes` is the total that the region should have, including memory that
    /// it already has. Fails if the host has too little, before or during the allocation; some of
    /// the ranges may have memory then. Thread-safe.
    pub fn take_memory(
        &self,
        ranges: &[Range<u64>],
        expected_bytes: u64,
    ) -> Result<(), RegionError> {
        self.crash_point();
        let wanted_bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        let missing_bytes =
            file::check_available(&self.file, &self.path, wanted_bytes, expected_bytes)?;
        ranges.iter().try_for_each(|range| self.take_range(range.clone(), missing_bytes))
    }

    fn take_range(&self, range: Range<u64>, missing_bytes: u64) -> Result<(), RegionError> {
        let mut next = Some(range.start);
        while let Some(start) = next {
            next = match self.populate(start..range.end) {
                Ok(next) => next,
                Err(error) => match error.raw_os_error() {
                    Some(libc::EFAULT | libc::ENOMEM) => {
                        return Err(file::not_enough(&self.file, &self.path, missing_bytes));
                    }
                    // On kernels without this advice, memory is allocated now, and page faults
                    // occur later.
                    Some(libc::EINVAL) => {
                        return file::allocate(&self.file, &self.path, start..range.end);
                    }
                    _ => {
                        let call = "madvise(MADV_POPULATE_WRITE)";
                        return Err(file::system_error(&self.path, call, error));
                    }
                },
            };
        }
        Ok(())
    }

    /// Reads words of the file from `offset` on without allocating memory; holes read as zeros.
    pub fn peek(&self, offset: u64, count: usize) -> Result<Vec<u64>, RegionError> {
        let mut bytes = vec![0; 8 * count];
        let read = self.file.read_exact_at(&mut bytes, offset);
        read.map_err(|error| file::system_error(&self.path, "pread", error))?;
        Ok(bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect())
    }

    /// Reserves huge pages of hugetlbfs for the ranges. On other file systems this does nothing.
    pub fn reserve_memory(&self, ranges: &[Range<u64>]) -> Result<(), RegionError> {
        file::reserve(&self.file, &self.path, ranges)
    }

    /// Frees the memory of a range, which must not be in use any more.
    pub fn give_back_memory(&self, range: Range<u64>) -> Result<(), RegionError> {
        self.crash_point();
        file::give_back(&self.file, &self.path, range)
    }

    /// Memory that the file has now, in bytes.
    pub fn held_bytes(&self) -> Result<u64, RegionError> {
        file::held_bytes(&self.file, &self.path)
    }

    /// Populates a piece of a range's memory: the kernel clears its pages and enters them in the
    /// page tables. Returns the offset of the next piece, if there is one. Without this, each first
    /// access causes a page fault.
    pub fn populate(&self, range: Range<u64>) -> std::io::Result<Option<u64>> {
        let end = range.end.min(self.capacity_bytes());
        let length = POPULATED_BYTES.min(end.saturating_sub(range.start));
        let bytes = usize::try_from(length).expect("addresses have 64 bits");
        sys::populate(self.pointer(range.start, bytes), bytes)?;
        Ok(Some(range.start + length).filter(|&next| next < end))
    }

    /// Returns the word at `offset`, for loads only.
    ///
    /// # Panics
    /// If the offset is not a multiple of 8 inside the region.
    #[inline]
    pub fn word(&self, offset: u64) -> &AtomicU64 {
        let at = self.pointer(offset, 8);
        assert!(offset.is_multiple_of(8), "words are aligned");
        let at = at.cast::<AtomicU64>();
        // SAFETY:
        // - in bounds: `pointer` checked eight bytes against the mapping.
        // - aligned: checked above; mappings begin on a page.
        // - alive: the mapping lives as long as `self`, which the result borrows.
        // - initialised: files begin as zeros, and every bit pattern is a word.
        unsafe { at.as_ref() }
    }

    /// Returns the word at `offset`, for stores.
    ///
    /// # Panics
    /// As [`Region::word`].
    #[inline]
    pub fn word_to_store(&self, offset: u64) -> &AtomicU64 {
        self.crash_point();
        self.word(offset)
    }

    /// Returns `count` words from `offset` on, for loads and stores, with one bounds check.
    ///
    /// # Panics
    /// If they are not inside the region, or `offset` is not a multiple of 8.
    #[inline]
    pub fn words_to_store(&self, offset: u64, count: usize) -> &[AtomicU64] {
        self.crash_point();
        let at = self.pointer(offset, 8 * count);
        assert!(offset.is_multiple_of(8), "words are aligned");
        // SAFETY:
        // - in bounds: `pointer` checked all of them against the mapping.
        // - aligned: checked above; mappings begin on a page.
        // - alive: the mapping lives as long as `self`, which the result borrows.
        // - initialised: files begin as zeros, and every bit pattern is a word.
        unsafe { std::slice::from_raw_parts(at.cast::<AtomicU64>().as_ptr(), count) }
    }

    /// Returns the bytes from `offset` on, without copying.
    ///
    /// # Safety
    /// No thread may store to these bytes while the result is in use.
    ///
    /// # Panics
    /// If they are not inside the region.
    #[inline]
    pub unsafe fn bytes(&self, offset: u64, length: usize) -> &[u8] {
        let at = self.pointer(offset, length);
        // SAFETY:
        // - in bounds: `pointer` checked the length against the mapping.
        // - alive: the mapping lives as long as `self`, which the result borrows.
        // - exclusive: the caller keeps writers away.
        // - initialised: files begin as zeros, and every bit pattern is a byte.
        unsafe { std::slice::from_raw_parts(at.as_ptr(), length) }
    }

    /// Returns the whole region as plain bytes, for exclusive use: measurements of bare memory.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY:
        // - in bounds, alive: the mapping, which the result borrows.
        // - exclusive: `self` is borrowed mutably, and the lock keeps other processes away.
        // - initialised: files begin as zeros, and every bit pattern is a byte.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }

    /// Copies `from` to `offset`, with non-temporal stores if that is faster.
    /// [`Region::store_fence`] must follow before the bytes are published.
    ///
    /// # Safety
    /// No other thread may load or store these bytes meanwhile.
    ///
    /// # Panics
    /// If they are not inside the region, or `offset` is not a multiple of 16.
    #[inline]
    pub unsafe fn store_bytes(&self, offset: u64, from: &[u8]) {
        assert!(offset.is_multiple_of(16), "stored bytes are aligned for streaming");
        // A kill may also happen between two stores of one copy.
        let split = if cfg!(feature = "crash-points") { from.len() / 32 * 16 } else { 0 };
        for piece in [0..split, split..from.len()] {
            self.crash_point();
            let to = self.pointer(offset + piece.start as u64, piece.len());
            // SAFETY:
            // - in bounds: `pointer` checked the length against the mapping.
            // - aligned: checked above; mappings begin on a page, and pieces on a multiple of 16.
            // - exclusive: the caller keeps all others away, so `from` is not this memory either.
            unsafe { streaming_copy::stream(to, &from[piece]) };
        }
    }

    /// Sets `length` bytes at `offset` to zero.
    ///
    /// # Safety
    /// No other thread may load or store these bytes meanwhile.
    ///
    /// # Panics
    /// If they are not inside the region.
    pub unsafe fn zero_bytes(&self, offset: u64, length: usize) {
        self.crash_point();
        let to = self.pointer(offset, length);
        // SAFETY:
        // - in bounds: `pointer` checked the length against the mapping.
        // - exclusive: the caller keeps all others away.
        unsafe { std::ptr::write_bytes(to.as_ptr(), 0, length) };
    }

    /// Orders non-temporal stores before later stores.
    #[inline]
    pub fn store_fence(&self) {
        streaming_copy::fence();
    }

    /// Prefetches the cache line at `offset`. Any offset may be given.
    #[inline]
    pub fn prefetch(&self, offset: u64) {
        if offset < self.capacity_bytes() {
            streaming_copy::prefetch(self.pointer(offset, 1));
        }
    }

    #[inline]
    fn pointer(&self, offset: u64, length: usize) -> NonNull<u8> {
        let start = usize::try_from(offset).expect("addresses have 64 bits");
        let fits = start <= self.length && length <= self.length - start;
        assert!(fits, "{length} bytes at {offset} lie outside the region");
        // SAFETY:
        // - in bounds: checked above, against one mapping.
        unsafe { self.start.add(start) }
    }

    #[cfg(feature = "crash-points")]
    pub fn set_crash_points(&mut self, points: crate::CrashPoints) {
        self.crash_points = Some(points);
    }

    #[inline]
    fn crash_point(&self) {
        #[cfg(feature = "crash-points")]
        if let Some(points) = &self.crash_points {
            points.pass();
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        sys::unmap(self.start, self.length);
    }
}
