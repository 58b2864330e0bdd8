//! The suite's own `memlane-broker`, with topics in an embedded pool and SQL.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kafka_client::{Client, ClientError, NewTopic, Settings};
use system::{Broker, free_address, product_path};
use tokio::runtime::Runtime;
use tokio_postgres::Config;

use super::cores::Cores;
use crate::tpcc::Connection;

const PROGRAM: &str = "memlane-broker";
const CONNECT_TIME_LIMIT: Duration = Duration::from_secs(30);

/// User name. The broker has no authentication.
const USER: &str = "bench";
const DATABASE: &str = "memlane";

/// Topic setting that keeps the current value of each key.
pub(super) const KEEPS_VALUES: (&str, &str) = ("memlane.values", "latest");

/// Returns the pool size for a topic of this size, its next segments, and tables.
pub(super) fn pool_bytes(topic_bytes: u64) -> u64 {
    (topic_bytes + topic_bytes / 2 + (512 << 20)).next_multiple_of(2 << 20)
}

/// Returns the reason why it is unavailable here, or `None`.
pub(crate) fn missing() -> Option<String> {
    let path = product_path(PROGRAM);
    (!path.exists()).then(|| {
        let shown = path.display();
        format!("{shown} does not exist; build it: cargo build --release -p broker")
    })
}

/// A running broker. It is stopped when dropped.
pub(super) struct BrokerServer {
    broker: Broker,
    sql: SocketAddr,
    client: Client,
    runtime: Runtime,
}

impl BrokerServer {
    /// Starts a broker on the servers' core with additional flags.
    pub(super) fn start(cores: &Cores, pool_bytes: u64, flags: &str) -> Result<Self> {
        let sql = free_address()?;
        let flags = format!("--log warn --embedded {pool_bytes} --sql {sql} {flags}");
        let broker = Broker::start_behind(&cores.server_starter(), &flags)?;
        let client = Client::new(broker.address(), Settings::default());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self { broker, sql, client, runtime })
    }

    /// Starts a broker with its pool in a file on tmpfs, which survives it.
    pub(super) fn start_on_file(cores: &Cores, pool_bytes: u64, file: &Path) -> Result<Self> {
        Self::start(cores, pool_bytes, &format!("--pool-file {}", file.display()))
    }

    pub(super) fn broker(&mut self) -> &mut Broker {
        &mut self.broker
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Blocks on a client operation.
    pub(super) fn wait<T>(
        &self,
        request: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T> {
        Ok(self.runtime.block_on(request)?)
    }

    /// Creates a topic of one partition with additional settings.
    pub(super) fn new_topic(&self, name: &str, settings: &[(&str, &str)]) -> Result<()> {
        // Records have no timestamp and would expire.
        let all = [("retention.ms", "-1")].into_iter().chain(settings.iter().copied());
        let configs = all.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let topic = NewTopic { name: name.to_owned(), partitions: Some(1), configs };
        self.wait(self.client.create_topic(&topic))
            .with_context(|| format!("cannot create topic {name:?}"))
    }

    /// Runs `work` with a temporary topic.
    pub(super) fn with_topic<T>(
        &self,
        name: &str,
        settings: &[(&str, &str)],
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        self.new_topic(name, settings)?;
        let worked = work();
        let deleted = self.wait(self.client.delete_topic(name));
        let worked = worked?;
        deleted.with_context(|| format!("cannot delete topic {name:?}"))?;
        Ok(worked)
    }

    /// Returns pgbench's arguments for connecting to the broker.
    pub(super) fn pgbench_words(&self) -> Vec<String> {
        let (host, port) = (self.sql.ip().to_string(), self.sql.port().to_string());
        ["-h", &host, "-p", &port, "-U", USER, DATABASE].map(str::to_owned).into()
    }

    pub(super) fn sql_config(&self) -> Config {
        let mut config = Config::new();
        config.host(self.sql.ip().to_string()).port(self.sql.port());
        config.user(USER).dbname(DATABASE).connect_timeout(CONNECT_TIME_LIMIT);
        config
    }

    pub(super) fn connect(&self) -> Result<Connection> {
        let sql = self.sql;
        Connection::open(&self.sql_config())
            .with_context(|| format!("cannot connect to the SQL server of the broker at {sql}"))
    }

    /// Returns the value of a topic's metric.
    pub(super) fn metric(&self, name: &str, topic: &str) -> Result<f64> {
        let page = self.broker.ask("/metrics")?;
        ensure!(page.starts_with("HTTP/1.1 200"), "invalid metrics response of the broker: {page}");
        let start = format!("{name}{{topic=\"{topic}\"}} ");
        let value = page.lines().find_map(|line| line.strip_prefix(&*start));
        let value = value.and_then(|text| text.trim().parse().ok());
        value.with_context(|| format!("the broker has no metric {name} for topic {topic}"))
    }
}
