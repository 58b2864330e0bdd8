//! The engine in this process: each case beside copies of bare memory, round by round.
//!
//! A round measures the floor, then the engine, so that a slow spell of the machine meets both.
//! Means come from batches without a clock inside; percentiles from a round of their own in which
//! each request is timed, which adds the cost of the clock (some 25 ns) to each.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use block_device::{BlockDevice, ByteRange, SectorSize};
use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressStyle};
use region::Region;
use results::Suite;
use serde::Serialize;
use volume::{Engine, EngineOptions, Reduction, Volume, VolumeSpec};

use crate::case::{self, Case, Op, Pattern};
use crate::clock::nanoseconds;
use crate::contents::Contents;
use crate::floor::{self, Places};
use crate::output::{self, Form};
use crate::pool::Place;
use crate::run::{Cost, Plan, Session, Step};

/// Rounds of floor and engine in each case.
const ROUNDS: u32 = 10;

/// Requests between two looks at the clock.
const BATCH: u64 = 64;

#[derive(Clone, Debug, clap::Args, Serialize)]
pub(crate) struct Arguments {
    /// Seconds for each case
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Only cases with these parameters: op=read,threads=1,…
    #[arg(long, value_delimiter = ',', value_name = "KEY=VALUE")]
    only: Vec<String>,
    /// How much data each case works on, in MiB
    #[arg(long, default_value_t = 2048)]
    working_mib: u64,
}

/// One case's figures.
#[derive(Debug, Serialize)]
struct Row {
    op: Op,
    block_bytes: usize,
    pattern: Pattern,
    data: &'static str,
    threads: usize,
    ns_mean: f64,
    ns_p50: u64,
    ns_p99: u64,
    ns_p999: u64,
    ns_p9999: u64,
    ns_max: u64,
    bytes_per_s: f64,
    floor_ns_mean: f64,
    ratio_to_floor: f64,
    /// Written bytes over bytes of memory used, when the case ended.
    reduction: f64,
}

pub(crate) fn run(arguments: &Arguments, form: Form) -> Result<()> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let cases = case::choose(&arguments.only, cores)?;
    ensure!(arguments.seconds > 0.0, "--seconds takes a number above zero");
    ensure!(arguments.working_mib >= 64, "--working-mib takes 64 at least");
    let bar = progress_bar(cases.len());
    let mut rows = Vec::new();
    for case in cases {
        bar.set_message(format!(
            "{} {} {} {} × {}",
            case.op.name(),
            case.block_bytes,
            case.pattern.name(),
            case.data.name(),
            case.threads
        ));
        rows.push(measure(&case, arguments).context("the case cannot be measured")?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    if form == Form::Json {
        output::json(&rows);
    } else {
        output::note(&output::table(&table(&rows)));
        output::note("floor: copies of the same size in the same order on bare memory, same run");
    }
    Ok(())
}

/// One step for each case and repeat.
pub(crate) fn plan<'plan>(
    arguments: &'plan Arguments,
    session: &'plan Session,
) -> Result<Plan<'plan>> {
    let cases = case::choose(&arguments.only, session.cores)?;
    let mut plan = Plan::default();
    for repeat in 0..session.profile.repeats() {
        for case in &cases {
            let case = *case;
            plan.steps.push(Step {
                suite: Suite::Engine,
                case: case.name(),
                target: "engine".to_owned(),
                repeat,
                cost: Cost {
                    seconds: arguments.seconds + 3.0,
                    written_bytes: arguments.working_mib << 20,
                    memory_bytes: (arguments.working_mib << 20) / 2 * 5,
                },
                measure: Box::new(move || {
                    let row = measure(&case, arguments)?;
                    Ok(vec![recorded(&case, &row, repeat)])
                }),
            });
        }
    }
    Ok(plan)
}

fn recorded(case: &Case, row: &Row, repeat: u32) -> results::Row {
    let mut recorded = results::Row::new(Suite::Engine, case.name(), "engine");
    recorded.repeat = repeat;
    recorded.figures.insert("ns_mean".to_owned(), row.ns_mean);
    recorded.figures.insert("ratio_to_floor".to_owned(), row.ratio_to_floor);
    recorded
}

pub(crate) fn describe(rows: &[&results::Row]) -> String {
    let mut table = vec![vec!["case".to_owned(), "ratio".to_owned()]];
    for row in rows.iter().filter(|row| row.is_valid()) {
        table.push(vec![row.case.clone(), format!("{:.2}", row.figures["ratio_to_floor"])]);
    }
    output::table(&table)
}

