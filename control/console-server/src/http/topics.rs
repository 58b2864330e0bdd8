//! Endpoints for the broker's topics: list, queries, writing records, and deletion.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use api::Role;
use axum::body::{Body as ResponseBody, Bytes};
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use futures::stream;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::broker::{KafkaError, NewRecord, Queries, QueryError, WriteError};
use crate::gateway::check_unlimited;
use crate::http::body::Body;
use crate::http::caller::Known;
use crate::http::console::Console;
use crate::http::recorded::Change;
use crate::refusal::{Kind, Refusal};

/// Roles for viewing topics, and for reading or changing their contents. Reading contents takes the
/// same role as attaching a volume.
const LOOK: Role = Role::Viewer;
const QUERY: Role = Role::Operator;
const PRODUCE: Role = Role::Operator;
const DELETE: Role = Role::Operator;

/// Media type of query results: one JSON object per line.
const LINES: &str = "application/x-ndjson";

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct QueryRequest {
    query: String,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RecordCreate {
    key: Option<String>,
    /// Value; without it the record is a tombstone of its key.
    value: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// Partition; by default chosen by the key, as Kafka's Java client does.
    partition: Option<i32>,
}

/// Lists topics and groups, or the reason for their absence, and the caller's permissions.
pub(super) async fn list(
    known: Known,
    State(console): State<Arc<Console>>,
) -> Result<Json<Value>, Refusal> {
    check_unlimited(&known.caller, LOOK)?;
    let is_allowed = check_unlimited(&known.caller, QUERY).is_ok();
    let queries = Console::told_right(console.queries.is_some(), is_allowed);
    let may_delete = check_unlimited(&known.caller, DELETE).is_ok();
    let deletions = Console::told_right(console.kafka.is_some(), may_delete);
    let rights = |mut told: Value| {
        told["queries"] = queries.into();
        told["deletions"] = deletions.into();
        Json(told)
    };
    let Some(broker) = &console.broker else {
        return Ok(rights(json!({"state": "not_configured"})));
    };
    Ok(rights(match broker.overview().await {
        Ok(seen) => {
            let (topics, groups) = (seen.topics, seen.groups);
            json!({"state": "up", "topics": topics, "groups": groups})
        }
        Err(why) => json!({"state": "down", "failure": why}),
    }))
}

/// Returns a topic with its partitions and configuration.
pub(super) async fn show(
    known: Known,
    State(console): State<Arc<Console>>,
    Path(name): Path<String>,
) -> Result<Json<Value>, Refusal> {
    check_unlimited(&known.caller, LOOK)?;
    let told = console.known_broker()?.topic(&name).await;
    Console::found(told, "topic", &name).map(Json)
}

/// Deletes a topic with its records.
pub(super) async fn delete(
    known: Known,
    State(console): State<Arc<Console>>,
    Path(name): Path<String>,
) -> Result<Response, Refusal> {
    check_unlimited(&known.caller, DELETE)?;
    let kafka = console.known_kafka()?;
    // The audit log has the topic's partitions, size and last offsets.
    let told = console.known_broker()?.topic(&name).await.ok().flatten().unwrap_or_default();
    kafka.delete_topic(&name).await.map_err(refusal_of_kafka)?;
    Ok(Change::from(&told).told(StatusCode::NO_CONTENT.into_response()))
}

/// Runs a query until it ends, the client disconnects, or the caller loses the permission.
pub(super) async fn query(
    known: Known,
    State(console): State<Arc<Console>>,
    Body(asked): Body<QueryRequest>,
) -> Result<Response, Refusal> {
    check_unlimited(&known.caller, QUERY)?;
    let queries = queries_of(&console)?;
    let running = queries.begin(&known.caller.user, &asked.query).await.map_err(refusal_of)?;
    let change = Change::to(&json!({"query": asked.query}));
    let told = stream::unfold(Some((running, known, console)), async |state| {
        let (mut running, known, console) = state?;
        let told = running.next().await?;
        let may_ask =
            known.now(&console).is_some_and(|caller| check_unlimited(&caller, QUERY).is_ok());
        if !may_ask {
            return Some((line(&json!({"rows": [], "end": "rights"})), None));
        }
        Some((line(&told), Some((running, known, console))))
    });
    let lines = ([(header::CONTENT_TYPE, LINES)], ResponseBody::from_stream(told)).into_response();
    Ok(change.told(lines))
}

/// Writes a record to a topic.
pub(super) async fn produce(
    known: Known,
    State(console): State<Arc<Console>>,
    Path(name): Path<String>,
    Body(asked): Body<RecordCreate>,
) -> Result<Response, Refusal> {
    check_unlimited(&known.caller, PRODUCE)?;
    let value_bytes = asked.value.as_ref().map(String::len);
    let headers: Vec<_> = asked.headers.keys().collect();
    // Records may be confidential, so the audit log has only their size.
    let change = Change::to(&json!({
        "key": asked.key,
        "value_bytes": value_bytes,
        "headers": headers,
        "partition": asked.partition,
    }));
    let RecordCreate { key, value, headers, partition } = asked;
    let record = NewRecord { key, value, headers, partition };
    let written = queries_of(&console)?.write(&known.caller.user, &name, &record).await;
    written.map_err(refusal_of_write)?;
    Ok(change.told(StatusCode::NO_CONTENT.into_response()))
}

fn line(told: &Value) -> Result<Bytes, Infallible> {
    Ok(Bytes::from(format!("{told}\n")))
}

fn queries_of(console: &Console) -> Result<&Queries, Refusal> {
    let nowhere = || {
        Refusal::new(
            Kind::NoBroker,
            "SQL of the broker is not configured; start the console with --broker-sql",
        )
    };
    console.queries.as_ref().ok_or_else(nowhere)
}

fn refusal_of_write(error: WriteError) -> Refusal {
    match error {
        WriteError::NoTopic(what) => Refusal::new(Kind::NotFound, &what),
        WriteError::Denied(what) => {
            Refusal::forbidden(&format!("the broker refused the request: {what}"))
        }
        WriteError::Field(field, what) => Refusal::in_field(field, &what),
        WriteError::Refused(what) => Refusal::new(Kind::Conflict, &what),
        WriteError::Unasked(error) => refusal_of(error),
    }
}

fn refusal_of(error: QueryError) -> Refusal {
    match error {
        QueryError::Refused(what) => Refusal::in_field("query", &what),
        QueryError::Busy(what) => Refusal::new(Kind::Conflict, &what),
        QueryError::Broken(what) => Refusal::new(Kind::BrokerDown, &what),
    }
}

pub(super) fn refusal_of_kafka(error: KafkaError) -> Refusal {
    match error {
        KafkaError::NotFound(what) => Refusal::new(Kind::NotFound, &what),
        KafkaError::Denied(what) => {
            Refusal::forbidden(&format!("the broker refused the request: {what}"))
        }
        KafkaError::Refused(what) => Refusal::new(Kind::Conflict, &what),
        KafkaError::Broken(what) => Refusal::new(Kind::BrokerDown, &what),
    }
}
