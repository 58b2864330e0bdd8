//! Counters for monitoring.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Counters since the start.
#[derive(Debug, Default)]
pub struct Counters {
    pub connections_accepted: AtomicU64,
    pub connections_refused: AtomicU64,
    pub connections_ended: AtomicU64,
    /// Statements that ended, and how many of them failed or were cancelled.
    pub statements: AtomicU64,
    pub errors: AtomicU64,
    pub cancelled: AtomicU64,
    /// Statements that failed by an internal error, such as a panic.
    pub faults: AtomicU64,
    pub rows_out: AtomicU64,
    pub rows_in: AtomicU64,
    /// Total execution time of statements in microseconds.
    pub statement_us: AtomicU64,
}

impl Counters {
    pub(super) fn count(counter: &AtomicU64) {
        Self::add(counter, 1);
    }

    pub(super) fn add(counter: &AtomicU64, number: usize) {
        counter.fetch_add(number as u64, Ordering::Relaxed);
    }

    pub(super) fn time(&self, taken: Duration) {
        let us = u64::try_from(taken.as_micros()).unwrap_or(u64::MAX);
        self.statement_us.fetch_add(us, Ordering::Relaxed);
    }
}
