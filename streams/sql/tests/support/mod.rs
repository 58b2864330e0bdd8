//! A server over topics in memory, and a client for it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use access::{
    ClientCertificates, ConnectionPlace, Exposure, ListenerPolicy, LoginSettings, NewSecret,
    Operation, Principal, Quotas, Resource, SecurityProtocol, UserFile, Users,
};
use block_device::SectorSize;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use live_queries::{
    Change, Fields, GroupLimits, OutputColumn, Paths, Query, QueueLimits, Record, Row, Subscription,
};
use model::ModelVolume;
use record_batch::{BatchOptions, NewRecord, encode_batch};
use record_log::{Batch, NewTopic, Topic, TopicOptions};
use sasl::{Mechanism, ScramHash};
use sql::{
    Client, Definition, DefinitionKind, Flow, Host, Limits, LiveQuery, LiveRows, NewDefinition,
    Published, Server, SqlError, SqlState,
};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use values::{Follower, Secret, Values};

const SIZE_BYTES: u64 = 1 << 40;

/// Password of all users.
pub(crate) const SECRET: &str = "secret";

/// Message of a planted panic.
pub(crate) const PLANTED: &str = "planted";

/// Host with topics in memory. Users whose names start with `reader` may only read `orders`, and
/// see no other topics.
pub(crate) struct Topics {
    by_name: Mutex<BTreeMap<Arc<str>, Arc<Topic>>>,
    followers: Mutex<BTreeMap<(String, u32), Follower>>,
    definitions: Mutex<BTreeMap<String, Arc<Definition>>>,
    last_version: AtomicU64,
    /// Number of host calls until one panics, including that one. 0 disables panics.
    pub(crate) until_panic: AtomicU64,
    policy: ListenerPolicy,
    users: Arc<Users>,
    quotas: Quotas,
}

impl Topics {
    fn new(has_logins: bool) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut file = UserFile::open(folder.path().join("users.toml")).expect("no file yet");
        for name in ["admin", "reader"] {
            let iterations = sasl::ITERATIONS_MIN;
            file.add(&NewSecret { name, secret: SECRET, iterations }).expect("a new user");
        }
        let protocol = match has_logins {
            true => SecurityProtocol::SaslPlaintext,
            false => SecurityProtocol::Plaintext,
        };
        let mechanisms = vec![Mechanism::Scram(ScramHash::Sha256)];
        let policy = ListenerPolicy {
            protocol,
            certificates: ClientCertificates::None,
            logins: LoginSettings { mechanisms, session_lifetime: None },
            exposure: Exposure::Loopback,
        };
        let users = Arc::clone(file.users());
        let (by_name, followers, definitions) = Default::default();
        let (last_version, until_panic) = Default::default();
        let quotas = Quotas::new(1 << 30);
        Self { by_name, followers, definitions, last_version, until_panic, policy, users, quotas }
    }

    pub(crate) fn create(&self, name: &str, partition_count: u32) -> Arc<Topic> {
        let device = Arc::new(ModelVolume::new(SIZE_BYTES, SectorSize::Bytes512));
        let mut id = [0; 16];
        id[..name.len()].copy_from_slice(name.as_bytes());
        let options = TopicOptions { segment_bytes: 1 << 20 };
        let new = NewTopic { id, partition_count, options, properties: b"" };
        let topic = Arc::new(Topic::create(device, &new).expect("a new topic"));
        let mut topics = self.by_name.lock().expect("no panic");
        topics.insert(name.into(), Arc::clone(&topic));
        topic
    }
}

impl Topics {
    fn asked(&self) {
        let less = |left: u64| left.checked_sub(1);
        let left = self.until_panic.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        assert!(left != Ok(1), "{PLANTED}");
    }

    /// Removes a topic.
    pub(crate) fn forget(&self, name: &str) {
        self.by_name.lock().expect("no panic").remove(name);
    }
}

/// Appends a batch to a partition and flushes it.
pub(crate) fn append(topic: &Topic, partition: u32, records: &[NewRecord], options: &BatchOptions) {
    let batch = encode_batch(records, options).expect("a batch");
    append_bytes(topic, partition, batch.to_vec());
}

pub(crate) fn append_bytes(topic: &Topic, partition: u32, mut bytes: Vec<u8>) {
    let (mut batch, _) = Batch::split_first(&mut bytes).expect("a good batch");
    let partition = topic.partition(partition).expect("it is there");
    partition.append(&mut batch, 0).expect("there is room");
    topic.flush().expect("memory");
}

impl Host for Topics {
    fn policy(&self) -> &ListenerPolicy {
        &self.policy
    }

    fn users(&self) -> Arc<Users> {
        Arc::clone(&self.users)
    }

    fn tls(&self) -> Option<TlsAcceptor> {
        None
    }

    fn connect(&self, principal: &Principal, address: IpAddr) -> Result<ConnectionPlace, SqlError> {
        let limits = self.users.quota_of(principal);
        let place = self.quotas.connect((principal, address), limits, Instant::now());
        place.map_err(|error| SqlError::new(SqlState::TOO_MANY, error.to_string()))
    }

