//! Detection of discards and seeks that are too slow for the leader.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{FILE_CLASSES, file_class};
use crate::request::Operation;

/// Duration from which on a request is slow: about the cost of passing on the leadership.
const SLOW_FROM: Duration = Duration::from_micros(50);

/// Number of requests over which the typical duration is averaged: a new sample has a weight of one
/// in this many.
const REQUESTS_REMEMBERED: u64 = 8;

/// Typical durations of operations that may be slow, such as discards, which may cover one block or
/// a terabyte. They are kept by file class, so that slow discards of one file do not affect files
/// of other classes.
#[derive(Debug)]
pub(super) struct Pace {
    typical_ns: [AtomicU64; FILE_CLASSES],
}

impl Pace {
    /// Initially all such operations count as slow.
    pub(super) fn new() -> Self {
        let at_first = nanoseconds(SLOW_FROM * 2);
        Self { typical_ns: std::array::from_fn(|_| AtomicU64::new(at_first)) }
    }

    /// Returns the pace of this operation for the file. `None` for operations that are never slow,
    /// and for those of which the device reports whether they are slow.
    pub(super) fn of(&self, node: u64, operation: &Operation<'_>) -> Option<FilePace<'_>> {
        if !matches!(operation, Operation::Allocate { .. } | Operation::Seek { .. }) {
            return None;
        }
        Some(FilePace { typical_ns: &self.typical_ns[file_class(node)] })
    }
}

/// Typical duration of such operations for one file.
pub(crate) struct FilePace<'pace> {
    typical_ns: &'pace AtomicU64,
}

impl FilePace<'_> {
    pub(crate) fn is_slow(&self) -> bool {
        self.typical_ns.load(Ordering::Relaxed) >= nanoseconds(SLOW_FROM)
    }

    pub(crate) fn learn(&self, duration: Duration) {
        // Relaxed and without an atomic addition, because a lost sample is harmless.
        let typical_ns = self.typical_ns.load(Ordering::Relaxed);
        let kept_ns = typical_ns - typical_ns / REQUESTS_REMEMBERED;
        let sample_ns = nanoseconds(duration) / REQUESTS_REMEMBERED;
        self.typical_ns.store(kept_ns.saturating_add(sample_ns), Ordering::Relaxed);
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISCARD: Operation<'_> = Operation::Allocate { handle: 0, offset: 0, length: 1, mode: 3 };

    #[test]
    fn discards_count_as_slow_until_they_were_quick() {
        let pace = Pace::new();
        let discard = pace.of(1, &DISCARD).expect("a discard may be slow");
        assert!(discard.is_slow());
        (0..10).for_each(|_| discard.learn(Duration::from_micros(1)));
        assert!(!discard.is_slow());
        discard.learn(Duration::from_millis(5));
        assert!(discard.is_slow());
    }

    #[test]
    fn files_are_told_apart() {
        let pace = Pace::new();
        let discard = pace.of(1, &DISCARD).expect("a discard may be slow");
        (0..10).for_each(|_| discard.learn(Duration::from_micros(1)));
        assert!(pace.of(2, &DISCARD).expect("a discard may be slow").is_slow());
    }

    #[test]
    fn reads_are_never_slow() {
        assert!(Pace::new().of(1, &Operation::Read { offset: 0, length: 1 }).is_none());
    }
}
