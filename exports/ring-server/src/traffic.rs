//! What clients did, as counts for metrics.

use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};

use sync::Tally;

/// Requests and bytes since the start of a connection, or of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    pub reads: u64,
    pub writes: u64,
    pub flushes: u64,
    pub discards: u64,
    pub zeroes: u64,
    /// Requests of any kind that were answered with an error.
    pub errors: u64,
    /// Bytes of reads and writes that were asked for.
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// Messages with which clients woke their thread.
    pub doorbells: u64,
}

impl AddAssign for Traffic {
    fn add_assign(&mut self, other: Self) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.flushes += other.flushes;
        self.discards += other.discards;
        self.zeroes += other.zeroes;
        self.errors += other.errors;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        self.doorbells += other.doorbells;
    }
}

/// The counts of one connection.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    pub(crate) reads: Tally,
    pub(crate) writes: Tally,
    pub(crate) flushes: Tally,
    pub(crate) discards: Tally,
    pub(crate) zeroes: Tally,
    pub(crate) read_bytes: Tally,
    pub(crate) written_bytes: Tally,
    pub(crate) doorbells: Tally,
    /// Counted by all threads of a connection.
    errors: AtomicU64,
}

impl Meter {
    pub(crate) fn count_error(&self) {
        self.errors.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn traffic(&self) -> Traffic {
        Traffic {
            reads: self.reads.get(),
            writes: self.writes.get(),
            flushes: self.flushes.get(),
            discards: self.discards.get(),
            zeroes: self.zeroes.get(),
            errors: self.errors.load(Ordering::Relaxed),
            read_bytes: self.read_bytes.get(),
            written_bytes: self.written_bytes.get(),
            doorbells: self.doorbells.get(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_is_summed() {
        let meter = Meter::default();
        meter.reads.add(2);
        meter.read_bytes.add(8192);
        meter.count_error();
        let mut sum = meter.traffic();
        sum += meter.traffic();
        let expected = Traffic { reads: 4, read_bytes: 16384, errors: 2, ..Traffic::default() };
        assert_eq!(sum, expected);
    }
}
