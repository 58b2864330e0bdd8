//! What guests did, as counts for metrics.

use std::ops::AddAssign;

use sync::Tally;

/// Requests and bytes since the start of an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    pub reads: u64,
    pub writes: u64,
    pub flushes: u64,
    pub discards: u64,
    pub zeroes: u64,
    /// Requests of any kind that were answered with an error, or could not be understood.
    pub errors: u64,
    /// Requests that an earlier process had begun and not answered.
    pub repeated: u64,
    /// Bytes of reads that succeeded.
    pub bytes_read: u64,
    /// Bytes that were stored by writes.
    pub bytes_written: u64,
}

impl AddAssign for Traffic {
    fn add_assign(&mut self, other: Self) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.flushes += other.flushes;
        self.discards += other.discards;
        self.zeroes += other.zeroes;
        self.errors += other.errors;
        self.repeated += other.repeated;
        self.bytes_read += other.bytes_read;
        self.bytes_written += other.bytes_written;
    }
}

/// The counts of one thread, which others may look at.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counters {
    pub(crate) reads: Tally,
    pub(crate) writes: Tally,
    pub(crate) flushes: Tally,
    pub(crate) discards: Tally,
    pub(crate) zeroes: Tally,
    pub(crate) errors: Tally,
    pub(crate) repeated: Tally,
    pub(crate) bytes_read: Tally,
    pub(crate) bytes_written: Tally,
}

impl Counters {
    pub(crate) fn traffic(&self) -> Traffic {
        Traffic {
            reads: self.reads.get(),
            writes: self.writes.get(),
            flushes: self.flushes.get(),
            discards: self.discards.get(),
            zeroes: self.zeroes.get(),
            errors: self.errors.get(),
            repeated: self.repeated.get(),
            bytes_read: self.bytes_read.get(),
            bytes_written: self.bytes_written.get(),
        }
    }
}
