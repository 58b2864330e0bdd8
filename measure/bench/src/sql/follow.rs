//! Throughput of one live query compared with a consumer of all records.
//!
//! Two modes with separate rows: over a filled log from its start to its end, and over an empty log
//! that a producer fills as fast as the broker accepts. The time of the second is from sending the
//! first batch until the last record has been followed.

use std::cell::RefCell;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use futures::StreamExt;
use results::{RECORDS_PER_S, Row};
use serde_json::{Value, json};

use super::broker_server::{BrokerServer, pool_bytes};
use super::consumer::Consumer;
use super::cores::Cores;
use super::extent::Extent;
use super::publish::{self, Cycle, Keys, Publisher, produce, topic_bytes};
use super::record::{self, CONSUMER, LIVE_QUERY};
use super::records::{QTYS, RECORD_BYTES, Records};
use super::turns::{Contestant, Tally, take_turns};
use crate::run::{Cost, make_once};
use crate::tpcc::Connection;

/// Percentages of records that queries match.
pub(super) const PERCENTS: [u64; 4] = [0, 1, 50, 100];

const FILLED: &str = "filled";
const COMING: &str = "coming";

/// States of a log while it is followed.
pub(super) const WAYS: [&str; 2] = [FILLED, COMING];

/// Number of prepared records, which are produced repeatedly.
const CYCLE_RECORDS: u64 = 20_000;

/// Expected rate, for plans.
const RECORDS_PER_S_EXPECTED: f64 = 250_000.0;

pub(super) struct Follow {
    pub(super) cores: Cores,
    pub(super) extent: Extent,
    pub(super) records: Records,
    pub(super) standing: RefCell<Option<Standing>>,
}

/// A broker with a filled topic, and records for other topics.
pub(super) struct Standing {
    server: BrokerServer,
    cycle: Cycle,
    /// Number of times that the cycle's records are produced.
    passes: u64,
    /// Matches of each query among the records of the filled topic, and of a produced topic.
    filled_matches: [u64; PERCENTS.len()],
    coming_matches: [u64; PERCENTS.len()],
}

/// Returns the case name of a query, or of the consumer.
pub(super) fn case(way: &str, percent: Option<u64>) -> String {
    let way = match way {
        FILLED => "over a filled log",
        _ => "as records come",
    };
    match percent {
        Some(percent) => format!("follow {way}, {percent} % pass"),
        None => format!("follow {way}, all records"),
    }
}

/// Returns the minimum quantity that this percentage of records has.
fn qty_min(percent: u64) -> u64 {
    QTYS - QTYS * percent / 100
}

impl Follow {
    pub(super) fn cost(&self, repeat: u32) -> Cost {
        let records = self.extent.followed_records as f64;
        let runs = (self.extent.turns * 2 * (PERCENTS.len() + 1)) as f64;
        let fills = if repeat == 0 { 2.0 } else { 0.0 };
        let bytes = topic_bytes(self.extent.followed_records);
        Cost {
            seconds: (runs + fills) * (records / RECORDS_PER_S_EXPECTED + 0.1),
            written_bytes: bytes * (1 + (self.extent.turns * (PERCENTS.len() + 1)) as u64),
            memory_bytes: pool_bytes(bytes * 3),
        }
    }

    pub(super) fn measure(&self, repeat: u32) -> Result<Vec<Row>> {
        let _kept = self.cores.keep_clients()?;
        let standing = make_once(&self.standing, || self.fill())?;
        let mut rows = self.measure_way(&standing, FILLED, repeat)?;
        rows.extend(self.measure_way(&standing, COMING, repeat)?);
        Ok(rows)
    }

    fn measure_way(&self, standing: &Standing, way: &str, repeat: u32) -> Result<Vec<Row>> {
        let run = |query: Option<usize>| match way {
            FILLED => self.read_filled(standing, query),
            _ => self.follow_coming(standing, query),
        };
        let mut contestants = vec![Contestant::new(CONSUMER, || run(None))];
        for index in 0..PERCENTS.len() {
            contestants.push(Contestant::new(LIVE_QUERY, move || run(Some(index))));
        }
        let tallies = take_turns(&self.cores, self.extent.turns, contestants)?;
        let percents = [None].into_iter().chain(PERCENTS.map(Some));
        let row = |(percent, tally)| self.row((way, percent), tally, repeat);
        Ok(percents.zip(&tallies).map(row).collect())
    }

    fn row(&self, (way, percent): (&str, Option<u64>), tally: &Tally, repeat: u32) -> Row {
        let records = self.extent.followed_records;
        let mut params: Vec<(&str, Value)> = vec![
            ("op", json!("follow")),
            ("log", json!(way)),
            ("records", json!(records)),
            ("working_bytes", json!(topic_bytes(records))),
        ];
        if let Some(percent) = percent {
            params.push(("pass_percent", json!(percent)));
            params.push(("query", json!(query_text("log", percent))));
        }
        let case = case(way, percent);
        record::row_of_turns(&case, (RECORDS_PER_S, tally), (repeat, &params), &self.cores)
    }

