//! Grace periods: reclamation of memory that readers may still access (epoch-based reclamation).
//!
//! A reader pins for the duration of one batch of requests. A writer that has unpublished an object
//! gets an epoch and may reuse the memory after [`Grace::advance`] has returned that epoch or a
//! later one: no reader that could have seen the object is pinned any more.
//!
//! ```text
//!  writer   unpublish ─ fence ─ epoch = 7 ─────────────── advance ≥ 7? ─ reuse
//!  reader A        pin(7) ══════ looks ══════ unpin                  no        yes
//!  reader B                                          pin(8) ══════ cannot see it ══════
//! ```
//!
//! Readers pin a thousand times as often as writers advance, so the barrier between them is
//! [asymmetric](crate::barrier): a pin is two plain stores to a slot that only its own thread
//! writes. An atomic read-modify-write would make each copy wait for the previous one.
//!
//! The state is private to the process, and ends with it and all its readers.

use std::marker::PhantomData;

use crate::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use crate::barrier::Barrier;
use crate::thread_number::thread_mark;
use crate::{Padded, thread_number};

/// A point in time that separates readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(u64);

/// Epoch value of a slot without a pinned thread.
const IDLE: u64 = 0;

/// Owner value of a free shared slot, and of a slot that belongs to one thread permanently.
const NO_THREAD: usize = 0;

/// Number of slots shared by threads without their own.
const SHARED_PLACES: usize = 16;

/// Readers of one pool, and their epochs.
#[derive(Debug)]
pub struct Grace {
    now: Padded<AtomicU64>,
    /// Slot `n` belongs to thread number `n`.
    own: Box<[Padded<Place>]>,
    /// Slots for threads with higher numbers, used by one thread at a time. A nested pin reuses its
    /// thread's slot.
    shared: Box<[Padded<Place>]>,
    barrier: Barrier,
}

/// Slot in which one reader announces that it is pinned.
#[derive(Debug)]
struct Place {
    epoch: AtomicU64,
    /// Nesting depth of the owner's pins. Accessed only by the owner.
    depth: AtomicU32,
    /// Number of outer pins so far, modulo 2^32. Changed only by the owner.
    pins: AtomicU32,
    /// Mark of the thread that occupies this shared slot. A thread stores, and recognizes, only its
    /// own mark.
    owner: AtomicUsize,
}

impl Place {
    fn new() -> Padded<Self> {
        Padded(Self {
            epoch: AtomicU64::new(IDLE),
            depth: AtomicU32::new(0),
            pins: AtomicU32::new(0),
            owner: AtomicUsize::new(NO_THREAD),
        })
    }

    /// A plain store, because only the owner changes the count.
    #[cfg(not(loom))]
    #[inline]
    fn count_pin(&self) {
        self.pins.store(self.pins.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// The count is a statistic, so loom need not explore it.
    #[cfg(loom)]
    fn count_pin(&self) {}
}

impl Grace {
    /// Creates slots for `thread_count` threads. Further threads share slots and may wait for each
    /// other.
    pub fn new(thread_count: usize) -> Self {
        Self {
            now: Padded(AtomicU64::new(IDLE + 1)),
            own: (0..thread_count).map(|_| Place::new()).collect(),
            shared: (0..SHARED_PLACES).map(|_| Place::new()).collect(),
            barrier: Barrier::new(),
        }
    }

    /// Prevents reuse of everything that is published now, until the guard is dropped.
    #[inline]
    pub fn pin(&self) -> Pinned<'_> {
        self.pin_as(thread_number())
    }

    /// Pins for a thread with this number, because loom's threads have no numbers.
    #[cfg(loom)]
    pub fn pin_for(&self, number: usize) -> Pinned<'_> {
        self.pin_as(Some(number))
    }

