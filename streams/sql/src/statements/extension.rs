//! Statements that SQL does not have: subscriptions, and topics and views that queries keep.
//!
//! A connection hands them over here, words and all; what comes back is what a query gives.

use datafusion::execution::SendableRecordBatchStream;

use super::text::Words;
use crate::error::SqlError;

/// Statement that begins with a word of the extensions.
#[derive(Clone, Debug)]
pub(crate) enum Extension {
    /// `SUBSCRIBE …`, also of `COPY (SUBSCRIBE …) TO STDOUT` and `DECLARE … FOR SUBSCRIBE …`; the
    /// connection runs it.
    Subscribe(Words),
    /// `CREATE TOPIC … AS …`.
    CreateTopic(Words),
    /// `CREATE MATERIALIZED VIEW …`.
    CreateView(Words),
    /// `DROP TOPIC …`, `DROP MATERIALIZED VIEW …`.
    Drop(Words),
}

/// Runs a statement; its rows end when it does, or with the connection.
pub(crate) fn run_extension(statement: &Extension) -> Result<SendableRecordBatchStream, SqlError> {
    let (Extension::Subscribe(words)
    | Extension::CreateTopic(words)
    | Extension::CreateView(words)
    | Extension::Drop(words)) = statement;
    Err(SqlError::unsupported(format!("{} is not supported", words.keyword(0))))
}
