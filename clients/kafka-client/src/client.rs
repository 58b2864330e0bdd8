//! Cluster metadata, and a connection to each broker that is needed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use kafka_protocol::ResponseError;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::{
    MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{
    FindCoordinatorRequest, FindCoordinatorResponse, MetadataRequest, TopicName,
};
use kafka_protocol::protocol::{Request, StrBytes};

use crate::connection::Connection;
use crate::error::{ClientError, check, check_right};
use crate::login;
use crate::retry::Retry;
use crate::settings::{Addresses, Settings};

/// Maximum number of cached connections. In larger clusters some connections are reopened.
const CONNECTIONS_MAX: usize = 64;

/// Client of one cluster. It connects with the first request.
#[derive(Debug)]
pub struct Client {
    address: String,
    settings: Arc<Settings>,
    /// Connections by broker address. The lock is never held across an await.
    connections: Mutex<HashMap<String, Arc<Connection>>>,
    /// Set by the first successful connection. Once connected, the client retries failed
    /// connections.
    has_connected: OnceLock<()>,
}

/// Description of a cluster, as one of its brokers reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    pub id: Option<String>,
    pub controller: i32,
    pub brokers: Vec<Broker>,
    pub topics: Vec<Topic>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broker {
    pub node: i32,
    /// `HOST:PORT`.
    pub address: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    pub name: String,
    pub is_internal: bool,
    /// Sorted by partition index.
    pub partitions: Vec<Partition>,
    /// Error that the broker reported for the topic.
    pub error: Option<ResponseError>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    pub index: i32,
    /// Node id of the partition's leader.
    pub leader: i32,
    pub leader_epoch: i32,
    pub replicas: Vec<i32>,
    pub error: Option<ResponseError>,
}

impl Cluster {
    fn address_of(&self, node: i32) -> Option<&str> {
        let broker = self.brokers.iter().find(|broker| broker.node == node)?;
        Some(&broker.address)
    }
}

pub(crate) fn text(value: &str) -> StrBytes {
    StrBytes::from_string(value.to_owned())
}

pub(crate) fn topic_name(name: &str) -> TopicName {
    TopicName(text(name))
}

/// Formats `HOST:PORT`, with brackets around an IPv6 address.
fn address_of(host: &str, port: i32) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

impl Client {
    /// Creates a client with the bootstrap broker at `address`, which has the form `HOST:PORT`.
    pub fn new(address: impl Into<String>, settings: Settings) -> Self {
        let settings = Arc::new(settings);
        Self {
            address: address.into(),
            settings,
            connections: Mutex::default(),
            has_connected: OnceLock::new(),
        }
    }

    /// Address of the bootstrap broker.
    pub fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn retry(&self) -> Retry {
        Retry::within(&self.settings)
    }

    /// Returns a connection to the bootstrap broker.
    pub(crate) async fn first(&self) -> Result<Arc<Connection>, ClientError> {
        self.connection(&self.address).await
    }

    pub(crate) async fn connection(&self, address: &str) -> Result<Arc<Connection>, ClientError> {
        let address = match self.settings.addresses {
            Addresses::Advertised => address,
            Addresses::First => &self.address,
        };
        if let Some(known) = self.known(address) {
            return Ok(known);
        }
        let opened = Connection::open(address, Arc::clone(&self.settings)).await;
        let opened = opened.map_err(|error| match self.has_connected.get() {
            Some(()) => error,
            None => error.for_good(),
        })?;
        if let Some(user) = &self.settings.sasl {
            login::authenticate(&opened, user).await?;
        }
        self.has_connected.get_or_init(|| ());
        let opened = Arc::new(opened);
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.retain(|_, connection| !connection.is_broken());
        if connections.len() >= CONNECTIONS_MAX {
            connections.clear();
        }
        connections.insert(address.to_owned(), Arc::clone(&opened));
        Ok(opened)
    }

