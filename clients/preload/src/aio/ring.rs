//! The ring of events at the address that programs hold: `struct aio_ring` (`linux/fs/aio.c`).
//!
//! ```text
//! io_setup ─▶ ours is at the program's address, empty; the kernel's lies elsewhere, and is idle
//!    │ every request is served here: its event is put into ours
//!    ▼
//! a request that is the kernel's ─▶ the kernel's ring is moved to the program's address, with the
//!                                   events that nobody has collected: it is the kernel's for good
//! ```
//!
//! Programs read that memory without asking anybody: QEMU, fio, libaio itself. So ours is the
//! kernel's to the word, and moves in one step, in which positions stay.

use std::mem::{offset_of, size_of};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::mm::{MapFlags, MremapFlags, ProtFlags, mmap_anonymous, mremap_fixed, munmap};

use super::calls;
use super::form::{Event, Request};

const MAGIC: u32 = 0xA10A_10A1;

/// Events that the kernel is made to produce at once.
const NOTHINGS_MAX: u32 = 64;

/// What a ring begins with.
#[repr(C)]
struct Header {
    id: AtomicU32,
    event_count: AtomicU32,
    /// Moved by whoever takes events: the program, libaio, the kernel, or this library.
    head: AtomicU32,
    tail: AtomicU32,
    magic: AtomicU32,
    features: AtomicU32,
    /// Those without which nobody can read it.
    needed_features: AtomicU32,
    header_bytes: AtomicU32,
}

const _: () = assert!(size_of::<Header>() == 32);
const _: () = assert!(offset_of!(Header, head) == 8);

/// A ring in memory that is mapped for as long as this is used.
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

    /// From one position to another, forwards.
    fn distance(&self, from: u32, to: u32) -> u32 {
        (to + self.event_count - from) % self.event_count
    }
}

/// Ours, beside the kernel's.
pub(super) struct Ring {
    own: Place,
    /// What the program has written there instead is of no interest.
    tail: u32,
    /// Head after the last event that was taken here.
    head: u32,
    kernel: Place,
}

impl Ring {
    /// In front of the kernel's context of this address, if that is one which nobody has used.
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

    /// The kernel's name for its context.
    pub(super) fn kernel(&self) -> usize {
        self.kernel.start
    }

    /// Events that nobody has taken.
    pub(super) fn count(&self) -> u32 {
        self.own.distance(self.own.head(), self.tail)
    }

    /// Returns whether there are, with `others`, as many events as the kernel would have room for
    /// in any case; it makes twice as much as it is asked for. Threads that add at once may add one
    /// more each.
    pub(super) fn is_full(&self, others: usize) -> bool {
        self.count() as usize + others >= self.own.event_count as usize / 2
    }

    /// Returns whether the program has taken events itself, in memory.
    pub(super) fn is_read_in_memory(&self) -> bool {
        self.own.head() != self.head
    }

    /// Tells programs that look for it that events are not to be read in memory.
    pub(super) fn forbid_reading_in_memory(&self) {
        self.own.header().magic.store(!MAGIC, Ordering::Relaxed);
    }

    pub(super) fn add(&mut self, event: Event) {
        self.own.put(self.tail, event);
        self.tail = (self.tail + 1) % self.own.event_count;
        // Its partners are the programs that read the ring.
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

    /// Puts the kernel's in the place of ours. What fails may be tried again.
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

    /// Has the kernel produce events of requests that do nothing, until its next one would stand at
    /// `tail`, with the last `count` not taken.
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

    /// Takes ours away from the program, whose context has ended.
    pub(super) fn unmap(&mut self) {
        let start = ptr::with_exposed_provenance_mut(self.own.start);
        // SAFETY:
        // - alive, in bounds: it was mapped by this library, and is unmapped once.
        // - exclusive: who reads a ring that it destroyed finds nothing there by the kernel either.
        let _ = unsafe { munmap(start, self.own.bytes()) };
    }
}