    /// Pins for the calling thread, which must have this number.
    #[inline]
    fn pin_as(&self, thread: Option<usize>) -> Pinned<'_> {
        let Some(place) = thread.and_then(|number| self.own.get(number)) else {
            return self.pin_shared(thread_mark(thread));
        };
        let depth = place.depth.load(Ordering::Relaxed);
        place.depth.store(depth + 1, Ordering::Relaxed);
        if depth == 0 {
            // Acquire: a thread that sees an epoch also sees everything unpublished before its
            // start.
            let epoch = self.now.load(Ordering::Acquire);
            place.epoch.store(epoch, Ordering::Relaxed);
            place.count_pin();
            // PAIRS-WITH: Grace::advance, "what is unpublished cannot be found any more".
            self.barrier.light();
        }
        Pinned { place, _of_this_thread: PhantomData }
    }

    /// Pins for the thread with this mark, in the slot that it has or in the next free one. A
    /// pinned thread never waits here; otherwise readers in all slots could wait for each other.
    #[cold]
    fn pin_shared(&self, owner: usize) -> Pinned<'_> {
        let is_owned = |place: &&Padded<Place>| place.owner.load(Ordering::Relaxed) == owner;
        if let Some(place) = self.shared.iter().find(is_owned) {
            place.depth.store(place.depth.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            return Pinned { place, _of_this_thread: PhantomData };
        }
        loop {
            for place in &self.shared {
                let epoch = self.now.load(Ordering::SeqCst);
                let taken =
                    place.epoch.compare_exchange(IDLE, epoch, Ordering::SeqCst, Ordering::Relaxed);
                if taken.is_ok() {
                    fence(Ordering::SeqCst);
                    place.owner.store(owner, Ordering::Relaxed);
                    place.depth.store(1, Ordering::Relaxed);
                    place.count_pin();
                    return Pinned { place, _of_this_thread: PhantomData };
                }
            }
            crate::atomic_yield();
        }
    }

    /// Number of pins by all threads except the caller's, modulo 2^32: a measure of their activity
    /// without a shared counter.
    pub fn pins_of_others(&self) -> u32 {
        self.pins_besides(thread_number())
    }

    fn pins_besides(&self, thread: Option<usize>) -> u32 {
        let own = thread.and_then(|number| self.own.get(number));
        let all = self.own.iter().chain(&self.shared);
        let others = all.filter(|place| own.is_none_or(|own| !std::ptr::eq(*place, own)));
        others.fold(0, |sum, place| sum.wrapping_add(place.pins.load(Ordering::Relaxed)))
    }

    /// Epoch to wait for before objects unpublished so far may be reused.
    pub fn retire_epoch(&self) -> Epoch {
        // Readers of later epochs cannot see the unpublished objects.
        fence(Ordering::SeqCst);
        Epoch(self.now.load(Ordering::SeqCst))
    }

    /// Starts a new epoch, and returns the last one that has no readers and gets no new ones.
    /// Interrupts the other running threads of the process for a few microseconds.
    pub fn advance(&self) -> Epoch {
        let begun = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        // PAIRS-WITH: Grace::pin_as, "what is unpublished cannot be found any more".
        self.barrier.heavy();
        let mut oldest = begun;
        for place in self.own.iter().chain(&self.shared) {
            // Acquire: a reader's looks happen before its leaving, and so before the reuse.
            // PAIRS-WITH: Pinned::drop, "the reader is done looking".
            let pinned = place.epoch.load(Ordering::Acquire);
            if pinned != IDLE {
                oldest = oldest.min(pinned);
            }
        }
        Epoch(oldest - 1)
    }
}

/// A pinned reader. Dropping it allows reuse of memory. It must stay on the thread that pinned.
#[derive(Debug)]
pub struct Pinned<'grace> {
    place: &'grace Place,
    _of_this_thread: PhantomData<*const ()>,
}