    fn owed(&self, _: &Client, _: Flow) -> Duration {
        Duration::ZERO
    }

    fn charge(&self, _: &Client, _: Flow, _: usize) {}

    fn allows(&self, client: &Client, operation: Operation, resource: Resource<'_>) -> bool {
        self.asked();
        let is_read = matches!(operation, Operation::Read | Operation::Describe);
        let may_read = is_read && resource == Resource::topic("orders");
        client.principals().all(|it| !it.name().starts_with("reader") || may_read)
    }

    fn topic_names(&self) -> Vec<Arc<str>> {
        self.by_name.lock().expect("no panic").keys().map(Arc::clone).collect()
    }

    fn topic(&self, name: &str) -> Option<Arc<Topic>> {
        self.asked();
        self.by_name.lock().expect("no panic").get(name).map(Arc::clone)
    }

    /// All topics but `plain` keep current values.
    fn keeps_values(&self, topic: &str) -> bool {
        topic != "plain"
    }

    fn values(&self, topic: &str, partition: u32) -> Option<Arc<Values>> {
        self.asked();
        let mut followers = self.followers.lock().expect("no panic");
        let follower = followers.entry((topic.to_owned(), partition)).or_insert_with(|| {
            let by_name = self.by_name.lock().expect("no panic");
            let partition = by_name[topic].partition(partition).expect("it is there");
            Follower::open(partition, Secret([7; 16])).expect("memory").0
        });
        while follower.follow(1 << 20, None).expect("memory").is_behind {}
        Some(Arc::clone(follower.values()))
    }

    fn check(&self, published: &Published) -> Result<(), SqlError> {
        let count = self.topic(&published.topic).expect("the server looked").partition_count();
        let is_there = |it: i32| u32::try_from(it).is_ok_and(|it| it < count);
        let mut numbers = published.records.iter().filter_map(|it| it.partition);
        match numbers.find(|it| !is_there(*it)) {
            None => Ok(()),
            Some(number) => {
                let what = format!("topic {:?} has no partition {number}", published.topic);
                Err(SqlError::new(SqlState::INVALID_PARAMETER, what))
            }
        }
    }

    /// Publishes nothing if a value is `refused`, like a topic that no longer accepts such records.
    fn publish(&self, all: Vec<Published>) -> BoxFuture<'_, Result<(), SqlError>> {
        async move {
            let records = all.iter().flat_map(|it| &it.records);
            if records.clone().any(|it| it.value.as_deref() == Some(b"refused")) {
                return Err(SqlError::new(SqlState::TOO_LARGE, "the topic takes no such record"));
            }
            let gone = all.iter().find(|it| self.topic(&it.topic).is_none());
            if let Some(gone) = gone {
                let what = format!("relation {:?} does not exist", gone.topic);
                return Err(SqlError::new(SqlState::UNDEFINED_TABLE, what));
            }
            for published in all {
                let topic = self.topic(&published.topic).expect("it was looked at");
                for it in published.records {
                    let partition = u32::try_from(it.partition.unwrap_or(0)).expect("a number");
                    let timestamp_ms = it.time_ms.unwrap_or(1_000);
                    let (key, value, headers) = (it.key, it.value, it.headers);
                    let record = NewRecord { key, value, headers, timestamp_ms };
                    append(&topic, partition, &[record], &BatchOptions::default());
                }
            }
            Ok(())
        }
        .boxed()
    }

    fn definitions(&self) -> Vec<Arc<Definition>> {
        self.definitions.lock().expect("no panic").values().map(Arc::clone).collect()
    }

    fn definition(&self, name: &str) -> Option<Arc<Definition>> {
        self.definitions.lock().expect("no panic").get(name).map(Arc::clone)
    }

    fn define<'a>(
        &'a self,
        client: &'a Client,
        new: NewDefinition,
    ) -> BoxFuture<'a, Result<(), SqlError>> {
        async move {
            let NewDefinition { name, kind, statement } = new;
            let mut definitions = self.definitions.lock().expect("no panic");
            if self.topic(&name).is_some() || definitions.contains_key(&name) {
                let what = format!("relation {name:?} already exists");
                return Err(SqlError::new(SqlState::DUPLICATE_TABLE, what));
            }
            let owner = client.principal.as_str().to_owned();
            let version = self.last_version.fetch_add(1, Ordering::Relaxed) + 1;
            let definition = Definition { name: name.clone(), kind, statement, owner, version };
            definitions.insert(name, Arc::new(definition));
            Ok(())
        }
        .boxed()
    }

    fn undefine<'a>(
        &'a self,
        _client: &'a Client,
        kind: DefinitionKind,
        name: &'a str,
    ) -> BoxFuture<'a, Result<(), SqlError>> {
        async move {
            let mut definitions = self.definitions.lock().expect("no panic");
            match definitions.get(name).is_some_and(|it| it.kind == kind) {
                true => drop(definitions.remove(name)),
                false => {
                    let what = format!("{} {name:?} does not exist", kind.name());
                    return Err(SqlError::new(SqlState::UNDEFINED_TABLE, what));
                }
            }
            Ok(())
        }
        .boxed()
    }

    fn live_columns(&self, _: &Client, live: &LiveQuery) -> Result<Vec<OutputColumn>, SqlError> {
        Ok(subscription(live, &mut Paths::new())?.columns())
    }

    /// Returns the rows of three records, and then never ends.
    fn subscribe(&self, _: &Client, live: LiveQuery) -> BoxFuture<'_, Result<LiveRows, SqlError>> {
        async move {
            let mut paths = Paths::new();
            let mut subscription = subscription(&live, &mut paths)?;
            subscription.begin_snapshot(0, &[(0, 0)]);
            subscription.end_snapshot();
            for offset in 0..3 {
                let (key, mut fields) = (offset.to_string(), Fields::default());
                let value = format!("{{\"n\":{offset}}}");
                let record = Record {
                    partition: 0,
                    offset,
                    timestamp_ms: offset,
                    key: Some(key.as_bytes()),
                    value: Some(value.as_bytes()),
                    headers: &[],
                };
                let row = Row::read(record, &paths, &mut fields);
                let (key, offset) = (record.key, Some(offset));
                let new = Some(&row);
                subscription.apply(&Change {
                    partition: 0,
                    offset,
                    time_ms: 0,
                    key,
                    old: None,
                    new,
                });
            }
            let rows = stream::iter([Ok(subscription.take())]).chain(stream::pending()).boxed();
            Ok(LiveRows { layout: subscription.layout().clone(), rows })
        }
        .boxed()
    }
}

