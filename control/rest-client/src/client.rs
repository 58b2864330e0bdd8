//! Client that sends one request and reads its response.

use std::fmt::Display;
use std::os::unix::net::UnixStream as UnixSocket;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use api::{Method, Problem};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use crate::address::Address;
use crate::console::Console;
use crate::error::{ConsoleRefusal, RestError};
use crate::exchange::{Answer, Broken, converse, upgrade_request};
use crate::session::Session;

/// Time limit for the connection, and again for the TLS handshake.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);

/// Time limit for the response of a console. It exceeds the console's own time limit for the
/// daemon. A daemon on the same host has no limit: it responds when its operation ends.
const CONSOLE_ANSWER_TIME_MAX: Duration = Duration::from_secs(300);

/// Limit on the length of a response: far more than a list of thousands of volumes.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Time without a response after which the function of [`on_slow_answer`] is called.
const SLOW_ANSWER: Duration = Duration::from_secs(5);

static TELL_SLOW: OnceLock<fn(&str)> = OnceLock::new();

/// Sets a function for this process that is called with the daemon's address once for each request
/// that has no response after five seconds. The request continues. Only the first call has an
/// effect.
pub fn on_slow_answer(tell: fn(&str)) {
    // A second function would report the same requests.
    let _ = TELL_SLOW.set(tell);
}

/// Client of one daemon.
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

    /// Sends `body` and decodes the response.
    pub fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, RestError> {
        let answer = self.send(method, path, body)?;
        serde_json::from_slice(&answer).map_err(|error| {
            let detail = "check that memlane and memlaned have the same version";
            RestError::Other(format!("cannot parse the daemon's response: {error}; {detail}"))
        })
    }

    /// Sends `body` and returns the body of the response.
    pub fn send(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<Bytes, RestError> {
        self.answer(method, path, body).map(|answer| answer.body)
    }

    /// Logs in at a console: sends `login` to `path`, and returns a client that uses the new
    /// session.
    ///
    /// # Errors
    /// The address is not a console, or the console rejects the login.
    pub fn log_in(&self, path: &str, login: &impl Serialize) -> Result<Self, RestError> {
        let Address::Console(console) = &self.address else {
            return Err(RestError::Other("only a console supports login".to_owned()));
        };
        let answer = self.answer(Method::Post, path, login)?;
        let session = Session::begun_by(&answer.headers, &answer.body)?;
        Ok(Self { address: Address::Console(Arc::new(console.within(session))) })
    }

    fn answer(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<Answer, RestError> {
        let body = match serde_json::to_vec(body).expect("requests are plain data") {
            null if null == b"null" => Vec::new(),
            json => json,
        };
        let mut request = Request::builder()
            .method(method.name())
            .uri(path)
            .header(header::CONTENT_TYPE, "application/json");
        request = match &self.address {
            Address::Console(console) => {
                let request = request.header(header::HOST, console.authority());
                let proof = console.proof().into_iter();
                proof.fold(request, |request, (name, value)| request.header(name, value))
            }
            Address::Socket(_) | Address::Tcp(_) => request.header(header::HOST, "localhost"),
        };
        let request =
            request.body(Full::new(Bytes::from(body))).expect("paths of the interface are quoted");
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| RestError::Other(format!("cannot wait for the daemon: {error}")))?
            .block_on(self.exchange(request))
    }

    /// Upgrades a connection to `protocol`. Returns the socket, and bytes that were received after
    /// the response. Works on Unix sockets only.
    pub fn upgrade(&self, path: &str, protocol: &str) -> Result<(UnixSocket, Bytes), RestError> {
        let Address::Socket(socket) = &self.address else {
            return Err(RestError::Other(
                "terminals can be opened only on the machine's host or in the web console"
                    .to_owned(),
            ));
        };
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| RestError::Other(format!("cannot wait for the response: {error}")))?
            .block_on(upgrade_over(socket, path, protocol))
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Answer, RestError> {
        match &self.address {
            Address::Socket(path) => {
                let place = format!(
                    "{} (check that memlaned runs, and that you are root or in the group memlane)",
                    path.display()
                );
                let connection = connect(UnixStream::connect(path), &place).await?;
                let answering = exchange_over(connection, &place, request);
                observed(answering, &path.display().to_string()).await
            }
            Address::Tcp(host) => {
                let connection = connect(TcpStream::connect(host), host).await?;
                observed(exchange_over(connection, host, request), host).await
            }
            Address::Console(console) => exchange_with(console, request).await,
        }
    }
}

/// Waits for an answer, and reports once that it takes long.
async fn observed<T>(answering: impl Future<Output = T>, place: &str) -> T {
    let mut answering = std::pin::pin!(answering);
    match tokio::time::timeout(SLOW_ANSWER, answering.as_mut()).await {
        Ok(answer) => answer,
        Err(_) => {
            if let Some(tell) = TELL_SLOW.get() {
                tell(place);
            }
            answering.await
        }
    }
}

