//! Program `memlane-broker`: topics on Memlane volumes, for clients of Kafka's protocol.
//!
//! ```text
//! client ─▶ serving ─┬─ produce, fetch ─▶ topics ─▶ record-log ─▶ storage: a volume for each topic
//!                    └─ requests ─┬─────────┘
//!                                 └─▶ coordinator: groups, transactions, the log of their state
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(
    not(feature = "sql"),
    allow(dead_code, unused_imports, reason = "SQL alone defines and subscribes")
)]

mod access_rules;
mod broker;
mod broker_settings;
mod clock;
mod commands;
mod coordinator;
mod definitions;
mod deriving;
mod following;
mod live;
mod operation;
mod options;
mod publish;
mod requests;
mod serving;
#[cfg(feature = "sql")]
mod sql_server;
#[cfg(not(feature = "sql"))]
#[path = "no_sql_server.rs"]
mod sql_server;
mod state_log;
mod storage;
mod topics;
mod waiting;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use access::Quotas;
use anyhow::Context;
use service_manager::MoreTime;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::access_rules::AccessRules;
use crate::broker::{Advertised, Broker, Limits, NewTopics};
use crate::broker_settings::BrokerSettings;
use crate::coordinator::{Assignable, Coordinator, CoordinatorOptions, CoordinatorThread};
use crate::definitions::Definitions;
use crate::deriving::{Deriving, DerivingThread};
use crate::following::FollowingThreads;
use crate::live::{LiveLimits, LiveQueries, LiveThreads};
use crate::operation::{Counters, Interface, Operation, Signals};
use crate::options::{Options, host_and_port};
use crate::serving::{Buffers, Recompression, SessionCache};
use crate::sql_server::SqlServer;
use crate::storage::{Daemon, Embedded, EmbeddedPool, Storage};
use crate::topics::Topics;

/// Maximum time for flushing appended records after the last connection has ended, and for ending
/// threads that wait for the storage.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(5);
const THREADS_TIME_MAX: Duration = Duration::from_secs(5);

// A panic must end only its SQL statement, and drop the resources of that.
const _: () = assert!(cfg!(panic = "unwind"), "the broker is built with panic = \"unwind\"");

fn main() -> ExitCode {
    program::run(|options| start(&options))
}

fn start(options: &Options) -> anyhow::Result<()> {
    if let Some(folder) = &options.man {
        return program::write_manual::<Options>(folder);
    }
    match &options.command {
        Some(command) => command.run(),
        None => run(options),
    }
}

fn run(options: &Options) -> anyhow::Result<()> {
    program::start_log(&options.log)?;
    let more_time = MoreTime::ask_while_working();
    service_manager::status("starting: opening topics");
    let coordinator_options = options.coordinator()?;
    let quotas = Quotas::new(options.request_memory()?);
    let storage: Arc<dyn Storage> = match options.embedded {
        Some(size_bytes) => {
            let pool = EmbeddedPool { size_bytes, file: options.pool_file.clone() };
            Arc::new(Embedded::open(&pool)?)
        }
        None => Arc::new(Daemon::open(&options.daemon)?),
    };
    record_log::set_around_waits(waiting::for_a_lock);
    let operation = Arc::new(Operation::new());
    let interface = Interface::start(&options.http_places(), &operation, Arc::clone(&storage))?;
    let defaults = options.topic_default.iter().cloned().collect();
    let topics = Topics::open(Arc::clone(&storage), defaults)?;
    let class = topics.state_class();
    let rules = Arc::new(AccessRules::open(options.policy(), options.access_files(), quotas)?);
    let assignable = Assignable { topics: Arc::clone(&topics), rules: Arc::clone(&rules) };
    let definitions = Arc::new(Definitions::open(&*storage, class)?);
    let coordinating = coordinator::start(&*storage, class, assignable, coordinator_options)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("serve")
        .max_blocking_threads(waiting::THREAD_COUNT_MAX)
        .build()
        .context("cannot start threads")?;
    let deriving = Arc::new(Deriving::new(Arc::clone(&topics), Arc::clone(&definitions)));
    let opened = Opened { topics, rules, definitions, deriving, coordinator_options };
    drop(more_time);
    let served = runtime.block_on(serve(options, &operation, opened, coordinating));
    runtime.shutdown_timeout(THREADS_TIME_MAX);
    drop(interface);
    served
}

/// State that exists before clients are served.
struct Opened {
    topics: Arc<Topics>,
    rules: Arc<AccessRules>,
    definitions: Arc<Definitions>,
    deriving: Arc<Deriving>,
    coordinator_options: CoordinatorOptions,
}

