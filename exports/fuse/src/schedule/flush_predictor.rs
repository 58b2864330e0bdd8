//! Prediction of flushes from a repeated pattern: a fixed number of writes, then a flush.
//!
//! When a flush is expected, its writeback is started as soon as the last write before it was
//! answered, before the kernel sends the flush.

use std::sync::atomic::{AtomicU32, Ordering};

use super::{FILE_CLASSES, file_class};

/// Number of flushes in a row after equally many writes, from which on the next one is predicted.
const CONFIRMATIONS_MIN: u8 = 4;

/// Maximum number of writes in a pattern.
const WRITES_MAX: u8 = 16;

/// Patterns by file class. Two files of one class that are used at the same time have no pattern. A
/// lost update causes at worst a wrong prediction, so relaxed loads and stores suffice.
#[derive(Debug)]
pub(super) struct FlushPredictor {
    files: [AtomicU32; FILE_CLASSES],
}

/// Pattern of one file, packed into one word.
#[derive(Clone, Copy, Debug, Default)]
struct FlushPattern {
    /// Number of writes since the last flush.
    writes: u8,
    /// Number of writes before the last flush.
    expected: u8,
    /// Number of flushes in a row that came as predicted.
    confirmed: u8,
}

impl FlushPredictor {
    pub(super) fn new() -> Self {
        Self { files: std::array::from_fn(|_| AtomicU32::new(0)) }
    }

    /// Records a write. Returns whether a flush is expected next.
    pub(super) fn wrote(&self, node: u64) -> bool {
        self.change(node, |pattern| pattern.writes = pattern.writes.saturating_add(1))
            .expects_flush()
    }

    /// Records a flush, and whether it succeeded.
    pub(super) fn flushed(&self, node: u64, has_succeeded: bool) {
        self.change(node, |pattern| pattern.end(has_succeeded));
    }

    fn change(&self, node: u64, change: impl FnOnce(&mut FlushPattern)) -> FlushPattern {
        let file = &self.files[file_class(node)];
        let mut pattern = FlushPattern::unpack(file.load(Ordering::Relaxed));
        change(&mut pattern);
        file.store(pattern.pack(), Ordering::Relaxed);
        pattern
    }
}

impl FlushPattern {
    fn expects_flush(self) -> bool {
        self.writes == self.expected && self.confirmed >= CONFIRMATIONS_MIN
    }

    fn end(&mut self, has_succeeded: bool) {
        let is_plausible = (1..=WRITES_MAX).contains(&self.writes);
        if has_succeeded && is_plausible && self.writes == self.expected {
            self.confirmed = self.confirmed.saturating_add(1);
        } else if self.writes > 0 {
            // A flush without writes carries no information.
            (self.expected, self.confirmed) = (self.writes, 0);
        }
        self.writes = 0;
    }

    fn pack(self) -> u32 {
        u32::from_le_bytes([self.writes, self.expected, self.confirmed, 0])
    }

    fn unpack(word: u32) -> Self {
        let [writes, expected, confirmed, _] = word.to_le_bytes();
        Self { writes, expected, confirmed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes `writes` times and flushes. Returns the numbers of the writes after which a flush was
    /// expected.
    fn write_and_flush(predictor: &FlushPredictor, writes: u32) -> Vec<u32> {
        let expected = (1..=writes).filter(|_| predictor.wrote(1)).collect();
        predictor.flushed(1, true);
        expected
    }

    #[test]
    fn a_flush_is_expected_after_the_writes_that_came_before_the_last_ones() {
        let predictor = FlushPredictor::new();
        for _ in 0..=CONFIRMATIONS_MIN {
            assert!(write_and_flush(&predictor, 3).is_empty());
        }
        assert_eq!(write_and_flush(&predictor, 3), [3]);
    }

    #[test]
    fn one_wrong_guess_ends_the_belief() {
        let predictor = FlushPredictor::new();
        (0..10).for_each(|_| drop(write_and_flush(&predictor, 1)));
        assert_eq!(write_and_flush(&predictor, 2), [1]);
        assert!(write_and_flush(&predictor, 1).is_empty());
    }

    #[test]
    fn many_writes_and_failing_flushes_are_no_habit() {
        let predictor = FlushPredictor::new();
        (0..10).for_each(|_| assert!(write_and_flush(&predictor, 300).is_empty()));
        for _ in 0..10 {
            assert!(!predictor.wrote(2));
            predictor.flushed(2, false);
        }
    }

    #[test]
    fn flushes_of_nothing_and_other_files_change_no_habit() {
        let predictor = FlushPredictor::new();
        for _ in 0..=CONFIRMATIONS_MIN {
            assert!(write_and_flush(&predictor, 1).is_empty());
            predictor.flushed(1, true);
            predictor.wrote(2);
        }
        assert_eq!(write_and_flush(&predictor, 1), [1]);
    }
}
