//! Requests to a daemon over its REST interface, one connection for each: for programs that wait
//! for the answer.
#![forbid(unsafe_code)]

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

/// How long a connection may take; the daemon answers from its own host.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);

/// Far more than the longest answer: a list of thousands of volumes.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Why a request was not served.
#[derive(Debug, thiserror::Error)]
pub enum RestError {
    /// No daemon answers, or it is of another version.
    #[error("{0}")]
    Unreachable(String),
    /// The daemon answered with a problem.
    #[error("{}", .0.detail)]
    Refused(Problem),
    #[error("{0}")]
    Other(String),
}

/// Where the daemon is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Socket(PathBuf),
    /// Host and port.
    Tcp(String),
}

impl Address {
    /// What a URL of the form `http://HOST:PORT` names.
    ///
    /// # Errors
    /// A sentence that says what is wrong with the URL.
    pub fn of_url(url: &str) -> Result<Self, String> {
        let refuse = |why| Err(format!("the URL {url:?} cannot be used: {why}"));
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
pub struct Client {
    pub address: Address,
}

impl Client {
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, RestError> {
        self.ask(Method::Get, path, &NOTHING)
    }

    pub fn delete(&self, path: &str) -> Result<(), RestError> {
        self.send(Method::Delete, path, &NOTHING).map(|_| ())
    }

    /// Sends `body` and reads the answer.
    pub fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, RestError> {
        let answer = self.send(method, path, body)?;
        serde_json::from_slice(&answer).map_err(|error| {
            let detail = "are memlane and memlaned of the same version?";
            RestError::Other(format!("the answer of the daemon cannot be read: {error}; {detail}"))
        })
    }

    /// Sends `body` and returns that of the answer.
    pub fn send(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<Bytes, RestError> {
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
            .map_err(|error| RestError::Other(format!("cannot wait for the daemon: {error}")))?
            .block_on(self.exchange(request))
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Bytes, RestError> {
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
) -> Result<T, RestError> {
    let unreachable =
        |why: String| RestError::Unreachable(format!("cannot reach the daemon at {place}: {why}"));
    match tokio::time::timeout(CONNECT_TIME_MAX, connecting).await {
        Ok(connected) => connected.map_err(|error| unreachable(error.to_string())),
        Err(_) => Err(unreachable(format!("no answer in {} s", CONNECT_TIME_MAX.as_secs()))),
    }
}

async fn exchange_over(
    connection: impl AsyncRead + AsyncWrite + Unpin,
    place: &str,
    request: Request<Full<Bytes>>,
) -> Result<Bytes, RestError> {
    let lost = |error: hyper::Error| {
        RestError::Unreachable(format!("the daemon at {place} ended the connection: {error}"))
    };
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(connection)).await.map_err(lost)?;
    let answering = async {
        let response = sender.send_request(request).await.map_err(lost)?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await.map_err(|error| {
            RestError::Unreachable(format!(
                "the answer of the daemon at {place} broke off: {error}"
            ))
        })?;
        Ok((head.status, body.to_bytes()))
    };
    tokio::pin!(answering, connection);
    let answer: Result<_, RestError> = tokio::select! {
        answer = &mut answering => answer,
        // The connection may end with the last byte of the answer.
        _ = &mut connection => answering.await,
    };
    let (status, body) = answer?;
    if status.is_success() { Ok(body) } else { Err(failure_of(status, &body)) }
}

fn failure_of(status: StatusCode, body: &[u8]) -> RestError {
    match serde_json::from_slice::<Problem>(body) {
        Ok(problem) => RestError::Refused(problem),
        Err(_) => RestError::Other(format!(
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
            let why = Address::of_url(url).expect_err(url);
            assert!(why.contains(url), "{why}");
        }
    }

    #[test]
    fn an_answer_that_is_no_problem_is_shown() {
        let failure = failure_of(StatusCode::BAD_GATEWAY, b"proxy error");
        let message = failure.to_string();
        assert!(message.contains("502") && message.contains("proxy error"));
    }
}
