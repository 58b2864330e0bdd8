//! SQL for PostgreSQL clients: implements the host interface of the server in `streams/sql`. It has
//! its own threads, so that queries do not delay Kafka clients.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use access::{ConnectionPlace, ListenerPolicy, Operation, Principal, Resource, Users};
use anyhow::Context;
use futures::FutureExt;
use futures::future::BoxFuture;
use live_queries::OutputColumn;
use metrics_text::Page;
use record_batch::NewRecord;
use service_manager::do_or_die;
use sql::{
    Client, Definition, DefinitionKind, Flow, Host, Limits, LiveQuery, LiveRows, NewDefinition,
    Published, PublishedRecord, Server, SqlError, SqlState, table_of,
};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use values::Values;

use crate::broker::Broker;
use crate::clock;
use crate::deriving::objects_of;
use crate::live::LiveClient;
use crate::operation::{self, SqlMetrics};
use crate::publish::{self, append};
use crate::topics::{OpenTopic, Pending};

/// A listening server. Running queries are abandoned on drop.
pub(crate) struct SqlServer {
    server: Arc<Server>,
    address: SocketAddr,
    listening: JoinHandle<()>,
    /// Present until drop.
    runtime: Option<Runtime>,
}

impl SqlServer {
    /// Listens on `address`, and serves clients until the broker stops.
    pub(crate) async fn start(
        broker: &Arc<Broker>,
        address: &str,
        limits: Limits,
    ) -> anyhow::Result<Self> {
        let doing = || format!("cannot listen on {address} for SQL");
        let listener = std::net::TcpListener::bind(address).with_context(doing)?;
        listener.set_nonblocking(true)?;
        let place = listener.local_addr()?;
        broker.rules.policy.check(place.ip())?;
        let next_partition = AtomicU64::new(0);
        let host = SqlHost { broker: Arc::clone(broker), next_partition };
        let server = Arc::new(Server::new(Arc::new(host), limits).with_context(doing)?);
        let runtime = sql::runtime().context("cannot start threads for SQL")?;
        let (serving, stops) = (Arc::clone(&server), broker.stops.clone());
        let listening = runtime.spawn(async move {
            match TcpListener::from_std(listener) {
                Ok(listener) => sql::serve(serving, listener, stops).await,
                Err(error) => tracing::error!(%error, "cannot serve SQL"),
            }
        });
        Ok(Self { server, address: place, listening, runtime: Some(runtime) })
    }

    /// Returns its local address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns a writer of its metrics, while the server exists.
    pub(crate) fn metrics(&self) -> SqlMetrics {
        let server = Arc::downgrade(&self.server);
        Box::new(move |page| {
            if let Some(server) = server.upgrade() {
                write_metrics(page, &server);
            }
        })
    }

    /// Waits until all clients have disconnected.
    pub(crate) async fn ended(mut self) -> anyhow::Result<()> {
        Ok((&mut self.listening).await?)
    }
}

