//! Thousands of live queries on one topic: records per second that the broker accepts while all of
//! them keep up.
//!
//! Each query is a cursor. A connection has a hundred of them and repeatedly fetches available rows
//! from each. The time is from sending the first record until the last row of the last query has
//! arrived. Fails unless every query returns exactly its expected rows, in order.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use results::{Io, RECORDS_PER_S, Row};
use serde_json::json;
use tokio::runtime::Runtime;

use super::broker_server::{BrokerServer, pool_bytes};
use super::cores::{Cores, Used};
use super::cursors::{Crowd, Cursors};
use super::extent::Extent;
use super::filters::{Filter, Share, expected};
use super::publish::{Cycle, Publisher, produce, topic_bytes};
use super::record::{self, LIVE_QUERY};
use super::records::{RECORD_BYTES, Records};
use crate::run::Cost;

const TOPIC: &str = "orders";

pub(super) const ROWS_PER_S: &str = "rows_per_s";
const TAKEN_IN_PER_S: &str = "acknowledged_records_per_s";

/// Number of cursors per connection.
const CURSORS: u64 = 100;

/// Number of prepared records, which are produced repeatedly.
const CYCLE_RECORDS: u64 = 100_000;

/// Expected rates, for plans.
const RECORDS_PER_S_EXPECTED: f64 = 50_000.0;
const QUERIES_MADE_PER_S: f64 = 3_000.0;

pub(super) struct Many {
    pub(super) cores: Cores,
    pub(super) extent: Extent,
    pub(super) records: Records,
}

/// Result of a run.
struct Ran {
    /// Time until all records were acknowledged, and until all rows had arrived.
    taken_in: Duration,
    kept_up: Duration,
    records: u64,
    rows: u64,
    used: Used,
}

pub(super) fn case(share: Share) -> String {
    format!("many live queries, each of {} % of the records", share.percent_text())
}

impl Many {
    pub(super) fn cost(&self) -> Cost {
        let Extent { live_queries, often_records, seldom_records, .. } = self.extent;
        let records = often_records + seldom_records;
        let made = 2.0 * live_queries as f64 / QUERIES_MADE_PER_S;
        Cost {
            seconds: 3.0 + made + records as f64 / RECORDS_PER_S_EXPECTED,
            written_bytes: topic_bytes(records),
            memory_bytes: pool_bytes(topic_bytes(often_records.max(seldom_records))),
        }
    }

    pub(super) fn measure(&self, repeat: u32) -> Result<Vec<Row>> {
        let _kept = self.cores.keep_clients()?;
        Share::ALL.into_iter().map(|share| self.measure_share(share, repeat)).collect()
    }

    fn measure_share(&self, share: Share, repeat: u32) -> Result<Row> {
        let started = crate::run::unix_ms(std::time::SystemTime::now());
        let ran = self.run(share).with_context(|| format!("cannot run {}", case(share)))?;
        let params = [
            ("op", json!("many live queries")),
            ("queries", json!(self.extent.live_queries)),
            ("cursors_of_connection", json!(CURSORS)),
            ("pass_percent", json!(share.percent_text())),
            ("records", json!(ran.records)),
            ("rows", json!(ran.rows)),
        ];
        let mut row = record::row((&case(share), LIVE_QUERY), repeat, &params, &self.cores);
        row.time.started_unix_ms = started;
        record::add_used(&mut row, ran.used);
        row.time.duration_s = ran.kept_up.as_secs_f64();
        let per_s = |count: u64, time: Duration| count as f64 / time.as_secs_f64();
        row.add_figures([
            (RECORDS_PER_S, per_s(ran.records, ran.kept_up)),
            (ROWS_PER_S, per_s(ran.rows, ran.kept_up)),
            (TAKEN_IN_PER_S, per_s(ran.records, ran.taken_in)),
        ]);
        row.app = Some(Io {
            ops: ran.records,
            bytes: ran.records * RECORD_BYTES as u64,
            iops: per_s(ran.records, ran.kept_up),
            bytes_per_s: per_s(ran.records * RECORD_BYTES as u64, ran.kept_up),
        });
        Ok(row)
    }