    /// Returns the records per second over the filled log, for a query or the consumer.
    fn read_filled(&self, standing: &Standing, query: Option<usize>) -> Result<f64> {
        let records = self.extent.followed_records;
        let end = i64::try_from(records).context("too many records")?;
        let follower = Follower::new(&standing.server, FILLED, query, end)?;
        let begun = Instant::now();
        let expected = query.map(|it| standing.filled_matches[it]);
        let ended = follower.run(expected)?;
        Ok(records as f64 / (ended - begun).as_secs_f64())
    }

    /// Returns the records per second over a log that is filled meanwhile.
    fn follow_coming(&self, standing: &Standing, query: Option<usize>) -> Result<f64> {
        let Standing { server, cycle, passes, .. } = standing;
        server.with_topic(COMING, &[], || {
            let records = cycle.records * passes;
            let end = i64::try_from(records).context("too many records")?;
            let follower = Follower::new(server, COMING, query, end)?;
            let mut publisher = Publisher::new(server, COMING, 0)?;
            let mut requests = cycle.prepare(&publisher)?;
            let expected = query.map(|it| standing.coming_matches[it]);
            thread::scope(|scope| {
                let following = scope.spawn(move || follower.run(expected));
                let begun = Instant::now();
                let produced = produce(&mut publisher, &mut requests, *passes);
                let ended = following.join().expect("a follower does not panic");
                produced?;
                Ok(records as f64 / (ended? - begun).as_secs_f64())
            })
        })
    }

    fn fill(&self) -> Result<Standing> {
        let count = self.extent.followed_records;
        let server = BrokerServer::start(&self.cores, pool_bytes(topic_bytes(count) * 3), "")?;
        server.new_topic(FILLED, &[])?;
        publish::fill(&server, FILLED, (self.records, count, Keys::None))?;
        let cycle_records = CYCLE_RECORDS.min(count);
        let passes = (count / cycle_records).max(1);
        Ok(Standing {
            server,
            cycle: Cycle::new(self.records, cycle_records)?,
            passes,
            filled_matches: PERCENTS.map(|it| self.matches(it, count)),
            coming_matches: PERCENTS.map(|it| self.matches(it, cycle_records) * passes),
        })
    }

    /// Returns the number of matches in the first records.
    fn matches(&self, percent: u64, count: u64) -> u64 {
        let passes = |&number: &u64| self.records.fields(number).qty >= qty_min(percent);
        (0..count).filter(passes).count() as u64
    }
}

fn query_text(topic: &str, percent: u64) -> String {
    let qty_min = qty_min(percent);
    format!("SELECT value FROM {topic} WHERE (value->>'qty')::bigint >= {qty_min}")
}

/// A reader that follows a topic up to an offset.
enum Follower {
    Consumer(Box<Consumer>, i64),
    Query(Box<Connection>, String),
}

impl Follower {
    /// Connects without starting.
    fn new(server: &BrokerServer, topic: &str, query: Option<usize>, end: i64) -> Result<Self> {
        let Some(index) = query else {
            return Ok(Self::Consumer(Box::new(Consumer::new(server, topic)?), end));
        };
        let text = query_text(topic, PERCENTS[index]);
        let copy = format!("COPY (SUBSCRIBE TO ({text}) UP TO OFFSET {end}) TO STDOUT");
        Ok(Self::Query(Box::new(server.connect()?), copy))
    }

    /// Follows to the end. Returns when the last record arrived. Fails if a query's number of rows
    /// is unexpected.
    fn run(self, expected: Option<u64>) -> Result<Instant> {
        match self {
            Self::Consumer(mut consumer, end) => {
                let bytes = consumer.read_to(end)?;
                let expected = end.unsigned_abs() * RECORD_BYTES as u64;
                ensure!(bytes == expected, "received {bytes} bytes instead of {expected}");
            }
            Self::Query(connection, copy) => {
                let rows = connection.wait(count_rows(&connection, &copy))?;
                let expected = expected.unwrap_or_default();
                ensure!(rows == expected, "received {rows} rows instead of {expected} of {copy}");
            }
        }
        Ok(Instant::now())
    }
}

/// Counts rows: each copy message is one.
async fn count_rows(connection: &Connection, copy: &str) -> Result<u64> {
    let failed = || format!("cannot run {copy}");
    let rows = connection.client().copy_out(copy).await.with_context(failed)?;
    let mut rows = Box::pin(rows);
    let mut count = 0;
    while let Some(row) = rows.next().await {
        let row = row.with_context(failed)?;
        ensure!(row.last() == Some(&b'\n'), "a row has no end");
        count += 1;
    }
    Ok(count)
}
