//! One request to the daemon, and its answer.

use std::path::PathBuf;
use std::time::Duration;

use api::{Method, Problem};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use crate::failure::Failure;

/// How long a connection may take; the daemon answers from its own host.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);

/// Far more than the longest answer: a list of thousands of volumes.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Where the daemon is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Socket(PathBuf),
    /// Host and port.
    Tcp(String),
}

impl Address {
    /// What a URL of the form `http://HOST:PORT` names.
    pub(crate) fn of_url(url: &str) -> Result<Self, Failure> {
        let refuse = |why| Err(Failure::usage(format!("the URL {url:?} cannot be used: {why}")));
        if let Some(path) = url.strip_prefix("unix://") {
            return Ok(Self::Socket(path.into()));
        }
        let Some(host) = url.strip_prefix("http://") else {
            return refuse("write http://HOST:PORT, or unix:///PATH");
        };
        let host = host.trim_end_matches('/');
        if host.is_empty() || host.contains(['/', '?', '#', '@']) {
            return refuse("it names more than a host and a port");
        }
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        Ok(Self::Tcp(if has_port { host.to_owned() } else { format!("{host}:80") }))
    }
}

/// Speaks to one daemon.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) address: Address,
}

impl Client {
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.ask(Method::Get, path, &NOTHING)
    }

    pub(crate) fn delete(&self, path: &str) -> Result<(), Failure> {
        self.send(Method::Delete, path, &NOTHING).map(|_| ())
    }

    /// Sends `body` and reads the answer.
    pub(crate) fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Failure> {
        let answer = self.send(method, path, body)?;
        serde_json::from_slice(&answer).map_err(|error| {
            let detail = "are memlane and memlaned of the same version?";
            Failure::other(format!("the answer of the daemon cannot be read: {error}; {detail}"))
        })
    }

    fn send(&self, method: Method, path: &str, body: &impl Serialize) -> Result<Bytes, Failure> {
        let body = match serde_json::to_vec(body).expect("requests are plain data") {
            null if null == b"null" => Vec::new(),
            json => json,
        };
        let request = Request::builder()
            .method(method.name())
            .uri(path)
            .header(header::HOST, "localhost")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))
            .expect("paths of the interface are quoted");
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::other(format!("cannot wait for the daemon: {error}")))?
            .block_on(self.exchange(request))
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Bytes, Failure> {
        match &self.address {
            Address::Socket(path) => {
                let place = format!("{} (does memlaned run?)", path.display());
                let connection = connect(UnixStream::connect(path), &place).await?;
                exchange_over(connection, &place, request).await
            }
            Address::Tcp(host) => {
                let connection = connect(TcpStream::connect(host), host).await?;
                exchange_over(connection, host, request).await
            }
        }
    }
}

/// The body of requests that have none.
const NOTHING: Option<()> = None;

async fn connect<T>(
    connecting: impl Future<Output = std::io::Result<T>>,
    place: &str,
) -> Result<T, Failure> {
    let unreachable =
        |why: String| Failure::unreachable(format!("cannot reach the daemon at {place}: {why}"));
    match tokio::time::timeout(CONNECT_TIME_MAX, connecting).await {
        Ok(connected) => connected.map_err(|error| unreachable(error.to_string())),
        Err(_) => Err(unreachable(format!("no answer in {} s", CONNECT_TIME_MAX.as_secs()))),
    }
}

async fn exchange_over(
    connection: impl AsyncRead + AsyncWrite + Unpin,
    place: &str,
    request: Request<Full<Bytes>>,
) -> Result<Bytes, Failure> {
    let lost = |error: hyper::Error| {
        Failure::unreachable(format!("the daemon at {place} ended the connection: {error}"))
    };
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(connection)).await.map_err(lost)?;
    let answering = async {
        let response = sender.send_request(request).await.map_err(lost)?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await.map_err(|error| {
            Failure::unreachable(format!("the answer of the daemon at {place} broke off: {error}"))
        })?;
        Ok((head.status, body.to_bytes()))
    };
    tokio::pin!(answering, connection);
    let answer: Result<_, Failure> = tokio::select! {
        answer = &mut answering => answer,
        // The connection may end with the last byte of the answer.
        _ = &mut connection => answering.await,
    };
    let (status, body) = answer?;
    if status.is_success() { Ok(body) } else { Err(failure_of(status, &body)) }
}

fn failure_of(status: StatusCode, body: &[u8]) -> Failure {
    match serde_json::from_slice::<Problem>(body) {
        Ok(problem) => problem.into(),
        Err(_) => Failure::other(format!(
            "the daemon answered {status} and said {:?}",
            String::from_utf8_lossy(body)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_host_and_a_port() {
        let address = |url| Address::of_url(url).expect(url);
        assert_eq!(address("http://localhost:8080"), Address::Tcp("localhost:8080".to_owned()));
        assert_eq!(address("http://localhost/"), Address::Tcp("localhost:80".to_owned()));
        assert_eq!(address("http://[::1]:8080"), Address::Tcp("[::1]:8080".to_owned()));
        assert_eq!(address("unix:///run/x"), Address::Socket("/run/x".into()));
    }

    #[test]
    fn other_urls_are_wrong_usage() {
        for url in ["localhost:8080", "https://localhost", "http://", "http://a/b", "http://a@b"] {
            let failure = Address::of_url(url).expect_err(url);
            assert_eq!(failure.exit_code, crate::failure::EXIT_USAGE, "{url}");
        }
    }

    #[test]
    fn an_answer_that_is_no_problem_is_shown() {
        let failure = failure_of(StatusCode::BAD_GATEWAY, b"proxy error");
        assert!(failure.message.contains("502") && failure.message.contains("proxy error"));
    }
}
