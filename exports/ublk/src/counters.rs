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
    /// Requests of any kind that were answered with an error.
    pub errors: u64,
}

impl Traffic {
    pub(crate) fn add(&mut self, other: &Self) {
        self.reads += other.reads;
        self.read_bytes += other.read_bytes;
        self.writes += other.writes;
        self.written_bytes += other.written_bytes;
        self.flushes += other.flushes;
        self.zeroings += other.zeroings;
        self.errors += other.errors;
    }
}

/// One queue's share of the traffic, on cache lines of its own; only its thread counts.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counters {
    pub(crate) reads: Tally,
    pub(crate) read_bytes: Tally,
    pub(crate) writes: Tally,
    pub(crate) written_bytes: Tally,
    pub(crate) flushes: Tally,
    pub(crate) zeroings: Tally,
    pub(crate) errors: Tally,
}

impl Counters {
    pub(crate) fn traffic(&self) -> Traffic {
        Traffic {
            reads: self.reads.get(),
            read_bytes: self.read_bytes.get(),
            writes: self.writes.get(),
            written_bytes: self.written_bytes.get(),
            flushes: self.flushes.get(),
            zeroings: self.zeroings.get(),
            errors: self.errors.get(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_traffic_of_all_queues_is_summed() {
        let queues = [Counters::default(), Counters::default()];
        queues[0].reads.add(1);
        queues[1].reads.add(2);
        queues[1].errors.add(1);
        let mut sum = Traffic::default();
        queues.iter().for_each(|counters| sum.add(&counters.traffic()));
        assert_eq!(sum, Traffic { reads: 3, errors: 1, ..Traffic::default() });
    }
}
