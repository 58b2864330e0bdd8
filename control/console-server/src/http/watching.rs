//! Endpoints for the event stream and the histories.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::header;
use axum::response::{IntoResponse, Json, Response};
use futures::stream;
use serde::Deserialize;
use serde_json::json;

use crate::gateway::may_see;
use crate::http::caller::Known;
use crate::http::console::Console;
use crate::refusal::{Kind, Refusal};
use crate::watch::Shown;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HistoryQuery {
    series: Option<String>,
    seconds: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChartsQuery {
    seconds: Option<u64>,
}

const HISTORY_SECONDS_DEFAULT: u64 = 60 * 60;

/// Streams the state of the daemon, its pool, volumes and tasks every second, until the session
/// ends.
pub(super) async fn events(
    known: Known,
    State(console): State<Arc<Console>>,
) -> Result<Response, Refusal> {
    let place = console.watchers.enter(&known.caller.user);
    let place = place.map_err(|full| Refusal::full("open event streams", full))?;
    let watcher = console.watch.join();
    let state = (watcher, place, known, console);
    let told = stream::unfold(state, async |(mut watcher, mut place, known, console)| {
        let seen = tokio::select! {
            seen = watcher.next() => seen?,
            () = place.taken() => return None,
        };
        if !known.still_is(&console) {
            return None;
        }
        let events = match known.caller.is_limited() {
            false => seen.everything(),
            true => seen.volumes(may_see(&console.accounts, &known.caller)),
        };
        Some((Ok::<_, Infallible>(events), (watcher, place, known, console)))
    });
    // There is an event every second, so that no connection stays idle.
    let content_type = [(header::CONTENT_TYPE, "text/event-stream")];
    Ok((content_type, Body::from_stream(told)).into_response())
}

/// Returns all series of the history, for charts.
pub(super) async fn charts(
    known: Known,
    State(console): State<Arc<Console>>,
    query: Result<Query<ChartsQuery>, QueryRejection>,
) -> Result<Response, Refusal> {
    let asked = query.map_err(|error| Refusal::new(Kind::Invalid, &error.to_string()))?.0;
    if known.caller.is_limited() {
        return Err(Refusal::forbidden(
            "you are limited to projects, and this is not part of them",
        ));
    }
    let written = console.history.written(asked.seconds.unwrap_or(HISTORY_SECONDS_DEFAULT));
    let written = written.map_err(|error| Refusal::internal(&error.into()))?;
    Ok(([(header::CONTENT_TYPE, "application/json")], written).into_response())
}

/// Returns the volumes with the highest request rates.
pub(super) async fn busiest(
    known: Known,
    State(console): State<Arc<Console>>,
) -> Result<Response, Refusal> {
    if known.caller.is_limited() {
        return Err(Refusal::forbidden(
            "you are limited to projects, and this is not part of them",
        ));
    }
    let content_type = [(header::CONTENT_TYPE, "application/json")];
    Ok((content_type, console.busiest.written()).into_response())
}

/// Returns the volumes with the highest latencies in the last minute.
pub(super) async fn slowest(
    known: Known,
    State(console): State<Arc<Console>>,
) -> Result<Response, Refusal> {
    if known.caller.is_limited() {
        return Err(Refusal::forbidden(
            "you are limited to projects, and this is not part of them",
        ));
    }
    let content_type = [(header::CONTENT_TYPE, "application/json")];
    Ok((content_type, console.volumes.slowest()).into_response())
}

/// Returns the last hour of a volume.
pub(super) async fn volume(
    known: Known,
    State(console): State<Arc<Console>>,
    Path(name): Path<String>,
    query: Result<Query<ChartsQuery>, QueryRejection>,
) -> Result<Json<Vec<Shown>>, Refusal> {
    let asked = query.map_err(|error| Refusal::new(Kind::Invalid, &error.to_string()))?.0;
    console.gateway.check_volume(&known.caller, &name).await?;
    let seconds = asked.seconds.unwrap_or(HISTORY_SECONDS_DEFAULT);
    Ok(Json(console.volumes.shown(&name, seconds)))
}

/// Returns the names of all series, or the points of one.
pub(super) async fn history(
    known: Known,
    State(console): State<Arc<Console>>,
    query: Result<Query<HistoryQuery>, QueryRejection>,
) -> Result<Response, Refusal> {
    let asked = query.map_err(|error| Refusal::new(Kind::Invalid, &error.to_string()))?.0;
    if known.caller.is_limited() {
        return Err(Refusal::forbidden(
            "you are limited to projects, and this is not part of them",
        ));
    }
    let Some(name) = asked.series else {
        return Ok(Json(console.history.names()).into_response());
    };
    let seconds = asked.seconds.unwrap_or(HISTORY_SECONDS_DEFAULT);
    let points = console.history.points(&name, seconds);
    let nothing = || Refusal::new(Kind::NotFound, &format!("no series {name:?}"));
    let (step_seconds, points) = points.ok_or_else(nothing)?;
    let shown = json!({ "series": name, "step_seconds": step_seconds, "points": points });
    Ok(Json(shown).into_response())
}
