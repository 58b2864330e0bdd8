//! What clients did, as counts for metrics.

use std::ops::AddAssign;

/// Requests and bytes since the start of a connection, or of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    pub reads: u64,
    pub writes: u64,
    pub flushes: u64,
    pub trims: u64,
    pub zeroes: u64,
    pub block_statuses: u64,
    /// Requests of any kind that were answered with an error.
    pub errors: u64,
    /// Bytes of reads that succeeded.
    pub bytes_read: u64,
    /// Bytes that were stored by writes.
    pub bytes_written: u64,
}

impl Traffic {
    /// Requests of all kinds that touch data.
    pub fn request_count(&self) -> u64 {
        self.reads + self.writes + self.flushes + self.trims + self.zeroes
    }
}

impl AddAssign for Traffic {
    fn add_assign(&mut self, other: Self) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.flushes += other.flushes;
        self.trims += other.trims;
        self.zeroes += other.zeroes;
        self.block_statuses += other.block_statuses;
        self.errors += other.errors;
        self.bytes_read += other.bytes_read;
        self.bytes_written += other.bytes_written;
    }
}
