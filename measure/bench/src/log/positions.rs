//! Positions of the log's writer and readers, and their synchronization.
//!
//! The log is a ring of batches: batch `n` is in slot `n % slots` and replaces batch `n - slots`.
//!
//! ```text
//!          slots of the log, by the number of their batch
//! | … done-2 | done-1 | done │ begun-slots … oldest │ oldest+1 … |
//!      newest readable        │  being overwritten,  │ readable
//!      batch                  │  or about to be      │
//! ```
//!
//! A reader announces the batch that it will read before it checks if the writer has begun to
//! overwrite it. The writer announces what it will overwrite before it checks for readers. At least
//! one of the two sees the other, so no batch is read while it is written.

use std::sync::atomic::{AtomicU64, Ordering};

use sync::Padded;

use super::stop::{Patience, Stop};
use crate::clock::Random;

/// Announced position of an inactive reader.
const NOTHING: u64 = u64::MAX;

/// Inverse of the share of the log in front of the writer in which readers do not start.
const MARGIN_SHARE: u64 = 16;

/// State of a log with one writer.
pub(crate) struct Positions {
    slots: u64,
    /// Total number of appends begun and completed.
    begun: Padded<AtomicU64>,
    done: Padded<AtomicU64>,
    /// Batch that each reader is reading.
    reading: Vec<Padded<AtomicU64>>,
}

impl Positions {
    /// Creates the state of a log that was written once from beginning to end.
    pub(crate) fn full(slots: u64, readers: usize) -> Self {
        assert!(slots >= 2, "the log is too short: it has only one batch");
        let reading = (0..readers).map(|_| Padded(AtomicU64::new(NOTHING))).collect();
        let count = || Padded(AtomicU64::new(slots));
        Self { slots, begun: count(), done: count(), reading }
    }

    pub(crate) fn slots(&self) -> u64 {
        self.slots
    }

    pub(crate) fn slot(&self, batch: u64) -> u64 {
        batch % self.slots
    }

    /// Returns the next batch. Only the writer may call this.
    pub(crate) fn next_batch(&self) -> u64 {
        // Relaxed: the writer's own counter.
        self.begun.load(Ordering::Relaxed)
    }

    /// Claims the slot of the next batch once no thread reads it. Returns `false` if the run was
    /// stopped meanwhile.
    pub(crate) fn begin_append(&self, stop: &Stop) -> bool {
        let batch = self.next_batch();
        // PAIRS-WITH: begin_read, "a batch is about to be overwritten". Sequentially consistent,
        // because each side stores first and then looks at what the other stored.
        self.begun.store(batch + 1, Ordering::SeqCst);
        let overwritten = batch - self.slots;
        // PAIRS-WITH: begin_read, "a batch is about to be read".
        // PAIRS-WITH: end_read, "a batch was read".
        let is_read = || self.reading.iter().any(|it| it.load(Ordering::SeqCst) == overwritten);
        let mut patience = Patience::default();
        while is_read() {
            if stop.is_asked_for() {
                // Nothing was overwritten. Relaxed: a reader that sees the other value only stays
                // away.
                self.begun.store(batch, Ordering::Relaxed);
                return false;
            }
            patience.pause();
        }
        true
    }

    /// Makes the batch whose append was begun readable.
    pub(crate) fn end_append(&self) {
        let batches = self.next_batch();
        // PAIRS-WITH: readable, "an appended batch".
        self.done.store(batches, Ordering::Release);
    }

    /// Claims a batch for reading. Returns `false` if it is not written yet or about to be
    /// overwritten.
    pub(crate) fn begin_read(&self, reader: usize, batch: u64) -> bool {
        // PAIRS-WITH: begin_append, "a batch is about to be read".
        self.reading[reader].store(batch, Ordering::SeqCst);
        // PAIRS-WITH: begin_append, "a batch is about to be overwritten".
        let begun = self.begun.load(Ordering::SeqCst);
        let may_be_read = begun <= batch + self.slots && batch < self.readable_end();
        if !may_be_read {
            self.end_read(reader);
        }
        may_be_read
    }

    pub(crate) fn end_read(&self, reader: usize) {
        // PAIRS-WITH: begin_append, "a batch was read".
        self.reading[reader].store(NOTHING, Ordering::Release);
    }

