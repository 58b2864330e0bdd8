//! One request of HTTP on a connection that was just made, for programs that do other things
//! meanwhile.

use std::error::Error;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::upgrade::Upgraded;
use hyper::{HeaderMap, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

/// Answer of a server.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// Bytes both ways from now on, where the connection was asked for and is given.
    pub upgraded: Option<TokioIo<Upgraded>>,
}

/// Cause of an answer that did not come.
#[derive(Debug, thiserror::Error)]
pub enum Broken {
    /// The connection ended before the answer began.
    #[error("{0}")]
    Ended(hyper::Error),
    /// The answer is not whole, or too long.
    #[error("{0}")]
    Cut(Box<dyn Error + Send + Sync>),
}

/// Request to a program of this host that the connection become one of `protocol`.
///
/// # Panics
/// The path is none.
pub fn upgrade_request(path: &str, protocol: &str) -> Request<Full<Bytes>> {
    Request::builder()
        .uri(path)
        .header(header::HOST, "localhost")
        .header(header::CONNECTION, "upgrade")
        .header(header::UPGRADE, protocol)
        .body(Full::default())
        .expect("paths of the interface are quoted")
}

/// Sends a request as it is, with the header `Host`. An answer of more than `bytes_max` is none.
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
        // The connection may end with the last byte of the answer, or as it is handed over.
        _ = &mut connection => answering.await,
    }
}
