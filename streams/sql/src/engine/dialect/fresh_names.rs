//! Column names that are unique in a statement.

use std::cell::Cell;

/// Generator of column names that are unique in a statement.
#[derive(Debug, Default)]
pub(super) struct Numbers(Cell<usize>);

impl Numbers {
    pub(super) fn next(&self) -> usize {
        self.0.set(self.0.get() + 1);
        self.0.get()
    }

    /// Returns whether a subquery may have been replaced by a join.
    pub(super) fn are_used(&self) -> bool {
        self.0.get() > 0
    }
}
