//! What guests did, as counts for metrics.

use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};

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
    pub(crate) reads: Count,
    pub(crate) writes: Count,
    pub(crate) flushes: Count,
    pub(crate) discards: Count,
    pub(crate) zeroes: Count,
    pub(crate) errors: Count,
    pub(crate) repeated: Count,
    pub(crate) bytes_read: Count,
    pub(crate) bytes_written: Count,
}

/// A sum that one thread adds to.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, amount: u64) {
        // A load and a store: there is one writer. Relaxed: it is a statistic.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
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