impl Drop for SqlServer {
    fn drop(&mut self) {
        // Waiting for a runtime is not allowed on a thread of another one.
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

/// Counts bytes against the client's rate. Returns the time that it must wait before more.
fn count_bytes(client: &Client, flow: Flow, bytes: usize) -> Duration {
    let (place, now) = (&client.place, Instant::now());
    let wait_ms = match flow {
        Flow::Inserted => place.produced(bytes as u64, now),
        Flow::Received => place.fetched(bytes as u64, now),
    };
    Duration::from_millis(u64::try_from(wait_ms).unwrap_or(0))
}

fn write_metrics(page: &mut Page, sql: &Server) {
    let counters = sql.counters();
    let running = sql.running();
    let longest = running.iter().map(|it| it.running.as_secs_f64()).fold(0.0, f64::max);
    page.gauge("memlane_broker_sql_connections", "Open SQL connections.", sql.connection_count());
    page.gauge("memlane_broker_sql_running", "Running SQL statements.", running.len());
    let help = "Running time of the oldest SQL statement.";
    page.gauge("memlane_broker_sql_longest_seconds", help, longest);
    let help = "Memory of running SQL statements.";
    page.gauge("memlane_broker_sql_memory_bytes", help, sql.memory_bytes());
    let seconds = counters.statement_us.load(Ordering::Relaxed) as f64 / 1e6;
    let help = "Sum of the running times of SQL statements.";
    page.counter("memlane_broker_sql_statement_seconds_total", help, seconds);
    let families = [
        ("connections_accepted", "SQL connections accepted.", &counters.connections_accepted),
        (
            "connections_refused",
            "SQL connections refused because there were too many.",
            &counters.connections_refused,
        ),
        ("statements", "SQL statements that ended.", &counters.statements),
        ("errors", "SQL statements that failed.", &counters.errors),
        ("cancelled", "SQL statements cancelled or timed out.", &counters.cancelled),
        (
            "faults",
            "SQL statements that failed because of an internal error; see the broker's log.",
            &counters.faults,
        ),
        ("rows_out", "Rows sent.", &counters.rows_out),
        ("rows_in", "Rows inserted.", &counters.rows_in),
    ];
    for (name, help, counter) in families {
        let name = format!("memlane_broker_sql_{name}_total");
        page.counter(&name, help, counter.load(Ordering::Relaxed));
    }
}

struct SqlHost {
    broker: Arc<Broker>,
    /// Counter for distributing records without a key among partitions.
    next_partition: AtomicU64,
}

impl Host for SqlHost {
    fn policy(&self) -> &ListenerPolicy {
        &self.broker.rules.policy
    }

    fn users(&self) -> Arc<Users> {
        self.broker.rules.users()
    }

    fn tls(&self) -> Option<TlsAcceptor> {
        self.broker.rules.tls()
    }

    fn connect(&self, principal: &Principal, address: IpAddr) -> Result<ConnectionPlace, SqlError> {
        let limits = self.broker.rules.users().quota_of(principal);
        let place = self.broker.rules.quotas.connect((principal, address), limits, Instant::now());
        place.map_err(|error| SqlError::new(SqlState::TOO_MANY, error.to_string()))
    }

    fn owed(&self, client: &Client, flow: Flow) -> Duration {
        let wait = count_bytes(client, flow, 0);
        if !wait.is_zero() {
            let flow = match flow {
                Flow::Inserted => operation::Flow::Produce,
                Flow::Received => operation::Flow::Fetch,
            };
            self.broker.counters.throttled(flow, wait);
        }
        wait
    }

    fn charge(&self, client: &Client, flow: Flow, bytes: usize) {
        count_bytes(client, flow, bytes);
    }

    fn allows(&self, client: &Client, operation: Operation, resource: Resource<'_>) -> bool {
        let (rules, host) = (&self.broker.rules, client.address.ip());
        client.principals().all(|it| rules.allows(it, host, operation, resource))
    }

    fn topic_names(&self) -> Vec<Arc<str>> {
        self.broker.topics.all().iter().map(|topic| Arc::clone(&topic.name)).collect()
    }

    fn topic(&self, name: &str) -> Option<Arc<record_log::Topic>> {
        self.broker.topics.by_name(name).map(|topic| Arc::clone(&topic.log))
    }

    fn keeps_values(&self, topic: &str) -> bool {
        self.broker.topics.by_name(topic).is_some_and(|topic| topic.settings().keeps_values)
    }

    fn values_topic(&self, topic: &str) -> Arc<str> {
        match self.broker.topics.by_name(topic).is_some_and(|it| it.settings().merges_values) {
            true => objects_of(topic).into(),
            false => topic.into(),
        }
    }

    fn values(&self, topic: &str, partition: u32) -> Option<Arc<Values>> {
        let topic = self.broker.topics.by_name(topic)?;
        topic.partition(i32::try_from(partition).ok()?)?.values()
    }

    fn check(&self, published: &Published) -> Result<(), SqlError> {
        self.find(published).map(drop)
    }

    fn publish(&self, all: Vec<Published>) -> BoxFuture<'_, Result<(), SqlError>> {
        do_or_die(async move {
            let topics = all.iter().map(|it| self.find(it)).collect::<Result<Vec<_>, _>>()?;
            let (mut waits, mut result) = (Vec::new(), Ok(()));
            for (topic, published) in topics.iter().zip(all) {
                let appended = self.append_all(topic, published.records);
                // Records appended before an error are flushed too.
                waits.extend(self.stabilize(topic, &appended.ends)?);
                result = appended.result;
                if result.is_err() {
                    break;
                }
            }
            for wait in waits {
                wait.stable().await.map_err(|kind| {
                    let what = format!("records were appended but could not be flushed: {kind:?}");
                    SqlError::new(SqlState::IO, what)
                })?;
            }
            result
        })
        .boxed()
    }

    fn live_columns(
        &self,
        client: &Client,
        live: &LiveQuery,
    ) -> Result<Vec<OutputColumn>, SqlError> {
        self.broker.live.columns(&live_client(client), live)
    }

    fn subscribe(
        &self,
        client: &Client,
        live: LiveQuery,
    ) -> BoxFuture<'_, Result<LiveRows, SqlError>> {
        do_or_die(Arc::clone(&self.broker.live).subscribe(live_client(client), live)).boxed()
    }

