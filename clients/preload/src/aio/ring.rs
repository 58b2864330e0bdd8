//! Event ring at the address of the program's handle: `struct aio_ring` (`linux/fs/aio.c`).
//!
//! ```text
//! io_setup ─▶ our empty ring at the program's address; the kernel's ring elsewhere, idle
//!    │ requests are served here, and their events stored in our ring
//!    ▼
//! first request for the kernel ─▶ the kernel's ring moves to the program's address, with all
//!                                 uncollected events; the kernel serves the context from then on
//! ```
//!
//! Some programs, such as QEMU, fio and libaio itself, read that memory directly. Therefore this
//! library's ring has exactly the kernel's layout, and is replaced in one step that preserves
//! positions.

use std::mem::{offset_of, size_of};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::mm::{MapFlags, MremapFlags, ProtFlags, mmap_anonymous, mremap_fixed, munmap};

use super::calls;
use super::form::{Event, Request};

const MAGIC: u32 = 0xA10A_10A1;

/// Maximum number of no-op requests that are submitted to the kernel at once.
const NOTHINGS_MAX: u32 = 64;

/// Header of a ring.
#[repr(C)]
struct Header {
    id: AtomicU32,
    event_count: AtomicU32,
    /// Advanced by whoever takes events: the program, libaio, the kernel, or this library.
    head: AtomicU32,
    tail: AtomicU32,
    magic: AtomicU32,
    features: AtomicU32,
    /// Incompatible features: a reader must support all of them.
    needed_features: AtomicU32,
    header_bytes: AtomicU32,
}

const _: () = assert!(size_of::<Header>() == 32);
const _: () = assert!(offset_of!(Header, head) == 8);

/// A ring in memory, which stays mapped while this exists.
struct Place {
    start: usize,
    event_count: u32,
}

impl Place {
    fn header(&self) -> &Header {
        // SAFETY:
        // - alive, aligned, initialised: a ring is mapped there, as the makers of places vouch.
        // - exclusive: it is only used as atomics.
        unsafe { &*ptr::with_exposed_provenance::<Header>(self.start) }
    }

    fn bytes(&self) -> usize {
        size_of::<Header>() + self.event_count as usize * size_of::<Event>()
    }

    fn head(&self) -> u32 {
        // PAIRS-WITH: Place::set_head, "the events before were taken"
        self.header().head.load(Ordering::Acquire) % self.event_count
    }

    fn set_head(&self, head: u32) {
        // PAIRS-WITH: Place::head, "the events before were taken"
        self.header().head.store(head % self.event_count, Ordering::Release);
    }

    fn event(&self, position: u32) -> *mut Event {
        let index = (position % self.event_count) as usize;
        let start = self.start + size_of::<Header>() + index * size_of::<Event>();
        ptr::with_exposed_provenance_mut(start)
    }

    fn get(&self, position: u32) -> Event {
        // SAFETY:
        // - alive, aligned, in bounds, initialised: the position is one of the ring's, of plain
        //   numbers.
        unsafe { self.event(position).read_volatile() }
    }

    fn put(&self, position: u32, event: Event) {
        // SAFETY:
        // - alive, aligned, in bounds: the position is one of the ring's.
        // - exclusive: only one thread puts events, where nobody takes any.
        unsafe { self.event(position).write_volatile(event) };
    }

    /// Distance from one position to another, forwards.
    fn distance(&self, from: u32, to: u32) -> u32 {
        (to + self.event_count - from) % self.event_count
    }
}

/// This library's ring and the kernel's.
pub(super) struct Ring {
    own: Place,
    /// Position after the last event. Values that the program writes to the header are ignored.
    tail: u32,
    /// Head after the last event that was taken here.
    head: u32,
    kernel: Place,
}

impl Ring {
    /// Creates a ring in front of the kernel context with this handle, if its ring is unused and
    /// has a known layout.
    pub(super) fn in_front_of(context: usize) -> Option<Self> {
        let kernel = Place { start: context, event_count: 1 };
        let header = kernel.header();
        let word = |word: &AtomicU32| word.load(Ordering::Relaxed);
        let is_known = word(&header.magic) == MAGIC
            && word(&header.needed_features) == 0
            && word(&header.header_bytes) as usize == size_of::<Header>()
            && word(&header.tail) == 0;
        let event_count = word(&header.event_count);
        if !is_known || event_count < 2 {
            return None;
        }
        let kernel = Place { start: context, event_count };
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let bytes = kernel.bytes();
        // SAFETY:
        // - in bounds: the kernel chooses where it lies.
        let start =
            unsafe { mmap_anonymous(ptr::null_mut(), bytes, protection, MapFlags::PRIVATE) };
        let own = Place { start: start.ok()?.expose_provenance(), event_count };
        let (from, to) = (kernel.header(), own.header());
        for (from, to) in [
            (&from.id, &to.id),
            (&from.event_count, &to.event_count),
            (&from.magic, &to.magic),
            (&from.features, &to.features),
            (&from.header_bytes, &to.header_bytes),
        ] {
            to.store(word(from), Ordering::Relaxed);
        }
        Some(Self { own, tail: 0, head: 0, kernel })
    }