    /// Returns a random batch to start reading at, not just before the writer.
    pub(crate) fn random_place(&self, random: &mut Random) -> u64 {
        let end = self.readable_end();
        let margin = (self.slots / MARGIN_SHARE).max(1);
        end - 1 - random.below(self.slots - margin)
    }

    fn readable_end(&self) -> u64 {
        // PAIRS-WITH: end_append, "an appended batch".
        self.done.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::thread;

    use proptest::prelude::*;

    use super::*;

    fn append(positions: &Positions) {
        assert!(positions.begin_append(&Stop::default()));
        positions.end_append();
    }

    #[test]
    fn a_full_log_is_readable_from_end_to_end_and_not_beyond() {
        let positions = Positions::full(8, 1);
        for batch in 0..8 {
            assert!(positions.begin_read(0, batch));
        }
        assert!(!positions.begin_read(0, 8));
    }

    #[test]
    fn a_batch_being_written_is_readable_neither_as_what_it_was_nor_as_what_it_will_be() {
        let positions = Positions::full(8, 1);
        assert!(positions.begin_append(&Stop::default()));
        assert!(!positions.begin_read(0, 0));
        assert!(!positions.begin_read(0, 8));
        positions.end_append();
        assert!(!positions.begin_read(0, 0));
        assert!(positions.begin_read(0, 8));
    }

    #[test]
    fn an_append_does_not_begin_while_its_slot_is_read() {
        let positions = Positions::full(4, 2);
        assert!(positions.begin_read(1, 0));
        let stop = Stop::default();
        stop.ask();
        assert!(!positions.begin_append(&stop), "the slot is read");
        positions.end_read(1);
        let positions = Positions::full(4, 2);
        assert!(positions.begin_read(1, 1));
        append(&positions);
    }

    #[test]
    fn the_log_wraps_around() {
        let positions = Positions::full(3, 1);
        let slots: Vec<u64> = (0..5)
            .map(|_| {
                let slot = positions.slot(positions.next_batch());
                append(&positions);
                slot
            })
            .collect();
        assert_eq!(slots, [0, 1, 2, 0, 1]);
    }

    proptest! {
        #[test]
        fn a_random_place_can_be_read(slots in 2_u64..200, appends in 0_u64..500, seed: u64) {
            let positions = Positions::full(slots, 1);
            for _ in 0..appends {
                append(&positions);
            }
            let mut random = Random::new(seed);
            for _ in 0..20 {
                let place = positions.random_place(&mut random);
                prop_assert!(positions.begin_read(0, place));
                prop_assert!(positions.next_batch() - place <= slots, "overwritten already");
            }
        }
    }

    #[test]
    fn readers_never_see_the_write_head() {
        const SLOTS: u64 = 3;
        const APPENDS: u64 = 20_000;
        let positions = Positions::full(SLOTS, 2);
        // A slot contains twice the batch's number, or an odd number while it is written.
        let slots: Vec<AtomicU64> = (0..SLOTS).map(|batch| AtomicU64::new(batch * 2)).collect();
        let stop = Stop::default();
        let read = |reader| {
            let mut random = Random::new(reader as u64 + 1);
            while !stop.is_asked_for() {
                let batch = positions.random_place(&mut random);
                if positions.begin_read(reader, batch) {
                    let slot = usize::try_from(positions.slot(batch)).expect("few slots");
                    for _ in 0..3 {
                        assert_eq!(slots[slot].load(Ordering::Relaxed), batch * 2);
                    }
                    positions.end_read(reader);
                }
            }
        };
        thread::scope(|scope| {
            let readers = [0, 1].map(|reader| scope.spawn(move || read(reader)));
            for _ in 0..APPENDS {
                let batch = positions.next_batch();
                assert!(positions.begin_append(&stop));
                let slot = usize::try_from(positions.slot(batch)).expect("few slots");
                slots[slot].store(batch * 2 + 1, Ordering::Relaxed);
                slots[slot].store(batch * 2, Ordering::Relaxed);
                positions.end_append();
            }
            stop.ask();
            for reader in readers {
                reader.join().expect("no reader saw a batch being written");
            }
        });
    }
}
