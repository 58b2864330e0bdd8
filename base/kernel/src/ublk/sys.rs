//! System calls of ublk, with one unsafe operation in each block.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};

use io_uring::squeue::{self, EntryMarker};
use io_uring::{IoUring, cqueue};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use crate::ublk::abi::{DESCRIPTOR_BYTES, Descriptor, page_aligned, table_offset};

/// A command. If it refers to memory, the caller must keep the memory until the completion was
/// received.
pub(crate) struct Entry<S: EntryMarker>(S);

impl Entry<squeue::Entry> {
    /// Wraps a command that refers to no memory of this process, or to a [`Buffers`] that outlives
    /// the ring.
    pub(crate) fn without_memory(entry: squeue::Entry) -> Self {
        Self(entry)
    }
}

/// A control command with the memory that it refers to.
pub(crate) struct EntryWithMemory {
    pub(crate) entry: squeue::Entry128,
    pub(crate) memory: Box<[u8]>,
}

/// Queues a command in the ring.
pub(crate) fn push(ring: &mut IoUring, entry: &Entry<squeue::Entry>) -> io::Result<()> {
    // SAFETY:
    // - alive: entries of this type name no memory, or memory that outlives the ring.
    unsafe { ring.submission().push(&entry.0) }.map_err(io::Error::other)
}

/// Runs one command, and returns its result and its memory, which may have changed.
pub(crate) fn run(
    ring: &mut IoUring<squeue::Entry128, cqueue::Entry>,
    command: EntryWithMemory,
) -> io::Result<(i32, Box<[u8]>)> {
    let EntryWithMemory { entry, memory } = command;
    // SAFETY:
    // - alive: `memory` is given back only when the command has ended, and is leaked when that
    //   cannot be told.
    unsafe { ring.submission().push(&entry) }.map_err(io::Error::other)?;
    loop {
        match ring.submit_and_wait(1) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                Box::leak(memory);
                return Err(error);
            }
            Ok(_) => {}
        }
        if let Some(completion) = ring.completion().next() {
            return Ok((completion.result(), memory));
        }
    }
}

/// Table in which the driver describes the requests of one queue.
pub(crate) struct Table {
    start: NonNull<Descriptor>,
    bytes: usize,
    depth: u16,
}

impl Table {
    pub(crate) fn map(channel: BorrowedFd<'_>, queue: u16, depth: u16) -> io::Result<Self> {
        let bytes = page_aligned(usize::from(depth) * DESCRIPTOR_BYTES);
        let offset = table_offset(queue);
        // SAFETY:
        // - alive: the kernel chooses a free place for the mapping; it replaces none.
        let start = unsafe {
            mmap(ptr::null_mut(), bytes, ProtFlags::READ, MapFlags::SHARED, channel, offset)
        }?;
        let start = NonNull::new(start.cast()).expect("a mapping is not at zero");
        Ok(Self { start, bytes, depth })
    }

    /// Copies the driver's description of request `tag`.
    pub(crate) fn read(&self, tag: u16) -> Descriptor {
        assert!(tag < self.depth, "a queue of depth {} has no tag {tag}", self.depth);
        // SAFETY:
        // - in bounds: `tag` is below the depth that the mapping was made for.
        let place = unsafe { self.start.add(usize::from(tag)) };
        // SAFETY:
        // - alive, aligned: the mapping begins at a page and lasts as long as `self`.
        // - initialised: the driver has zeroed it, and every bit pattern is a descriptor.
        unsafe { place.read_volatile() }
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // SAFETY:
        // - exclusive: no other thread knows the mapping, and no reference into it was given out.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "what was mapped can be unmapped");
    }
}

/// Buffers from and to which the driver copies the data of requests, one for each tag. They are
/// accessed only by raw copies, because the driver may change them concurrently.
#[derive(Debug)]
pub(crate) struct Buffers {
    start: NonNull<u8>,
    piece_bytes: usize,
    count: usize,
}

// SAFETY:
// - exclusive: a piece is touched only through the one `UblkRequest` that there is for its tag.
unsafe impl Send for Buffers {}
// SAFETY:
// - exclusive: shares touch pieces only through the one `UblkRequest` of each tag; the start and
//   the sizes never change.
unsafe impl Sync for Buffers {}

impl Buffers {
    pub(crate) fn new(piece_bytes: usize, count: usize) -> io::Result<Self> {
        let bytes = piece_bytes * count;
        // SAFETY:
        // - alive: the kernel chooses a free place for the mapping; it replaces none.
        let start = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }?;
        let start = NonNull::new(start.cast()).expect("a mapping is not at zero");
        Ok(Self { start, piece_bytes, count })
    }

    /// Address of the buffer of `tag`, for the driver.
    pub(crate) fn address(&self, tag: u16) -> u64 {
        self.place(tag, 0, 0).addr().get() as u64
    }

    pub(crate) fn copy_out(&self, tag: u16, offset: usize, into: &mut [u8]) {
        let from = self.place(tag, offset, into.len());
        // SAFETY:
        // - in bounds: `place` has checked both ends.
        // - alive: the mapping lasts as long as `self`; `into` is borrowed.
        // - initialised: fresh memory is zero.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), into.as_mut_ptr(), into.len()) };
    }

    pub(crate) fn copy_in(&self, tag: u16, offset: usize, from: &[u8]) {
        let into = self.place(tag, offset, from.len());
        // SAFETY:
        // - in bounds: `place` has checked both ends.
        // - alive: the mapping lasts as long as `self`; `from` is borrowed.
        // - exclusive: the caller holds the only request of this tag.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), into.as_ptr(), from.len()) };
    }

    fn place(&self, tag: u16, offset: usize, length: usize) -> NonNull<u8> {
        let (tag, end) = (usize::from(tag), offset.checked_add(length));
        assert!(tag < self.count, "there are {} buffers, and none for tag {tag}", self.count);
        let fits = end.is_some_and(|end| end <= self.piece_bytes);
        assert!(fits, "{length} bytes at {offset} do not fit a buffer of {}", self.piece_bytes);
        // SAFETY:
        // - in bounds: tag and offset were checked against what was mapped.
        unsafe { self.start.add(tag * self.piece_bytes + offset) }
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY:
        // - exclusive: rings that told the driver of it hold a share of it, so they are gone.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.piece_bytes * self.count) };
        debug_assert!(unmapped.is_ok(), "what was mapped can be unmapped");
    }
}
