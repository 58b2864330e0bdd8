//! Services that the server needs of the program that it is part of: topics, users and their
//! rights, and the way records take into the log.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

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
    /// What clients have to show, as Kafka's have.
    fn policy(&self) -> &ListenerPolicy;

    /// Those who may log in now.
    fn users(&self) -> Arc<Users>;

    /// For connections that come now; `None` where they are not encrypted.
    fn tls(&self) -> Option<TlsAcceptor>;

    /// A place among the connections of the principal, which connects from an address.
    ///
    /// # Errors
    /// It has as many as it may have.
    fn connect(&self, principal: &Principal, address: IpAddr) -> Result<ConnectionPlace, SqlError>;

    /// Whether the client may do that.
    fn allows(&self, client: &Client, operation: Operation, resource: Resource<'_>) -> bool;

    /// All topics, in the order of their names.
    fn topic_names(&self) -> Vec<Arc<str>>;

    fn topic(&self, name: &str) -> Option<Arc<Topic>>;

    /// Whether the topic is to keep current values.
    fn keeps_values(&self, topic: &str) -> bool;

    /// The topic whose values are the current ones of a topic: itself, but where they are merged.
    fn values_topic(&self, topic: &str) -> Arc<str> {
        topic.into()
    }

    /// The current values of a partition; `None` where there are none, or none yet.
    fn values(&self, topic: &str, partition: u32) -> Option<Arc<Values>>;

    /// Refuses records that [`Self::publish`] would refuse for what they are.
    ///
    /// # Errors
    /// There is no such topic or partition, nobody inserts into it, or it takes no such record.
    fn check(&self, records: &Published) -> Result<(), SqlError>;

    /// Appends records to their partitions, or to those that their keys choose; ends when they are
    /// as durable as the classes of their topics say.
    ///
    /// # Errors
    /// Those of [`Self::check`], and then nothing is appended; or what a log says. Records before
    /// the first that it refused may be there.
    fn publish(&self, all: Vec<Published>) -> BoxFuture<'_, Result<(), SqlError>>;

    /// All definitions, in the order of their names.
    fn definitions(&self) -> Vec<Arc<Definition>>;

    fn definition(&self, name: &str) -> Option<Arc<Definition>>;

    /// Keeps a definition, the client's from then on; it is durable when this ends. The client must
    /// have the right to make a topic of its name.
    ///
    /// # Errors
    /// `SqlState::DUPLICATE_TABLE` where there is a definition or a topic of the name; no right;
    /// no room.
    fn define<'a>(
        &'a self,
        client: &'a Client,
        new: NewDefinition,
    ) -> BoxFuture<'a, Result<(), SqlError>>;

    /// Forgets a definition and what was derived by it; that is durable when this ends. The client
    /// must have made it, or have the right to delete a topic of its name.
    ///
    /// # Errors
    /// `SqlState::UNDEFINED_TABLE` where there is none of the kind; no right.
    fn undefine<'a>(
        &'a self,
        client: &'a Client,
        kind: DefinitionKind,
        name: &'a str,
    ) -> BoxFuture<'a, Result<(), SqlError>>;

    /// The columns that a live query gives, before it is begun.
    ///
    /// # Errors
    /// The client may not read the topic, or the query is not supported.
    fn live_columns(
        &self,
        client: &Client,
        live: &LiveQuery,
    ) -> Result<Vec<OutputColumn>, SqlError>;

    /// Begins a live query, which lasts until its rows are dropped.
    ///
    /// # Errors
    /// As for its columns; the client has too many, or its beginning is not there.
    fn subscribe(
        &self,
        client: &Client,
        live: LiveQuery,
    ) -> BoxFuture<'_, Result<LiveRows, SqlError>>;
}

/// A query whose result is followed.
#[derive(Clone, Debug)]
pub struct LiveQuery {
    pub topic: Arc<str>,
    /// The log of the topic or its current values, as the query sees it.
    pub table: Table,
    pub subscribe: Subscribe,
}

/// Rows of a live query.
pub struct LiveRows {
    /// Layout of its rows' columns.
    pub layout: Layout,
    /// Rows as they come, some at a time. An error is the last.
    pub rows: BoxStream<'static, Result<OutputRows, SqlError>>,
}

/// Records for one topic, in order.
#[derive(Debug)]
pub struct Published {
    pub topic: Arc<str>,
    pub records: Vec<PublishedRecord>,
}

/// A record for the log.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PublishedRecord {
    /// `None`: the one that the key chooses.
    pub partition: Option<i32>,
    /// Unix milliseconds; `None`: now.
    pub time_ms: Option<i64>,
    pub key: Option<Bytes>,
    /// `None` deletes the key.
    pub value: Option<Bytes>,
    pub headers: Vec<Header>,
}

impl PublishedRecord {
    /// Size of its contents, without what the log adds.
    pub fn size_bytes(&self) -> usize {
        let length = |it: &Option<Bytes>| it.as_ref().map_or(0, Bytes::len);
        let headers = self.headers.iter().map(|it| it.name.len() + length(&it.value));
        length(&self.key) + length(&self.value) + headers.sum::<usize>()
    }
}

/// Who is at the other end of a connection.
#[derive(Debug)]
pub struct Client {
    /// Who logged in.
    pub principal: Principal,
    /// Whom it asks for, by what it says itself: that takes rights away and gives none, as both
    /// need each.
    pub on_behalf_of: Option<Principal>,
    pub address: SocketAddr,
    /// Held as long as the connection lasts.
    pub place: ConnectionPlace,
}

impl Client {
    /// Those who all have to have a right.
    pub fn principals(&self) -> impl Iterator<Item = &Principal> {
        [&self.principal].into_iter().chain(&self.on_behalf_of)
    }

    /// The name that queries know it by.
    #[cfg(feature = "engine")]
    pub(crate) fn name(&self) -> &str {
        self.on_behalf_of.as_ref().unwrap_or(&self.principal).name()
    }

    /// Returns whether what somebody did is its own: who asks for another sees nothing else of its
    /// login.
    #[cfg(feature = "engine")]
    pub(crate) fn is_own(&self, principal: &Principal, on_behalf_of: Option<&Principal>) -> bool {
        let is_for_same = self.on_behalf_of.is_none() || self.on_behalf_of.as_ref() == on_behalf_of;
        self.principal == *principal && is_for_same
    }

    /// An error where the client may not do that with a topic.
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
