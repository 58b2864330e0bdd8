//! Services that the server requires from the program around it: topics, users and their
//! permissions, and publishing records to the log.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use access::{ConnectionPlace, ListenerPolicy, Operation, Principal, Resource, Users};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use live_queries::{Layout, OutputColumn, OutputRows, Subscribe, Table};
use record_batch::Header;
use record_log::Topic;
use tokio_rustls::TlsAcceptor;
use values::Values;

use crate::definition::{Definition, DefinitionKind, NewDefinition};
use crate::error::SqlError;

/// The program around the server.
pub trait Host: Send + Sync + 'static {
    /// Returns the authentication policy, the same as for Kafka clients.
    fn policy(&self) -> &ListenerPolicy;

    /// Returns the users that may log in now.
    fn users(&self) -> Arc<Users>;

    /// Returns the TLS acceptor for new connections, or `None` if they are not encrypted.
    fn tls(&self) -> Option<TlsAcceptor>;

    /// Reserves one of the principal's connections, from an address.
    ///
    /// # Errors
    /// The principal has reached its connection limit.
    fn connect(&self, principal: &Principal, address: IpAddr) -> Result<ConnectionPlace, SqlError>;

    /// Returns the time that the client must wait before it may write or receive more, because it
    /// has exceeded its rate.
    fn owed(&self, client: &Client, flow: Flow) -> Duration;

    /// Counts bytes that the client writes or receives.
    fn charge(&self, client: &Client, flow: Flow, bytes: usize);

    /// Returns whether the client is authorized for an operation on a resource.
    fn allows(&self, client: &Client, operation: Operation, resource: Resource<'_>) -> bool;

    /// Returns the names of all topics in ascending order.
    fn topic_names(&self) -> Vec<Arc<str>>;

    fn topic(&self, name: &str) -> Option<Arc<Topic>>;

    /// Returns whether the topic is configured to keep current values.
    fn keeps_values(&self, topic: &str) -> bool;

    /// Returns the topic that holds a topic's current values: the topic itself, unless they are
    /// merged.
    fn values_topic(&self, topic: &str) -> Arc<str> {
        topic.into()
    }

    /// Returns the current values of a partition, or `None` if they do not exist, or not yet.
    fn values(&self, topic: &str, partition: u32) -> Option<Arc<Values>>;

    /// Rejects records that [`Self::publish`] would reject because of their contents.
    ///
    /// # Errors
    /// The topic or partition does not exist, does not accept inserts, or does not accept such a
    /// record.
    fn check(&self, records: &Published) -> Result<(), SqlError>;

    /// Appends records to the given partitions, or to those that their keys select. Completes when
    /// the records are durable according to the durability class of each topic.
    ///
    /// # Errors
    /// Those of [`Self::check`], in which case nothing is appended; or errors of a log. Records
    /// before the first that a log rejected may have been appended.
    fn publish(&self, all: Vec<Published>) -> BoxFuture<'_, Result<(), SqlError>>;

    /// Returns all definitions in the order of their names.
    fn definitions(&self) -> Vec<Arc<Definition>>;

    fn definition(&self, name: &str) -> Option<Arc<Definition>>;

    /// Stores a definition, which the client owns afterwards. It is durable on completion. The
    /// client must be authorized to create a topic of its name.
    ///
    /// # Errors
    /// `SqlState::DUPLICATE_TABLE` if a definition or a topic of the name exists; missing
    /// permission; no space.
    fn define<'a>(
        &'a self,
        client: &'a Client,
        new: NewDefinition,
    ) -> BoxFuture<'a, Result<(), SqlError>>;

    /// Deletes a definition and everything derived from it, durably on completion. The client must
    /// be its owner, or be authorized to delete a topic of its name.
    ///
    /// # Errors
    /// `SqlState::UNDEFINED_TABLE` if no definition of the kind has the name; missing permission.
    fn undefine<'a>(
        &'a self,
        client: &'a Client,
        kind: DefinitionKind,
        name: &'a str,
    ) -> BoxFuture<'a, Result<(), SqlError>>;

    /// Returns the result columns of a live query without starting it.
    ///
    /// # Errors
    /// The client is not authorized to read the topic, or the query is not supported.
    fn live_columns(
        &self,
        client: &Client,
        live: &LiveQuery,
    ) -> Result<Vec<OutputColumn>, SqlError>;

    /// Starts a live query, which runs until its rows are dropped.
    ///
    /// # Errors
    /// Same as for its columns; the client has too many live queries, or the start offset is not
    /// available.
    fn subscribe(
        &self,
        client: &Client,
        live: LiveQuery,
    ) -> BoxFuture<'_, Result<LiveRows, SqlError>>;
}

