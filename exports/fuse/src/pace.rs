//! Which kinds of requests are slow enough that the leader had better not serve them itself.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::request::Operation;

/// Handing the leadership over costs about this much; what takes longer is slow.
const SLOW_FROM: Duration = Duration::from_micros(50);

/// The share of one request in the typical duration is one in this many.
const REQUESTS_REMEMBERED: u64 = 8;

/// Files are told apart by their number modulo this, so that one whose flushes wait for a disk does
/// not make others seem slow, nor the other way round, unless they happen to meet.
const FILE_CLASSES: usize = 64;
const FILE_CLASSES_U64: u64 = 64;

/// Typical durations of the kinds of requests that may be slow: flushes wait for a disk in some
/// durability classes and for nothing in others; a discard may cover a block or a terabyte.
#[derive(Debug)]
pub(crate) struct Pace {
    flush_ns: [AtomicU64; FILE_CLASSES],
    zeroing_ns: [AtomicU64; FILE_CLASSES],
}

impl Pace {
    /// Takes everything for slow that may be, until it has seen better.
    pub(crate) fn new() -> Self {
        let at_first = nanoseconds(SLOW_FROM * 2);
        let all_at_first = || std::array::from_fn(|_| AtomicU64::new(at_first));
        Self { flush_ns: all_at_first(), zeroing_ns: all_at_first() }
    }

    /// What is known of requests of this kind for this file, or `None` for kinds that are never
    /// slow.
    pub(crate) fn of(&self, node: u64, operation: &Operation<'_>) -> Option<KindPace<'_>> {
        let of_kind = match operation {
            Operation::Sync => &self.flush_ns,
            Operation::Allocate { .. } | Operation::Seek { .. } => &self.zeroing_ns,
            _ => return None,
        };
        let class = usize::try_from(node % FILE_CLASSES_U64).expect("less than a small constant");
        Some(KindPace { typical_ns: &of_kind[class] })
    }
}

/// The typical duration of requests of one kind.
pub(crate) struct KindPace<'pace> {
    typical_ns: &'pace AtomicU64,
}

impl KindPace<'_> {
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

    #[test]
    fn flushes_count_as_slow_until_they_were_quick() {
        let pace = Pace::new();
        let flush = pace.of(1, &Operation::Sync).expect("a flush may be slow");
        assert!(flush.is_slow());
        (0..10).for_each(|_| flush.learn(Duration::from_micros(1)));
        assert!(!flush.is_slow());
        flush.learn(Duration::from_millis(5));
        assert!(flush.is_slow());
    }

    #[test]
    fn files_are_told_apart() {
        let pace = Pace::new();
        let flush = pace.of(1, &Operation::Sync).expect("a flush may be slow");
        (0..10).for_each(|_| flush.learn(Duration::from_micros(1)));
        assert!(pace.of(2, &Operation::Sync).expect("a flush may be slow").is_slow());
    }

    #[test]
    fn reads_are_never_slow() {
        assert!(Pace::new().of(1, &Operation::Read { offset: 0, length: 1 }).is_none());
    }
}
