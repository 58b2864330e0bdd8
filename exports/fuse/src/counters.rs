//! Counting requests, for metrics.

use sync::Tally;

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
    pub(crate) reads: Tally,
    pub(crate) read_bytes: Tally,
    pub(crate) writes: Tally,
    pub(crate) written_bytes: Tally,
    pub(crate) flushes: Tally,
    pub(crate) zeroings: Tally,
    pub(crate) others: Tally,
    pub(crate) errors: Tally,
}

impl Counters {
    /// Requests whose answering has begun.
    pub(crate) fn request_count(&self) -> u64 {
        let all = [&self.reads, &self.writes, &self.flushes, &self.zeroings, &self.others];
        all.into_iter().map(Tally::get).sum()
    }

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