async fn serve(
    options: &Options,
    operation: &Operation,
    opened: Opened,
    (coordinator, thread): (Coordinator, CoordinatorThread),
) -> anyhow::Result<()> {
    let listener = TcpListener::bind(&options.listen)
        .await
        .with_context(|| format!("cannot listen on {}", options.listen))?;
    let address = listener.local_addr()?;
    let Opened { topics, rules, definitions, deriving, coordinator_options } = opened;
    rules.policy.check(address.ip())?;
    let (signals, (stop, stops)) = (Signals::listen()?, watch::channel(false));
    let broker = Arc::new(Broker {
        cluster_id: coordinator.log_id.simple().to_string(),
        address,
        advertised: advertised(options, address)?,
        new_topics: new_topics(options),
        limits: limits(options),
        settings: BrokerSettings::default(),
        topics: Arc::clone(&topics),
        definitions,
        deriving,
        live: live_queries(options, &topics, &rules),
        coordinator,
        coordinator_options,
        rules,
        buffers: Buffers::default(),
        sessions: SessionCache::new(),
        recompression: Recompression::default(),
        counters: Box::<Counters>::default(),
        stops: stops.clone(),
    });
    let stop_asked = signals.heed(&broker)?;
    let threads = Threads::start(thread, &broker, &stops)?;
    let sql = serve_sql(options, &broker).await?;
    let retaining = tokio::spawn(topics::retain(Arc::clone(&topics), stops.clone()));
    let compacting = tokio::spawn(topics::compact(Arc::clone(&topics), stops));
    let listening = tokio::spawn(serving::listen(Arc::clone(&broker), listener));
    // Scripts wait for this line.
    eprintln!("memlane-broker: ready at {address}");
    operation.serves(&broker, sql.as_ref().map(SqlServer::metrics));
    service_manager::ready();
    let notices = tokio::spawn(operation::send_notices(Arc::clone(&broker.rules)));
    stop_asked.await.context("the signal handler ended")?;
    tracing::info!("stopping: finishing requests in flight");
    service_manager::stopping();
    operation.stops();
    stop.send_replace(true);
    listening.await?;
    if let Some(sql) = sql {
        sql.ended().await?;
    }
    drop(broker);
    let ending = async {
        retaining.await?;
        compacting.await?;
        tokio::task::spawn_blocking(move || threads.end(&topics)).await
    };
    match tokio::time::timeout(FLUSH_TIME_MAX, ending).await {
        Ok(ended) => ended?,
        Err(_) => tracing::warn!(
            "the storage does not respond; stopping without a final flush. \
                                  Acknowledged records are kept"
        ),
    }
    notices.abort();
    tracing::info!("stopped");
    Ok(())
}

fn advertised(options: &Options, address: SocketAddr) -> anyhow::Result<Advertised> {
    let (host, port) = match &options.advertise {
        Some(text) => host_and_port(text)?,
        None => (address.ip().to_string(), address.port()),
    };
    Ok(Advertised { host, port })
}

fn new_topics(options: &Options) -> NewTopics {
    NewTopics {
        are_created_on_demand: options.auto_create_topics,
        partition_count: options.partitions,
    }
}

fn live_queries(
    options: &Options,
    topics: &Arc<Topics>,
    rules: &Arc<AccessRules>,
) -> Arc<LiveQueries> {
    let limits = LiveLimits { per_principal: options.sql_subscriptions };
    Arc::new(LiveQueries::new(Arc::clone(topics), Arc::clone(rules), limits))
}

fn limits(options: &Options) -> Limits {
    Limits {
        connection_count: options.connections,
        request_bytes: usize::try_from(options.request_size).unwrap_or(usize::MAX),
    }
}

/// Starts the SQL server if configured, and prints its address.
async fn serve_sql(options: &Options, broker: &Arc<Broker>) -> anyhow::Result<Option<SqlServer>> {
    let Some(address) = &options.sql else { return Ok(None) };
    let server = SqlServer::start(broker, address, options.sql_limits()).await?;
    eprintln!("memlane-broker: SQL at {}", server.address());
    Ok(Some(server))
}

/// Threads that work on topics independently of clients.
struct Threads {
    coordinator: CoordinatorThread,
    following: FollowingThreads,
    live: LiveThreads,
    deriving: DerivingThread,
}

impl Threads {
    fn start(
        coordinator: CoordinatorThread,
        broker: &Broker,
        stops: &watch::Receiver<bool>,
    ) -> anyhow::Result<Self> {
        let following = FollowingThreads::start(&broker.topics, stops)?;
        let live = LiveThreads::start(&broker.live, stops)?;
        let deriving = DerivingThread::start(&broker.deriving, stops)?;
        Ok(Self { coordinator, following, live, deriving })
    }

    /// Waits for the threads, and flushes all topics that need it, so that records without a
    /// waiting client also become as durable as their class.
    fn end(self, topics: &Topics) {
        self.coordinator.join();
        self.live.join();
        self.following.join();
        self.deriving.join();
        topics::flush_all(topics);
    }
}
