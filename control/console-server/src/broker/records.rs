//! Writing of records to topics: one INSERT each, on its own connection.
//!
//! The statement is fixed, and the record's fields are its parameters. The broker's ACLs apply, as
//! for queries.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};

use crate::broker::queries::{Access, Queries, QueryError, broken};

const WRITE_TIME_MAX: Duration = Duration::from_secs(30);

/// Types of the statement's parameters.
const TYPES: [Type; 4] = [Type::TEXT, Type::TEXT, Type::TEXT, Type::INT4];

/// A record to write.
#[derive(Clone, Debug)]
pub(crate) struct NewRecord {
    pub(crate) key: Option<String>,
    /// `None` writes a tombstone, which deletes the key.
    pub(crate) value: Option<String>,
    pub(crate) headers: BTreeMap<String, String>,
    /// `None`: chosen by the key.
    pub(crate) partition: Option<i32>,
}

/// Reason for which a record was not written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WriteError {
    NoTopic(String),
    /// The broker's ACLs deny it.
    Denied(String),
    /// Invalid field of the record.
    Field(&'static str, String),
    /// The topic rejects the record.
    Refused(String),
    /// No response, or too many concurrent statements.
    Unasked(QueryError),
}

impl Queries {
    /// Appends a record to a topic. Returns once it is as durable as the topic's class requires.
    pub(crate) async fn write(
        &self,
        user: &str,
        topic: &str,
        record: &NewRecord,
    ) -> Result<(), WriteError> {
        let _turn = self.enter(user).map_err(WriteError::Unasked)?;
        let writing = async {
            let access = Access::Writes;
            let (client, _line) = self.place.connect(user, access).await?;
            self.place.check_in_force(&client, user, access).await?;
            Ok(insert(&client, topic, record).await.map_err(|error| refusal_of(&error)))
        };
        let late = || {
            let seconds = WRITE_TIME_MAX.as_secs();
            let what = format!(
                "the broker did not answer within {seconds} s; the record may have been written"
            );
            WriteError::Unasked(QueryError::Broken(what))
        };
        let written = tokio::time::timeout(WRITE_TIME_MAX, writing).await;
        written.map_err(|_| late())?.map_err(WriteError::Unasked)?
    }
}

async fn insert(
    client: &Client,
    topic: &str,
    record: &NewRecord,
) -> Result<(), tokio_postgres::Error> {
    let table = topic.replace('"', "\"\"");
    // The partition column is only listed if a partition is requested.
    let (column, parameter, count) = match record.partition {
        Some(_) => (", partition", ", $4", TYPES.len()),
        None => ("", "", TYPES.len() - 1),
    };
    let text = format!(
        "INSERT INTO \"{table}\" (key, value, headers{column}) \
         VALUES ($1, $2, CAST($3 AS json){parameter})"
    );
    let headers = (!record.headers.is_empty()).then(|| json!(record.headers).to_string());
    let row: [&(dyn ToSql + Sync); TYPES.len()] =
        [&record.key, &record.value, &headers, &record.partition];
    let statement = client.prepare_typed(&text, &TYPES[..count]).await?;
    client.execute(&statement, &row[..count]).await.map(drop)
}

fn refusal_of(error: &tokio_postgres::Error) -> WriteError {
    let Some(told) = error.as_db_error() else {
        return match broken(error) {
            QueryError::Broken(what) => WriteError::Unasked(QueryError::Broken(format!(
                "{what}; the record may have been written"
            ))),
            other => WriteError::Unasked(other),
        };
    };
    let what = format!("{} ({})", told.message(), told.code().code());
    match told.code() {
        code if *code == SqlState::UNDEFINED_TABLE => WriteError::NoTopic(what),
        code if *code == SqlState::INSUFFICIENT_PRIVILEGE => WriteError::Denied(what),
        code if *code == SqlState::NOT_NULL_VIOLATION => WriteError::Field("key", what),
        code if *code == SqlState::PROGRAM_LIMIT_EXCEEDED => WriteError::Field("value", what),
        _ => WriteError::Refused(what),
    }
}