    fn definitions(&self) -> Vec<Arc<Definition>> {
        self.broker.definitions.all()
    }

    fn definition(&self, name: &str) -> Option<Arc<Definition>> {
        self.broker.definitions.get(name)
    }

    fn define<'a>(
        &'a self,
        client: &'a Client,
        new: NewDefinition,
    ) -> BoxFuture<'a, Result<(), SqlError>> {
        do_or_die(async move {
            let may_create = self.allows(client, Operation::Create, Resource::cluster())
                || self.allows(client, Operation::Create, Resource::topic(&new.name));
            if !may_create {
                let what = format!("permission denied to create {} {}", new.kind.name(), new.name);
                return Err(SqlError::new(SqlState::PERMISSION, what));
            }
            if new.kind != DefinitionKind::Table {
                let may_see =
                    |name: &str| self.allows(client, Operation::Describe, Resource::topic(name));
                for source in self.broker.deriving.check(&new, may_see)?.sources {
                    if !self.allows(client, Operation::Read, Resource::topic(&source)) {
                        let what = format!("permission denied for table {source}");
                        return Err(SqlError::new(SqlState::PERMISSION, what));
                    }
                }
            }
            let (broker, owner) = (Arc::clone(&self.broker), client.principal.clone());
            on_blocking_thread(move || define(&broker, new, owner.as_str())).await
        })
        .boxed()
    }

    fn undefine<'a>(
        &'a self,
        client: &'a Client,
        kind: DefinitionKind,
        name: &'a str,
    ) -> BoxFuture<'a, Result<(), SqlError>> {
        do_or_die(async move {
            let definition = self.definition(name).filter(|it| it.kind == kind);
            let definition = definition.ok_or_else(|| self.not_defined(client, kind, name))?;
            let is_owner = definition.owner == client.principal.as_str();
            let may_delete = is_owner && client.on_behalf_of.is_none()
                || self.allows(client, Operation::Delete, Resource::topic(name));
            if !may_delete {
                let topic = definition.topic();
                if !self.allows(client, Operation::Describe, Resource::topic(&topic)) {
                    return Err(no_definition(kind, name));
                }
                let what = format!("must be owner of {} {name}", kind.name());
                return Err(SqlError::new(SqlState::PERMISSION, what));
            }
            let broker = Arc::clone(&self.broker);
            on_blocking_thread(move || {
                let name: Arc<str> = definition.name.as_str().into();
                if !broker.deriving.undefine(&definition)? {
                    return Err(no_definition(kind, &name));
                }
                if kind != DefinitionKind::Table {
                    broker.coordinator.topics_deleted(vec![name]);
                }
                Ok(())
            })
            .await
        })
        .boxed()
    }
}

fn no_definition(kind: DefinitionKind, name: &str) -> SqlError {
    let what = format!("{} {name:?} does not exist", kind.name());
    SqlError::new(SqlState::UNDEFINED_TABLE, what)
}

fn define(broker: &Broker, new: NewDefinition, owner: &str) -> Result<(), SqlError> {
    if new.kind != DefinitionKind::Table {
        return broker.deriving.define(new, owner);
    }
    if broker.topics.by_name(&new.name).is_some() {
        let what = format!("relation {:?} already exists as a topic", new.name);
        return Err(SqlError::new(SqlState::DUPLICATE_TABLE, what));
    }
    broker.definitions.put(new, owner).map(drop)
}

/// Runs work that may block on the storage.
async fn on_blocking_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SqlError> + Send + 'static,
) -> Result<T, SqlError> {
    tokio::task::spawn_blocking(work).await.expect("the thread does not panic")
}

fn live_client(client: &Client) -> LiveClient {
    LiveClient {
        principal: client.principal.clone(),
        on_behalf_of: client.on_behalf_of.clone(),
        host: client.address.ip(),
    }
}

/// Result of appending records.
struct Appended {
    /// Offset after the last record, by partition.
    ends: Vec<(i32, i64)>,
    result: Result<(), SqlError>,
}

