//! Request patterns that a file's users repeat: so many writes, then a flush.
//!
//! Where a flush can be expected, what it will wait for is begun when the last write before it was
//! answered, while the kernel is still on its way to ask for it.

use std::sync::atomic::{AtomicU32, Ordering};

use super::{FILE_CLASSES, file_class};

/// Flushes that came after equally many writes before the next one is expected.
const CONFIRMATIONS_MIN: u8 = 4;

/// More writes than these before a flush are no pattern.
const WRITES_MAX: u8 = 16;

/// Two files of one class that are used at once have no pattern. A lost update costs a wrong guess
/// at worst, so that plain loads and stores do.
#[derive(Debug)]
pub(super) struct FlushPredictor {
    files: [AtomicU32; FILE_CLASSES],
}

/// What is known of one file, packed into one word.
#[derive(Clone, Copy, Debug, Default)]
struct FlushPattern {
    /// Since the last flush.
    writes: u8,
    /// Before the last flush.
    expected: u8,
    /// Flushes in a row that came as expected.
    confirmed: u8,
}

impl FlushPredictor {
    pub(super) fn new() -> Self {
        Self { files: std::array::from_fn(|_| AtomicU32::new(0)) }
    }

    /// Takes note of a write. Returns whether a flush is expected next.
    pub(super) fn wrote(&self, node: u64) -> bool {
        self.change(node, |pattern| pattern.writes = pattern.writes.saturating_add(1))
            .expects_flush()
    }

    /// Takes note of a flush, and of whether it succeeded.
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
            // A flush of nothing says nothing.
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

    /// Writes so often and flushes; returns after how many of the writes a flush was expected.
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
