//! Bounded queue of rows for a client.

use crate::subscription::rows::OutputRows;

/// Limits of the rows queued for a client. A single change may exceed them.
#[derive(Clone, Copy, Debug)]
pub struct QueueLimits {
    pub rows_max: usize,
    pub bytes_max: usize,
}

#[derive(Debug)]
pub(super) struct Queue {
    limits: QueueLimits,
    rows: OutputRows,
    /// Bytes of the rows taken last.
    taken_bytes: usize,
}

impl Queue {
    pub(super) fn new(limits: QueueLimits) -> Self {
        Self { limits, rows: OutputRows::default(), taken_bytes: 0 }
    }

    pub(super) fn is_full(&self) -> bool {
        self.rows.len() >= self.limits.rows_max || self.rows.bytes() >= self.limits.bytes_max
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns the rows for appending, with memory reserved for as much as was taken last.
    pub(super) fn rows(&mut self) -> &mut OutputRows {
        self.rows.expect(self.taken_bytes);
        &mut self.rows
    }

    /// Takes all rows.
    pub(super) fn take(&mut self) -> OutputRows {
        self.taken_bytes = self.rows.bytes();
        std::mem::take(&mut self.rows)
    }
}