    /// Opens new connections from now on. Callers that have the present ones continue to use them.
    pub(crate) fn forget_connections(&self) {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn known(&self, address: &str) -> Option<Arc<Connection>> {
        let connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        connections.get(address).filter(|it| !it.is_broken()).cloned()
    }

    /// Sends `request` to the bootstrap broker, in the highest common version.
    pub(crate) async fn ask<R: Request>(&self, request: &R) -> Result<R::Response, ClientError> {
        let connection = self.first().await?;
        let version = connection.version_of::<R>()?;
        connection.call(request, version).await
    }

    /// Describes the cluster and all its topics.
    pub async fn cluster(&self) -> Result<Cluster, ClientError> {
        self.metadata(None).await
    }

    /// Describes one topic. Does not create it.
    pub async fn topic(&self, name: &str) -> Result<Topic, ClientError> {
        self.cluster_with(name).await.map(|(_, topic)| topic)
    }

    async fn cluster_with(&self, name: &str) -> Result<(Cluster, Topic), ClientError> {
        let mut retry = self.retry();
        loop {
            match retry.attempt(self.cluster_with_once(name)).await {
                // Retry while there is no leader, but not if the topic does not exist.
                Err(error) if error.refusal() != Some(ResponseError::UnknownTopicOrPartition) => {
                    retry.after(error).await?;
                }
                found => return found,
            }
        }
    }

    async fn cluster_with_once(&self, name: &str) -> Result<(Cluster, Topic), ClientError> {
        let mut cluster = self.metadata(Some(name)).await?;
        let Some(at) = cluster.topics.iter().position(|topic| topic.name == name) else {
            let address = &self.address;
            return Err(ClientError::protocol(format!(
                "the response of broker {address} does not contain topic {name:?}"
            )));
        };
        let topic = cluster.topics.swap_remove(at);
        let code = topic.error.map_or(0, |error| error.code());
        let right = format_args!("Describe on topic {name:?}");
        check_right(code, None, format_args!("find topic {name:?}"), right)?;
        Ok((cluster, topic))
    }

    async fn metadata(&self, name: Option<&str>) -> Result<Cluster, ClientError> {
        let connection = self.first().await?;
        let version = connection.version_of::<MetadataRequest>()?;
        let named = |name| vec![MetadataRequestTopic::default().with_name(Some(topic_name(name)))];
        // In version 0, an empty list means all topics.
        let all = if version == 0 { Some(Vec::new()) } else { None };
        let request = MetadataRequest::default()
            .with_topics(name.map(named).or(all))
            .with_allow_auto_topic_creation(version < 4);
        let response = connection.call(&request, version).await?;
        check(response.error_code, None, "describe the cluster")?;
        let broker = |it: &kafka_protocol::messages::metadata_response::MetadataResponseBroker| {
            Broker { node: it.node_id.0, address: address_of(&it.host, it.port) }
        };
        let mut topics: Vec<_> = response.topics.into_iter().map(topic_of).collect();
        topics.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Cluster {
            id: response.cluster_id.map(|id| id.to_string()),
            controller: response.controller_id.0,
            brokers: response.brokers.iter().map(broker).collect(),
            topics,
        })
    }

    /// Returns connections to the leaders of a topic's partitions, by partition index.
    pub(crate) async fn leaders(&self, name: &str) -> Result<Vec<Arc<Connection>>, ClientError> {
        self.leaders_within(&mut self.retry(), name).await
    }

    /// Returns them as a part of another operation.
    pub(crate) async fn leaders_within(
        &self,
        retry: &mut Retry,
        name: &str,
    ) -> Result<Vec<Arc<Connection>>, ClientError> {
        loop {
            match retry.attempt(self.leaders_once(name)).await {
                Ok(leaders) => return Ok(leaders),
                Err(error) if error.refusal() == Some(ResponseError::UnknownTopicOrPartition) => {
                    return Err(error);
                }
                Err(error) => retry.after(error).await?,
            }
        }
    }

