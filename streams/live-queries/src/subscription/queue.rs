//! Rows on their way to a client, bounded in number and bytes.

use std::collections::VecDeque;

use crate::subscription::layout::OutputRow;

/// What a subscription holds for a client that has not taken it. One change may go beyond.
#[derive(Clone, Copy, Debug)]
pub struct QueueLimits {
    pub rows_max: usize,
    pub bytes_max: usize,
}

#[derive(Debug)]
pub(super) struct Queue {
    limits: QueueLimits,
    rows: VecDeque<OutputRow>,
    bytes: usize,
}

impl Queue {
    pub(super) fn new(limits: QueueLimits) -> Self {
        Self { limits, rows: VecDeque::new(), bytes: 0 }
    }

    pub(super) fn is_full(&self) -> bool {
        self.rows.len() >= self.limits.rows_max || self.bytes >= self.limits.bytes_max
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn push(&mut self, row: OutputRow) {
        self.bytes += row.bytes();
        self.rows.push_back(row);
    }

    pub(super) fn pop(&mut self) -> Option<OutputRow> {
        let row = self.rows.pop_front()?;
        self.bytes -= row.bytes();
        Some(row)
    }
}
