//! Measurement of one case in rounds.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use maintenance::Maintenance;
use system::Interruption;

use super::figures::{Figures, LoadFigures};
use super::meter::{Floor, Meter, Spent, Watch};
use super::setup::{EngineSetup, Idling};
use crate::case::{Case, Op};
use crate::clock::nanoseconds;
use crate::pace::{self, Pace, Paced};

/// Number of rounds of floor and engine per case.
const ROUNDS: u32 = 10;

/// Every fifth round times each request.
const TIMED_ROUND: u32 = 5;

/// Parameters of a measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Given {
    /// Total for all rounds.
    pub(crate) seconds: f64,
    pub(crate) working_bytes: u64,
    /// Rate of the open loop as a share of the measured maximum.
    pub(crate) load: Option<f64>,
}

/// Measures a case on a new engine.
pub(crate) fn measure(case: &Case, given: &Given) -> Result<Figures> {
    let mut setup = EngineSetup::new(case, given.working_bytes)?;
    let mut idling = None;
    if EngineSetup::is_filled_first(case.op) {
        setup.fill(0, setup.working_bytes)?;
        idling = Some(setup.idle()?);
    }
    let mut meters: Vec<Meter> =
        (0..case.threads).map(|index| Meter::new(case, &setup, index)).collect();
    let mut background = Spent::default();
    let mut rounds = Vec::new();
    let time = Duration::from_secs_f64(given.seconds / f64::from(ROUNDS) / 2.0);
    for round in 0..ROUNDS {
        ensure!(!Interruption::is_asked_for(), "interrupted during a case");
        floor_round(&mut setup, &mut meters, time);
        if case.threads > 1 {
            meters[0].engine_for(&setup, time / 2, Watch::MeanAlone)?;
        }
        let is_timed = round % TIMED_ROUND == TIMED_ROUND - 1;
        let watch = if is_timed { Watch::Each } else { Watch::Mean };
        let spent = engine_round(&setup, &mut meters, time, watch)?;
        if let Some(mean) = spent.mean().filter(|_| !is_timed) {
            rounds.push(mean);
        }
        let mut idled = Ok(None);
        let ns = nanoseconds(|| idled = setup.idle().map(Some));
        background.add(ns, spent.count);
        // Without an initial fill, the idle work follows the first round.
        idling = idling.or(idled?);
    }
    let load = match given.load {
        Some(load) => Some(open_loop(&setup, &mut meters, load, given.seconds)?),
        None => None,
    };
    let last = setup.idle()?;
    let idling = Idling { reduction: last.reduction, ..idling.unwrap_or(last) };
    let lz4_reduction = if case.op == Op::Discard { None } else { Some(setup.lz4_reduction()?) };
    Ok(Figures::new(case, &meters, idling, lz4_reduction).with(background, rounds, load))
}

/// Measures the floor of each thread alone, as the limit of one core, then of all concurrently.
fn floor_round(setup: &mut EngineSetup, meters: &mut [Meter], time: Duration) {
    let threads = u32::try_from(meters.len()).expect("few threads");
    let memory = setup.bare.bytes_mut();
    let share = memory.len() / meters.len();
    for (meter, memory) in meters.iter_mut().zip(memory.chunks_mut(share)) {
        meter.floor_for(memory, time / threads, Floor::Alone);
        meter.floor_for(memory, time / threads, Floor::Decode);
    }
    if meters.len() == 1 {
        return;
    }
    thread::scope(|scope| {
        for (meter, memory) in meters.iter_mut().zip(memory.chunks_mut(share)) {
            scope.spawn(move || meter.floor_for(memory, time, Floor::Together));
        }
    });
}

fn engine_round(
    setup: &EngineSetup,
    meters: &mut [Meter],
    time: Duration,
    watch: Watch,
) -> Result<Spent> {
    let results: Vec<Result<Spent>> = thread::scope(|scope| {
        let spawn = |meter| scope.spawn(move || Meter::engine_for(meter, setup, time, watch));
        let handles: Vec<_> = meters.iter_mut().map(spawn).collect();
        handles.into_iter().map(|handle| handle.join().expect("a meter does not panic")).collect()
    });
    Ok(Spent::sum(results.into_iter().collect::<Result<Vec<_>>>()?))
}

/// Sends requests at a share of the maximum rate, regardless of whether earlier ones have
/// completed. Maintains the engine meanwhile, like the daemon.
fn open_loop(
    setup: &EngineSetup,
    meters: &mut [Meter],
    load: f64,
    seconds: f64,
) -> Result<LoadFigures> {
    let mean = Spent::sum(meters.iter().map(|meter| meter.engine)).mean();
    let rate_per_s = load * 1e9 / mean.unwrap_or(f64::INFINITY);
    let pace = Pace { rate_per_s, time: Duration::from_secs_f64(seconds) };
    let maintenance = Maintenance::start(Arc::clone(&setup.engine), |_| {})
        .context("cannot start the engine's own thread")?;
    let results: Vec<Result<Paced>> = thread::scope(|scope| {
        let spawn = |meter: &mut Meter| {
            pace::run(pace, || {
                meter.renew(setup, 1)?;
                meter.request(setup)
            })
        };
        let handles: Vec<_> =
            meters.iter_mut().map(|meter| scope.spawn(move || spawn(meter))).collect();
        let join = |handle: thread::ScopedJoinHandle<'_, Result<Paced>>| {
            handle.join().expect("a meter does not panic")
        };
        handles.into_iter().map(join).collect()
    });
    drop(maintenance);
    let mut sum = Paced::new();
    for paced in results {
        sum.add(&paced?);
    }
    let rate_per_s = rate_per_s * meters.len() as f64;
    Ok(LoadFigures { load, rate_per_s, paced: sum })
}
