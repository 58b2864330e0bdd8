//! Grace periods: how memory that readers may still look at is given back.
//!
//! A reader pins for the length of one batch of requests. A writer that has unpublished something
//! asks for an epoch and may reuse the memory once [`Grace::advance`] has returned that epoch or a
//! later one: no reader that could have seen it is pinned any more.
//!
//! ```text
//!  writer   unpublish ─ fence ─ epoch = 7 ─────────────── advance ≥ 7? ─ reuse
//!  reader A        pin(7) ══════ looks ══════ unpin                  no        yes
//!  reader B                                          pin(8) ══════ cannot see it ══════
//! ```
//!
//! The state is private to the process: it dies with it, and with it all readers.

use crate::Padded;
use crate::atomic::{AtomicU64, Ordering, fence};

/// A moment that readers are before or behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Epoch(u64);

/// What a place holds while nobody is pinned there.
const IDLE: u64 = 0;

/// Readers of one pool, and the epoch they run in.
#[derive(Debug)]
pub struct Grace {
    now: Padded<AtomicU64>,
    places: Box<[Padded<AtomicU64>]>,
}

impl Grace {
    /// At most `place_count` readers are pinned at once; further ones wait for a place.
    pub fn new(place_count: usize) -> Self {
        assert!(place_count > 0, "somebody must be able to read");
        Self {
            now: Padded(AtomicU64::new(IDLE + 1)),
            places: (0..place_count).map(|_| Padded(AtomicU64::new(IDLE))).collect(),
        }
    }

    /// Keeps everything that is published now from being reused until the guard is dropped.
    /// `hint` should differ between threads: readers with the same hint look for another place.
    pub fn pin(&self, hint: usize) -> Pinned<'_> {
        let mut index = hint % self.places.len();
        loop {
            let epoch = self.now.load(Ordering::SeqCst);
            let place = &self.places[index];
            let free =
                place.compare_exchange(IDLE, epoch, Ordering::SeqCst, Ordering::Relaxed).is_ok();
            if free {
                // PAIRS-WITH: Grace::retire_epoch, "what is unpublished cannot be found any more".
                fence_after_exchange();
                return Pinned { place };
            }
            index = (index + 1) % self.places.len();
            if index == hint % self.places.len() {
                crate::atomic_yield();
            }
        }
    }

    /// The epoch to wait for before what the caller unpublished is reused.
    pub fn retire_epoch(&self) -> Epoch {
        // PAIRS-WITH: Grace::pin, "what is unpublished cannot be found any more".
        fence(Ordering::SeqCst);
        Epoch(self.now.load(Ordering::SeqCst))
    }

    /// Begins a new epoch and returns the last one that no reader is in any more, nor can enter.
    pub fn advance(&self) -> Epoch {
        let begun = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        fence(Ordering::SeqCst);
        let mut oldest = begun;
        for place in &self.places {
            // Acquire: a reader's looks happen before its leaving, and so before the reuse.
            // PAIRS-WITH: Pinned::drop, "the reader is done looking".
            let pinned = place.load(Ordering::Acquire);
            if pinned != IDLE {
                oldest = oldest.min(pinned);
            }
        }
        Epoch(oldest - 1)
    }
}

/// A reader. Dropping it lets memory be reused.
#[derive(Debug)]
pub struct Pinned<'grace> {
    place: &'grace AtomicU64,
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        // PAIRS-WITH: Grace::advance, "the reader is done looking".
        self.place.store(IDLE, Ordering::Release);
    }
}

/// A full fence behind a SeqCst exchange. On x86-64 the exchange is one already.
fn fence_after_exchange() {
    #[cfg(any(loom, not(target_arch = "x86_64")))]
    fence(Ordering::SeqCst);
    #[cfg(not(any(loom, not(target_arch = "x86_64"))))]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}

#[cfg(all(test, not(loom)))]
mod tests {
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
        let reader = grace.pin(0);
        let epoch = grace.retire_epoch();
        assert!(grace.advance() < epoch);
        drop(reader);
        assert!(grace.advance() >= epoch);
    }

    #[test]
    fn a_reader_that_came_later_holds_nothing_up() {
        let grace = Grace::new(2);
        let epoch = grace.retire_epoch();
        grace.advance();
        let _reader = grace.pin(0);
        assert!(grace.advance() >= epoch);
    }

    #[test]
    fn readers_with_one_hint_find_places_of_their_own() {
        let grace = Grace::new(2);
        let first = grace.pin(1);
        let second = grace.pin(1);
        assert!(!std::ptr::eq(first.place, second.place));
    }
}
