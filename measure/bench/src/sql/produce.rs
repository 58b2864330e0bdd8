//! Cost for a producer of keeping the current value of each key.

use std::cell::RefCell;
use std::time::Instant;

use anyhow::{Context, Result};
use results::{RECORDS_PER_S, Row};
use serde_json::json;

use super::broker_server::{BrokerServer, KEEPS_VALUES, pool_bytes};
use super::cores::Cores;
use super::extent::Extent;
use super::publish::{self, Keys, topic_bytes};
use super::record::{self, BROKER};
use super::records::Records;
use super::turns::{Contestant, take_turns};
use crate::run::{Cost, make_once};
use crate::tpcc::Connection;

pub(super) const PLAIN: &str = "produce, memlane.values=none";
pub(super) const KEEPING: &str = "produce, memlane.values=latest";
pub(super) const BEHIND_NS: &str = "values_behind_ns";

const TOPIC: &str = "produced";

/// Expected rate, for plans.
const PRODUCED_PER_S: f64 = 150_000.0;

pub(super) struct Produce {
    pub(super) cores: Cores,
    pub(super) extent: Extent,
    pub(super) records: Records,
    pub(super) standing: RefCell<Option<BrokerServer>>,
}

impl Produce {
    pub(super) fn cost(&self) -> Cost {
        let Extent { turns, produced_records, .. } = self.extent;
        let runs = 2.0 * turns as f64;
        Cost {
            seconds: runs * (produced_records as f64 / PRODUCED_PER_S + 0.2),
            written_bytes: topic_bytes(produced_records) * 2 * turns as u64,
            memory_bytes: pool_bytes(topic_bytes(produced_records) * 2),
        }
    }

    pub(super) fn measure(&self, repeat: u32) -> Result<Vec<Row>> {
        let _kept = self.cores.keep_clients()?;
        let bytes = topic_bytes(self.extent.produced_records) * 2;
        let start = || BrokerServer::start(&self.cores, pool_bytes(bytes), "");
        let server = &*make_once(&self.standing, start)?;
        let own = server.connect()?;
        let behind = RefCell::new(Vec::new());
        let keeping = || {
            let (rate, behind_ns) = self.produce_keeping(server, &own)?;
            behind.borrow_mut().push(behind_ns);
            Ok(rate)
        };
        let plain = || server.with_topic(TOPIC, &[], || self.produce(server));
        let contestants = vec![Contestant::new(BROKER, plain), Contestant::new(BROKER, keeping)];
        let tallies = take_turns(&self.cores, self.extent.turns, contestants)?;
        let params = [
            ("op", json!("produce")),
            ("records", json!(self.extent.produced_records)),
            ("batch_records", json!(publish::BATCH_RECORDS)),
        ];
        let row = |(case, tally)| {
            record::row_of_turns(case, (RECORDS_PER_S, tally), (repeat, &params), &self.cores)
        };
        let mut rows: Vec<Row> = [PLAIN, KEEPING].into_iter().zip(&tallies).map(row).collect();
        let behind = results::median(&behind.take()).context("there was a turn")?;
        rows[1].figures.insert(BEHIND_NS.to_owned(), behind);
        Ok(rows)
    }

    /// Returns the records per second until all are acknowledged.
    fn produce(&self, server: &BrokerServer) -> Result<f64> {
        let count = self.extent.produced_records;
        let begun = Instant::now();
        publish::fill(server, TOPIC, (self.records, count, Keys::Numbers))?;
        Ok(count as f64 / begun.elapsed().as_secs_f64())
    }

    /// Returns the same with current values, and the additional time in nanoseconds until the last
    /// key has its value.
    fn produce_keeping(&self, server: &BrokerServer, own: &Connection) -> Result<(f64, f64)> {
        server.with_topic(TOPIC, &[KEEPS_VALUES], || {
            // Prepared in advance, because planning is not measured.
            let query = format!("SELECT value FROM \"{TOPIC}$current\" WHERE key = $1");
            let query = own.wait(own.client().prepare(&query))?;
            let rate = self.produce(server)?;
            let begun = Instant::now();
            let last = (self.extent.produced_records - 1).to_string();
            let read = own.wait(own.client().query_one(&query, &[&last]));
            read.with_context(|| format!("the last key, {last}, has no value"))?;
            Ok((rate, begun.elapsed().as_secs_f64() * 1e9))
        })
    }
}
