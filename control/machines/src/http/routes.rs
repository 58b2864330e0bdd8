//! Routing of requests to operations, each on a thread that may block.

use std::sync::Arc;
use std::time::Duration;

use api::{DiskAttach, DiskDetach, MachineCreate, MachineSnapshotCreate, Problem, ProblemKind};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Path, RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{get, post};
use serde::de::DeserializeOwned;

use super::answer::{Answer, Refusal, Shared, blocking};
use super::consoles;
use crate::service::{Service, Volumes};

/// Limit on request bodies: more than the longest cloud-init text with every character escaped.
const BODY_BYTES_MAX: usize = 1 << 20;
const BODY_TIME_MAX: Duration = Duration::from_secs(10);

/// Routes for authorized clients.
pub(super) fn router(service: Arc<Service>) -> Router {
    Router::new()
        .route(api::MACHINES_PATH, get(list).post(create))
        .route(api::MACHINE_PATH, get(show).delete(delete))
        .route(api::MACHINE_START_PATH, post(start))
        .route(api::MACHINE_SHUT_DOWN_PATH, post(shut_down))
        .route(api::MACHINE_KILL_PATH, post(kill))
        .route(api::MACHINE_ATTACH_PATH, post(attach))
        .route(api::MACHINE_DETACH_PATH, post(detach))
        .route(api::MACHINE_SNAPSHOT_PATH, post(snapshot))
        .route(api::MACHINE_SERIAL_PATH, get(consoles::serial))
        .route(api::MACHINE_VNC_PATH, get(consoles::screen))
        .route(api::OPENAPI_PATH, get(openapi))
        .fallback(unknown_path)
        .method_not_allowed_fallback(method_not_allowed)
        .with_state(service)
}

/// Response to all other clients.
pub(super) fn forbidding_router() -> Router {
    Router::new().fallback(async || {
        let detail =
            "permission denied: only root and members of this socket's group may use virtual \
             machines";
        Refusal(Problem::new(ProblemKind::Forbidden, detail))
    })
}

async fn unknown_path() -> Refusal {
    Refusal(Problem::new(ProblemKind::UnknownPath, "no such path; machines are at /v1/machines"))
}

async fn method_not_allowed() -> Refusal {
    Refusal(Problem::new(ProblemKind::MethodNotAllowed, "method not supported for this path"))
}

async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], api::machines_openapi_json()).into_response()
}

async fn list(State(service): Shared) -> Answer {
    Ok(Json(blocking(move || service.machines()).await?).into_response())
}

async fn create(State(service): Shared, body: Body) -> Answer {
    let request: MachineCreate = parsed(body).await?;
    let made = blocking(move || service.create(&request)).await?;
    Ok((StatusCode::CREATED, Json(made)).into_response())
}

/// Parses the body of a request.
async fn parsed<T: DeserializeOwned>(body: Body) -> Result<T, Problem> {
    let arriving = to_bytes(body, BODY_BYTES_MAX);
    let arrived = tokio::time::timeout(BODY_TIME_MAX, arriving).await.map_err(|_| {
        let detail =
            format!("the request body took longer than {} s to arrive", BODY_TIME_MAX.as_secs());
        Problem::new(ProblemKind::Timeout, detail)
    })?;
    let body = arrived.map_err(|error| {
        let detail =
            format!("cannot read the request body, at most {BODY_BYTES_MAX} bytes: {error}");
        Problem::new(ProblemKind::BodyTooLarge, detail)
    })?;
    api::parse_request(&body)
}

async fn attach(State(service): Shared, Path(name): Path<String>, body: Body) -> Answer {
    let request: DiskAttach = parsed(body).await?;
    Ok(Json(blocking(move || service.attach(&name, &request)).await?).into_response())
}

async fn detach(State(service): Shared, Path(name): Path<String>, body: Body) -> Answer {
    let request: DiskDetach = parsed(body).await?;
    Ok(Json(blocking(move || service.detach(&name, &request)).await?).into_response())
}

async fn snapshot(State(service): Shared, Path(name): Path<String>, body: Body) -> Answer {
    let request: MachineSnapshotCreate = parsed(body).await?;
    let taken = blocking(move || service.snapshot(&name, &request)).await?;
    Ok((StatusCode::CREATED, Json(taken)).into_response())
}

async fn show(State(service): Shared, Path(name): Path<String>) -> Answer {
    Ok(Json(blocking(move || service.machine(&name)).await?).into_response())
}

async fn start(State(service): Shared, Path(name): Path<String>) -> Answer {
    Ok(Json(blocking(move || service.start(&name)).await?).into_response())
}

async fn shut_down(State(service): Shared, Path(name): Path<String>) -> Answer {
    Ok(Json(blocking(move || service.shut_down(&name)).await?).into_response())
}

async fn kill(State(service): Shared, Path(name): Path<String>) -> Answer {
    Ok(Json(blocking(move || service.kill(&name)).await?).into_response())
}

async fn delete(
    State(service): Shared,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Answer {
    let volumes = match query.as_deref() {
        None | Some("volumes=keep") => Volumes::Keep,
        Some("volumes=delete") => Volumes::Delete,
        Some(_) => {
            let problem = Problem::new(
                ProblemKind::InvalidField,
                "invalid value of volumes; use keep or delete",
            );
            return Err(problem.in_field("volumes").into());
        }
    };
    blocking(move || service.delete(&name, volumes)).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
