//! Options of the suite, and its plan: a step per part and repeat.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Result;
use results::{Row, Suite};
use system::{Ability, missing};

use super::cores::Cores;
use super::delivery::Deliver;
use super::extent::Extent;
use super::follow::Follow;
use super::keys::Kept;
use super::many::Many;
use super::point::Point;
use super::produce::Produce;
use super::record::{BROKER, POSTGRESQL};
use super::records::Records;
use super::scan::{FILTERS, GROUPS, Scan};
use super::{broker_server, neighbour};
use crate::run::{Cost, Plan, Profile, Session, Skip, Step};

const RECORDS_MAX: u64 = 100_000_000;
const QUERIES_MAX: u64 = 20_000;

/// Minimum number of records for a measurable scan.
const SCANNED_RECORDS_MIN: u64 = 200_000;

/// Maximum share of available memory that a plan uses by default.
const MEMORY_SHARE: f64 = 0.8;

/// The parts of the suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Part {
    /// Lookups of the current value of a key, with pgbench
    Point,
    /// Scans with a filter
    Scan,
    /// Sums by a field
    Groups,
    /// Records per second of one live query
    Follow,
    /// Ten thousand live queries at once
    Many,
    /// Latency from a message to a row of a live query
    Delivery,
    /// Memory of current values, and time until they can be read after a restart
    Keys,
    /// Throughput of a producer with and without current values
    Produce,
}

impl Part {
    const ALL: [Self; 8] = [
        Self::Point,
        Self::Scan,
        Self::Groups,
        Self::Follow,
        Self::Many,
        Self::Delivery,
        Self::Keys,
        Self::Produce,
    ];

    /// Returns the name in plans and progress.
    fn name(self) -> &'static str {
        match self {
            Self::Point => "current value by key",
            Self::Scan => "scan",
            Self::Groups => "groups",
            Self::Follow => "follow",
            Self::Many => "many live queries",
            Self::Delivery => "delivery",
            Self::Keys => "keys with a current value",
            Self::Produce => "produce",
        }
    }
}

#[derive(Clone, Debug, clap::Args, serde::Serialize)]
pub(crate) struct Arguments {
    /// Run only these parts
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PART")]
    only: Vec<Part>,
    /// Number of records that are scanned, followed and produced [default: set by --profile]
    #[arg(long, value_name = "COUNT",
        value_parser = clap::value_parser!(u64).range(100..=RECORDS_MAX))]
    records: Option<u64>,
    /// Number of keys with a current value [default: set by --profile]
    #[arg(long, value_name = "COUNT",
        value_parser = clap::value_parser!(u64).range(10..=RECORDS_MAX))]
    keys: Option<u64>,
    /// Number of concurrent live queries [default: 10,000]
    #[arg(long, value_name = "COUNT",
        value_parser = clap::value_parser!(u64).range(1..=QUERIES_MAX))]
    queries: Option<u64>,
    /// Seconds of each turn of lookups, and of the delivery of messages [default: set by --profile]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: Option<u64>,
}

impl Arguments {
    fn extent(&self, profile: Profile) -> Extent {
        let mut extent = Extent::of(profile);
        if let Some(records) = self.records {
            extent.scanned_records = records;
            extent.followed_records = records;
            extent.often_records = records;
            extent.seldom_records = records;
            extent.produced_records = records;
        }
        if let Some(keys) = self.keys {
            extent.looked_up_keys = keys;
            extent.kept_keys = keys;
        }
        extent.live_queries = self.queries.unwrap_or(extent.live_queries);
        if let Some(seconds) = self.seconds {
            extent.lookup_time = Duration::from_secs(seconds);
            extent.delivery_time = Duration::from_secs(seconds);
        }
        extent
    }
}