    fn run(&self, share: Share) -> Result<Ran> {
        let asked = match share {
            Share::Often => self.extent.often_records,
            Share::Seldom => self.extent.seldom_records,
        };
        let cycle = Cycle::new(self.records, CYCLE_RECORDS.min(asked))?;
        let passes = (asked / cycle.records).max(1);
        let records = cycle.records * passes;
        // All queries belong to one user.
        let queries = self.extent.live_queries;
        let connections = queries.div_ceil(CURSORS);
        let flags = format!(
            "--sql-subscriptions {} --sql-connections {} --sql-statements {}",
            queries * 2,
            connections * 2 + 10,
            connections + 10,
        );
        let server = BrokerServer::start(&self.cores, pool_bytes(topic_bytes(records)), &flags)?;
        server.new_topic(TOPIC, &[])?;
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(self.cores.client_count())
            .enable_all()
            .build()?;
        let crowd = self.open(&server, share, (&cycle, passes), &runtime)?;
        let mut publisher = Publisher::new(&server, TOPIC, 0)?;
        let mut requests = cycle.prepare(&publisher)?;
        let watch = self.cores.watch()?;
        let begun = Instant::now();
        let (taken_in, crowd) = thread::scope(|scope| {
            let is_producing = &crowd.is_producing;
            let producing = scope.spawn(|| -> Result<Duration> {
                let produced = produce(&mut publisher, &mut requests, passes);
                // PAIRS-WITH: keep_up, "whether records still come".
                is_producing.store(false, Ordering::Release);
                produced.map(|()| begun.elapsed())
            });
            let kept_up = runtime.block_on(crowd.keep_up());
            let taken_in = producing.join().expect("a producer does not panic")?;
            kept_up.map(|()| (taken_in, &crowd))
        })?;
        let (kept_up, used) = (begun.elapsed(), watch.used()?);
        runtime.block_on(crowd.check_nothing_comes())?;
        Ok(Ran { taken_in, kept_up, records, rows: crowd.rows(), used })
    }

    /// Starts all queries.
    fn open(
        &self,
        server: &BrokerServer,
        share: Share,
        (cycle, passes): (&Cycle, u64),
        runtime: &Runtime,
    ) -> Result<Crowd> {
        let all = expected(share, &self.records, (cycle.records, passes))?;
        let queries = self.extent.live_queries;
        let filters = |first: u64| first..queries.min(first + CURSORS);
        let config = server.sql_config();
        let made = AtomicU64::new(0);
        let opening = (0..queries).step_by(usize::try_from(CURSORS)?).map(|first| {
            let filters: Vec<Filter> = filters(first).map(|it| Filter::of(share, it)).collect();
            let rows = filters.iter().map(|it| all.get(it).copied().unwrap_or_default()).collect();
            let texts = filters.iter().map(|filter| {
                format!(
                    "SELECT \"offset\", value->>'qty' AS qty FROM {TOPIC} WHERE {}",
                    filter.text()
                )
            });
            let texts: Vec<String> = texts.collect();
            let (config, made) = (&config, &made);
            async move {
                let cursors = Cursors::open(config, &texts, rows).await?;
                // Relaxed: the number is only displayed.
                let made = made.fetch_add(CURSORS, Ordering::Relaxed) + CURSORS;
                crate::run::show_part(&format!("{made} of {queries} live queries made"));
                Ok::<Cursors, anyhow::Error>(cursors)
            }
        });
        let cursors = runtime.block_on(try_join_all(opening))?;
        ensure!(!cursors.is_empty(), "the broker has no live queries");
        Ok(Crowd { cursors, is_producing: AtomicBool::new(true) })
    }
}