fn measure(case: &Case, arguments: &Arguments) -> Result<Row> {
    let place = Place::new()?;
    let working_bytes = arguments.working_mib << 20;
    let mut bare = place.region("bare", working_bytes)?;
    // Room for the data, what is on its way out, and the tables.
    let region =
        place.region("pool", (working_bytes + working_bytes / 2).next_multiple_of(2 << 20))?;
    let engine = Engine::open(
        region,
        EngineOptions { lane_count: case.threads + 1, fresh_secret: [0x5A; 32] },
    )?;
    let volume = engine.create_volume(VolumeSpec {
        name: "bench".parse()?,
        size_bytes: working_bytes,
        sector: SectorSize::Bytes4096,
        reduction: Reduction::Full,
    })?;
    if matches!(case.op, Op::Read | Op::Overwrite) {
        precondition(&volume, case, working_bytes)?;
    }
    while engine.maintain() {}
    let mut meters: Vec<Meter> =
        (0..case.threads).map(|index| Meter::new(case, working_bytes, index as u64)).collect();
    let seconds = Duration::from_secs_f64(arguments.seconds / f64::from(ROUNDS) / 2.0);
    for round in 0..ROUNDS {
        floor_round(&mut bare, &mut meters, seconds);
        engine_round(&volume, &engine, &mut meters, (seconds, round % 5 == 4))?;
    }
    let usage = engine.usage();
    let reduction = usage.written_bytes as f64 / (usage.used_bytes as f64).max(1.0);
    Ok(row(case, &meters, reduction))
}

/// Writes all of the volume once, with contents of the case's kind.
fn precondition(volume: &Volume, case: &Case, working_bytes: u64) -> Result<()> {
    const PIECE_BYTES: usize = 1 << 20;
    let mut contents = Contents::new(case.data, PIECE_BYTES, 1);
    for at in (0..working_bytes).step_by(PIECE_BYTES) {
        volume.write(at, contents.next())?;
    }
    Ok(())
}

/// What one thread does and has measured.
struct Meter {
    case: Case,
    places: Places,
    floor_places: Places,
    contents: Contents,
    buffer: Vec<u8>,
    floor_ns: u64,
    floor_count: u64,
    engine_ns: u64,
    engine_count: u64,
    latencies: Histogram<u64>,
    size_bytes: u64,
    written: u64,
}

impl Meter {
    fn new(case: &Case, size_bytes: u64, index: u64) -> Self {
        let places = match case.pattern {
            Pattern::Rand => Places::random(size_bytes, case.block_bytes, index + 1),
            Pattern::Seq => Places::sequential(size_bytes, case.block_bytes),
        };
        Self {
            case: *case,
            floor_places: places.clone(),
            places,
            contents: Contents::new(case.data, case.block_bytes, 100 + index),
            buffer: vec![0; case.block_bytes],
            floor_ns: 0,
            floor_count: 0,
            engine_ns: 0,
            engine_count: 0,
            latencies: latency_histogram(),
            size_bytes,
            written: 0,
        }
    }

    fn floor_for(&mut self, memory: &mut Region, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.floor_ns += match self.case.op {
                Op::Read => {
                    floor::copy_out(memory, &mut self.floor_places, &mut self.buffer, BATCH)
                }
                _ => floor::copy_in(memory, &mut self.floor_places, &mut self.contents, BATCH),
            };
            self.floor_count += BATCH;
        }
    }

    fn engine_for(&mut self, volume: &Volume, time: Duration, timed: bool) -> Result<()> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            // First writes end when the volume is full: it is emptied outside the measured time.
            let left = (self.size_bytes / 2).saturating_sub(self.written);
            if self.case.op == Op::Write && left < BATCH * self.case.block_bytes as u64 {
                volume.discard(ByteRange::new(0, self.size_bytes))?;
                self.written = 0;
            }
            let mut result = Ok(());
            if timed {
                for _ in 0..BATCH {
                    let mut once = Ok(());
                    let ns = nanoseconds(|| once = self.request(volume));
                    once?;
                    self.latencies.saturating_record(ns);
                }
            } else {
                let batch = || (0..BATCH).try_for_each(|_| self.request(volume));
                let ns = nanoseconds(|| result = { batch }());
                self.engine_ns += ns;
                self.engine_count += BATCH;
            }
            result?;
        }
        Ok(())
    }

    #[inline]
    fn request(&mut self, volume: &Volume) -> Result<()> {
        let at = self.places.next();
        match self.case.op {
            Op::Read => volume.read(at, &mut self.buffer)?,
            Op::Overwrite => volume.write(at, self.contents.next())?,
            Op::Write => {
                self.written += self.case.block_bytes as u64;
                volume.write(at, self.contents.next())?;
            }
            Op::Discard => volume.discard(ByteRange::new(at, self.case.block_bytes as u64))?,
        }
        Ok(())
    }
}

