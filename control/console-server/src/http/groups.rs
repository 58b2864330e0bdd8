//! Endpoints for the broker's groups: lag in each partition, and offset resets.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::Role;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Json, Response};
use kafka_client::{OffsetMove, OffsetSpec};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use crate::gateway::check_unlimited;
use crate::http::body::Body;
use crate::http::caller::Known;
use crate::http::console::Console;
use crate::http::recorded::Change;
use crate::http::topics::refusal_of_kafka;
use crate::refusal::Refusal;

const SHOW: Role = Role::Viewer;
const RESET: Role = Role::Operator;

/// Position that offsets are reset to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum ResetTo {
    Earliest,
    Latest,
    /// `offset`.
    Offset,
    /// The first record of `time_ms` or later.
    Time,
}

#[derive(Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct OffsetsReset {
    to: ResetTo,
    /// An offset outside of a partition becomes its nearest end.
    #[schema(minimum = 0)]
    offset: Option<i64>,
    /// Milliseconds since 1970.
    #[schema(minimum = 0)]
    time_ms: Option<i64>,
    /// Topics to reset; by default all topics with offsets of the group.
    #[serde(default)]
    topics: Vec<String>,
}

/// Offset of a group in a partition, before and after.
#[derive(Serialize, ToSchema)]
pub(super) struct OffsetChange {
    topic: String,
    partition: i32,
    /// Offset before; `null` if the group had none.
    from: Option<i64>,
    to: i64,
}

/// Returns a group with its offsets, and whether the caller may reset them.
pub(super) async fn show(
    known: Known,
    State(console): State<Arc<Console>>,
    Path(name): Path<String>,
) -> Result<Json<Value>, Refusal> {
    check_unlimited(&known.caller, SHOW)?;
    let told = console.known_broker()?.group(&name).await;
    let mut group = Console::found(told, "group", &name)?;
    let is_allowed = check_unlimited(&known.caller, RESET).is_ok();
    group["resets"] = Console::told_right(console.kafka.is_some(), is_allowed).into();
    Ok(Json(group))
}

/// Resets the offsets of a group without members.
pub(super) async fn reset(
    known: Known,
    State(console): State<Arc<Console>>,
    Path(name): Path<String>,
    Body(asked): Body<OffsetsReset>,
) -> Result<Response, Refusal> {
    check_unlimited(&known.caller, RESET)?;
    let spec = spec_of(&asked)?;
    let moves = console.known_kafka()?.reset(&name, spec, &asked.topics).await;
    let moves = moves.map_err(refusal_of_kafka)?;
    // The audit log has the old offsets, for undoing a wrong reset.
    let change = Change { old: before(&moves), new: json!(asked) };
    let change_of = |it: OffsetMove| {
        let OffsetMove { topic, partition, from, to } = it;
        OffsetChange { topic, partition, from, to }
    };
    let changes: Vec<_> = moves.into_iter().map(change_of).collect();
    Ok(change.told(Json(changes).into_response()))
}

fn spec_of(asked: &OffsetsReset) -> Result<OffsetSpec, Refusal> {
    let wrong = |field, what| Err(Refusal::in_field(field, what));
    match (asked.to, asked.offset, asked.time_ms) {
        (ResetTo::Earliest, None, None) => Ok(OffsetSpec::Earliest),
        (ResetTo::Latest, None, None) => Ok(OffsetSpec::Latest),
        (ResetTo::Offset, Some(offset @ 0..), None) => Ok(OffsetSpec::Offset(offset)),
        (ResetTo::Time, None, Some(time @ 0..)) => Ok(OffsetSpec::Time(time)),
        (ResetTo::Offset, _, None) => wrong("offset", "an offset of 0 or more is required"),
        (ResetTo::Time, None, _) => wrong("time_ms", "milliseconds since 1970 are required"),
        _ => wrong("to", "`offset` is only valid with to=offset, and `time_ms` with to=time"),
    }
}

/// Returns the old committed offsets by topic and partition.
fn before(moves: &[OffsetMove]) -> Value {
    let mut topics = BTreeMap::<&str, BTreeMap<String, i64>>::new();
    for it in moves {
        let Some(from) = it.from else { continue };
        topics.entry(&it.topic).or_default().insert(it.partition.to_string(), from);
    }
    json!(topics)
}
