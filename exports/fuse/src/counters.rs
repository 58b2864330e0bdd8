//! Counting requests, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

/// What was served since the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub written_bytes: u64,
    pub flushes: u64,
    /// Discards and writes of zeros.
    pub zeroings: u64,
    /// Everything about names, attributes and handles.
    pub others: u64,
    /// Requests of any kind that were answered with an error, besides kinds that are unknown.
    pub errors: u64,
}

/// One worker's share of the traffic, on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counters {
    pub(crate) reads: Counter,
    pub(crate) read_bytes: Counter,
    pub(crate) writes: Counter,
    pub(crate) written_bytes: Counter,
    pub(crate) flushes: Counter,
    pub(crate) zeroings: Counter,
    pub(crate) others: Counter,
    pub(crate) errors: Counter,
}

impl Counters {
    pub(crate) fn add_to(&self, sum: &mut Traffic) {
        sum.reads += self.reads.get();
        sum.read_bytes += self.read_bytes.get();
        sum.writes += self.writes.get();
        sum.written_bytes += self.written_bytes.get();
        sum.flushes += self.flushes.get();
        sum.zeroings += self.zeroings.get();
        sum.others += self.others.get();
        sum.errors += self.errors.get();
    }
}

/// A number that one thread raises and others look at.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        // Relaxed, and no atomic addition: only the owning worker writes.
        self.0.store(self.get().wrapping_add(count), Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_traffic_is_the_sum_of_all_workers() {
        let workers = [Counters::default(), Counters::default()];
        workers[0].reads.add(1);
        workers[1].reads.add(2);
        workers[1].errors.add(1);
        let mut sum = Traffic::default();
        workers.iter().for_each(|counters| counters.add_to(&mut sum));
        assert_eq!(sum, Traffic { reads: 3, errors: 1, ..Traffic::default() });
    }
}
