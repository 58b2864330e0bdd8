//! Request bodies.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, Request};
use serde::de::DeserializeOwned;

use crate::refusal::{Kind, Refusal};

/// Limit on request bodies. The longest useful one is a list of volumes.
pub(super) const BODY_BYTES_MAX: usize = 256 << 10;

/// Time limit for receiving a body.
const BODY_TIME_MAX: Duration = Duration::from_secs(15);

/// A JSON object with the fields of `T` and no others.
pub(super) struct Body<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, state: &S) -> Result<Self, Refusal> {
        let bytes = read(request, state).await?;
        match api::parse_request(&bytes) {
            Ok(read) => Ok(Self(read)),
            Err(problem) => Err(Refusal::new(Kind::Invalid, &problem.to_string())),
        }
    }
}

/// Reads the whole body, within its limits.
pub(super) async fn read<S: Send + Sync>(request: Request, state: &S) -> Result<Bytes, Refusal> {
    let reading = Bytes::from_request(request, state);
    let Ok(read) = tokio::time::timeout(BODY_TIME_MAX, reading).await else {
        let what =
            format!("timed out after {} s reading the request body", BODY_TIME_MAX.as_secs());
        return Err(Refusal::new(Kind::Slow, &what));
    };
    read.map_err(|error: BytesRejection| match error.status().as_u16() {
        413 => {
            let what =
                format!("the request body is too long; the maximum is {BODY_BYTES_MAX} bytes");
            Refusal::new(Kind::TooLarge, &what)
        }
        _ => Refusal::new(
            Kind::Invalid,
            "the connection was closed before the whole request body arrived",
        ),
    })
}
