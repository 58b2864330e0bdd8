//! Many keys with a current value: memory per key in addition to the log, and time to the first
//! read after a restart of the broker, both after a clean shutdown and after a kill.

use std::cell::RefCell;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use results::{FIRST_READ_NS, INDEX_BYTES_PER_KEY, Row};
use serde_json::{Value, json};
use system::{Interruption, wait_for};
use tempfile::TempDir;

use super::broker_server::{BrokerServer, KEEPS_VALUES, pool_bytes};
use super::cores::Cores;
use super::extent::Extent;
use super::publish::{self, Keys, topic_bytes};
use super::record::{self, BROKER};
use super::records::Records;
use crate::run::{Cost, make_once};

pub(super) const INDEX: &str = "current values, memory beside the log";
pub(super) const RESTART: &str = "first read of a current value after a restart";
pub(super) const KILL: &str = "first read of a current value after kill -9";

const TOPIC: &str = "kept";
const TMPFS: &str = "/dev/shm";
const READ_TIME_LIMIT: Duration = Duration::from_secs(120);
const READY_TIME_LIMIT: Duration = Duration::from_secs(300);

/// Interval of attempts to read from a starting broker.
const TRY_INTERVAL: Duration = Duration::from_millis(2);

/// Expected rates, for plans.
const FILLED_PER_S: f64 = 150_000.0;
const RESTART_SECONDS: f64 = 4.0;

pub(super) struct Kept {
    pub(super) cores: Cores,
    pub(super) extent: Extent,
    pub(super) records: Records,
    pub(super) standing: RefCell<Option<Standing>>,
}

/// A broker with all keys, and the folder of its pool, which is dropped after it.
pub(super) struct Standing {
    server: BrokerServer,
    _folder: TempDir,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    InOrder,
    Killed,
}

impl Kept {
    pub(super) fn cost(&self, repeat: u32) -> Cost {
        let keys = self.extent.kept_keys;
        let fill = if repeat == 0 { keys as f64 / FILLED_PER_S } else { 0.0 };
        Cost {
            seconds: fill + 2.0 * RESTART_SECONDS,
            written_bytes: if repeat == 0 { topic_bytes(keys) } else { 0 },
            memory_bytes: pool_bytes(topic_bytes(keys)) + keys * 64,
        }
    }

    pub(super) fn measure(&self, repeat: u32) -> Result<Vec<Row>> {
        let _kept = self.cores.keep_clients()?;
        let mut standing = make_once(&self.standing, || self.fill())?;
        let server = &mut standing.server;
        let mut rows = vec![self.index_row(server, repeat)?];
        for (case, end) in [(RESTART, End::InOrder), (KILL, End::Killed)] {
            rows.push(self.restart_row(server, (case, end), repeat)?);
        }
        Ok(rows)
    }

    fn params(&self) -> [(&'static str, Value); 2] {
        [("op", json!("keep values")), ("keys", json!(self.extent.kept_keys))]
    }

    fn index_row(&self, server: &BrokerServer, repeat: u32) -> Result<Row> {
        let keys = server.metric("memlane_broker_topic_values_keys", TOPIC)?;
        let expected = self.extent.kept_keys as f64;
        ensure!(keys == expected, "{keys} keys have a value instead of {expected}");
        let bytes = server.metric("memlane_broker_topic_values_index_bytes", TOPIC)?;
        let mut row = record::row((INDEX, BROKER), repeat, &self.params(), &self.cores);
        row.figures.insert(INDEX_BYTES_PER_KEY.to_owned(), bytes / keys);
        Ok(row)
    }

    fn restart_row(&self, server: &mut BrokerServer, of: (&str, End), repeat: u32) -> Result<Row> {
        let (case, end) = of;
        let doing = || format!("cannot measure the {case}");
        match end {
            End::InOrder => server.broker().stop().with_context(doing)?,
            End::Killed => server.broker().kill().with_context(doing)?,
        }
        let watch = self.cores.watch()?;
        let begun = Instant::now();
        let ready = server.broker().start_again().with_context(doing)?;
        self.read_one(server).with_context(doing)?;
        let first_read = begun.elapsed();
        let mut row = record::row((case, BROKER), repeat, &self.params(), &self.cores);
        row.figures.insert(FIRST_READ_NS.to_owned(), first_read.as_secs_f64() * 1e9);
        row.figures.insert("ready_ns".to_owned(), ready.as_secs_f64() * 1e9);
        row.time.started_unix_ms = crate::run::unix_ms(std::time::SystemTime::now() - first_read);
        record::add_used(&mut row, watch.used()?);
        Ok(row)
    }

    /// Reads a key's value as soon as possible.
    fn read_one(&self, server: &BrokerServer) -> Result<()> {
        let number = self.extent.kept_keys / 2;
        let expected = self.records.text(number);
        let query = format!("SELECT value FROM \"{TOPIC}$current\" WHERE key = '{number}'");
        let deadline = Instant::now() + READ_TIME_LIMIT;
        loop {
            let read = || -> Result<String> {
                let own = server.connect()?;
                let row = own.wait(own.client().query_one(&query, &[]))?;
                Ok(row.try_get(0)?)
            };
            match read() {
                Ok(value) => {
                    ensure!(value == expected, "key {number} has the value {value}");
                    return Ok(());
                }
                Err(error) if Instant::now() >= deadline => return Err(error),
                Err(_) => std::thread::sleep(TRY_INTERVAL),
            }
            ensure!(!Interruption::is_asked_for(), "interrupted while a broker started");
        }
    }

    fn fill(&self) -> Result<Standing> {
        let count = self.extent.kept_keys;
        let folder = tempfile::Builder::new().prefix("memlane-bench-").tempdir_in(TMPFS);
        let folder = folder.with_context(|| format!("cannot create a directory in {TMPFS}"))?;
        let file: PathBuf = folder.path().join("pool");
        let server =
            BrokerServer::start_on_file(&self.cores, pool_bytes(topic_bytes(count)), &file)?;
        server.new_topic(TOPIC, &[KEEPS_VALUES])?;
        publish::fill(&server, TOPIC, (self.records, count, Keys::Numbers))?;
        wait_for("all keys to have a value", READY_TIME_LIMIT, || {
            Ok(server.metric("memlane_broker_topic_values_lag_offsets", TOPIC)? == 0.0)
        })?;
        Ok(Standing { server, _folder: folder })
    }
}
