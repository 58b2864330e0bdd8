//! Durable writes: each 4 KiB is on stable storage before its writer writes the next.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use anyhow::Result;
use results::{Io, LatencyKind, Row, Suite};
use serde_json::json;
use system::Random;

use super::backend::{Backend, Backends, POOL_BYTES, WRITERS_MAX};
use super::writers::{self, BLOCK_BYTES};
use crate::fio_step::shuffle;
use crate::run::{Cost, Plan, Profile, Session, Skip, Step, make_once};
use crate::targets::CpuMeter;

const WRITER_COUNTS: [u64; 2] = [1, WRITERS_MAX];

/// Minimum number of repeats for comparing a volume with the disk.
const REPEATS_MIN: u32 = 5;

/// Time to create all backends, for plans.
const SETUP_SECONDS: f64 = 6.0;

/// Upper bound on durable write throughput, for plans.
const BYTES_PER_S: u64 = 100 << 20;

/// Ratio of flushes at the volume to durable writes. Above one if a file system adds its own.
const FLUSHES_PER_WRITE: &str = "flushes_per_write";

/// Ratio of flushes to journal transactions.
pub(super) const FLUSHES_PER_TRANSACTION: &str = "flushes_per_transaction";

pub(super) fn case_name(writers: u64) -> String {
    format!("durable write {BLOCK_BYTES} writers={writers}")
}

fn seconds(profile: Profile) -> f64 {
    match profile {
        Profile::Quick => 0.4,
        Profile::Standard => 2.2,
        Profile::Full => 20.0,
    }
}

/// All backends, created on first use.
struct Bench {
    wanted: Vec<Backend>,
    made: RefCell<Option<Backends>>,
}

pub(super) fn add<'plan>(
    session: &'plan Session,
    seconds_told: Option<f64>,
    plan: &mut Plan<'plan>,
) {
    let (wanted, missing): (Vec<_>, Vec<_>) =
        Backend::ALL.into_iter().partition(|backend| backend.missing().is_none());
    plan.skipped.extend(missing.into_iter().map(|backend| {
        let reason = backend.missing().unwrap_or_default();
        Skip::new(Suite::Durability, "durable writes", backend, reason)
    }));
    let bench = Rc::new(Bench { wanted: wanted.clone(), made: RefCell::new(None) });
    let time = Duration::from_secs_f64(seconds_told.unwrap_or(seconds(session.profile)));
    let mut random = Random::new(session.seed ^ 0xF1);
    let mut is_first = true;
    for repeat in 0..session.profile.repeats().max(REPEATS_MIN) {
        for writers in WRITER_COUNTS {
            let mut backends = wanted.clone();
            shuffle(&mut backends, &mut random);
            for backend in backends {
                let load = Load { backend, writers, repeat, time, seed: random.number() };
                plan.steps.push(step(&bench, load, is_first));
                is_first = false;
            }
        }
    }
}

/// A single measurement.
#[derive(Clone, Copy, Debug)]
struct Load {
    backend: Backend,
    writers: u64,
    repeat: u32,
    time: Duration,
    seed: u64,
}

fn step<'plan>(bench: &Rc<Bench>, load: Load, is_first: bool) -> Step<'plan> {
    let held = Rc::clone(bench);
    let own_seconds = load.time.as_secs_f64();
    let setup_seconds = if is_first { SETUP_SECONDS } else { 0.0 };
    Step {
        suite: Suite::Durability,
        case: case_name(load.writers),
        target: load.backend.to_string(),
        repeat: load.repeat,
        cost: Cost {
            seconds: own_seconds * 1.1 + setup_seconds,
            written_bytes: BYTES_PER_S * load.time.as_secs().max(1),
            memory_bytes: POOL_BYTES,
        },
        measure: Box::new(move || Ok(vec![held.measure(load)?])),
    }
}

impl Bench {
    fn measure(&self, load: Load) -> Result<Row> {
        let backends = &mut *make_once(&self.made, || Backends::new(&self.wanted))?;
        let writers = backends.writers(load.backend, load.writers)?;
        let server_ids: Vec<u32> = backends.daemon().id().into_iter().collect();
        let before = backends.daemon().status()?.durability.journal;
        let started = SystemTime::now();
        let meter = CpuMeter::start(&server_ids)?;
        let written = writers::run(writers, load.time, load.seed)?;
        let (cpu, _) = meter.finish()?;
        let after = backends.daemon().status()?.durability.journal;
        let mut row = row(&load, &written)?;
        row.time.started_unix_ms = crate::run::unix_ms(started);
        row.cpu = Some(cpu);
        if let Some((before, after)) = before.zip(after)
            && after.transactions > before.transactions
        {
            let flushes = (after.flushes - before.flushes) as f64;
            let transactions = (after.transactions - before.transactions) as f64;
            let per_write = flushes / written.latencies.count() as f64;
            row.figures.insert(FLUSHES_PER_TRANSACTION.to_owned(), flushes / transactions);
            row.figures.insert(FLUSHES_PER_WRITE.to_owned(), per_write);
        }
        Ok(row)
    }
}

fn row(load: &Load, written: &writers::Written) -> Result<Row> {
    let mut row = Row::new(Suite::Durability, case_name(load.writers), load.backend.to_string());
    row.repeat = load.repeat;
    row.time.duration_s = written.elapsed.as_secs_f64();
    row.add_params([
        ("op", json!("durable write")),
        ("block_bytes", json!(BLOCK_BYTES)),
        ("writers", json!(load.writers)),
        ("data", json!("random")),
    ]);
    row.latency = Some(written.latencies.recorded(LatencyKind::Service)?);
    let ops = written.latencies.count();
    let iops = ops as f64 / written.elapsed.as_secs_f64();
    let bytes_per_s = iops * BLOCK_BYTES as f64;
    row.app = Some(Io { ops, bytes: ops * BLOCK_BYTES, iops, bytes_per_s });
    Ok(row)
}
