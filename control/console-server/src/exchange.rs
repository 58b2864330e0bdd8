//! One request of HTTP on a connection of its own.

use axum::body::Bytes;
use axum::http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

/// Answer of a server.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// A request to a program of this host.
#[derive(Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) method: Method,
    /// With its query.
    pub(crate) path: &'a str,
    /// The entity tag that the thing must have.
    pub(crate) if_match: Option<&'a header::HeaderValue>,
    pub(crate) body: Bytes,
}

impl<'a> Asked<'a> {
    pub(crate) fn get(path: &'a str) -> Self {
        Self { method: Method::GET, path, if_match: None, body: Bytes::new() }
    }
}

/// Asks over a connection that was just made. An answer that is longer than `bytes_max` is none;
/// the error says what broke.
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
    converse(stream, request, bytes_max).await
}

/// Sends a request as it is, with the header `Host`, over a connection that was just made.
pub(crate) async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
    bytes_max: usize,
) -> Result<Answer, String> {
    let shaken = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.map_err(|error| error.to_string())?;
    let answering = async {
        let response = sender.send_request(request).await;
        read(response.map_err(|error| error.to_string())?, bytes_max).await
    };
    tokio::pin!(answering, connection);
    tokio::select! {
        answer = &mut answering => answer,
        // The connection may end with the last byte of the answer.
        _ = &mut connection => answering.await,
    }
}

/// Outcome of asking for a connection.
#[derive(Debug)]
pub(crate) enum Connected {
    /// Bytes both ways from now on.
    Open(TokioIo<Upgraded>),
    Refused(Answer),
}

/// Asks, over a connection that was just made, that it become a console's.
pub(crate) async fn upgrade(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    path: &str,
    bytes_max: usize,
) -> Result<Connected, String> {
    let request = Request::builder()
        .uri(path)
        .header(header::HOST, "localhost")
        .header(header::CONNECTION, "upgrade")
        .header(header::UPGRADE, api::CONSOLE_PROTOCOL)
        .body(Full::new(Bytes::new()))
        .map_err(|error| error.to_string())?;
    let shaken = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.map_err(|error| error.to_string())?;
    // It ends when the connection was handed over, or with the answer that refuses it.
    tokio::spawn(connection.with_upgrades());
    let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let open = hyper::upgrade::on(response).await.map_err(|error| error.to_string())?;
        return Ok(Connected::Open(TokioIo::new(open)));
    }
    read(response, bytes_max).await.map(Connected::Refused)
}

/// Reads an answer to its end.
async fn read(response: Response<Incoming>, bytes_max: usize) -> Result<Answer, String> {
    let (head, body) = response.into_parts();
    let body = Limited::new(body, bytes_max).collect().await;
    let body = body.map_err(|error| error.to_string())?.to_bytes();
    Ok(Answer { status: head.status, headers: head.headers, body })
}
