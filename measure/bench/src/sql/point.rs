//! Lookups of a key's current value with pgbench and prepared statements: on the broker, and on
//! PostgreSQL by primary key.

use std::cell::RefCell;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use results::{LOOKUPS_PER_S, Row};
use serde_json::json;
use system::Tool;
use system::database::told_in;

use super::broker_server::{BrokerServer, KEEPS_VALUES, pool_bytes};
use super::cores::Cores;
use super::extent::Extent;
use super::neighbour::{self, Neighbour};
use super::publish::{self, Keys, topic_bytes};
use super::record::{self, BROKER, POSTGRESQL};
use super::records::Records;
use super::turns::{Contestant, take_turns};
use crate::run::{Cost, make_once};
use crate::tpcc::Connection;

pub(super) const CASE: &str = "current value by key";
const TOPIC: &str = "quotes";

/// Table name, the same on both systems.
const TABLE: &str = "\"quotes$current\"";
const CLIENTS: u32 = 4;

/// Maximum time for pgbench to end after a turn.
const END_TIME_LIMIT: Duration = Duration::from_secs(60);

/// Expected rate of producing and copying records, for plans.
const FILLED_PER_S: f64 = 100_000.0;

pub(super) struct Point {
    pub(super) cores: Cores,
    pub(super) extent: Extent,
    pub(super) records: Records,
    pub(super) standing: RefCell<Option<Standing>>,
}

/// Both servers with all keys.
pub(super) struct Standing {
    server: BrokerServer,
    neighbour: Neighbour,
    script: std::path::PathBuf,
    version: String,
}

impl Point {
    pub(super) fn cost(&self, repeat: u32) -> Cost {
        let Extent { turns, looked_up_keys, lookup_time, .. } = self.extent;
        let fill = if repeat == 0 { looked_up_keys as f64 / FILLED_PER_S + 6.0 } else { 0.0 };
        let bytes = topic_bytes(looked_up_keys);
        Cost {
            seconds: fill + 2.0 * turns as f64 * (lookup_time.as_secs_f64() + 0.3),
            written_bytes: if repeat == 0 { 2 * bytes } else { 0 },
            memory_bytes: pool_bytes(bytes) + neighbour::cache_bytes(bytes),
        }
    }

    pub(super) fn measure(&self, repeat: u32) -> Result<Vec<Row>> {
        let _kept = self.cores.keep_clients()?;
        let standing = make_once(&self.standing, || self.fill())?;
        let Standing { server, neighbour, script, version } = &*standing;
        let turn = |words: Vec<String>| move || self.run_pgbench(neighbour, script, &words);
        let contestants = vec![
            Contestant::new(BROKER, turn(server.pgbench_words())),
            Contestant::new(POSTGRESQL, turn(neighbour.pgbench_words())),
        ];
        let tallies = take_turns(&self.cores, self.extent.turns, contestants)?;
        let params = [
            ("op", json!("look up")),
            ("clients", json!(CLIENTS)),
            ("keys", json!(self.extent.looked_up_keys)),
            ("postgresql_version", json!(version)),
            ("postgresql_settings", json!(neighbour.settings())),
        ];
        let row = |tally| {
            record::row_of_turns(CASE, (LOOKUPS_PER_S, tally), (repeat, &params), &self.cores)
        };
        Ok(tallies.iter().map(row).collect())
    }

    fn fill(&self) -> Result<Standing> {
        let (count, records) = (self.extent.looked_up_keys, self.records);
        let bytes = topic_bytes(count);
        let server = BrokerServer::start(&self.cores, pool_bytes(bytes), "")?;
        server.new_topic(TOPIC, &[KEEPS_VALUES])?;
        publish::fill(&server, TOPIC, (records, count, Keys::Numbers))?;
        let neighbour = Neighbour::start(&self.cores, bytes)?;
        let own = neighbour.connect()?;
        own.batch(&format!("CREATE TABLE {TABLE} (key text, value text)"))?;
        neighbour.fill(&own, TABLE, (0..count).map(|number| copied(&records, number)))?;
        own.batch(&format!("ALTER TABLE {TABLE} ADD PRIMARY KEY (key)"))?;
        own.batch("CHECKPOINT")?;
        neighbour.warm(&own, TABLE)?;
        neighbour.warm(&own, "\"quotes$current_pkey\"")?;
        for connection in [&server.connect()?, &own] {
            self.check_values(connection)?;
        }
        let script = format!(
            "\\set k random(0, {})\nSELECT value FROM {TABLE} WHERE key = :k;\n",
            count - 1
        );
        let script = neighbour.write("lookups.sql", &script)?;
        let version = neighbour.version(&own)?;
        Ok(Standing { server, neighbour, script, version })
    }

    /// Checks the values of several keys.
    fn check_values(&self, connection: &Connection) -> Result<()> {
        let count = self.extent.looked_up_keys;
        for number in [0, count / 3, count - 1] {
            let query = format!("SELECT value FROM {TABLE} WHERE key = $1");
            let key = number.to_string();
            let row = connection.wait(connection.client().query_one(&query, &[&key]));
            let row = row.with_context(|| format!("cannot look up key {number}"))?;
            let value: &str = row.try_get(0)?;
            ensure!(value == self.records.text(number), "key {number} has another value: {value}");
        }
        Ok(())
    }

    /// Returns the transactions per second.
    fn run_pgbench(
        &self,
        neighbour: &Neighbour,
        script: &std::path::Path,
        place: &[String],
    ) -> Result<f64> {
        let time = self.extent.lookup_time;
        let threads = self.cores.client_count().min(CLIENTS as usize);
        let (clients, threads) = (CLIENTS.to_string(), threads.to_string());
        let seconds = time.as_secs().to_string();
        let pgbench: Tool = neighbour
            .server()
            .client_behind(&self.cores.client_starter(), "pgbench")
            .args(["-n", "-M", "prepared", "-c", &clients, "-j", &threads, "-T", &seconds, "-f"])
            .arg(script)
            .args(place)
            .time_limit(time + END_TIME_LIMIT);
        let said = pgbench.check()?;
        let told = told_in(&said)
            .with_context(|| format!("cannot parse the output of pgbench: {said}"))?;
        ensure!(told.transaction_count > 0, "pgbench completed no transaction: {said}");
        Ok(told.transactions_per_s)
    }
}

/// Formats a record with its key as a copy row. Nothing needs escaping.
fn copied(records: &Records, number: u64) -> String {
    format!("{number}\t{}\n", records.text(number))
}
