//! Client of the broker's read-only HTTP interface. Each request uses its own connection.

use std::time::Duration;

use rest_client::Answer;
use serde_json::Value;
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::broker::place::HttpPlace;
use crate::exchange::{Asked, exchange};

const TOPICS_PATH: &str = "/v1/topics";
const TOPIC_PATH: &str = "/v1/topics/{name}";
const GROUPS_PATH: &str = "/v1/groups";
const GROUP_PATH: &str = "/v1/groups/{name}";

const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Time for which a response is cached, so that the broker is queried once for all browsers.
const KEPT: Duration = Duration::from_millis(900);

/// Overview of topics and groups.
#[derive(Clone, Debug)]
pub(crate) struct Overview {
    pub(crate) topics: Value,
    /// `None` if the group coordinator timed out.
    pub(crate) groups: Option<Value>,
}

/// The broker's interface, with the cached overview.
#[derive(Debug)]
pub(crate) struct Interface {
    place: HttpPlace,
    told: Mutex<Option<(Instant, Result<Overview, String>)>>,
}

impl Interface {
    pub(crate) fn at(place: HttpPlace) -> Self {
        Self { place, told: Mutex::new(None) }
    }

    /// Returns topics and groups, or a message that says why they are unavailable.
    pub(crate) async fn overview(&self) -> Result<Overview, String> {
        let mut told = self.told.lock().await;
        if let Some((at, known)) = &*told
            && at.elapsed() < KEPT
        {
            return known.clone();
        }
        let overview = self.look().await;
        *told = Some((Instant::now(), overview.clone()));
        overview
    }

    /// Returns the broker's description of a topic, or `None` if it does not exist.
    pub(crate) async fn topic(&self, name: &str) -> Result<Option<Value>, String> {
        self.one(&api::path_of(TOPIC_PATH, name)).await
    }

    /// Returns the broker's description of a group, with its lag in each partition, or `None` if it
    /// does not exist.
    pub(crate) async fn group(&self, name: &str) -> Result<Option<Value>, String> {
        self.one(&api::path_of(GROUP_PATH, name)).await
    }

    async fn one(&self, path: &str) -> Result<Option<Value>, String> {
        let answer = self.ask(path).await?;
        match answer.status.as_u16() {
            404 => Ok(None),
            _ => self.read(&answer).map(Some),
        }
    }

    async fn look(&self) -> Result<Overview, String> {
        let topics = self.read(&self.ask(TOPICS_PATH).await?)?;
        let groups = self.ask(GROUPS_PATH).await?;
        let groups = match groups.status.as_u16() {
            503 => None,
            _ => Some(self.read(&groups)?),
        };
        Ok(Overview { topics, groups })
    }

    fn read(&self, answer: &Answer) -> Result<Value, String> {
        let value: Value = serde_json::from_slice(&answer.body)
            .map_err(|error| format!("invalid response of {}, not JSON: {error}", self.place))?;
        if !answer.status.is_success() {
            let detail = value["detail"].as_str().unwrap_or("no reason given");
            return Err(format!("the broker at {} refused the request: {detail}", self.place));
        }
        Ok(value)
    }

    async fn ask(&self, path: &str) -> Result<Answer, String> {
        let place = &self.place;
        let asking = async {
            let unreachable = |error| format!("cannot connect to the broker at {place}: {error}");
            let asked = Asked::get(path);
            let answer = match place {
                HttpPlace::Socket(path) => {
                    let stream = UnixStream::connect(path).await.map_err(unreachable)?;
                    exchange(stream, asked, ANSWER_BYTES_MAX).await
                }
                HttpPlace::Address(address) => {
                    let stream = TcpStream::connect(address).await.map_err(unreachable)?;
                    exchange(stream, asked, ANSWER_BYTES_MAX).await
                }
            };
            answer.map_err(|what| format!("lost the connection to the broker at {place}: {what}"))
        };
        let answer = tokio::time::timeout(ANSWER_TIME_MAX, asking).await;
        answer.unwrap_or_else(|_| {
            Err(format!("the broker at {place} did not answer in {} s", ANSWER_TIME_MAX.as_secs()))
        })
    }
}