/// Plans part by part with all repeats, so that the set-up of a part is dropped before the next
/// begins.
pub(crate) fn plan<'plan>(
    arguments: &'plan Arguments,
    session: &'plan Session,
) -> Result<Plan<'plan>> {
    let mut plan = Plan::default();
    let wants = |part: &Part| arguments.only.is_empty() || arguments.only.contains(part);
    let parts: Vec<Part> = Part::ALL.into_iter().filter(wants).collect();
    let missing = broker_server::missing().or_else(|| missing(&[Ability::Program("taskset")]));
    if let Some(reason) = missing {
        plan.skipped.extend(parts.iter().map(|part| skip(*part, BROKER, &reason)));
        return Ok(plan);
    }
    let setting = Setting {
        cores: Cores::of_this_process()?,
        extent: arguments.extent(session.profile),
        records: Records::new(session.seed),
        memory_bytes: session.memory_available_bytes,
        repeats: session.profile.repeats(),
    };
    let no_neighbour = neighbour::missing_here();
    for &part in &parts {
        if let Some(reason) = &no_neighbour
            && [Part::Point, Part::Scan, Part::Groups].contains(&part)
        {
            plan.skipped.push(skip(part, POSTGRESQL, reason));
        }
        // One set-up serves both.
        let is_scanned_already = part == Part::Groups && parts.contains(&Part::Scan);
        let is_pgbench_missing = part == Part::Point && no_neighbour.is_some();
        if !is_scanned_already && !is_pgbench_missing {
            plan.steps.extend(setting.steps(part, &parts, no_neighbour.is_none()));
        }
    }
    Ok(plan)
}

fn skip(part: Part, target: &str, reason: &str) -> Skip {
    Skip::new(Suite::Sql, part.name(), target, reason)
}

/// Common parameters of the parts.
struct Setting {
    cores: Cores,
    extent: Extent,
    records: Records,
    memory_bytes: u64,
    repeats: u32,
}

impl Setting {
    fn steps<'plan>(&self, part: Part, parts: &[Part], has_neighbour: bool) -> Vec<Step<'plan>> {
        let (cores, extent, records) = (self.cores.clone(), self.extent, self.records);
        match part {
            Part::Point => {
                let bench = Point { cores, extent, records, standing: RefCell::default() };
                self.each(part, bench, |it, repeat| it.cost(repeat), Point::measure)
            }
            Part::Scan | Part::Groups => {
                let mut queries = Vec::new();
                if parts.contains(&Part::Scan) {
                    queries.extend(FILTERS);
                }
                if parts.contains(&Part::Groups) {
                    queries.push(GROUPS);
                }
                let standing = RefCell::default();
                let mut bench = Scan { cores, extent, records, queries, has_neighbour, standing };
                self.fit(&mut bench);
                self.each(part, bench, |it, repeat| it.cost(repeat), Scan::measure)
            }
            Part::Follow => {
                let bench = Follow { cores, extent, records, standing: RefCell::default() };
                self.each(part, bench, |it, repeat| it.cost(repeat), Follow::measure)
            }
            Part::Many => {
                let bench = Many { cores, extent, records };
                self.each(part, bench, |it, _| it.cost(), Many::measure)
            }
            Part::Delivery => {
                let bench = Deliver { cores, extent, records };
                self.each(part, bench, |it, _| it.cost(), Deliver::measure)
            }
            Part::Keys => {
                let bench = Kept { cores, extent, records, standing: RefCell::default() };
                self.each(part, bench, |it, repeat| it.cost(repeat), Kept::measure)
            }
            Part::Produce => {
                let bench = Produce { cores, extent, records, standing: RefCell::default() };
                self.each(part, bench, |it, _| it.cost(), Produce::measure)
            }
        }
    }

    /// Halves the scanned data until it fits into memory. The amount is recorded.
    fn fit(&self, bench: &mut Scan) {
        let room = self.memory_bytes as f64 * MEMORY_SHARE;
        while bench.cost(0).memory_bytes as f64 > room
            && bench.extent.scanned_records > SCANNED_RECORDS_MIN
        {
            bench.extent.scanned_records /= 2;
        }
    }

    fn each<'plan, Bench: 'plan>(
        &self,
        part: Part,
        bench: Bench,
        cost: fn(&Bench, u32) -> Cost,
        measure: fn(&Bench, u32) -> Result<Vec<Row>>,
    ) -> Vec<Step<'plan>> {
        let bench = Rc::new(bench);
        let step = |repeat| {
            let held = Rc::clone(&bench);
            Step {
                suite: Suite::Sql,
                case: part.name().to_owned(),
                target: BROKER.to_owned(),
                repeat,
                cost: cost(&bench, repeat),
                measure: Box::new(move || measure(&held, repeat)),
            }
        };
        (0..self.repeats).map(step).collect()
    }
}
