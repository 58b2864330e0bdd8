//! PostgreSQL with pgbench, with its files on a volume and on alternatives.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result};
use results::{Row, Suite};
use serde_json::json;
use system::Random;
use system::database::{self, Postgres, Rush, Server};

use crate::fio_step::{BUSY_FLAG, SETTLING_TIME_LIMIT, shuffle};
use crate::run::{Cost, Plan, Profile, Session, Skip, Step, make_once};
use crate::targets::{CpuMeter, Kind, Layout, Place, Spec, Target, wait_until_idle};
use crate::tpcc::{Engine, missing_server};

const TARGETS: &[(Kind, Layout)] = &[
    (Kind::Volume, Layout::Ext4),
    (Kind::Zram, Layout::Ext4),
    (Kind::Tmpfs, Layout::Raw),
    (Kind::Disk, Layout::Raw),
];

/// Space for tables and for the log, which PostgreSQL limits to 1 GiB.
const SIZE_BYTES: u64 = 3 << 30;

/// Approximate time to create and fill a database, for plans.
const FILL_SECONDS_PER_SCALE: f64 = 0.35;
const FILL_SECONDS: f64 = 4.0;
const FILL_BYTES_PER_SCALE: u64 = 20 << 20;

pub(super) const TRANSACTIONS_PER_S: &str = "transactions_per_s";

/// Size and duration of the measurement.
struct Extent {
    scale: u32,
    /// pgbench counts in whole seconds.
    duration: Duration,
    clients: &'static [u32],
}

fn extent(profile: Profile) -> Extent {
    let (scale, seconds, clients): (_, _, &[u32]) = match profile {
        Profile::Quick => (5, 4, &[4]),
        Profile::Standard => (30, 8, &[4, 1]),
        Profile::Full => (30, 60, &[4, 1]),
    };
    Extent { scale, duration: Duration::from_secs(seconds), clients }
}

/// Returns the case's name, which is the same in every run.
pub(super) fn case_name(clients: u32) -> String {
    format!("pgbench clients={clients}")
}

/// A target with a database, created on first use.
struct Bench {
    spec: Spec,
    scale: u32,
    made: RefCell<Option<Made>>,
}

/// A server with its target. Fields are dropped in order: the server first.
struct Made {
    server: Server,
    target: Target,
}

pub(super) fn add<'plan>(session: &'plan Session, plan: &mut Plan<'plan>) {
    let extent = extent(session.profile);
    let place = place();
    let mut benches = Vec::new();
    for (kind, layout) in TARGETS {
        let spec = Spec { kind: kind.clone(), layout: *layout };
        match missing_for(&spec, &place) {
            None => {
                benches.push(Rc::new(Bench { spec, scale: extent.scale, made: RefCell::new(None) }))
            }
            Some(reason) => {
                plan.skipped.push(Skip::new(Suite::Peers, "pgbench", spec, reason));
            }
        }
    }
    let memory_bytes = benches.iter().map(|bench| bench.spec.memory_bytes(&place)).sum();
    let mut random = Random::new(session.seed ^ 0x9b);
    for repeat in 0..super::repeats(session.profile) {
        let mut steps = Vec::new();
        for bench in &benches {
            for &clients in extent.clients {
                let rush = Rush { clients, duration: extent.duration };
                let is_first = repeat == 0 && clients == extent.clients[0];
                steps.push(step(bench, rush, (repeat, is_first), memory_bytes));
            }
        }
        shuffle(&mut steps, &mut random);
        plan.steps.extend(steps);
    }
}

fn place() -> Place {
    Place::new(SIZE_BYTES, None)
}

fn missing_for(spec: &Spec, place: &Place) -> Option<String> {
    missing_server(Engine::Postgresql).or_else(|| spec.missing(place))
}

fn step<'plan>(
    bench: &Rc<Bench>,
    rush: Rush,
    (repeat, is_first): (u32, bool),
    memory_bytes: u64,
) -> Step<'plan> {
    let held = Rc::clone(bench);
    let seconds = rush.duration.as_secs_f64() + 1.0;
    let fill = FILL_SECONDS + f64::from(bench.scale) * FILL_SECONDS_PER_SCALE;
    let fill_bytes = u64::from(bench.scale) * FILL_BYTES_PER_SCALE;
    Step {
        suite: Suite::Peers,
        case: case_name(rush.clients),
        target: bench.spec.to_string(),
        repeat,
        cost: Cost {
            seconds: if is_first { seconds + fill } else { seconds },
            written_bytes: if is_first { fill_bytes } else { 0 },
            memory_bytes,
        },
        measure: Box::new(move || Ok(vec![held.measure(rush, repeat)?])),
    }
}

impl Bench {
    fn measure(&self, rush: Rush, repeat: u32) -> Result<Row> {
        let made = make_once(&self.made, || self.make())?;
        let is_quiet = wait_until_idle(SETTLING_TIME_LIMIT)?;
        let meter = CpuMeter::start(&made.target.server_ids())?;
        let load = database::run(&made.server, rush, || Ok(()))?;
        let (cpu, elapsed) = meter.finish()?;
        // Prevents one measurement's dirty pages from delaying the next.
        made.server.query("postgres", "CHECKPOINT")?;
        let mut row = Row::new(Suite::Peers, case_name(rush.clients), self.spec.to_string());
        row.repeat = repeat;
        row.time.duration_s = elapsed.as_secs_f64();
        row.time.started_unix_ms = crate::run::unix_ms(std::time::SystemTime::now() - elapsed);
        row.add_params([
            ("op", json!("pgbench")),
            ("clients", json!(rush.clients)),
            ("scale", json!(self.scale)),
            ("durability", json!(made.target.durability().to_string())),
        ]);
        row.cpu = Some(cpu);
        let gap_ns = load.commits.longest_gap().as_secs_f64() * 1e9;
        row.add_figures([
            (TRANSACTIONS_PER_S, load.transactions_per_s),
            ("latency_ns_mean", load.latency_ns_mean),
            ("longest_gap_ns", gap_ns),
        ]);
        if !is_quiet {
            row.flag(BUSY_FLAG);
        }
        Ok(row)
    }

    fn make(&self) -> Result<Made> {
        let postgres = Postgres::find()?;
        let target = self.spec.open(&place())?;
        let folder = target.folder()?.join("postgres");
        let server = serve(&postgres, &folder)
            .with_context(|| format!("cannot run PostgreSQL on {}", self.spec))?;
        database::fill(&server, self.scale)?;
        Ok(Made { server, target })
    }
}

fn serve(postgres: &Postgres, folder: &Path) -> Result<Server> {
    std::fs::create_dir(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Server::create(postgres, folder)
}
