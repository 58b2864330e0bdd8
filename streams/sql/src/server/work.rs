//! Work of a transaction that is not there for others yet, and what it goes back to.

use crate::error::{SqlError, SqlState};
use crate::host::Published;
use crate::statements::Variables;

/// Work that is not done yet, and work that is undone where the transaction fails.
#[derive(Default)]
pub(super) struct Work {
    pub(super) inserted: Vec<Published>,
    pub(super) inserted_bytes: usize,
    /// Parameters that were set, once one was.
    pub(super) set: Option<Set>,
    pub(super) savepoints: Vec<Kept>,
    /// True if a statement has read or written something.
    pub(super) has_run: bool,
}

/// Parameters of the connection when the transaction ends.
#[derive(Clone)]
pub(super) struct Set {
    pub(super) committed: Variables,
    pub(super) rolled_back: Variables,
}

/// State to which a savepoint goes back.
pub(super) struct Kept {
    pub(super) name: String,
    pub(super) inserted_count: usize,
    pub(super) inserted_bytes: usize,
    pub(super) set: Option<Set>,
    pub(super) variables: Variables,
}

impl Work {
    /// Savepoints that are there.
    pub(super) fn depth(&self) -> usize {
        self.savepoints.len()
    }

    /// Returns whether something was inserted that is not published yet.
    pub(super) fn has_inserted(&self) -> bool {
        !self.inserted.is_empty()
    }

    /// The number of the last savepoint of a name.
    pub(super) fn position(&self, name: &str) -> Result<usize, SqlError> {
        self.savepoints.iter().rposition(|it| it.name == name).ok_or_else(|| {
            let what = format!("savepoint {name:?} does not exist");
            SqlError::new(SqlState("3B001"), what)
        })
    }
}
