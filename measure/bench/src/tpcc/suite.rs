//! Options and plan of the suite.

use std::rc::Rc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use results::{Cpu, NOPM, Row, Suite};
use serde::Serialize;
use system::{Random, processor_seconds};

use super::clones;
use super::database::{Database, Engine, Way};
use super::draw::Constants;
use super::drive::{Load, Measured, Pacing, WARM_RAMP, drive};
use super::input::Mix;
use super::instance_set::{
    self, DatabaseInstance, InstanceSet, LOAD_SECONDS, LOAD_SECONDS_PER_WAREHOUSE,
    LOADED_BYTES_PER_WAREHOUSE, SERVER_MEMORY_BYTES,
};
use super::load::Extent;
use super::pgbench;
use super::record::{self, About, OWN_DRIVER};
use crate::fio_step::{BUSY_FLAG, SETTLING_TIME_LIMIT, shuffle};
use crate::run::{Cost, Plan, Profile, Session, Skip, Step};
use crate::targets::{CpuMeter, Kind, Layout, Place, Spec, Target, wait_until_idle};

const KINDS: &[Kind] = &[Kind::Volume, Kind::Zram, Kind::Tmpfs, Kind::Disk];

const WAREHOUSES_MAX: i64 = 1_000;
const USERS_MAX: i64 = 1_000;
const DATABASES_MAX: u64 = 16;

/// Name in reports of a configuration that is not measured.
const VIRTUAL_MACHINES: &str = "virtual machines, a volume each";

/// Name of the other driver in rows.
const PGBENCH: &str = "pgbench";

/// Relative difference of pgbench's rate to that of our driver on the same procedures. Signed, so
/// that noise of single repeats cancels in the median.
const CHECK_DIFFERENCE: &str = "pgbench_difference_share";

/// Memory of all clones before they run, relative to that of the original.
const CLONES_RAM_RATIO: &str = "clones_ram_ratio";

/// Number of turns of each driver within a repeat.
const CHECK_TURNS: u32 = 4;
/// Time of vacuuming between turns, for plans.
const VACUUM_SECONDS: f64 = 3.0;

const NOT_PUBLISHABLE: &str = "a ramp below 20 s: caches and buffers still warm up";
const RAMP_MIN: Duration = Duration::from_secs(20);

/// Who drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Driver {
    /// This program
    Own,
    /// This program and pgbench in turn, with the same stored procedures
    Pgbench,
}

#[derive(Clone, Debug, clap::Args, Serialize)]
pub(crate) struct Arguments {
    /// Database system
    #[arg(long, value_enum, default_value = "postgresql")]
    database: Engine,
    /// Run only on these targets: volume, zram, tmpfs, disk, loop, brd, null_blk, or a directory
    #[arg(long = "target", value_delimiter = ',', value_name = "NAME")]
    targets: Vec<String>,
    /// Number of warehouses, about 100 MB each [default: set by --profile]
    #[arg(long, value_name = "COUNT",
        value_parser = clap::value_parser!(u32).range(1..=WAREHOUSES_MAX))]
    warehouses: Option<u32>,
    /// Virtual users of each database [default: set by --profile]
    #[arg(long, value_delimiter = ',', value_name = "COUNT",
        value_parser = clap::value_parser!(u32).range(1..=USERS_MAX))]
    users: Vec<u32>,
    /// Mix of transactions
    #[arg(long, value_enum, default_value = "hammerdb")]
    mix: Mix,
    /// Call a stored procedure for each transaction instead of prepared statements; PostgreSQL only
    #[arg(long)]
    stored: bool,
    /// Use the keying and thinking times of the specification
    #[arg(long)]
    think: bool,
    /// Constant rates in percent of the maximum, measured afterwards; 0 for none
    #[arg(long, value_delimiter = ',', default_values = ["50", "70", "90"],
        value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=100))]
    rates: Vec<u32>,
    /// Numbers of databases that run at the same time, each on its own target
    #[arg(long, value_delimiter = ',', default_values = ["1"], value_name = "COUNT",
        value_parser = clap::value_parser!(u64).range(1..=DATABASES_MAX))]
    databases: Vec<u64>,
    /// Number of clones of one loaded volume that run at the same time; 0 for none [default: 0 with
    /// the profile quick, otherwise 4]
    #[arg(long, value_name = "COUNT",
        value_parser = clap::value_parser!(u64).range(0..=DATABASES_MAX))]
    clones: Option<u64>,
    /// Load generator; pgbench is measured in turn with this program, PostgreSQL only
    #[arg(long, value_enum, default_value = "own")]
    driver: Driver,
    /// Seconds of the measurement [default: set by --profile]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: Option<u64>,
    /// Seconds of warm-up before the measurement [default: set by --profile]
    #[arg(long, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    ramp: Option<u64>,
}

