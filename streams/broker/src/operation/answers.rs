//! HTTP responses: JSON, text, or problem details (RFC 9457).

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use serde::Serialize;

/// Value of the Retry-After header, in seconds.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

pub(super) fn json(value: impl Serialize) -> Response {
    Json(value).into_response()
}

pub(super) fn text(content_type: &'static str, text: String) -> Response {
    ([(header::CONTENT_TYPE, content_type)], text).into_response()
}

pub(super) fn problem(kind: api::ProblemKind, detail: String) -> Response {
    let problem = api::Problem::new(kind, detail);
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = (status, Json(problem)).into_response();
    let content_type = HeaderValue::from_static(api::PROBLEM_CONTENT_TYPE);
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    if status == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER);
    }
    response
}

/// Response body of `/healthz` and `/readyz`.
#[derive(Serialize)]
struct Health {
    stage: &'static str,
    /// Reason why the broker is not ready, or unavailable topics.
    reason: Option<String>,
}

/// Returns status 200, with unavailable topics if any, or 503 with a reason.
pub(super) fn health(
    stage: &'static str,
    unready: Option<String>,
    missing: Option<String>,
) -> Response {
    let is_ready = unready.is_none();
    let mut response = json(Health { stage, reason: unready.or(missing) });
    if !is_ready {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER);
    }
    response
}
