//! Statements beyond SQL: subscriptions, and topics and views filled by queries.
//!
//! A connection passes them to this module as words. The result is a stream of rows, as of a query.

use datafusion::execution::SendableRecordBatchStream;

use super::text::Words;
use crate::error::SqlError;

/// Statement that starts with a keyword of the extensions.
#[derive(Clone, Debug)]
pub(crate) enum Extension {
    /// `SUBSCRIBE …`, also within `COPY (SUBSCRIBE …) TO STDOUT` and `DECLARE … FOR SUBSCRIBE …`.
    /// The connection executes it.
    Subscribe(Words),
    /// `CREATE TOPIC … AS …`.
    CreateTopic(Words),
    /// `CREATE MATERIALIZED VIEW …`.
    CreateView(Words),
    /// `DROP TOPIC …`, `DROP MATERIALIZED VIEW …`.
    Drop(Words),
}

/// Runs a statement. Its rows end with the statement or the connection.
pub(crate) fn run_extension(statement: &Extension) -> Result<SendableRecordBatchStream, SqlError> {
    let (Extension::Subscribe(words)
    | Extension::CreateTopic(words)
    | Extension::CreateView(words)
    | Extension::Drop(words)) = statement;
    Err(SqlError::unsupported(format!("{} is not supported", words.keyword(0))))
}
