//! Results of statements, before they are sent to the client.

use super::rows::Rows;
use crate::error::SqlError;
use crate::wire::CopyForm;

/// Result of a statement.
pub(super) enum Outcome {
    /// Rows, and the command tag without the row count.
    Rows(Rows, &'static str),
    Copy(Rows, CopyForm),
    Done(String),
    /// Command tag with a warning for the client.
    Warned(&'static str, SqlError),
}
