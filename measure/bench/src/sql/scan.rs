//! Queries that scan all records of a topic, compared with PostgreSQL on a table of `jsonb` without
//! an index.

use std::cell::RefCell;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use results::{RECORDS_PER_S, Row};
use serde_json::json;
use tokio_postgres::SimpleQueryMessage;

use super::broker_server::{BrokerServer, pool_bytes};
use super::cores::Cores;
use super::extent::Extent;
use super::neighbour::{self, Neighbour};
use super::publish::{self, Keys, topic_bytes};
use super::record::{self, BROKER, POSTGRESQL};
use super::records::{Fields, QTYS, Records};
use super::turns::{Contestant, take_turns};
use crate::run::{Cost, make_once};
use crate::tpcc::Connection;

const TOPIC: &str = "orders";
const SYMBOL: u64 = 417;

/// Combined rates of both systems, for plans.
const FILLED_PER_S: f64 = 60_000.0;
const SCANNED_PER_S: f64 = 800_000.0;

/// A query, and the records that match it.
pub(super) struct Query {
    pub(super) case: &'static str,
    text: &'static str,
    passes: fn(&Fields) -> bool,
}

/// `count(*)` with a filter.
pub(super) const FILTERS: [Query; 3] = [
    Query {
        case: "scan, equality that 0.1 % pass",
        text: "SELECT count(*) FROM orders WHERE value->>'symbol' = 'S417'",
        passes: |fields| fields.symbol == SYMBOL,
    },
    Query {
        case: "scan, range that 1 % pass",
        text: "SELECT count(*) FROM orders WHERE (value->>'qty')::bigint >= 9900",
        passes: |fields| fields.qty >= QTYS / 100 * 99,
    },
    Query {
        case: "scan, range that 50 % pass",
        text: "SELECT count(*) FROM orders WHERE (value->>'qty')::bigint >= 5000",
        passes: |fields| fields.qty >= QTYS / 2,
    },
];

/// Sums by symbol over all records.
pub(super) const GROUPS: Query = Query {
    case: "groups, count and sum by symbol",
    text: "SELECT value->>'symbol', count(*), sum((value->>'qty')::bigint) FROM orders GROUP BY 1",
    passes: |_| true,
};

pub(super) struct Scan {
    pub(super) cores: Cores,
    pub(super) extent: Extent,
    pub(super) records: Records,
    pub(super) queries: Vec<Query>,
    /// True if PostgreSQL is available for comparison.
    pub(super) has_neighbour: bool,
    pub(super) standing: RefCell<Option<Standing>>,
}

/// Servers with all records, and connections to them.
pub(super) struct Standing {
    own: Connection,
    other: Option<Other>,
    /// Expected answer of each query.
    answers: Vec<Answer>,
    _server: BrokerServer,
}

struct Other {
    connection: Connection,
    version: String,
    neighbour: Neighbour,
}

/// Expected result of a query, summed over its rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Answer {
    count: u64,
    /// Sum of quantities, if queried.
    sum: u64,
}

impl Scan {
    pub(super) fn cost(&self, repeat: u32) -> Cost {
        let records = self.extent.scanned_records;
        let fill = if repeat == 0 { records as f64 / FILLED_PER_S + 8.0 } else { 0.0 };
        let scans = (self.queries.len() * (self.extent.turns + 1)) as f64;
        let bytes = topic_bytes(records);
        let other_bytes = if self.has_neighbour { neighbour::cache_bytes(bytes) } else { 0 };
        Cost {
            seconds: fill + scans * (records as f64 / SCANNED_PER_S + 0.05),
            written_bytes: if repeat == 0 { 2 * bytes } else { 0 },
            memory_bytes: pool_bytes(bytes) + other_bytes,
        }
    }

    pub(super) fn measure(&self, repeat: u32) -> Result<Vec<Row>> {
        let _kept = self.cores.keep_clients()?;
        let standing = make_once(&self.standing, || self.fill())?;
        let mut rows = Vec::new();
        for (query, answer) in self.queries.iter().zip(&standing.answers) {
            rows.extend(self.measure_query(&standing, (query, *answer), repeat)?);
        }
        Ok(rows)
    }

