//! The error for a construct that is not supported.

use crate::error::SqlError;

/// Alternatives for rejected constructs.
const ELSEWHERE: &str = "Rewrite the query, or run it in a PostgreSQL server that reads the \
                         topics through postgres_fdw.";

/// Error: a construct is not supported.
pub(super) fn refused(construct: &str) -> SqlError {
    SqlError::unsupported(format!("{construct} is not supported")).with_hint(ELSEWHERE)
}
