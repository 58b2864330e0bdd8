//! gRPC client over the driver's socket, in place of the kubelet and the provisioner.

use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::UnixStream;

/// Length of a message prefix: compression flag and length.
const HEAD_BYTES: usize = 5;

/// Error status of a call: code and message.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) code: i32,
    pub(crate) words: String,
}

/// Makes one call on a new connection.
///
/// # Errors
/// The driver does not respond.
pub(crate) fn call<Q: Message, A: Message + Default>(
    socket: &Path,
    path: &str,
    request: &Q,
) -> Result<Result<A, Refusal>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(exchange(socket, path, request))
}

async fn exchange<Q: Message, A: Message + Default>(
    socket: &Path,
    path: &str,
    request: &Q,
) -> Result<Result<A, Refusal>> {
    let stream = UnixStream::connect(socket).await.context("no driver listens")?;
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let encoded = request.encode_to_vec();
    let mut body = vec![0];
    body.extend(u32::try_from(encoded.len())?.to_be_bytes());
    body.extend(encoded);
    let request = http::Request::post(format!("http://localhost{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Full::new(Bytes::from(body)))?;
    let (head, body) = sender.send_request(request).await?.into_parts();
    let body = body.collect().await?;
    let trailers = body.trailers().cloned().unwrap_or_default();
    let bytes = body.to_bytes();
    connection.abort();
    let told = |name: &str| {
        let value = trailers.get(name).or(head.headers.get(name));
        value.and_then(|value| value.to_str().ok()).map(str::to_owned)
    };
    let code = told("grpc-status").context("the answer has no status")?.parse()?;
    if code != 0 {
        let words = told("grpc-message").unwrap_or_default().replace("%20", " ");
        return Ok(Err(Refusal { code, words }));
    }
    ensure!(bytes.len() >= HEAD_BYTES, "the answer has no message");
    A::decode(&bytes[HEAD_BYTES..]).map(Ok).map_err(|error| anyhow!("{path}: {error}"))
}