fn subscription(live: &LiveQuery, paths: &mut Paths) -> Result<Subscription, SqlError> {
    let query = Query::compile(&live.subscribe.query, &live.table, paths)?;
    let limits = QueueLimits { rows_max: 1_000, bytes_max: 1 << 20 };
    let groups = GroupLimits { groups_max: 10, kept_values_max: 10 };
    Ok(Subscription::new(Arc::new(query), &live.subscribe, limits, groups)?)
}

/// Runs a test on the threads of a server.
pub(crate) fn run(test: impl Future<Output = ()>) {
    sql::runtime().expect("threads").block_on(test);
}

/// A server that ends with the test.
pub(crate) struct Running {
    pub(crate) topics: Arc<Topics>,
    pub(crate) server: Arc<Server>,
    pub(crate) port: u16,
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
}

impl Running {
    pub(crate) async fn start(limits: Limits, has_logins: bool) -> Self {
        let topics = Arc::new(Topics::new(has_logins));
        let host = Arc::clone(&topics) as Arc<dyn Host>;
        let server = Arc::new(Server::new(host, limits).expect("a server"));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (stop, stops) = watch::channel(false);
        let serving = tokio::spawn(sql::serve(Arc::clone(&server), listener, stops));
        Self { topics, server, port, stop, serving }
    }

    pub(crate) async fn client(&self) -> tokio_postgres::Client {
        self.client_as("admin").await.expect("a client")
    }

    pub(crate) async fn client_as(
        &self,
        user: &str,
    ) -> Result<tokio_postgres::Client, tokio_postgres::Error> {
        self.client_with(user, SECRET).await
    }

    pub(crate) async fn client_with(
        &self,
        user: &str,
        secret: &str,
    ) -> Result<tokio_postgres::Client, tokio_postgres::Error> {
        self.client_saying(user, secret, "").await
    }

    /// Connects a client with additional startup options.
    pub(crate) async fn client_saying(
        &self,
        user: &str,
        secret: &str,
        options: &str,
    ) -> Result<tokio_postgres::Client, tokio_postgres::Error> {
        let (port, none) = (self.port, tokio_postgres::NoTls);
        let settings = format!(
            "host=127.0.0.1 port={port} user={user} password={secret} dbname=memlane \
             options='{options}'"
        );
        let (client, connection) = tokio_postgres::connect(&settings, none).await?;
        tokio::spawn(connection);
        Ok(client)
    }

    /// Stops the server and closes its connections.
    pub(crate) async fn stop(self) {
        self.stop.send_replace(true);
        self.serving.await.expect("it does not panic");
    }
}

/// Returns the rows of a simple query as texts.
pub(crate) async fn texts(client: &tokio_postgres::Client, query: &str) -> Vec<Vec<String>> {
    let messages = client.simple_query(query).await.unwrap_or_else(|error| {
        panic!("{query}: {error:?}");
    });
    let rows = messages.into_iter().filter_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => {
            let value = |index| row.get(index).unwrap_or("NULL").to_owned();
            Some((0..row.len()).map(value).collect())
        }
        _ => None,
    });
    rows.collect()
}

/// Returns the SQLSTATE with which a query fails.
pub(crate) async fn failure(client: &tokio_postgres::Client, query: &str) -> String {
    let error = client.simple_query(query).await.expect_err(query);
    let state = error.code().unwrap_or_else(|| panic!("{query}: {error:?}"));
    state.code().to_owned()
}
