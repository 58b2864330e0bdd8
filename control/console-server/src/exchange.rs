//! HTTP request to a server on this host, on its own connection.

use axum::body::Bytes;
use axum::http::{Method, Request, header};
use http_body_util::Full;
use rest_client::{Answer, converse};
use tokio::io::{AsyncRead, AsyncWrite};

/// A request to a server on this host.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) method: Method,
    /// Path and query.
    pub(crate) path: &'a str,
    /// Entity tag for `If-Match`.
    pub(crate) if_match: Option<&'a header::HeaderValue>,
    pub(crate) body: Bytes,
}

impl<'a> Asked<'a> {
    pub(crate) fn get(path: &'a str) -> Self {
        Self { method: Method::GET, path, if_match: None, body: Bytes::new() }
    }
}

/// Sends a request on a new connection. Fails, with a message, if the connection breaks or the
/// response exceeds `bytes_max`.
pub(crate) async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    asked: Asked<'_>,
    bytes_max: usize,
) -> Result<Answer, String> {
    let mut request =
        Request::builder().method(asked.method).uri(asked.path).header(header::HOST, "localhost");
    if !asked.body.is_empty() {
        request = request.header(header::CONTENT_TYPE, "application/json");
    }
    if let Some(tag) = asked.if_match {
        request = request.header(header::IF_MATCH, tag);
    }
    let request = request.body(Full::new(asked.body)).map_err(|error| error.to_string())?;
    converse(stream, request, bytes_max).await.map_err(|broken| broken.to_string())
}