impl Arguments {
    fn warehouses(&self, profile: Profile) -> u32 {
        self.warehouses.unwrap_or(match profile {
            Profile::Quick => 1,
            Profile::Standard | Profile::Full => 10,
        })
    }

    fn users(&self, profile: Profile) -> Vec<u32> {
        if !self.users.is_empty() {
            return self.users.clone();
        }
        match profile {
            Profile::Quick => vec![4],
            Profile::Standard | Profile::Full => vec![1, 4, 8],
        }
    }

    /// Returns the warm-up time and the measured time.
    fn times(&self, profile: Profile) -> (Duration, Duration) {
        let (ramp, seconds) = match profile {
            Profile::Quick => (1, 3),
            Profile::Standard => (20, 60),
            Profile::Full => (120, 300),
        };
        let ramp = Duration::from_secs(self.ramp.unwrap_or(ramp));
        (ramp, Duration::from_secs(self.seconds.unwrap_or(seconds)))
    }

    fn clones(&self, profile: Profile) -> u32 {
        let by_profile = if profile == Profile::Quick { 0 } else { 4 };
        u32::try_from(self.clones.unwrap_or(by_profile)).expect("there are few clones")
    }

    fn way(&self) -> Way {
        let is_by_procedure = self.stored || self.driver == Driver::Pgbench;
        if is_by_procedure { Way::Procedures } else { Way::Statements }
    }

    fn pacing(&self) -> Pacing {
        if self.think { Pacing::Thinking } else { Pacing::Closed }
    }

    /// Returns the rates of open loops. There are none with thinking times.
    fn rates(&self) -> impl Iterator<Item = u32> {
        self.rates.iter().copied().filter(|rate| *rate > 0 && !self.think)
    }

    fn check(&self) -> Result<()> {
        let has_procedures = self.database == Engine::Postgresql;
        ensure!(
            self.way() == Way::Statements || has_procedures,
            "--stored and --driver pgbench call procedures, which are supported for PostgreSQL \
             only"
        );
        Ok(())
    }

    fn specs(&self) -> Result<Vec<Spec>> {
        let kinds: Vec<Kind> = match self.targets.is_empty() {
            true => KINDS.to_vec(),
            false => self.targets.iter().map(|word| word.parse()).collect::<Result<_>>()?,
        };
        let spec = |kind: Kind| {
            let has_files = matches!(kind, Kind::Tmpfs | Kind::Disk)
                || matches!(&kind, Kind::Path(path) if path.is_dir());
            ensure!(
                has_files || kind.is_block_device(),
                "{kind} has no file system for a database"
            );
            let layout = if has_files { Layout::Raw } else { Layout::Ext4 };
            Ok(Spec { kind, layout })
        };
        kinds.into_iter().map(spec).collect()
    }
}

/// Plans a step per target, number of databases and repeat, with all loads in sequence, because
/// rates follow from the maximum. Databases exist until their last step.
pub(crate) fn plan<'plan>(
    arguments: &'plan Arguments,
    session: &'plan Session,
) -> Result<Plan<'plan>> {
    arguments.check()?;
    let bench = Rc::new(Bench::new(arguments, session));
    let mut plan = Plan::default();
    let place = instance_set::place(bench.extent.warehouses);
    let mut sets = Vec::new();
    for spec in arguments.specs()? {
        match instance_set::missing_server(arguments.database).or_else(|| spec.missing(&place)) {
            None => sets.push(Rc::new(InstanceSet::new(spec, arguments.database, bench.extent))),
            Some(reason) => plan.skipped.push(skip(&spec.to_string(), reason)),
        }
    }
    let memory_bytes = bench.memory_bytes(&sets, &place);
    let mut random = Random::new(session.seed ^ 0x7C);
    for repeat in 0..session.profile.repeats() {
        let mut steps = Vec::new();
        for set in &sets {
            let mut known = 0;
            for &count in &arguments.databases {
                let new = if repeat == 0 { count.saturating_sub(known) } else { 0 };
                known = known.max(count);
                steps.push(bench.step(set, (count, new), repeat, memory_bytes));
            }
        }
        shuffle(&mut steps, &mut random);
        plan.steps.extend(steps);
    }
    drop(sets);
    if arguments.databases.iter().any(|count| *count > 1) {
        plan.skipped.push(skip(VIRTUAL_MACHINES, no_machines()));
    }
    add_clones(&bench, &mut plan);
    Ok(plan)
}

