//! A `memlane-broker` of the suite's own: topics in an embedded pool, and SQL.

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

/// Anyone of this host may.
const USER: &str = "bench";
const DATABASE: &str = "memlane";

/// The setting by which a topic keeps the current value of each key.
pub(super) const KEEPS_VALUES: (&str, &str) = ("memlane.values", "latest");

/// Room for a topic of so many bytes, its segments that are written next, and the tables.
pub(super) fn pool_bytes(topic_bytes: u64) -> u64 {
    (topic_bytes + topic_bytes / 2 + (512 << 20)).next_multiple_of(2 << 20)
}

/// Why there is none here.
pub(crate) fn missing() -> Option<String> {
    let path = product_path(PROGRAM);
    (!path.exists()).then(|| {
        let shown = path.display();
        format!("{shown} is not built: cargo build --release -p broker")
    })
}

/// A broker that serves. It ends when this is dropped.
pub(super) struct BrokerServer {
    broker: Broker,
    sql: SocketAddr,
    client: Client,
    runtime: Runtime,
}

impl BrokerServer {
    /// On its core, with further flags of its command line.
    pub(super) fn start(cores: &Cores, pool_bytes: u64, flags: &str) -> Result<Self> {
        let sql = free_address()?;
        let flags = format!("--log warn --embedded {pool_bytes} --sql {sql} {flags}");
        let broker = Broker::start_behind(&cores.server_starter(), &flags)?;
        let client = Client::new(broker.address(), Settings::default());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Self { broker, sql, client, runtime })
    }

    /// The same with its pool in a file on tmpfs, which outlives it.
    pub(super) fn start_on_file(cores: &Cores, pool_bytes: u64, file: &Path) -> Result<Self> {
        Self::start(cores, pool_bytes, &format!("--pool-file {}", file.display()))
    }

    pub(super) fn broker(&mut self) -> &mut Broker {
        &mut self.broker
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Waits for what the client does.
    pub(super) fn wait<T>(
        &self,
        request: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T> {
        Ok(self.runtime.block_on(request)?)
    }

    /// Makes a topic of one partition, with these settings besides.
    pub(super) fn new_topic(&self, name: &str, settings: &[(&str, &str)]) -> Result<()> {
        // Records have no time of their own, and would be too old to be kept.
        let all = [("retention.ms", "-1")].into_iter().chain(settings.iter().copied());
        let configs = all.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let topic = NewTopic { name: name.to_owned(), partitions: Some(1), configs };
        self.wait(self.client.create_topic(&topic))
            .with_context(|| format!("cannot make the topic {name:?}"))
    }

    /// Works with a topic that is there for as long.
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
        deleted.with_context(|| format!("cannot delete the topic {name:?}"))?;
        Ok(worked)
    }

    /// Words of pgbench's command line that lead it to the broker.
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
            .with_context(|| format!("cannot reach the broker's SQL at {sql}"))
    }

    /// A figure of a topic among the broker's metrics.
    pub(super) fn metric(&self, name: &str, topic: &str) -> Result<f64> {
        let page = self.broker.ask("/metrics")?;
        ensure!(page.starts_with("HTTP/1.1 200"), "the broker tells no metrics: {page}");
        let start = format!("{name}{{topic=\"{topic}\"}} ");
        let value = page.lines().find_map(|line| line.strip_prefix(&*start));
        let value = value.and_then(|text| text.trim().parse().ok());
        value.with_context(|| format!("the broker does not tell {name} of {topic}"))
    }
}
