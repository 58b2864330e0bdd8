//! Counters of live queries for operators.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counted since the start.
#[derive(Debug, Default)]
pub(super) struct Counters {
    /// Records that workers looked at, each once for all queries on its table.
    pub(super) records: AtomicU64,
    /// Rows that connections took.
    pub(super) rows: AtomicU64,
    /// Records of subscriptions that have ended.
    pub(super) failed_records: AtomicU64,
    pub(super) conflated: AtomicU64,
}

impl Counters {
    pub(super) fn add(counter: &AtomicU64, number: u64) {
        counter.fetch_add(number, Ordering::Relaxed);
    }
}

/// Totals of all live queries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LiveTotals {
    /// That there are now.
    pub(crate) subscriptions: u64,
    /// Rows that wait for clients now.
    pub(crate) queued_rows: u64,
    pub(crate) records: u64,
    pub(crate) rows: u64,
    /// Records on which a query failed, and that are therefore not in its result.
    pub(crate) failed_records: u64,
    /// Changes that took the place of others that waited.
    pub(crate) conflated: u64,
}
