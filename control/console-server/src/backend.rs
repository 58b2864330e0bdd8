//! Client of a REST interface on this host, the daemon's or that of `memlane-machines`. Each
//! request uses its own connection.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rest_client::{Answer, converse, upgrade_request};
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::sync::Semaphore;

use crate::exchange::{Asked, exchange};

/// Maximum number of concurrent requests. Each server accepts 64 connections; the rest is for
/// direct clients.
const REQUESTS_AT_ONCE_MAX: usize = 32;

/// Time limit for the daemon. Long operations are tasks, which it answers at once.
const DAEMON_TIME_MAX: Duration = Duration::from_secs(60);

/// Time limit for `memlane-machines`, which answers only after a machine is created or deleted.
const MACHINES_TIME_MAX: Duration = Duration::from_secs(150);

/// Limit on the length of a response: far more than a list of thousands of volumes.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Reason for a missing response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// The socket cannot be connected to.
    Unreachable(String),
    /// The connection broke, or the response is too long.
    Broken(String),
    Late(Duration),
}

impl std::fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreachable(why) | Self::Broken(why) => f.write_str(why),
            Self::Late(waited) => write!(f, "timed out after {} s", waited.as_secs()),
        }
    }
}

/// A server, with a limit on concurrent requests.
#[derive(Debug)]
pub(crate) struct Backend {
    name: &'static str,
    socket: PathBuf,
    answer_time_max: Duration,
    turns: Arc<Semaphore>,
}

impl Backend {
    /// The daemon.
    pub(crate) fn daemon(socket: PathBuf) -> Self {
        Self::at("the daemon", socket, DAEMON_TIME_MAX)
    }

    /// The server for virtual machines.
    pub(crate) fn machines(socket: PathBuf) -> Self {
        Self::at("memlane-machines", socket, MACHINES_TIME_MAX)
    }

    fn at(name: &'static str, socket: PathBuf, answer_time_max: Duration) -> Self {
        let turns = Arc::new(Semaphore::new(REQUESTS_AT_ONCE_MAX));
        Self { name, socket, answer_time_max, turns }
    }

    /// Sends a request once. It is not retried, because a change may have been made.
    pub(crate) async fn ask(&self, asked: Asked<'_>) -> Result<Answer, NoAnswer> {
        let exchange = async {
            let _turn = self.turns.acquire().await.map_err(|_| self.late())?;
            let stream = self.connect().await?;
            let answer = exchange(stream, asked, ANSWER_BYTES_MAX).await;
            answer.map_err(|what| self.broken(&what))
        };
        self.in_time(exchange).await
    }

    /// Sends a GET request and decodes the JSON response.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, NoAnswer> {
        let answer = self.ask(Asked::get(path)).await?;
        if !answer.status.is_success() {
            let what = format!("{} answered {}", self.name, answer.status);
            return Err(NoAnswer::Broken(what));
        }
        serde_json::from_slice(&answer.body).map_err(|error| {
            NoAnswer::Broken(format!("invalid response of {} to {path}: {error}", self.name))
        })
    }

    /// Upgrades a connection to a machine's console. Returns the response, also if the server
    /// refuses.
    pub(crate) async fn upgrade(&self, path: &str) -> Result<Answer, NoAnswer> {
        let connecting = async {
            let stream = self.connect().await?;
            let request = upgrade_request(path, api::CONSOLE_PROTOCOL);
            let answer = converse(stream, request, ANSWER_BYTES_MAX).await;
            answer.map_err(|broken| self.broken(&broken.to_string()))
        };
        self.in_time(connecting).await
    }

    async fn in_time<T>(
        &self,
        answering: impl Future<Output = Result<T, NoAnswer>>,
    ) -> Result<T, NoAnswer> {
        let waited = tokio::time::timeout(self.answer_time_max, answering).await;
        waited.unwrap_or_else(|_| Err(self.late()))
    }

    fn late(&self) -> NoAnswer {
        NoAnswer::Late(self.answer_time_max)
    }

    async fn connect(&self) -> Result<UnixStream, NoAnswer> {
        let (name, place) = (self.name, self.socket.display());
        UnixStream::connect(&self.socket).await.map_err(|error| {
            let hint = "check that it runs and that the console's user may use its socket";
            NoAnswer::Unreachable(format!("cannot connect to {name} at {place}: {error}; {hint}"))
        })
    }

    fn broken(&self, what: &str) -> NoAnswer {
        let (name, place) = (self.name, self.socket.display());
        NoAnswer::Broken(format!("lost the connection to {name} at {place}: {what}"))
    }
}
