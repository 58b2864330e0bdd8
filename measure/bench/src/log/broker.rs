//! A broker process with one topic of one partition.

use std::fmt;
use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use system::{Ability, Background, Tool, free_address, missing, product_path, wait_for};

use super::drive::Sync;
use crate::durability::{DiskFolder, start_daemon};
use crate::targets::OwnDaemon;

/// Environment variable with the folder of Apache Kafka's jars.
const KAFKA_VARIABLE: &str = "MEMLANE_KAFKA_LIBS";

const PROGRAM: &str = "memlane-broker";
const START_TIME_LIMIT: Duration = Duration::from_secs(60);

/// Heap of Apache Kafka, in addition to the page cache.
const KAFKA_HEAP_BYTES: u64 = 1 << 30;

/// Configuration of a single-node cluster with Kafka's defaults, except that deleted records free
/// their space soon.
const KAFKA_SETTINGS: &str = "\
process.roles=broker,controller
node.id=1
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
offsets.topic.replication.factor=1
log.retention.check.interval.ms=500
log.segment.delete.delay.ms=500
";

/// Implementation of the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BrokerKind {
    /// `memlane-broker` with its own pool.
    Memlane,
    /// Apache Kafka, on the disk of `/var/tmp`.
    Kafka,
}

impl fmt::Display for BrokerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memlane => "memlane-broker embedded",
            Self::Kafka => "apache kafka",
        })
    }
}

impl BrokerKind {
    /// Returns the reason why it is unavailable here, or `None`.
    pub(crate) fn missing(self) -> Option<String> {
        match self {
            Self::Memlane => {
                let path = product_path(PROGRAM);
                (!path.exists()).then(|| {
                    format!(
                        "{} does not exist; build it with cargo build --release",
                        path.display()
                    )
                })
            }
            Self::Kafka => match jars() {
                None => {
                    Some(format!("{KAFKA_VARIABLE} is not a directory with Apache Kafka's jars"))
                }
                Some(_) => missing(&[Ability::Program("java")]),
            },
        }
    }

    /// Returns its memory for a log of this size.
    pub(crate) fn memory_bytes(self, log_bytes: u64) -> u64 {
        match self {
            Self::Memlane => pool_bytes(log_bytes),
            Self::Kafka => log_bytes + KAFKA_HEAP_BYTES,
        }
    }
}

/// Returns the pool size for the log, records not yet deleted, and tables.
fn pool_bytes(log_bytes: u64) -> u64 {
    (log_bytes * 2 + (768 << 20)).next_multiple_of(2 << 20)
}

fn jars() -> Option<PathBuf> {
    let folder = PathBuf::from(std::env::var_os(KAFKA_VARIABLE)?);
    folder.is_dir().then_some(folder)
}

/// A running broker. It is stopped and its folder removed when dropped.
pub(crate) struct Broker {
    process: Process,
    /// Daemon of its volumes, if they must survive a power loss.
    daemon: Option<OwnDaemon>,
    _folder: DiskFolder,
}

enum Process {
    Memlane(system::Broker),
    Kafka(Background, SocketAddr),
}

impl Broker {
    /// Starts a broker. With `sync`, acknowledged records are on stable storage.
    pub(crate) fn start(kind: BrokerKind, log_bytes: u64, sync: Sync) -> Result<Self> {
        let folder = DiskFolder::new()?;
        let pool_bytes = pool_bytes(log_bytes);
        let (process, daemon) = match (kind, sync) {
            (BrokerKind::Memlane, Sync::Never) => {
                let flags = format!("--log warn --embedded {pool_bytes}");
                (Process::Memlane(system::Broker::start(&flags)?), None)
            }
            (BrokerKind::Memlane, Sync::EachAppend) => {
                let daemon = start_daemon(&folder, pool_bytes)?;
                let flags = "--log warn --topic-default memlane.durability=journal";
                let broker = system::Broker::on_daemon(&daemon.get().run_dir(), flags)?;
                (Process::Memlane(broker), Some(daemon))
            }
            (BrokerKind::Kafka, _) => (start_kafka(folder.path(), sync)?, None),
        };
        Ok(Self { process, daemon, _folder: folder })
    }

    pub(crate) fn address(&self) -> String {
        match &self.process {
            Process::Memlane(broker) => broker.address(),
            Process::Kafka(_, address) => address.to_string(),
        }
    }

    /// Returns the ids of all server processes.
    pub(crate) fn server_ids(&self) -> Vec<u32> {
        let broker = match &self.process {
            Process::Memlane(broker) => broker.id(),
            Process::Kafka(process, _) => Some(process.id()),
        };
        let daemon = self.daemon.as_ref().and_then(|it| it.get().id());
        broker.into_iter().chain(daemon).collect()
    }
}

fn start_kafka(folder: &Path, sync: Sync) -> Result<Process> {
    let address = free_address()?;
    let log_path = folder.join("log");
    let log = File::create(&log_path).context("cannot create the log of a broker")?;
    let mut process = Background::start(kafka(folder, address, sync)?.output_to(log)?)?;
    let has_ended = |process: &mut Background| -> Result<bool> {
        Ok(TcpStream::connect(address).is_ok() || process.has_ended()?.is_some())
    };
    wait_for("Apache Kafka", START_TIME_LIMIT, || has_ended(&mut process))?;
    if let Some(status) = process.has_ended()? {
        let said = fs::read_to_string(&log_path).unwrap_or_default();
        anyhow::bail!("Apache Kafka ended with {status}: {said}");
    }
    Ok(Process::Kafka(process, address))
}

/// Prepares Kafka's folder and returns the command to start.
fn kafka(folder: &Path, address: SocketAddr, sync: Sync) -> Result<Tool> {
    let jars = jars().context("Apache Kafka's jars are missing")?;
    let class_path = format!("{}/*", jars.display());
    let controller = free_address()?;
    let settings_path = folder.join("settings");
    let settings = format!(
        "{KAFKA_SETTINGS}listeners=PLAINTEXT://{address},CONTROLLER://{controller}\n\
         advertised.listeners=PLAINTEXT://{address}\ncontroller.quorum.voters=1@{controller}\n\
         log.dirs={}\n{}",
        folder.join("logs").display(),
        if sync == Sync::EachAppend { "log.flush.interval.messages=1\n" } else { "" }
    );
    fs::write(&settings_path, settings).context("cannot write the settings of Apache Kafka")?;
    let heap = format!("-Xmx{KAFKA_HEAP_BYTES}");
    let java = || Tool::new("java").args([heap.as_str(), "-cp", class_path.as_str()]);
    java()
        .args(["kafka.tools.StorageTool", "format", "-t", "bWVtbGFuZS1iZW5jaC0xMQ", "-c"])
        .arg(&settings_path)
        .check()
        .context("cannot format a folder for Apache Kafka")?;
    Ok(java().arg("kafka.Kafka").arg(&settings_path))
}
