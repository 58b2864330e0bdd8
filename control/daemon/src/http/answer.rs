//! Responses: JSON, no content, or problem details.

use api::{PROBLEM_CONTENT_TYPE, Problem, ProblemKind};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use serde::Serialize;

use crate::service::entity_tag;

/// Value of `Retry-After` for temporary refusals, in seconds.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

/// A problem as a response.
#[derive(Debug)]
pub(super) struct Refusal(pub(super) Problem);

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Self(problem) = self;
        let is_for_a_while = problem.status == StatusCode::SERVICE_UNAVAILABLE.as_u16();
        if problem.kind.is_failure() {
            tracing::error!(kind = %problem.kind, %problem, "request failed");
        } else if problem.kind == ProblemKind::NoSpace {
            tracing::warn!(%problem, "request refused");
        }
        let status =
            StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(problem)).into_response();
        let content_type = HeaderValue::from_static(PROBLEM_CONTENT_TYPE);
        response.headers_mut().insert(header::CONTENT_TYPE, content_type);
        if is_for_a_while {
            response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        response
    }
}

/// Result of a handler.
pub(super) type Answer = Result<Response, Refusal>;

pub(super) fn json(value: impl Serialize) -> Response {
    Json(value).into_response()
}

/// Response `201 Created` for a resource at `path`.
pub(super) fn created(path: String, value: impl Serialize) -> Response {
    (StatusCode::CREATED, [(header::LOCATION, path)], Json(value)).into_response()
}

/// Response `202 Accepted` for a task, with its path.
pub(super) fn accepted(task: api::Task) -> Response {
    let path = api::path_of(api::TASK_PATH, &task.id.to_string());
    (StatusCode::ACCEPTED, [(header::LOCATION, path)], Json(task)).into_response()
}

/// Response with a volume and the entity tag of its settings.
pub(super) fn volume(volume: api::Volume) -> Response {
    let tag = [(header::ETAG, entity_tag(&volume))];
    (tag, Json(volume)).into_response()
}

/// Response `201 Created` for a volume.
pub(super) fn created_volume(made: api::Volume) -> Response {
    let path = api::path_of(api::VOLUME_PATH, &made.name);
    (StatusCode::CREATED, [(header::LOCATION, path)], volume(made)).into_response()
}

pub(super) fn nothing((): ()) -> Response {
    StatusCode::NO_CONTENT.into_response()
}

pub(super) fn text(content_type: &'static str, text: String) -> Response {
    ([(header::CONTENT_TYPE, content_type)], text).into_response()
}

/// Runs `operation` on a thread that may block.
pub(super) async fn blocking<T: Send + 'static>(
    operation: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(operation).await.map_err(|error| {
        Refusal(Problem::new(ProblemKind::Internal, format!("the operation was aborted: {error}")))
    })
}