impl SqlHost {
    /// Returns the error of a DROP if no definition of this kind has the name: says what else has
    /// it, if the client may see that.
    fn not_defined(&self, client: &Client, kind: DefinitionKind, name: &str) -> SqlError {
        let may_see =
            |topic: &str| self.allows(client, Operation::Describe, Resource::topic(topic));
        let wrong = |what: String, hint: String| {
            SqlError::new(SqlState::WRONG_OBJECT_TYPE, what).with_hint(hint)
        };
        if let Some(other) = self.definition(name).filter(|it| may_see(&it.topic())) {
            let (kind, other) = (kind.name(), other.kind.name());
            let what = format!("{name:?} is not a {kind} but a {other}");
            return wrong(what, format!("Use DROP {} {name:?}.", other.to_uppercase()));
        }
        let (topic, _) = table_of(name);
        if self.broker.topics.by_name(topic).is_none() || !may_see(topic) {
            return no_definition(kind, name);
        }
        let what = match topic == name {
            true => format!("{name:?} is a topic that no SQL statement defined"),
            false => format!("{name:?} is a table of topic {topic:?}"),
        };
        wrong(what, format!("Delete the topic and its records by: memlane topic delete {topic}"))
    }

    /// Returns the topic of records, if it accepts all of them.
    fn find(&self, published: &Published) -> Result<Arc<OpenTopic>, SqlError> {
        let topic = self.broker.topics.by_name(&published.topic).ok_or_else(|| {
            let what = format!("relation {:?} does not exist", published.topic);
            SqlError::new(SqlState::UNDEFINED_TABLE, what)
        })?;
        if topic.is_derived {
            let what = format!("cannot insert into derived topic {:?}", topic.name);
            return Err(SqlError::new(SqlState::NOT_SUPPORTED, what));
        }
        let is_missing = |number: &i32| topic.partition(*number).is_none();
        let mut numbers = published.records.iter().filter_map(|it| it.partition);
        if let Some(number) = numbers.find(is_missing) {
            let what = format!("topic {:?} has no partition {number}", topic.name);
            return Err(SqlError::new(SqlState::INVALID_PARAMETER, what));
        }
        publish::check(&topic, &published.records)?;
        Ok(topic)
    }

    fn append_all(&self, topic: &OpenTopic, records: Vec<PublishedRecord>) -> Appended {
        let mut ends = Vec::new();
        let mut by_partition = self.by_partition(topic, records).into_iter();
        let result = by_partition.try_for_each(|(number, records)| {
            append(topic, number, &records, |end| ends.push((number, end))).inspect_err(|error| {
                if error.state == SqlState::STORAGE_FULL {
                    self.broker.counters.refused_by_full_pool();
                }
            })
        });
        Appended { ends, result }
    }

    /// Assigns a partition to each record, with the algorithm of Kafka's clients, and a timestamp.
    fn by_partition(
        &self,
        topic: &OpenTopic,
        records: Vec<PublishedRecord>,
    ) -> BTreeMap<i32, Vec<NewRecord>> {
        let count = topic.partitions().len();
        let now_ms = clock::unix_ms();
        let mut by_partition: BTreeMap<i32, Vec<NewRecord>> = BTreeMap::new();
        for record in records {
            let PublishedRecord { partition, time_ms, key, value, headers } = record;
            let number = match (partition, &key) {
                (Some(number), _) => number,
                (None, Some(key)) => kafka_client::partition_of_key(key, count),
                (None, None) => {
                    let next = self.next_partition.fetch_add(1, Ordering::Relaxed);
                    i32::try_from(next % (count as u64)).expect("partitions have a limit")
                }
            };
            let timestamp_ms = time_ms.unwrap_or(now_ms);
            let record = NewRecord { key, value, headers, timestamp_ms };
            by_partition.entry(number).or_default().push(record);
        }
        by_partition
    }

    /// Flushes appended records. Returns those that wait for a disk.
    fn stabilize(
        &self,
        topic: &Arc<OpenTopic>,
        ends: &[(i32, i64)],
    ) -> Result<Vec<Pending>, SqlError> {
        if ends.is_empty() {
            return Ok(Vec::new());
        }
        let flush = topic.stabilize();
        let partitions = ends.iter().filter_map(|(number, end)| {
            topic.partition(*number).map(|partition| (partition, *end))
        });
        let partitions: Vec<_> = partitions.collect();
        partitions.iter().for_each(|(partition, _)| partition.watchers.wake());
        let Some(flush) = flush? else { return Ok(Vec::new()) };
        let waits = partitions.into_iter().map(|(partition, end_offset)| Pending {
            topic: Arc::clone(topic),
            partition,
            end_offset,
            flush,
        });
        Ok(waits.collect())
    }
}
