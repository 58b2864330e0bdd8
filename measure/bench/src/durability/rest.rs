//! Client of the daemon's REST interface. It starts no program, which would occupy a core during a
//! measurement.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use serde::de::DeserializeOwned;
use system::Daemon;

const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Maximum length of a response, far more than needed.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// Client of one daemon. Any thread may use one.
#[derive(Clone, Debug)]
pub(super) struct Rest {
    socket: PathBuf,
}

impl Rest {
    pub(super) fn of(daemon: &Daemon) -> Self {
        Self { socket: daemon.api_socket() }
    }

    pub(super) fn get<Answer: DeserializeOwned>(&self, path: &str) -> Result<Answer> {
        let body = self.ask("GET", path, "")?;
        serde_json::from_str(&body).with_context(|| format!("{path} answers {body}"))
    }

    pub(super) fn post(&self, path: &str, body: &impl Serialize) -> Result<()> {
        self.ask("POST", path, &serde_json::to_string(body)?).map(|_| ())
    }

    pub(super) fn delete(&self, path: &str) -> Result<()> {
        self.ask("DELETE", path, "").map(|_| ())
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> Result<String> {
        let exchange = || -> Result<String> {
            let mut stream = UnixStream::connect(&self.socket)?;
            stream.set_read_timeout(Some(TIME_LIMIT))?;
            stream.set_write_timeout(Some(TIME_LIMIT))?;
            let length = body.len();
            write!(
                stream,
                "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
                 Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
            )?;
            let mut answer = String::new();
            stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer)?;
            Ok(answer)
        };
        let what = || format!("request to the daemon failed: {method} {path}");
        let answer = exchange().with_context(what)?;
        body_of(&answer).with_context(what)
    }
}

/// Returns the body of a successful response.
fn body_of(answer: &str) -> Result<String> {
    let (head, body) =
        answer.split_once("\r\n\r\n").context("the response has incomplete headers")?;
    let status = head.split_whitespace().nth(1).unwrap_or_default();
    ensure!(status.starts_with('2'), "status {status}: {body}");
    Ok(body.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_errors_with_what_was_said() {
        let answer = "HTTP/1.1 404 Not Found\r\nA: b\r\n\r\n{\"detail\":\"no volume x\"}";
        let error = body_of(answer).expect_err("it is a refusal");
        assert!(error.to_string().contains("no volume x"), "{error}");
        assert_eq!(body_of("HTTP/1.1 200 OK\r\n\r\n[1]").ok().as_deref(), Some("[1]"));
    }
}
