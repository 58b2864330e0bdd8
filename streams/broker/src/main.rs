//! `memlane-broker`: topics on Memlane volumes, for every client that speaks Kafka's protocol.
//!
//! ```text
//! client ─▶ serving ─┬─ produce, fetch ─▶ topics ─▶ record-log ─▶ storage: a volume for each topic
//!                    └─ requests ─┬─────────┘
//!                                 └─▶ coordinator: groups, transactions, the log of their state
//! ```
#![forbid(unsafe_code)]

mod broker;
mod clock;
mod commands;
mod coordinator;
mod gate;
mod options;
mod requests;
mod serving;
mod storage;
mod topics;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing_subscriber::EnvFilter;
use uuid::Uuid;

use crate::broker::{Advertised, Broker, Limits, NewTopics};
use crate::coordinator::{Coordinator, CoordinatorThread};
use crate::gate::Gate;
use crate::options::{Options, host_and_port};
use crate::serving::Buffers;
use crate::storage::{Daemon, Embedded, EmbeddedPool, Storage};
use crate::topics::Topics;

/// Connections have so long to finish after a signal.
const STOP_TIME_MAX: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    let options = Options::parse();
    let done = match &options.command {
        Some(command) => command.run(),
        None => run(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("memlane-broker: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&options.log)
        .with_context(|| format!("--log {:?} is no filter", options.log))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_target(false)
        .with_writer(std::io::stderr)
        .init();
    let storage: Arc<dyn Storage> = match options.embedded {
        Some(size_bytes) => {
            let pool = EmbeddedPool { size_bytes, file: options.pool_file.clone() };
            Arc::new(Embedded::open(&pool)?)
        }
        None => Arc::new(Daemon::new(&options.daemon)),
    };
    let defaults = options.topic_default.iter().cloned().collect();
    let topics = Arc::new(Topics::open(Arc::clone(&storage), defaults)?);
    let group_options = consumer_groups::Options {
        initial_rebalance_delay_ms: options.group_initial_rebalance_delay,
        ..consumer_groups::Options::default()
    };
    let class = topics.default_class()?;
    let coordinating = coordinator::start(&*storage, class, Arc::clone(&topics), group_options)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("serve")
        .build()
        .context("cannot start threads")?;
    let served = runtime.block_on(serve(options, topics, coordinating));
    runtime.shutdown_timeout(STOP_TIME_MAX);
    served
}

async fn serve(
    options: &Options,
    topics: Arc<Topics>,
    (coordinator, thread): (Coordinator, CoordinatorThread),
) -> anyhow::Result<()> {
    let listener = TcpListener::bind(&options.listen)
        .await
        .with_context(|| format!("cannot serve at {}", options.listen))?;
    let address = listener.local_addr()?;
    let policy = options.policy();
    policy.check(address.ip())?;
    let gate = Gate::open(policy, options.gate_files())?;
    let (host, port) = match &options.advertise {
        Some(text) => host_and_port(text)?,
        None => (address.ip().to_string(), address.port()),
    };
    let broker = Arc::new(Broker {
        cluster_id: Uuid::nil().simple().to_string(),
        advertised: Advertised { host, port },
        new_topics: NewTopics {
            are_created_on_demand: options.auto_create_topics,
            partition_count: options.partitions,
        },
        limits: Limits {
            connection_count: options.connections,
            request_bytes: usize::try_from(options.request_size).unwrap_or(usize::MAX),
        },
        topics: Arc::clone(&topics),
        coordinator,
        gate,
        buffers: Buffers::default(),
    });
    let (stop, stops) = watch::channel(false);
    let retaining = tokio::spawn(topics::retain(Arc::clone(&topics), stops.clone()));
    let compacting = tokio::spawn(topics::compact(topics, stops.clone()));
    let listening = tokio::spawn(serving::listen(Arc::clone(&broker), listener, stops));
    // The line that scripts wait for.
    eprintln!("memlane-broker: ready at {address}");
    wait_for_stop(&broker).await?;
    stop.send_replace(true);
    listening.await?;
    retaining.await?;
    compacting.await?;
    drop(broker);
    tokio::task::spawn_blocking(|| thread.join());
    Ok(())
}

/// Waits for a signal to end; SIGHUP has users, access lists and certificates read again.
async fn wait_for_stop(broker: &Broker) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    loop {
        tokio::select! {
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            _ = hangup.recv() => {
                let failures = broker.gate.reload();
                for error in &failures {
                    tracing::error!(error = format!("{error:#}"), "cannot reload; the old stays");
                }
                tracing::info!(failures = failures.len(), "users, lists and certificates read");
            }
        }
    }
}
