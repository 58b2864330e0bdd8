//! Conversion of results into HTTP responses.

use std::sync::Arc;

use api::{PROBLEM_CONTENT_TYPE, Problem, ProblemKind};
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Json, Response};

use crate::service::Service;

/// A problem as an HTTP response.
pub(super) struct Refusal(pub(super) Problem);

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Self(problem) = self;
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
        response
    }
}

pub(super) type Answer = Result<Response, Refusal>;
pub(super) type Shared = State<Arc<Service>>;

/// Runs a blocking operation on a thread for such operations.
pub(super) async fn blocking<T: Send + 'static>(
    operation: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let ended = tokio::task::spawn_blocking(operation).await;
    ended.unwrap_or_else(|error| {
        let detail = format!("the operation was aborted: {error}");
        Err(Problem::new(ProblemKind::Internal, detail))
    })
}