/// Direction of the bytes that quotas limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Inserted records.
    Inserted,
    /// Rows of results.
    Received,
}

/// A live query: a SELECT whose result is followed.
#[derive(Clone, Debug)]
pub struct LiveQuery {
    pub topic: Arc<str>,
    /// The log of the topic or its current values, as the query names it.
    pub table: Table,
    pub subscribe: Subscribe,
}

/// Result rows of a live query.
pub struct LiveRows {
    /// Layout of the columns.
    pub layout: Layout,
    /// Stream of batches of rows. An error is always the last item.
    pub rows: BoxStream<'static, Result<OutputRows, SqlError>>,
}

/// Records to publish to one topic, in order.
#[derive(Debug)]
pub struct Published {
    pub topic: Arc<str>,
    pub records: Vec<PublishedRecord>,
}

/// A record to publish.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PublishedRecord {
    /// Partition. `None` selects it by the key.
    pub partition: Option<i32>,
    /// Timestamp in Unix milliseconds. `None` uses the current time.
    pub time_ms: Option<i64>,
    pub key: Option<Bytes>,
    /// `None` deletes the key.
    pub value: Option<Bytes>,
    pub headers: Vec<Header>,
}

impl PublishedRecord {
    /// Returns the size of the contents, without the log's overhead.
    pub fn size_bytes(&self) -> usize {
        let length = |it: &Option<Bytes>| it.as_ref().map_or(0, Bytes::len);
        let headers = self.headers.iter().map(|it| it.name.len() + length(&it.value));
        length(&self.key) + length(&self.value) + headers.sum::<usize>()
    }
}

/// Client of a connection.
#[derive(Debug)]
pub struct Client {
    /// Authenticated principal.
    pub principal: Principal,
    /// Principal that the client claims to act for. The claim can only restrict permissions,
    /// because both principals must be authorized.
    pub on_behalf_of: Option<Principal>,
    pub address: SocketAddr,
    /// Held for the lifetime of the connection.
    pub place: ConnectionPlace,
}

impl Client {
    /// Returns all principals that must be authorized.
    pub fn principals(&self) -> impl Iterator<Item = &Principal> {
        [&self.principal].into_iter().chain(&self.on_behalf_of)
    }

    /// Name of the current user in queries.
    #[cfg(feature = "engine")]
    pub(crate) fn name(&self) -> &str {
        self.on_behalf_of.as_ref().unwrap_or(&self.principal).name()
    }

    /// Returns whether something done by `principal` on behalf of `on_behalf_of` belongs to this
    /// client. A client that acts for another principal sees only what its login did for that
    /// principal.
    #[cfg(feature = "engine")]
    pub(crate) fn is_own(&self, principal: &Principal, on_behalf_of: Option<&Principal>) -> bool {
        let is_for_same = self.on_behalf_of.is_none() || self.on_behalf_of.as_ref() == on_behalf_of;
        self.principal == *principal && is_for_same
    }

    /// Fails if the client is not authorized for an operation on a topic.
    #[cfg(feature = "engine")]
    pub(crate) fn check(
        &self,
        host: &dyn Host,
        operation: Operation,
        topic: &str,
    ) -> Result<(), SqlError> {
        match host.allows(self, operation, Resource::topic(topic)) {
            true => Ok(()),
            false => {
                let what = format!("permission denied for table {topic}");
                Err(SqlError::new(crate::error::SqlState::PERMISSION, what))
            }
        }
    }
}
