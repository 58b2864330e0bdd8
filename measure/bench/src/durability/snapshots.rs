//! Random overwrites while a snapshot is taken each second and the previous one is deleted.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, anyhow};
use results::{Io, LatencyKind, Row, Suite};
use serde_json::json;
use system::Interruption;

use super::copied::{Copied, Copier, Reached, pool_bytes};
use super::writers::{BLOCK_BYTES, block_bytes};
use crate::clock::Random;
use crate::contents::{Contents, Data};
use crate::fio_step::{BUSY_FLAG, SETTLING_TIME_LIMIT};
use crate::latency::Latencies;
use crate::run::{Cost, Plan, Profile, Session, Skip, Step, make_once};
use crate::targets::{CpuMeter, wait_until_idle};

const INTERVAL: Duration = Duration::from_secs(1);

/// Polling interval of the snapshot thread for the end of the measurement.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Fill rate, for plans.
const FILL_BYTES_PER_S: f64 = 600e6;

/// Overwrite rate, for plans.
const OVERWRITES_PER_S: u64 = 500_000;

/// Maximum duration of taking a snapshot, seen by the caller.
pub(super) const SNAPSHOT_NS_MAX: &str = "snapshot_ns_max";

/// Use of snapshots during the overwrites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Snapshots {
    None,
    EachSecond,
}

pub(super) fn case_name(snapshots: Snapshots) -> String {
    let with = match snapshots {
        Snapshots::None => "",
        Snapshots::EachSecond => ", a snapshot each second",
    };
    format!("overwrite {BLOCK_BYTES} rand{with}")
}

/// Returns the number of pairs, the seconds per run, and the size of the volume.
fn extent(profile: Profile) -> (u32, f64, u64) {
    match profile {
        Profile::Quick => (2, 2.2, 512 << 20),
        Profile::Standard => (4, 20.0, 3 << 30),
        Profile::Full => (6, 60.0, 4 << 30),
    }
}

/// A volume created on first use.
struct Bench {
    reached: Reached,
    size_bytes: u64,
    made: RefCell<Option<Copied>>,
}

