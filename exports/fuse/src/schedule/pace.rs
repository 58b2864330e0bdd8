//! Discards and searches that are slow enough that the leader had better not serve them itself.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{FILE_CLASSES, file_class};
use crate::request::Operation;

/// Handing the leadership over costs about this much; what takes longer is slow.
const SLOW_FROM: Duration = Duration::from_micros(50);

/// The share of one request in the typical duration is one in this many.
const REQUESTS_REMEMBERED: u64 = 8;

/// Typical durations of the requests that may be slow: a discard may cover a block or a terabyte.
/// One file whose discards are long does not make others of other classes seem slow.
#[derive(Debug)]
pub(super) struct Pace {
    typical_ns: [AtomicU64; FILE_CLASSES],
}

impl Pace {
    /// Takes everything for slow that may be, until it has seen better.
    pub(super) fn new() -> Self {
        let at_first = nanoseconds(SLOW_FROM * 2);
        Self { typical_ns: std::array::from_fn(|_| AtomicU64::new(at_first)) }
    }

    /// Pace of such requests for this file, or `None` for kinds that are never slow, and for those
    /// of which the device says itself whether they are.
    pub(super) fn of(&self, node: u64, operation: &Operation<'_>) -> Option<FilePace<'_>> {
        if !matches!(operation, Operation::Allocate { .. } | Operation::Seek { .. }) {
            return None;
        }
        Some(FilePace { typical_ns: &self.typical_ns[file_class(node)] })
    }
}

/// The typical duration of such requests for one file.
pub(crate) struct FilePace<'pace> {
    typical_ns: &'pace AtomicU64,
}

impl FilePace<'_> {
    pub(crate) fn is_slow(&self) -> bool {
        self.typical_ns.load(Ordering::Relaxed) >= nanoseconds(SLOW_FROM)
    }

    pub(crate) fn learn(&self, duration: Duration) {
        // Relaxed, and no atomic addition: a lost sample does no harm.
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
