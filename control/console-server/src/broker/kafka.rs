//! Offset resets and topic deletions, over Kafka's protocol.
//!
//! The console connects as a broker user, whose access the broker's ACLs determine. Advertised
//! listeners are ignored, so that no data goes to another host.

use std::error::Error;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use kafka_client::{
    Addresses, Client, ClientError, ErrorKind, Mechanism, OffsetMove, OffsetSpec, ResponseError,
    SaslSettings, ScramHash, Settings,
};

use crate::broker::place::check_host;
use crate::broker::queries::password;

const CONNECT_TIME_MAX: Duration = Duration::from_secs(5);
const REQUEST_TIME_MAX: Duration = Duration::from_secs(10);
const CHANGE_TIME_MAX: Duration = Duration::from_secs(20);

/// Limit on responses, such as topic metadata and group offsets.
const RESPONSE_BYTES_MAX: usize = 16 << 20;

/// Reason for which a change was not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KafkaError {
    NotFound(String),
    /// The broker's ACLs deny it.
    Denied(String),
    /// The group has members, or the broker rejects the request for another reason.
    Refused(String),
    /// No response, or an unexpected one. The change may have been made.
    Broken(String),
}

/// Kafka client of the broker.
#[derive(Debug)]
pub(crate) struct Kafka {
    client: Client,
}

impl Kafka {
    /// `login` is the broker user and the file with its password.
    ///
    /// # Errors
    /// The address is on another host, or the file is unusable.
    pub(crate) fn at(address: SocketAddr, login: Option<(&str, &Path)>) -> anyhow::Result<Self> {
        check_host(address).map_err(anyhow::Error::msg)?;
        let sasl = login.map(|(user, file)| {
            let password = password(file)?;
            let mechanism = Mechanism::Scram(ScramHash::Sha256);
            anyhow::Ok(SaslSettings { mechanism, user: user.to_owned(), password })
        });
        let settings = Settings {
            client_id: "memlane-console".to_owned(),
            addresses: Addresses::First,
            sasl: sasl.transpose().context("cannot log in to the broker")?,
            connect_time_max: CONNECT_TIME_MAX,
            request_time_max: REQUEST_TIME_MAX,
            response_bytes_max: RESPONSE_BYTES_MAX,
            ..Settings::default()
        };
        Ok(Self { client: Client::new(address.to_string(), settings) })
    }

    /// Resets a group's offsets to `spec` in `topics`, or in all topics with committed offsets if
    /// `topics` is empty.
    pub(crate) async fn reset(
        &self,
        group: &str,
        spec: OffsetSpec,
        topics: &[String],
    ) -> Result<Vec<OffsetMove>, KafkaError> {
        let resetting = async {
            let moves = self.client.offset_moves(group, spec, topics).await?;
            if !moves.is_empty() {
                self.client.move_group_offsets(group, &moves).await?;
            }
            Ok(moves)
        };
        let reset = tokio::time::timeout(CHANGE_TIME_MAX, resetting).await;
        let moves = reset.map_err(|_| {
            let seconds = CHANGE_TIME_MAX.as_secs();
            KafkaError::Broken(format!(
                "the broker did not answer within {seconds} s; offsets may have been reset"
            ))
        })?;
        let moves = moves.map_err(|error| refusal_of_reset(&error, group))?;
        match moves.is_empty() {
            true => Err(KafkaError::NotFound(format!("group {group:?} has no committed offsets"))),
            false => Ok(moves),
        }
    }

    /// Deletes a topic with its records and the committed offsets of groups.
    pub(crate) async fn delete_topic(&self, topic: &str) -> Result<(), KafkaError> {
        let deleted = tokio::time::timeout(CHANGE_TIME_MAX, self.client.delete_topic(topic)).await;
        let deleted = deleted.map_err(|_| {
            let seconds = CHANGE_TIME_MAX.as_secs();
            KafkaError::Broken(format!("the broker did not answer within {seconds} s"))
        });
        let deleted = deleted.and_then(|it| it.map_err(|error| refusal_of(&error)));
        deleted.map_err(|error| match error {
            KafkaError::Broken(what) => {
                KafkaError::Broken(format!("{what}; topic {topic:?} may have been deleted"))
            }
            refused => refused,
        })
    }
}

fn refusal_of_reset(error: &ClientError, group: &str) -> KafkaError {
    if error.is_of_members() {
        return KafkaError::Refused(format!(
            "offsets can only be reset while the group is inactive, and group {group:?} has \
             members: stop its consumers first ({})",
            told(error)
        ));
    }
    refusal_of(error)
}

fn refusal_of(error: &ClientError) -> KafkaError {
    let what = told(error);
    match error.kind() {
        ErrorKind::Refused(ResponseError::UnknownTopicOrPartition) => KafkaError::NotFound(what),
        ErrorKind::Refused(
            ResponseError::GroupAuthorizationFailed | ResponseError::TopicAuthorizationFailed,
        ) => KafkaError::Denied(what),
        ErrorKind::Refused(_) => KafkaError::Refused(what),
        _ => KafkaError::Broken(what),
    }
}

fn told(error: &ClientError) -> String {
    let why = error.source().map(|it| format!(": {it}")).unwrap_or_default();
    format!("{error}{why}")
}