fn add_clones<'plan>(bench: &Rc<Bench<'plan>>, plan: &mut Plan<'plan>) {
    let count = bench.arguments.clones(bench.session.profile);
    if count == 0 {
        return;
    }
    let engine = bench.arguments.database;
    let unfit = (engine != Engine::Postgresql)
        .then(|| format!("clones are supported for PostgreSQL only, not for {}", engine.name()));
    let missing =
        unfit.or_else(|| instance_set::missing_server(engine)).or_else(clones::missing_here);
    if let Some(reason) = missing {
        plan.skipped.push(skip(clones::TARGET, reason));
        return;
    }
    let repeats = 0..bench.session.profile.repeats();
    plan.steps.extend(repeats.map(|repeat| bench.step_of_clones(count, repeat)));
}

fn skip(target: &str, reason: String) -> Skip {
    Skip::new(Suite::Tpcc, "all cases", target, reason)
}

/// Returns the reason why databases run on the host and not in separate virtual machines.
fn no_machines() -> String {
    if !std::path::Path::new("/dev/kvm").exists() {
        return "this host has no /dev/kvm: the measurement would be that of emulation".to_owned();
    }
    "databases run on the host: there is no image here of a machine with a server in it".to_owned()
}

/// Shared state of all steps.
struct Bench<'plan> {
    arguments: &'plan Arguments,
    session: &'plan Session,
    extent: Extent,
}

impl<'plan> Bench<'plan> {
    fn new(arguments: &'plan Arguments, session: &'plan Session) -> Self {
        let warehouses = arguments.warehouses(session.profile);
        Self { arguments, session, extent: Extent { warehouses, seed: session.seed } }
    }

    /// Returns the memory of all databases, which exist concurrently.
    fn memory_bytes(&self, sets: &[Rc<InstanceSet>], place: &Place) -> u64 {
        let count = self.arguments.databases.iter().copied().max().unwrap_or(1);
        let of_one = |set: &Rc<InstanceSet>| set.spec.memory_bytes(place) + SERVER_MEMORY_BYTES;
        sets.iter().map(of_one).sum::<u64>() * count
    }

    fn load_cost(&self, count: u64) -> (f64, u64) {
        let warehouses = f64::from(self.extent.warehouses);
        let seconds = LOAD_SECONDS + warehouses * LOAD_SECONDS_PER_WAREHOUSE;
        let bytes = u64::from(self.extent.warehouses) * LOADED_BYTES_PER_WAREHOUSE;
        (count as f64 * seconds, count * bytes)
    }

    fn run_seconds(&self) -> f64 {
        let (ramp, duration) = self.arguments.times(self.session.profile);
        let users = self.arguments.users(self.session.profile).len();
        let loads = users + self.arguments.rates().count();
        let of_pgbench = match self.arguments.driver {
            Driver::Own => 0.0,
            Driver::Pgbench => {
                let ramps = f64::from(2 * CHECK_TURNS) * (WARM_RAMP.as_secs_f64() + VACUUM_SECONDS);
                users as f64 * (duration.as_secs_f64() + ramps)
            }
        };
        (ramp + duration).as_secs_f64() * loads as f64 + 1.5 * loads as f64 + of_pgbench
    }

