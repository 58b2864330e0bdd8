//! Uncommitted work of a transaction, and the state that savepoints return to.

use crate::error::{SqlError, SqlState};
use crate::host::Published;
use crate::statements::Variables;

/// Uncommitted work of a transaction.
#[derive(Default)]
pub(super) struct Work {
    pub(super) inserted: Vec<Published>,
    pub(super) inserted_bytes: usize,
    /// Parameters to apply at its end, once a parameter was set.
    pub(super) set: Option<Set>,
    pub(super) savepoints: Vec<Kept>,
    /// True if a statement has read or written data.
    pub(super) has_run: bool,
}

/// Parameters of the session after the transaction's end.
#[derive(Clone)]
pub(super) struct Set {
    pub(super) committed: Variables,
    pub(super) rolled_back: Variables,
}

/// State saved by a savepoint.
pub(super) struct Kept {
    pub(super) name: String,
    pub(super) inserted_count: usize,
    pub(super) inserted_bytes: usize,
    pub(super) set: Option<Set>,
    pub(super) variables: Variables,
}

impl Work {
    /// Returns the number of savepoints.
    pub(super) fn depth(&self) -> usize {
        self.savepoints.len()
    }

    /// Returns whether there are inserted records that are not published yet.
    pub(super) fn has_inserted(&self) -> bool {
        !self.inserted.is_empty()
    }

    /// Returns the index of the last savepoint of a name.
    pub(super) fn position(&self, name: &str) -> Result<usize, SqlError> {
        self.savepoints.iter().rposition(|it| it.name == name).ok_or_else(|| {
            let what = format!("savepoint {name:?} does not exist");
            SqlError::new(SqlState("3B001"), what)
        })
    }
}
