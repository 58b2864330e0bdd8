//! Outcomes of statements, before their clients are told of it.

use super::rows::Rows;
use crate::error::SqlError;
use crate::wire::CopyForm;

/// Outcome of a statement.
pub(super) enum Outcome {
    /// Rows, and the word before their number.
    Rows(Rows, &'static str),
    Copy(Rows, CopyForm),
    Done(String),
    /// The same, and what the client is told besides.
    Warned(&'static str, SqlError),
}