    fn step(
        self: &Rc<Self>,
        set: &Rc<InstanceSet>,
        (count, new): (u64, u64),
        repeat: u32,
        memory_bytes: u64,
    ) -> Step<'plan> {
        let (held, bench) = (Rc::clone(set), Rc::clone(self));
        let (load_seconds, load_bytes) = self.load_cost(new);
        Step {
            suite: Suite::Tpcc,
            case: format!("databases={count}"),
            target: set.spec.to_string(),
            repeat,
            cost: Cost {
                seconds: self.run_seconds() + load_seconds,
                written_bytes: load_bytes,
                memory_bytes,
            },
            measure: Box::new(move || bench.measure(&held, count, repeat)),
        }
    }

    fn load(&self, users: u32, repeat: u32) -> Load {
        let (ramp, duration) = self.arguments.times(self.session.profile);
        Load {
            users,
            warehouses: self.extent.warehouses,
            mix: self.arguments.mix,
            way: self.arguments.way(),
            pacing: self.arguments.pacing(),
            constants: Constants::new(self.extent.seed),
            seed: self.session.seed.wrapping_add((u64::from(repeat) + 1) << 32),
            warmed: Duration::ZERO,
            ramp,
            duration,
        }
    }

    /// Measures each number of users at full speed, then shares of the best rate.
    fn measure(&self, set: &InstanceSet, count: u64, repeat: u32) -> Result<Vec<Row>> {
        let count = usize::try_from(count)?;
        let mut rows = Vec::new();
        let mut peak: Option<(f64, Load)> = None;
        for (index, users) in self.arguments.users(self.session.profile).into_iter().enumerate() {
            let mut load = self.load(users, repeat);
            load.seed = load.seed.wrapping_add(index as u64 * 0x100_0000);
            let has_check =
                self.arguments.driver == Driver::Pgbench && count == 1 && !self.arguments.think;
            let (of_load, per_s) = match has_check {
                true => self.by_turns(set, &load, repeat)?,
                false => {
                    let (row, measured) = self.run(set, (count, repeat), &load, None)?;
                    (vec![row], record::transactions_per_s(&measured))
                }
            };
            let is_valid = of_load.iter().all(Row::is_valid);
            if is_valid && peak.as_ref().is_none_or(|(best, _)| per_s > *best) {
                peak = Some((per_s, load));
            }
            rows.extend(of_load);
        }
        for percent in self.arguments.rates() {
            let Some((per_s, load)) = &peak else { break };
            ensure!(*per_s > 0.0, "no transaction ended, so there is no rate to go on from");
            let transactions_per_s = per_s * f64::from(percent) / 100.0;
            let seed = load.seed.wrapping_add(u64::from(percent) << 40);
            let load = Load { pacing: Pacing::Open { transactions_per_s }, seed, ..*load };
            rows.push(self.run(set, (count, repeat), &load, Some(percent))?.0);
        }
        Ok(rows)
    }

    /// Runs the load with this program and pgbench in turn, each for part of the time, because the
    /// machine's speed drifts within minutes. The order alternates. Also returns our best rate.
    fn by_turns(&self, set: &InstanceSet, load: &Load, repeat: u32) -> Result<(Vec<Row>, f64)> {
        set.with(1, |instances| instances[0].host.stop_autovacuum())?;
        let (mut rows, mut best) = (Vec::new(), 0.0_f64);
        let duration = load.duration / CHECK_TURNS;
        let mut load = Load { duration, ..*load };
        for turn in 0..CHECK_TURNS {
            let comes_first = turn % 2 == 1;
            let first = comes_first.then(|| self.check(set, &load, repeat)).transpose()?;
            if comes_first {
                load = load.warmed();
            }
            let (own, measured) = self.run(set, (1, repeat), &load, None)?;
            load = load.warmed();
            let mut check = match first {
                Some(check) => check,
                None => self.check(set, &load, repeat)?,
            };
            load = load.warmed();
            best = best.max(record::transactions_per_s(&measured));
            let own_nopm = own.figures[NOPM];
            if own.is_valid() && own_nopm > 0.0 {
                let difference = (check.figures[NOPM] - own_nopm) / own_nopm;
                check.figures.insert(CHECK_DIFFERENCE.to_owned(), difference);
            }
            rows.extend([own, check]);
        }
        for row in &mut rows {
            row.params.insert("autovacuum".to_owned(), "off".into());
        }
        Ok((rows, best))
    }

    fn run(
        &self,
        set: &InstanceSet,
        (count, repeat): (usize, u32),
        load: &Load,
        rate_percent: Option<u32>,
    ) -> Result<(Row, Vec<Measured>)> {
        let (row, measured) = set.with(count, |instances| {
            let databases: Vec<Box<dyn Database>> =
                instances.iter().map(|instance| instance.host.database()).collect();
            let watched = Watched::of(instances, || drive(&databases, load))?;
            let about = About {
                durability: instances[0].target.durability().to_string(),
                rate_percent,
                ..self.about(set.spec.to_string(), (count, repeat))
            };
            let mut row = record::row(&about, load, &watched.measured);
            watched.mark(&mut row, load);
            row.store = if count == 1 { instances[0].store_use()? } else { None };
            Ok((row, watched.measured))
        })?;
        if !row.is_valid() {
            set.clear();
        }
        Ok((row, measured))
    }

    /// Runs the same load with pgbench.
    fn check(&self, set: &InstanceSet, load: &Load, repeat: u32) -> Result<Row> {
        let row = set.with(1, |instances| {
            let instance = &instances[0];
            let server = instance.host.postgresql().context("pgbench supports PostgreSQL only")?;
            let mut asked_for = 0;
            let watched = Watched::of(instances, || {
                let checked = pgbench::drive(server, load)?;
                asked_for = checked.new_orders_asked_for;
                Ok(vec![checked.measured])
            })?;
            let about = About {
                driver: PGBENCH,
                durability: instance.target.durability().to_string(),
                ..self.about(set.spec.to_string(), (1, repeat))
            };
            let mut row = record::row(&about, load, &watched.measured);
            watched.mark(&mut row, load);
            row.figures.insert("new_orders_asked_for".to_owned(), asked_for as f64);
            Ok(row)
        })?;
        if !row.is_valid() {
            set.clear();
        }
        Ok(row)
    }

    fn about(&self, target: String, (databases, repeat): (usize, u32)) -> About {
        About {
            engine: self.arguments.database,
            target,
            driver: OWN_DRIVER,
            databases,
            durability: String::new(),
            repeat,
            rate_percent: None,
            seed_of_data: self.extent.seed,
        }
    }

    fn step_of_clones(self: &Rc<Self>, count: u32, repeat: u32) -> Step<'plan> {
        let bench = Rc::clone(self);
        let (ramp, duration) = self.arguments.times(self.session.profile);
        let (load_seconds, written_bytes) = self.load_cost(1);
        let of_servers = u64::from(count) * SERVER_MEMORY_BYTES;
        Step {
            suite: Suite::Tpcc,
            case: format!("clones={count}"),
            target: clones::TARGET.to_owned(),
            repeat,
            cost: Cost {
                seconds: load_seconds + (ramp + duration).as_secs_f64() + f64::from(count),
                written_bytes,
                memory_bytes: clones::pool_bytes(self.extent.warehouses, count) + of_servers,
            },
            measure: Box::new(move || Ok(vec![bench.measure_clones(count, repeat)?])),
        }
    }

    fn measure_clones(&self, count: u32, repeat: u32) -> Result<Row> {
        let users = self.arguments.users(self.session.profile);
        let load = self.load(users.into_iter().max().unwrap_or(1), repeat);
        let shared = clones::measure(count, self.extent, &load)?;
        let about = About {
            durability: "survives kill -9 of its server, clients go on; lost at power loss"
                .to_owned(),
            ..self.about(clones::TARGET.to_owned(), (usize::try_from(count)?, repeat))
        };
        let mut row = record::row(&about, &load, &shared.measured);
        let (one, files) = (shared.one_used_bytes as f64, shared.one_file_bytes as f64);
        let before = shared.used_bytes_before as f64;
        let after = shared.used_bytes_after as f64;
        row.add_figures([
            ("one_used_bytes", one),
            ("one_file_bytes", files),
            ("used_bytes_before", before),
            ("used_bytes_after", after),
            (CLONES_RAM_RATIO, before / one),
            ("reduction_of_one", files / one),
            ("reduction_before", files * f64::from(count) / before),
            ("reduction_after", shared.file_bytes_after as f64 / after),
        ]);
        mark_length(&mut row, &load);
        Ok(row)
    }
}

