//! Request bodies, limited in size and time. Errors name the invalid field.

use std::time::Duration;

use api::{Problem, ProblemKind};
use axum::body::to_bytes;
use axum::extract::{FromRequest, Request};
use serde::de::DeserializeOwned;

use crate::http::answer::Refusal;

/// Maximum size of a body, far above the size of any valid request.
pub(super) const BODY_BYTES_MAX: usize = 64 << 10;

/// Maximum time for the body to arrive after the head.
const BODY_TIME_MAX: Duration = Duration::from_secs(10);

/// A parsed request body.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, _state: &S) -> Result<Self, Refusal> {
        let arriving = to_bytes(request.into_body(), BODY_BYTES_MAX);
        let arrived = tokio::time::timeout(BODY_TIME_MAX, arriving).await.map_err(|_| {
            let detail = format!(
                "the request body took longer than {} s to arrive",
                BODY_TIME_MAX.as_secs()
            );
            Problem::new(ProblemKind::Timeout, detail)
        })?;
        let bytes = arrived.map_err(|error| {
            if is_too_long(&error) {
                let detail = format!("the request body is longer than {BODY_BYTES_MAX} bytes");
                Problem::new(ProblemKind::BodyTooLarge, detail)
            } else {
                let detail = format!("cannot read the request body: {error}");
                Problem::new(ProblemKind::InvalidRequest, detail)
            }
        })?;
        Ok(Self(api::parse_request(&bytes)?))
    }
}

fn is_too_long(error: &axum::Error) -> bool {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        if error.is::<http_body_util::LengthLimitError>() {
            return true;
        }
        cause = error.source();
    }
    false
}
