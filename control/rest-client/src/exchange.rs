//! One HTTP request on a new connection, as an async function.

use std::error::Error;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::upgrade::Upgraded;
use hyper::{HeaderMap, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

/// An HTTP response.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// The upgraded connection, if the server accepted an upgrade.
    pub upgraded: Option<TokioIo<Upgraded>>,
}

/// Error of an exchange.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// The connection ended before the response started.
    #[error("{0}")]
    Ended(hyper::Error),
    /// The response is incomplete or too long.
    #[error("{0}")]
    Cut(Box<dyn Error + Send + Sync>),
}

/// Returns a request to upgrade the connection to `protocol`, for a server on this host.
///
/// # Panics
/// If the path is invalid.
pub fn upgrade_request(path: &str, protocol: &str) -> Request<Full<Bytes>> {
    Request::builder()
        .uri(path)
        .header(header::HOST, "localhost")
        .header(header::CONNECTION, "upgrade")
        .header(header::UPGRADE, protocol)
        .body(Full::default())
        .expect("paths of the interface are quoted")
}

/// Sends a request, which must have a `Host` header. Fails if the response body exceeds
/// `bytes_max`.
pub async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
    bytes_max: usize,
) -> Result<Answer, Broken> {
    let shaken = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = shaken.map_err(Broken::Ended)?;
    let answering = async {
        let mut response = sender.send_request(request).await.map_err(Broken::Ended)?;
        let upgraded = match response.status() {
            StatusCode::SWITCHING_PROTOCOLS => {
                let upgraded = hyper::upgrade::on(&mut response).await.map_err(Broken::Ended)?;
                Some(TokioIo::new(upgraded))
            }
            _ => None,
        };
        let (head, body) = response.into_parts();
        let body = Limited::new(body, bytes_max).collect().await.map_err(Broken::Cut)?.to_bytes();
        Ok(Answer { status: head.status, headers: head.headers, body, upgraded })
    };
    let connection = connection.with_upgrades();
    tokio::pin!(answering, connection);
    tokio::select! {
        answer = &mut answering => answer,
        // The server may close the connection with the last byte of the response, or hand it over.
        _ = &mut connection => answering.await,
    }
}
