//! Options and plan of the suite.

use std::rc::Rc;
use std::time::Duration;

use anyhow::Result;
use results::Suite;
use results::placement::{Placement, Workload};
use serde::Serialize;
use system::Random;

use super::fast::{self, Size};
use super::measure::{Task, Where};
use super::running_copy::{Layout, Limit, Original, RunningCopy};
use crate::fio_step::shuffle;
use crate::run::{Cost, Plan, Profile, Session, Skip, Step};
use crate::targets::Spec;
use crate::tpcc::{self, Engine, Extent, Mix};

const FAST: [&str; 2] = ["journal", "zram"];

const WAREHOUSES_MAX: i64 = 1_000;
/// Maximum number of users, below PostgreSQL's default of 100 connections.
const USERS_MAX: i64 = 64;

/// Costs for plans: size of a loaded warehouse, copy rate, and overhead of runs.
const BYTES_PER_WAREHOUSE: u64 = 110 << 20;
const COPIED_BYTES_PER_S: f64 = 200e6;
const SET_UP_SECONDS: f64 = 8.0;
const RUN_SECONDS: f64 = 2.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum ChosenPlacement {
    /// Nothing on fast storage
    None,
    /// The whole database
    Whole,
    /// The transaction log, and the binary log
    Logs,
    /// Temporary tables, and files of sorts and joins
    Temporary,
}

/// Servers whose parts can lie apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Server {
    Postgresql,
    Mariadb,
}

impl From<Server> for Engine {
    fn from(server: Server) -> Self {
        match server {
            Server::Postgresql => Self::Postgresql,
            Server::Mariadb => Self::Mariadb,
        }
    }
}

impl From<ChosenPlacement> for Placement {
    fn from(chosen: ChosenPlacement) -> Self {
        match chosen {
            ChosenPlacement::None => Self::None,
            ChosenPlacement::Whole => Self::Whole,
            ChosenPlacement::Logs => Self::Logs,
            ChosenPlacement::Temporary => Self::Temporary,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum ChosenWorkload {
    /// Transactions derived from TPC-C
    Orders,
    /// Sorts and joins through temporary files
    Reports,
}

impl From<ChosenWorkload> for Workload {
    fn from(chosen: ChosenWorkload) -> Self {
        match chosen {
            ChosenWorkload::Orders => Self::Orders,
            ChosenWorkload::Reports => Self::Reports,
        }
    }
}

#[derive(Clone, Debug, clap::Args, Serialize)]
pub(crate) struct Arguments {
    /// Database system
    #[arg(long, value_enum, default_value = "postgresql")]
    database: Server,
    /// Fast storage: journal (a volume of class journal), volume, zram, brd, null_blk, or a
    /// directory
    #[arg(long, value_delimiter = ',', default_values = FAST, value_name = "NAME")]
    fast: Vec<String>,
    /// Slow storage for the rest: disk, loop-disk, or a directory
    #[arg(long, default_value = "disk", value_name = "NAME")]
    slow: String,
    /// Part of the database on fast storage
    #[arg(long = "placement", value_enum, value_delimiter = ',',
        default_values = ["none", "whole", "logs", "temporary"], value_name = "PART")]
    placements: Vec<ChosenPlacement>,
    /// Workload
    #[arg(long = "workload", value_enum, value_delimiter = ',',
        default_values = ["orders", "reports"], value_name = "NAME")]
    workloads: Vec<ChosenWorkload>,
    /// Number of warehouses, about 100 MB each [default: set by --profile]
    #[arg(long, value_name = "COUNT",
        value_parser = clap::value_parser!(u32).range(1..=WAREHOUSES_MAX))]
    warehouses: Option<u32>,
    /// Maximum number of users; they are doubled until that gains less than 5 % [default: set by
    /// --profile]
    #[arg(long, value_name = "COUNT",
        value_parser = clap::value_parser!(u32).range(1..=USERS_MAX))]
    users_max: Option<u32>,
    /// Memory of the server including its page cache, in percent of the database's size
    #[arg(long, default_value_t = 25, value_name = "PERCENT",
        value_parser = clap::value_parser!(u32).range(1..=100))]
    memory_percent: u32,
    /// Mix of transactions
    #[arg(long, value_enum, default_value = "hammerdb")]
    mix: Mix,
    /// Seconds of the measurement [default: set by --profile]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: Option<u64>,
    /// Seconds of warm-up before the measurement [default: set by --profile]
    #[arg(long, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    ramp: Option<u64>,
}

impl Arguments {
    fn size(&self, profile: Profile) -> Size {
        let (warehouses, users_max) = match profile {
            Profile::Quick => (1, 2),
            Profile::Standard => (10, 32),
            Profile::Full => (50, 64),
        };
        Size {
            warehouses: self.warehouses.unwrap_or(warehouses),
            users_max: self.users_max.unwrap_or(users_max),
        }
    }

    /// Returns the warm-up time and the measured time.
    fn times(&self, profile: Profile) -> (Duration, Duration) {
        let (ramp, seconds) = match profile {
            Profile::Quick => (1, 4),
            Profile::Standard => (20, 40),
            Profile::Full => (120, 300),
        };
        let ramp = Duration::from_secs(self.ramp.unwrap_or(ramp));
        (ramp, Duration::from_secs(self.seconds.unwrap_or(seconds)))
    }

    /// Returns each selected placement once, in fixed order.
    fn placements(&self) -> Vec<Placement> {
        let chosen: Vec<Placement> = self.placements.iter().map(|it| (*it).into()).collect();
        Placement::ALL.into_iter().filter(|it| chosen.contains(it)).collect()
    }