fn floor_round(bare: &mut Region, meters: &mut [Meter], time: Duration) {
    // One thread at a time: the floor is what one core can do alone.
    let share = time / u32::try_from(meters.len()).expect("few threads");
    for meter in meters {
        meter.floor_for(bare, share);
    }
}

fn engine_round(
    volume: &Volume,
    engine: &Engine,
    meters: &mut [Meter],
    (time, timed): (Duration, bool),
) -> Result<()> {
    if meters.first().is_some_and(|meter| meter.case.op == Op::Discard) {
        precondition(volume, &meters[0].case, meters[0].size_bytes)?;
    }
    let results: Vec<Result<()>> = thread::scope(|scope| {
        let spawn = |meter| scope.spawn(move || Meter::engine_for(meter, volume, time, timed));
        let handles: Vec<_> = meters.iter_mut().map(spawn).collect();
        handles.into_iter().map(|handle| handle.join().expect("a meter does not panic")).collect()
    });
    while engine.maintain() {}
    results.into_iter().collect()
}

fn row(case: &Case, meters: &[Meter], reduction: f64) -> Row {
    let sum = |part: fn(&Meter) -> u64| meters.iter().map(part).sum::<u64>() as f64;
    let ns_mean = sum(|meter| meter.engine_ns) / sum(|meter| meter.engine_count);
    let floor_ns_mean = sum(|meter| meter.floor_ns) / sum(|meter| meter.floor_count);
    let mut latencies = latency_histogram();
    for meter in meters {
        latencies.add(&meter.latencies).expect("histograms of one kind add up");
    }
    Row {
        op: case.op,
        block_bytes: case.block_bytes,
        pattern: case.pattern,
        data: case.data.name(),
        threads: case.threads,
        ns_mean,
        ns_p50: latencies.value_at_quantile(0.5),
        ns_p99: latencies.value_at_quantile(0.99),
        ns_p999: latencies.value_at_quantile(0.999),
        ns_p9999: latencies.value_at_quantile(0.9999),
        ns_max: latencies.max(),
        bytes_per_s: case.block_bytes as f64 * 1e9 / ns_mean * case.threads as f64,
        floor_ns_mean,
        ratio_to_floor: ns_mean / floor_ns_mean,
        reduction,
    }
}

fn table(rows: &[Row]) -> Vec<Vec<String>> {
    let heading = [
        "op",
        "bytes",
        "order",
        "data",
        "threads",
        "ns",
        "p50",
        "p99",
        "p99.9",
        "max",
        "GB/s",
        "floor ns",
        "ratio",
        "reduction",
    ];
    let mut table = vec![heading.map(str::to_owned).to_vec()];
    for row in rows {
        table.push(vec![
            row.op.name().to_owned(),
            row.block_bytes.to_string(),
            row.pattern.name().to_owned(),
            row.data.to_owned(),
            row.threads.to_string(),
            format!("{:.0}", row.ns_mean),
            row.ns_p50.to_string(),
            row.ns_p99.to_string(),
            row.ns_p999.to_string(),
            row.ns_max.to_string(),
            format!("{:.2}", row.bytes_per_s / 1e9),
            format!("{:.0}", row.floor_ns_mean),
            format!("{:.2}", row.ratio_to_floor),
            format!("{:.2}", row.reduction),
        ]);
    }
    table
}

fn progress_bar(length: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} {elapsed} eta {eta}")
        .expect("the template is fixed");
    ProgressBar::new(length as u64).with_style(style)
}

/// Latencies up to ten seconds, in nanoseconds, to three digits.
fn latency_histogram() -> Histogram<u64> {
    Histogram::new_with_max(10_000_000_000, 3).expect("the range is a good one")
}