async fn exchange_with(
    console: &Console,
    request: Request<Full<Bytes>>,
) -> Result<Answer, RestError> {
    let place = format!("https://{}", console.authority());
    let late = |what: &str, limit: Duration| {
        RestError::Unreachable(format!("{place} {what} within {} s", limit.as_secs()))
    };
    let stream = connect(TcpStream::connect(console.socket_address()), &place).await?;
    let encrypted = tokio::time::timeout(CONNECT_TIME_MAX, console.encrypt(stream)).await;
    let encrypted =
        encrypted.map_err(|_| late("did not complete the TLS handshake", CONNECT_TIME_MAX))??;
    let answering = exchange_over(encrypted, &place, request);
    let answer = tokio::time::timeout(CONSOLE_ANSWER_TIME_MAX, answering).await;
    answer.map_err(|_| late("did not respond", CONSOLE_ANSWER_TIME_MAX))?
}

async fn upgrade_over(
    socket: &Path,
    path: &str,
    protocol: &str,
) -> Result<(UnixSocket, Bytes), RestError> {
    let place = socket.display().to_string();
    let lost = |error: &dyn Display| {
        RestError::Unreachable(format!("lost the connection to {place}: {error}"))
    };
    let stream = connect(UnixStream::connect(socket), &place).await?;
    let answer = converse(stream, upgrade_request(path, protocol), ANSWER_BYTES_MAX).await;
    let answer = answer.map_err(|error| lost(&error))?;
    let Some(upgraded) = answer.upgraded else {
        return Err(failure_of(answer.status, &answer.body));
    };
    let parts = upgraded.into_inner().downcast::<TokioIo<UnixStream>>();
    let parts = parts.map_err(|_| RestError::Other(format!("{place} is not a socket")))?;
    let stream = parts.io.into_inner().into_std().map_err(|error| lost(&error))?;
    stream.set_nonblocking(false).map_err(|error| lost(&error))?;
    Ok((stream, parts.read_buf))
}

/// An empty request body.
const NOTHING: Option<()> = None;

async fn connect<T>(
    connecting: impl Future<Output = std::io::Result<T>>,
    place: &str,
) -> Result<T, RestError> {
    let unreachable =
        |why: String| RestError::Unreachable(format!("cannot reach the daemon at {place}: {why}"));
    match tokio::time::timeout(CONNECT_TIME_MAX, connecting).await {
        Ok(connected) => connected.map_err(|error| unreachable(error.to_string())),
        Err(_) => Err(unreachable(format!("no response within {} s", CONNECT_TIME_MAX.as_secs()))),
    }
}

async fn exchange_over(
    connection: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    place: &str,
    request: Request<Full<Bytes>>,
) -> Result<Answer, RestError> {
    let answer = converse(connection, request, ANSWER_BYTES_MAX).await;
    let answer = answer.map_err(|broken| {
        RestError::Unreachable(match &broken {
            Broken::Ended(error) => {
                format!("the daemon at {place} closed the connection: {error}")
            }
            Broken::Cut(error) => {
                format!("incomplete response of the daemon at {place}: {error}")
            }
        })
    })?;
    match answer.status.is_success() {
        true => Ok(answer),
        false => Err(failure_of(answer.status, &answer.body)),
    }
}

/// Any problem, including kinds that only consoles report.
#[derive(serde::Deserialize)]
struct AnyProblem {
    kind: String,
    detail: String,
}

fn failure_of(status: StatusCode, body: &[u8]) -> RestError {
    if let Ok(problem) = serde_json::from_slice::<Problem>(body) {
        return RestError::Refused(problem);
    }
    match serde_json::from_slice::<AnyProblem>(body) {
        Ok(AnyProblem { kind, detail }) => match ConsoleRefusal::of_word(&kind) {
            Some(kind) => RestError::RefusedByConsole { kind, detail },
            None => RestError::Other(detail),
        },
        Err(_) => RestError::Other(format!(
            "the daemon responded with {status}: {:?}",
            String::from_utf8_lossy(body)
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_is_no_problem_is_shown() {
        let failure = failure_of(StatusCode::BAD_GATEWAY, b"proxy error");
        let message = failure.to_string();
        assert!(message.contains("502") && message.contains("proxy error"));
    }

    #[test]
    fn problems_that_only_consoles_have_are_told_apart() {
        let body = br#"{"kind": "unauthorized", "detail": "log in", "status": 401}"#;
        let failure = failure_of(StatusCode::UNAUTHORIZED, body);
        let RestError::RefusedByConsole { kind, detail } = failure else { panic!("{failure:?}") };
        assert_eq!((kind, detail.as_str()), (ConsoleRefusal::Unauthorized, "log in"));
        let body = br#"{"kind": "of_tomorrow", "detail": "why", "status": 400}"#;
        let failure = failure_of(StatusCode::BAD_REQUEST, body);
        assert!(matches!(&failure, RestError::Other(why) if why == "why"), "{failure:?}");
    }
}