    /// Handle that the program holds.
    pub(super) fn handle(&self) -> usize {
        self.own.start
    }

    /// The kernel's handle of its context.
    pub(super) fn kernel(&self) -> usize {
        self.kernel.start
    }

    /// Number of events that were not taken.
    pub(super) fn count(&self) -> u32 {
        self.own.distance(self.own.head(), self.tail)
    }

    /// Returns whether the events, including `others`, reach the number for which the kernel
    /// guarantees room; it allocates twice the requested number. Threads that add events
    /// concurrently may exceed it by one each.
    pub(super) fn is_full(&self, others: usize) -> bool {
        self.count() as usize + others >= self.own.event_count as usize / 2
    }

    /// Returns whether the program has taken events directly from memory.
    pub(super) fn is_read_in_memory(&self) -> bool {
        self.own.head() != self.head
    }

    /// Invalidates the magic number, so that programs that check it do not read events from memory.
    pub(super) fn forbid_reading_in_memory(&self) {
        self.own.header().magic.store(!MAGIC, Ordering::Relaxed);
    }

    pub(super) fn add(&mut self, event: Event) {
        self.own.put(self.tail, event);
        self.tail = (self.tail + 1) % self.own.event_count;
        // Pairs with the programs that read the ring.
        self.own.header().tail.store(self.tail, Ordering::Release);
    }

    pub(super) fn take(&mut self) -> Option<Event> {
        let head = self.own.head();
        if head == self.tail {
            return None;
        }
        let event = self.own.get(head);
        self.head = (head + 1) % self.own.event_count;
        self.own.set_head(self.head);
        Some(event)
    }

    /// Replaces this library's ring by the kernel's at the program's address. After an error the
    /// call may be repeated.
    pub(super) fn give_back(&mut self) -> Result<(), Errno> {
        let count = self.count();
        self.bring_kernel_to(self.tail, count)?;
        let head = self.own.head();
        for step in 0..self.own.distance(head, self.tail) {
            self.kernel.put(head + step, self.own.get(head + step));
        }
        self.kernel.set_head(head);
        let bytes = self.own.bytes();
        let from = ptr::with_exposed_provenance_mut(self.kernel.start);
        let to = ptr::with_exposed_provenance_mut(self.own.start);
        // SAFETY:
        // - alive, in bounds: both are mapped, of the same length.
        // - exclusive: the kernel's is known to this library alone; what replaces ours is read as
        //   that was.
        unsafe { mremap_fixed(from, bytes, bytes, MremapFlags::MAYMOVE, to) }?;
        Ok(())
    }

    /// Makes the kernel produce events of no-op requests, until its tail is at `tail` with the last
    /// `count` events not taken.
    fn bring_kernel_to(&self, tail: u32, count: u32) -> Result<(), Errno> {
        let kernel_tail = || self.kernel.header().tail.load(Ordering::Acquire);
        let mut steps = self.kernel.distance(kernel_tail(), tail);
        if steps < count {
            steps += self.kernel.event_count;
        }
        if steps == 0 {
            return Ok(());
        }
        let file = rustix::fs::memfd_create(c"memlane-nothing", MemfdFlags::CLOEXEC)?;
        let nothing = Request::nothing(&file);
        let list = [&raw const nothing; NOTHINGS_MAX as usize];
        while steps > 0 {
            let batch = if steps > count { steps - count } else { steps };
            let batch = batch.min(NOTHINGS_MAX);
            let done = calls::submit(self.kernel(), batch as isize, list.as_ptr());
            let done = u32::try_from(done).map_err(|_| Errno::from_raw_os_error(-done))?;
            steps -= done.min(steps);
            if steps >= count {
                self.kernel.set_head(kernel_tail());
            }
        }
        Ok(())
    }

    /// Unmaps this library's ring, after the context has ended.
    pub(super) fn unmap(&mut self) {
        let start = ptr::with_exposed_provenance_mut(self.own.start);
        // SAFETY:
        // - alive, in bounds: it was mapped by this library, and is unmapped once.
        // - exclusive: who reads a ring that it destroyed finds nothing there by the kernel either.
        let _ = unsafe { munmap(start, self.own.bytes()) };
    }
}
