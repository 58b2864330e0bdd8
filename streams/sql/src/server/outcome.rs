//! Outcomes of statements, before their clients are told of it.

use live_queries::CopyFormat;

use super::rows::Rows;
use crate::error::SqlError;

/// Outcome of a statement.
pub(super) enum Outcome {
    /// Rows, and the word before their number.
    Rows(Rows, &'static str),
    Copy(Rows, CopyFormat),
    Done(String),
    /// The same, and what the client is told besides.
    Warned(&'static str, SqlError),
}