/// A run with the processor time during it.
struct Watched {
    measured: Vec<Measured>,
    cpu: Cpu,
    started_unix_ms: u64,
    was_quiet: bool,
}

impl Watched {
    fn of(
        instances: &[DatabaseInstance],
        run: impl FnOnce() -> Result<Vec<Measured>>,
    ) -> Result<Self> {
        instances.iter().try_for_each(|instance| instance.host.settle())?;
        let was_quiet = wait_until_idle(SETTLING_TIME_LIMIT)?;
        let server_ids: Vec<u32> =
            instances.iter().flat_map(|instance| Target::server_ids(&instance.target)).collect();
        let started_unix_ms = crate::run::unix_ms(SystemTime::now());
        let meter = CpuMeter::start(&server_ids)?;
        let own_before = processor_seconds(std::process::id())?;
        let measured = run()?;
        let own_s = processor_seconds(std::process::id())? - own_before;
        let (cpu, _) = meter.finish()?;
        let cpu = Cpu { generator_s: cpu.generator_s + own_s, ..cpu };
        Ok(Self { measured, cpu, started_unix_ms, was_quiet })
    }

    fn mark(&self, row: &mut Row, load: &Load) {
        row.cpu = Some(self.cpu);
        row.time.started_unix_ms = self.started_unix_ms;
        if !self.was_quiet {
            row.flag(BUSY_FLAG);
        }
        mark_length(row, load);
    }
}

/// Flags runs that are too short for publication, and due transactions that were not executed.
pub(crate) fn mark_length(row: &mut Row, load: &Load) {
    if load.warmed + load.ramp < RAMP_MIN {
        row.flag(NOT_PUBLISHABLE);
    }
    if row.figures.get("missed").is_some_and(|missed| *missed > 0.0) {
        row.flag("not every transaction that was due was made");
    }
}