    fn workloads(&self) -> Vec<Workload> {
        let chosen: Vec<Workload> = self.workloads.iter().map(|it| (*it).into()).collect();
        Workload::ALL.into_iter().filter(|it| chosen.contains(it)).collect()
    }
}

/// Plans a step per placement, fast target and repeat: a copy of the database with all numbers of
/// users.
pub(crate) fn plan<'plan>(
    arguments: &'plan Arguments,
    session: &'plan Session,
) -> Result<Plan<'plan>> {
    let bench = Rc::new(Bench::new(arguments, session)?);
    let mut plan = Plan::default();
    let slow_place = bench.size.slow_place();
    let missing =
        tpcc::missing_server(arguments.database.into()).or_else(|| bench.slow.missing(&slow_place));
    if let Some(reason) = missing {
        plan.skipped.push(skip(&bench.slow, reason));
        return Ok(plan);
    }
    let mut fast_targets = Vec::new();
    for word in &arguments.fast {
        let spec = fast::spec(word)?;
        match spec.missing(&bench.size.fast_place(Placement::Whole)) {
            None => fast_targets.push(Rc::new(spec)),
            Some(reason) => plan.skipped.push(skip(&spec, reason)),
        }
    }
    let mut random = Random::new(session.seed ^ 0x91ACE);
    for repeat in 0..session.profile.repeats() {
        let mut steps = Vec::new();
        for placement in arguments.placements() {
            match placement {
                Placement::None => steps.push(bench.step(placement, None, repeat)),
                _ => steps.extend(
                    fast_targets.iter().map(|fast| bench.step(placement, Some(fast), repeat)),
                ),
            }
        }
        shuffle(&mut steps, &mut random);
        plan.steps.extend(steps);
    }
    if let Some(first) = plan.steps.first_mut() {
        bench.add_load(&mut first.cost);
    }
    Ok(plan)
}

fn skip(spec: &Spec, reason: String) -> Skip {
    Skip::new(Suite::Placement, "all cases", spec, reason)
}

/// Shared state of all steps.
struct Bench<'plan> {
    arguments: &'plan Arguments,
    session: &'plan Session,
    slow: Spec,
    size: Size,
    original: Original,
}

impl<'plan> Bench<'plan> {
    fn new(arguments: &'plan Arguments, session: &'plan Session) -> Result<Self> {
        let slow = fast::spec(&arguments.slow)?;
        let size = arguments.size(session.profile);
        let extent = Extent { warehouses: size.warehouses, seed: session.seed };
        let original = Original::new(arguments.database.into(), slow.clone(), size, extent);
        Ok(Self { arguments, session, slow, size, original })
    }

    fn database_bytes(&self) -> u64 {
        u64::from(self.size.warehouses) * BYTES_PER_WAREHOUSE
    }

    /// Adds the cost of loading to the first step.
    fn add_load(&self, cost: &mut Cost) {
        let warehouses = self.size.warehouses;
        cost.seconds +=
            tpcc::LOAD_SECONDS + f64::from(warehouses) * tpcc::LOAD_SECONDS_PER_WAREHOUSE;
        cost.written_bytes += u64::from(warehouses) * tpcc::LOADED_BYTES_PER_WAREHOUSE;
    }

    fn cost(&self, placement: Placement, fast: Option<&Spec>) -> Cost {
        let (ramp, duration) = self.arguments.times(self.session.profile);
        let of_run = (ramp + duration).as_secs_f64() + RUN_SECONDS;
        // All possible numbers of users: 1, 2, 4 and so on.
        let runs = f64::from(self.size.users_max.ilog2() + 1);
        let workloads = self.arguments.workloads().len() as f64;
        let copied_s = self.database_bytes() as f64 / COPIED_BYTES_PER_S;
        let place = self.size.fast_place(placement);
        let Size { users_max, .. } = self.size;
        let asked = (self.database_bytes(), self.arguments.memory_percent);
        let limit = Limit::new(self.arguments.database.into(), asked, users_max);
        Cost {
            seconds: SET_UP_SECONDS + copied_s + workloads * runs * of_run,
            written_bytes: self.database_bytes(),
            memory_bytes: fast.map_or(0, |spec| spec.memory_bytes(&place)) + limit.bytes,
        }
    }

    fn step(
        self: &Rc<Self>,
        placement: Placement,
        fast: Option<&Rc<Spec>>,
        repeat: u32,
    ) -> Step<'plan> {
        let (bench, fast) = (Rc::clone(self), fast.cloned());
        let target = fast.as_deref().unwrap_or(&self.slow).to_string();
        let place = Where {
            placement,
            target: target.clone(),
            fast: fast.as_deref().map(Spec::to_string),
            slow: self.slow.to_string(),
            repeat,
        };
        Step {
            suite: Suite::Placement,
            case: placement.words().to_owned(),
            target,
            repeat,
            cost: self.cost(placement, fast.as_deref()),
            measure: Box::new(move || {
                let layout = Layout {
                    placement,
                    fast: fast.as_deref(),
                    slow: &bench.slow,
                    size: bench.size,
                    memory_percent: bench.arguments.memory_percent,
                };
                let running = RunningCopy::new(&bench.original, &layout)?;
                bench.task().measure(&running, &place)
            }),
        }
    }

    fn task(&self) -> Task {
        let (ramp, duration) = self.arguments.times(self.session.profile);
        Task {
            workloads: self.arguments.workloads(),
            warehouses: self.size.warehouses,
            users_max: self.size.users_max,
            mix: self.arguments.mix,
            ramp,
            duration,
            seed: self.session.seed,
        }
    }
}