impl Drop for Pinned<'_> {
    #[inline]
    fn drop(&mut self) {
        let depth = self.place.depth.load(Ordering::Relaxed) - 1;
        self.place.depth.store(depth, Ordering::Relaxed);
        if depth == 0 {
            // Cleared before the slot becomes free, so that the next owner's mark is not
            // overwritten.
            self.place.owner.store(NO_THREAD, Ordering::Relaxed);
            // PAIRS-WITH: Grace::advance, "the reader is done looking".
            self.place.epoch.store(IDLE, Ordering::Release);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_epoch_passes_when_nobody_is_pinned() {
        let grace = Grace::new(2);
        let epoch = grace.retire_epoch();
        assert!(grace.advance() >= epoch);
    }

    #[test]
    fn an_epoch_does_not_pass_while_an_older_reader_is_pinned() {
        let grace = Grace::new(2);
        for thread in [Some(0), Some(2), None] {
            let reader = grace.pin_as(thread);
            let epoch = grace.retire_epoch();
            assert!(grace.advance() < epoch);
            drop(reader);
            assert!(grace.advance() >= epoch);
        }
    }

    #[test]
    fn the_pins_of_others_are_counted_once_each() {
        let grace = Grace::new(2);
        for thread in [Some(0), Some(1), Some(1), None] {
            drop((grace.pin_as(thread), grace.pin_as(thread)));
        }
        assert_eq!(grace.pins_besides(Some(0)), 3);
        assert_eq!(grace.pins_besides(Some(1)), 2);
        assert_eq!(grace.pins_besides(None), 4);
    }

    #[test]
    fn a_reader_that_came_later_holds_nothing_up() {
        let grace = Grace::new(2);
        let epoch = grace.retire_epoch();
        grace.advance();
        let _reader = grace.pin_as(Some(0));
        assert!(grace.advance() >= epoch);
    }

    #[test]
    fn a_reader_that_pins_twice_is_pinned_until_it_has_let_go_twice() {
        let grace = Grace::new(2);
        let outer = grace.pin_as(Some(1));
        drop(grace.pin_as(Some(1)));
        let epoch = grace.retire_epoch();
        assert!(grace.advance() < epoch);
        drop(outer);
        assert!(grace.advance() >= epoch);
    }

    #[test]
    fn readers_without_places_of_their_own_have_different_ones() {
        let grace = Grace::new(0);
        let first = grace.pin_as(None);
        std::thread::scope(|scope| {
            let place = std::ptr::from_ref(first.place).addr();
            let other = scope.spawn(|| std::ptr::from_ref(grace.pin_as(Some(5)).place).addr());
            assert_ne!(place, other.join().expect("the thread ends"));
        });
    }

    #[test]
    fn a_reader_in_a_shared_place_is_pinned_until_it_has_let_go_twice() {
        let grace = Grace::new(0);
        let outer = grace.pin_as(None);
        let inner = grace.pin_as(None);
        let epoch = grace.retire_epoch();
        drop(outer);
        assert!(grace.advance() < epoch);
        drop(inner);
        assert!(grace.advance() >= epoch);
        let _again = grace.pin_as(None);
        let epoch = grace.retire_epoch();
        assert!(grace.advance() < epoch);
    }

    #[test]
    fn readers_in_all_shared_places_pin_again_without_waiting_for_each_other() {
        let grace = Arc::new(Grace::new(0));
        let all_are_pinned = Arc::new(std::sync::Barrier::new(SHARED_PLACES));
        let (ended, all_ended) = std::sync::mpsc::channel();
        for _ in 0..SHARED_PLACES {
            let (grace, all_are_pinned) = (Arc::clone(&grace), Arc::clone(&all_are_pinned));
            let ended = ended.clone();
            std::thread::spawn(move || {
                let _outer = grace.pin_as(None);
                all_are_pinned.wait();
                let _inner = grace.pin_as(None);
                // The receiver is gone if another thread is stuck.
                let _told = ended.send(());
            });
        }
        for _ in 0..SHARED_PLACES {
            all_ended.recv_timeout(Duration::from_secs(60)).expect("a reader is stuck");
        }
    }

    #[test]
    fn a_reader_that_panics_holds_nothing_up() {
        let grace = Grace::new(64);
        for place in [Some(0), None] {
            let died = std::thread::scope(|scope| {
                let reader = scope.spawn(|| {
                    let _pinned = grace.pin_as(place);
                    std::panic::resume_unwind(Box::new("while pinned"));
                });
                reader.join().is_err()
            });
            assert!(died);
            let epoch = grace.retire_epoch();
            assert!(grace.advance() >= epoch);
        }
    }
}