    fn measure_query(
        &self,
        standing: &Standing,
        (query, answer): (&Query, Answer),
        repeat: u32,
    ) -> Result<Vec<Row>> {
        let Standing { own, other, .. } = standing;
        // The first execution builds plans and fills caches.
        self.ask(own, query, answer)?;
        let mut contestants = vec![Contestant::new(BROKER, || self.ask(own, query, answer))];
        if let Some(Other { connection, .. }) = other {
            self.ask(connection, query, answer)?;
            let turn = || self.ask(connection, query, answer);
            contestants.push(Contestant::new(POSTGRESQL, turn));
        }
        let tallies = take_turns(&self.cores, self.extent.turns, contestants)?;
        let records = self.extent.scanned_records;
        let mut params = vec![
            ("op", json!("scan")),
            ("query", json!(query.text)),
            ("records", json!(records)),
            ("working_bytes", json!(topic_bytes(records))),
        ];
        if let Some(Other { version, neighbour, .. }) = other {
            params.push(("postgresql_version", json!(version)));
            params.push(("postgresql_settings", json!(neighbour.settings())));
        }
        let row = |tally| {
            let figure = (RECORDS_PER_S, tally);
            record::row_of_turns(query.case, figure, (repeat, &params), &self.cores)
        };
        Ok(tallies.iter().map(row).collect())
    }

    /// Returns the records per second.
    fn ask(&self, connection: &Connection, query: &Query, answer: Answer) -> Result<f64> {
        let begun = Instant::now();
        let found = connection.wait(connection.client().simple_query(query.text));
        let elapsed = begun.elapsed().as_secs_f64();
        let found = found.with_context(|| format!("cannot query {}", query.text))?;
        let found = answer_in(&found)
            .with_context(|| format!("cannot use the result of {}", query.text))?;
        ensure!(found == answer, "{} returned {found:?} instead of {answer:?}", query.text);
        Ok(self.extent.scanned_records as f64 / elapsed)
    }

    fn fill(&self) -> Result<Standing> {
        let (count, records) = (self.extent.scanned_records, self.records);
        let bytes = topic_bytes(count);
        let server = BrokerServer::start(&self.cores, pool_bytes(bytes), "")?;
        server.new_topic(TOPIC, &[])?;
        publish::fill(&server, TOPIC, (records, count, Keys::Numbers))?;
        let own = server.connect()?;
        let other = match self.has_neighbour {
            true => Some(self.fill_neighbour()?),
            false => None,
        };
        let answers = self.queries.iter().map(|query| expected(query, &records, count)).collect();
        Ok(Standing { own, other, answers, _server: server })
    }

    fn fill_neighbour(&self) -> Result<Other> {
        let (count, records) = (self.extent.scanned_records, self.records);
        let neighbour = Neighbour::start(&self.cores, topic_bytes(count))?;
        let connection = neighbour.connect()?;
        connection.batch(&format!("CREATE TABLE {TOPIC} (value jsonb)"))?;
        let row = |number| format!("{}\n", records.text(number));
        neighbour.fill(&connection, TOPIC, (0..count).map(row))?;
        neighbour.warm(&connection, TOPIC)?;
        let version = neighbour.version(&connection)?;
        Ok(Other { connection, version, neighbour })
    }
}

fn expected(query: &Query, records: &Records, count: u64) -> Answer {
    let mut answer = Answer::default();
    let sums = query.text == GROUPS.text;
    for fields in (0..count).map(|number| records.fields(number)) {
        if (query.passes)(&fields) {
            answer.count += 1;
            answer.sum += if sums { fields.qty } else { 0 };
        }
    }
    answer
}

/// Parses counts and sums, which follow the grouping column, if any.
fn answer_in(messages: &[SimpleQueryMessage]) -> Result<Answer> {
    let mut answer = Answer::default();
    for message in messages {
        let SimpleQueryMessage::Row(row) = message else { continue };
        let number = |column: usize| -> Result<u64> {
            let text = row.try_get(column)?.context("a figure is NULL")?;
            text.parse().with_context(|| format!("{text:?} is not a number"))
        };
        match row.len() {
            1 => answer.count += number(0)?,
            _ => {
                answer.count += number(1)?;
                answer.sum += number(2)?;
            }
        }
    }
    Ok(answer)
}