    async fn leaders_once(&self, name: &str) -> Result<Vec<Arc<Connection>>, ClientError> {
        let (cluster, topic) = self.cluster_with_once(name).await?;
        let mut leaders = Vec::with_capacity(topic.partitions.len());
        for (expected, partition) in (0..).zip(&topic.partitions) {
            let address = cluster.address_of(partition.leader);
            let code = match (partition.error, address) {
                (Some(error), _) => error.code(),
                (None, None) => ResponseError::LeaderNotAvailable.code(),
                (None, Some(_)) if partition.index != expected => {
                    ResponseError::LeaderNotAvailable.code()
                }
                (None, Some(_)) => 0,
            };
            check(code, None, format_args!("find the leader of {name:?}, partition {expected}"))?;
            leaders.push(self.connection(address.unwrap_or(&self.address)).await?);
        }
        Ok(leaders)
    }

    /// Returns a connection to the coordinator of a consumer group.
    pub(crate) async fn coordinator(&self, group: &str) -> Result<Arc<Connection>, ClientError> {
        self.coordinator_of(CoordinatorKind::Group, group).await
    }

    /// Returns a connection to the coordinator of a transactional id.
    pub(crate) async fn transaction_coordinator(
        &self,
        id: &str,
    ) -> Result<Arc<Connection>, ClientError> {
        self.coordinator_of(CoordinatorKind::Transaction, id).await
    }

    async fn coordinator_of(
        &self,
        kind: CoordinatorKind,
        key: &str,
    ) -> Result<Arc<Connection>, ClientError> {
        let mut retry = self.retry();
        loop {
            match retry.attempt(self.coordinator_once(kind, key)).await {
                Ok(coordinator) => return Ok(coordinator),
                Err(error) => retry.after(error).await?,
            }
        }
    }

    async fn coordinator_once(
        &self,
        kind: CoordinatorKind,
        key: &str,
    ) -> Result<Arc<Connection>, ClientError> {
        /// First version with a list of keys.
        const VERSION_OF_LISTS: i16 = 4;
        let connection = self.first().await?;
        let version = connection.version_of::<FindCoordinatorRequest>()?;
        let request = FindCoordinatorRequest::default().with_key_type(kind.number());
        let request = match version >= VERSION_OF_LISTS {
            true => request.with_coordinator_keys(vec![text(key)]),
            false => request.with_key(text(key)),
        };
        let response = connection.call(&request, version).await?;
        let (code, said, address) = coordinator_in(response, key);
        let name = kind.name();
        check_right(
            code,
            said.as_deref(),
            format_args!("find the coordinator of {name} {key:?}"),
            format_args!("Describe on {name} {key:?}"),
        )?;
        self.connection(&address).await
    }
}

/// Type of coordinator.
#[derive(Clone, Copy, Debug)]
enum CoordinatorKind {
    Group,
    Transaction,
}

impl CoordinatorKind {
    fn number(self) -> i8 {
        match self {
            Self::Group => 0,
            Self::Transaction => 1,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Group => "group",
            Self::Transaction => "transactional id",
        }
    }
}

/// Returns error code, message and address from either form of the response.
fn coordinator_in(response: FindCoordinatorResponse, key: &str) -> (i16, Option<StrBytes>, String) {
    match response.coordinators.into_iter().find(|it| it.key.as_str() == key) {
        Some(it) => (it.error_code, it.error_message, address_of(&it.host, it.port)),
        None => {
            let address = address_of(&response.host, response.port);
            (response.error_code, response.error_message, address)
        }
    }
}

fn topic_of(response: MetadataResponseTopic) -> Topic {
    let partition = |it: &MetadataResponsePartition| Partition {
        index: it.partition_index,
        leader: it.leader_id.0,
        leader_epoch: it.leader_epoch,
        replicas: it.replica_nodes.iter().map(|node| node.0).collect(),
        error: ResponseError::try_from_code(it.error_code),
    };
    let mut partitions: Vec<_> = response.partitions.iter().map(partition).collect();
    partitions.sort_by_key(|partition| partition.index);
    Topic {
        name: response.name.map(|name| name.0.to_string()).unwrap_or_default(),
        is_internal: response.is_internal,
        partitions,
        error: ResponseError::try_from_code(response.error_code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_ipv6_have_brackets() {
        assert_eq!(address_of("localhost", 9092), "localhost:9092");
        assert_eq!(address_of("::1", 9092), "[::1]:9092");
    }
}
