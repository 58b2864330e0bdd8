//! Counters of live queries for operators.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters since the start.
#[derive(Debug, Default)]
pub(super) struct Counters {
    /// Records that workers have read, once for all queries on a table.
    pub(super) records: AtomicU64,
    /// Rows that connections have taken.
    pub(super) rows: AtomicU64,
    /// Failed records of subscriptions that have ended.
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
    /// Number of current subscriptions.
    pub(crate) subscriptions: u64,
    /// Rows currently queued for clients.
    pub(crate) queued_rows: u64,
    pub(crate) records: u64,
    pub(crate) rows: u64,
    /// Records on which a query failed, which are omitted from its result.
    pub(crate) failed_records: u64,
    /// Changes that replaced queued ones.
    pub(crate) conflated: u64,
}
