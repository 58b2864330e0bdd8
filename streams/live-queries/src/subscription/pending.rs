//! Conflation: pending changes, at most one for each row of the result.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use crate::result::{ResultChange, ResultRow};
use crate::subscription::queue::QueueLimits;

#[derive(Debug)]
pub(super) struct Pending {
    limits: QueueLimits,
    changes: HashMap<Arc<[u8]>, PendingChange>,
    bytes: usize,
    /// Number of changes that became pending so far, which determines their order.
    sequence: u64,
    /// Number of changes that replaced pending ones.
    pub(super) conflated_count: u64,
}

/// The row that the client saw last, and the one that it will see next.
#[derive(Debug)]
pub(super) struct PendingChange {
    sequence: u64,
    pub(super) before: Option<Arc<ResultRow>>,
    pub(super) after: Option<Arc<ResultRow>>,
    /// Positions of the last change.
    pub(super) positions: Vec<(i32, i64)>,
}

impl Pending {
    pub(super) fn new(limits: QueueLimits) -> Self {
        Self { limits, changes: HashMap::new(), bytes: 0, sequence: 0, conflated_count: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.changes.len() >= self.limits.rows_max || self.bytes >= self.limits.bytes_max
    }

    /// Merges `change` with the pending one of its row. A change without net effect is dropped.
    pub(super) fn merge(&mut self, change: ResultChange, positions: Vec<(i32, i64)>) {
        let ResultChange { key, before, after } = change;
        match self.changes.entry(key) {
            Entry::Occupied(mut waiting) => {
                let change = waiting.get_mut();
                self.conflated_count += 1;
                self.bytes = self.bytes + bytes(after.as_ref()) - bytes(change.after.as_ref());
                change.after = after;
                change.positions = positions;
                if columns(change.before.as_ref()) == columns(change.after.as_ref()) {
                    self.bytes -= bytes(change.before.as_ref()) + bytes(change.after.as_ref());
                    waiting.remove();
                }
            }
            Entry::Vacant(place) => {
                self.bytes += bytes(before.as_ref()) + bytes(after.as_ref());
                self.sequence += 1;
                place.insert(PendingChange { sequence: self.sequence, before, after, positions });
            }
        }
    }

    /// Takes all changes, in the order in which they became pending.
    pub(super) fn take(&mut self) -> Vec<PendingChange> {
        self.bytes = 0;
        let mut changes: Vec<PendingChange> = self.changes.drain().map(|(_, it)| it).collect();
        changes.sort_unstable_by_key(|it| it.sequence);
        changes
    }
}

fn columns(row: Option<&Arc<ResultRow>>) -> Option<&[crate::scalar::Value<'static>]> {
    row.map(|it| it.columns.as_slice())
}

fn bytes(row: Option<&Arc<ResultRow>>) -> usize {
    row.map_or(0, |it| it.bytes())
}