pub(super) fn add<'plan>(
    session: &'plan Session,
    (seconds_told, size_told): (Option<f64>, Option<u64>),
    plan: &mut Plan<'plan>,
) {
    let (pairs, seconds, size_bytes) = extent(session.profile);
    let time = Duration::from_secs_f64(seconds_told.unwrap_or(seconds));
    let size_bytes = size_told.unwrap_or(size_bytes);
    for reached in Reached::ALL {
        if let Some(reason) = reached.missing() {
            let case = case_name(Snapshots::EachSecond);
            plan.skipped.push(Skip::new(Suite::Durability, case, reached, reason));
            continue;
        }
        let bench = Rc::new(Bench { reached, size_bytes, made: RefCell::new(None) });
        for repeat in 0..pairs {
            // Alternates the order.
            let order = match repeat % 2 {
                0 => [Snapshots::None, Snapshots::EachSecond],
                _ => [Snapshots::EachSecond, Snapshots::None],
            };
            for snapshots in order {
                let seed = session.seed ^ u64::from(repeat + 1) << 32;
                plan.steps.push(step(&bench, Load { snapshots, repeat, time, seed }));
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Load {
    snapshots: Snapshots,
    repeat: u32,
    time: Duration,
    seed: u64,
}

fn step<'plan>(bench: &Rc<Bench>, load: Load) -> Step<'plan> {
    let held = Rc::clone(bench);
    let is_first = load.repeat == 0 && load.snapshots == Snapshots::None;
    let fill_bytes = if is_first { bench.size_bytes } else { 0 };
    Step {
        suite: Suite::Durability,
        case: case_name(load.snapshots),
        target: bench.reached.to_string(),
        repeat: load.repeat,
        cost: Cost {
            seconds: load.time.as_secs_f64() + 1.0 + fill_bytes as f64 / FILL_BYTES_PER_S,
            written_bytes: fill_bytes + OVERWRITES_PER_S * BLOCK_BYTES * load.time.as_secs(),
            memory_bytes: pool_bytes(bench.size_bytes),
        },
        measure: Box::new(move || Ok(vec![held.measure(load)?])),
    }
}

impl Bench {
    fn measure(&self, load: Load) -> Result<Row> {
        let make = || Copied::new(self.reached, self.size_bytes);
        let copied = &mut *make_once(&self.made, make)?;
        let is_quiet = wait_until_idle(SETTLING_TIME_LIMIT)?;
        let started = SystemTime::now();
        let meter = CpuMeter::start(&copied.server_ids())?;
        let (overwritten, taken) = overwrite_beside_snapshots(copied, self.size_bytes, &load)?;
        let (cpu, _) = meter.finish()?;
        let mut row = self.row(&load, &overwritten)?;
        row.time.started_unix_ms = crate::run::unix_ms(started);
        row.cpu = Some(cpu);
        if load.snapshots == Snapshots::EachSecond {
            row.figures.insert("snapshots".to_owned(), taken.count as f64);
            row.figures.insert(SNAPSHOT_NS_MAX.to_owned(), taken.longest.as_secs_f64() * 1e9);
        }
        if !is_quiet {
            row.flag(BUSY_FLAG);
        }
        Ok(row)
    }

    fn row(&self, load: &Load, latencies: &Latencies) -> Result<Row> {
        let target = self.reached.to_string();
        let mut row = Row::new(Suite::Durability, case_name(load.snapshots), target);
        row.repeat = load.repeat;
        let seconds = load.time.as_secs_f64();
        row.time.duration_s = seconds;
        row.add_params([
            ("op", json!("overwrite")),
            ("block_bytes", json!(BLOCK_BYTES)),
            ("pattern", json!("rand")),
            ("data", json!("random")),
            ("snapshots", json!(load.snapshots == Snapshots::EachSecond)),
            ("working_bytes", json!(self.size_bytes)),
        ]);
        row.latency = Some(latencies.recorded(LatencyKind::Service)?);
        let ops = latencies.count();
        let iops = ops as f64 / seconds;
        let bytes_per_s = iops * BLOCK_BYTES as f64;
        row.app = Some(Io { ops, bytes: ops * BLOCK_BYTES, iops, bytes_per_s });
        Ok(row)
    }
}

/// Result of the snapshot thread.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    count: u32,
    longest: Duration,
}

fn overwrite_beside_snapshots(
    copied: &Copied,
    size_bytes: u64,
    load: &Load,
) -> Result<(Latencies, Taken)> {
    let is_over = AtomicBool::new(false);
    let copier = copied.copier();
    thread::scope(|scope| {
        let copying = (load.snapshots == Snapshots::EachSecond)
            .then(|| scope.spawn(|| take_snapshots(&copier, &is_over)));
        let overwritten = overwrite(copied, size_bytes, load);
        // Relaxed: the flag carries no data.
        is_over.store(true, Ordering::Relaxed);
        let taken = match copying {
            Some(thread) => {
                thread.join().map_err(|_| anyhow!("the thread for snapshots panicked"))??
            }
            None => Taken::default(),
        };
        Ok((overwritten?, taken))
    })
}

fn overwrite(copied: &Copied, size_bytes: u64, load: &Load) -> Result<Latencies> {
    let mut way = copied.open()?;
    let mut contents = Contents::new(Data::Random, block_bytes(), load.seed);
    let mut places = Random::new(load.seed);
    let mut latencies = Latencies::new();
    let deadline = Instant::now() + load.time;
    loop {
        let offset_bytes = places.below(size_bytes / BLOCK_BYTES) * BLOCK_BYTES;
        let block = contents.next();
        let begun = Instant::now();
        if begun >= deadline || Interruption::is_asked_for() {
            return Ok(latencies);
        }
        way.overwrite(offset_bytes, block)?;
        latencies.record_time(begun.elapsed());
    }
}

/// Takes a snapshot in the middle of each second and deletes the previous one.
fn take_snapshots(copier: &Copier, is_over: &AtomicBool) -> Result<Taken> {
    let mut taken = Taken::default();
    let mut last = None;
    let mut due = Instant::now() + INTERVAL / 2;
    // Relaxed: the flag carries no data.
    while !is_over.load(Ordering::Relaxed) {
        let now = Instant::now();
        if now < due {
            thread::sleep(LOOK_INTERVAL.min(due - now));
            continue;
        }
        due += INTERVAL;
        taken.count += 1;
        let name = format!("s{}", taken.count);
        let begun = Instant::now();
        copier.create(&name).context("cannot take a snapshot")?;
        taken.longest = taken.longest.max(begun.elapsed());
        if let Some(previous) = last.replace(name) {
            copier.delete(&previous).context("cannot delete a snapshot")?;
        }
    }
    last.map_or(Ok(()), |name| copier.delete(&name))?;
    Ok(taken)
}
