//! Options and plan of the suite.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use results::{Cpu, Row, StoreUse, Suite};
use system::processor_seconds;

use super::backend::LogBackend;
use super::delivery::{self, Delivery};
use super::drive::{Load, Log, Loop, Measured, Sync, Threads};
use super::fan_out::{self, FanOut};
use super::message::Batches;
use super::mix::Mix;
use super::record::{self, About, MESSAGES_TOTAL, RATIO_TO_APPENDS};
use super::wire::WireLog;
use crate::contents::Data;
use crate::run::{Cost, Plan, Profile, Session, Skip, Step};
use crate::targets::{CpuMeter, Place, Target};

/// Default number of readers. More only compete for cores.
const READERS_DEFAULT: usize = 2;
const THREADS_MAX: usize = 64;
const CONSUMERS_MAX: usize = 256;

/// Minimum size of a log in which readers have space beside the writer.
const LOG_MIB_MIN: u64 = 16;

#[derive(Clone, Debug, clap::Args, serde::Serialize)]
pub(crate) struct Arguments {
    /// Storage of the log: embedded, memory, volume, tmpfs, zram, disk, loop, fuse or a path with a
    /// slash; or a broker: broker, kafka (its jars in the directory MEMLANE_KAFKA_LIBS) [default:
    /// the first six and both brokers]
    #[arg(long = "target", value_delimiter = ',', value_name = "NAME")]
    backends: Vec<LogBackend>,
    /// Percentages of reads among operations
    #[arg(long, value_delimiter = ',', default_values = ["0", "80"], value_name = "PERCENT")]
    mixes: Vec<Mix>,
    /// Number of threads: a writer and its readers; 1 does both in turn [default: 1, and one per
    /// core up to 3]
    #[arg(long, value_delimiter = ',', value_name = "COUNT")]
    threads: Vec<usize>,
    /// Constant rates in percent of the maximum, measured afterwards
    #[arg(long, value_delimiter = ',', default_values = ["70", "50"], value_name = "PERCENT")]
    rates: Vec<u32>,
    /// Seconds for each mix and rate [default: set by --profile]
    #[arg(long)]
    seconds: Option<f64>,
    /// Size of the log before it wraps around, in MiB
    #[arg(long, default_value_t = 512, value_name = "MIB")]
    log_mib: u64,
    /// Contents of messages besides number and checksum
    #[arg(long, value_enum, default_value = "random")]
    data: Data,
    /// Make each append durable before the next one; brokers: before it is acknowledged
    #[arg(long)]
    sync: bool,
    /// Brokers: rate of single messages per second whose delivery to a waiting consumer is timed
    #[arg(long, value_delimiter = ',', default_values = ["5000"], value_name = "RATE")]
    deliveries: Vec<u32>,
    /// Brokers: numbers of consumers that read the whole log at the same time
    #[arg(long, value_delimiter = ',', default_values = ["1", "8", "64"], value_name = "COUNT")]
    consumers: Vec<usize>,
}

impl Arguments {
    fn check(&self) -> Result<()> {
        let seconds = self.seconds.unwrap_or(1.0);
        ensure!(
            seconds > 0.0 && seconds <= 86_400.0,
            "--seconds must be more than 0 and at most 86400"
        );
        ensure!(self.log_mib >= LOG_MIB_MIN, "--log-mib must be {LOG_MIB_MIN} or more");
        let threads_fit = self.threads.iter().all(|count| (1..=THREADS_MAX).contains(count));
        ensure!(threads_fit, "--threads must be 1 to {THREADS_MAX}");
        let deliveries_fit = self.deliveries.iter().all(|rate| (1..=100_000).contains(rate));
        ensure!(deliveries_fit, "--deliveries must be 1 to 100000 messages per second");
        let consumers_fit = self.consumers.iter().all(|count| (1..=CONSUMERS_MAX).contains(count));
        ensure!(consumers_fit, "--consumers must be 1 to {CONSUMERS_MAX}");
        let rates_fit = self.rates.iter().all(|percent| (1..=100).contains(percent));
        ensure!(rates_fit, "--rates takes percentages from 1 to 100");
        Ok(())
    }

    fn seconds(&self, profile: Profile) -> f64 {
        self.seconds.unwrap_or(match profile {
            Profile::Quick => 0.6,
            Profile::Standard => 10.0,
            Profile::Full => 60.0,
        })
    }

    fn threads(&self, cores: usize) -> Vec<usize> {
        match &self.threads[..] {
            [] => vec![1, cores.clamp(2, 1 + READERS_DEFAULT)],
            counts => counts.to_vec(),
        }
    }

    fn backends(&self) -> Vec<LogBackend> {
        if self.backends.is_empty() { LogBackend::usual() } else { self.backends.clone() }
    }

    fn log_bytes(&self) -> u64 {
        self.log_mib << 20
    }
}

/// Plans a step per target and repeat, with all mixes in sequence for comparability. A target is
/// created for its first step and dropped after its last.
pub(crate) fn plan<'plan>(
    arguments: &'plan Arguments,
    session: &'plan Session,
) -> Result<Plan<'plan>> {
    arguments.check()?;
    let mut plan = Plan::default();
    let backends = arguments.backends();
    let place = Place::new(arguments.log_bytes(), session.destroy.clone());
    // All targets exist until the end, so that they are measured in turn.
    let there = backends.iter().filter(|backend| backend.missing(&place).is_none());
    let memory_bytes = there.map(|backend| backend.memory_bytes(&place)).sum();
    let mut benches = Vec::new();
    for backend in backends {
        match backend.missing(&place) {
            None => benches.push(Rc::new(Bench::new(backend, memory_bytes, (arguments, session)))),
            Some(reason) => {
                plan.skipped.push(Skip::new(Suite::Log, "log", backend, reason));
            }
        }
    }
    for repeat in 0..session.profile.repeats() {
        for bench in &benches {
            let held = Rc::clone(bench);
            plan.steps.push(Step {
                suite: Suite::Log,
                case: "log".to_owned(),
                target: bench.backend.to_string(),
                repeat,
                cost: bench.cost(repeat),
                measure: Box::new(move || held.measure(repeat)),
            });
        }
    }
    Ok(plan)
}

/// A target with its measurements.
struct Bench<'plan> {
    backend: LogBackend,
    memory_bytes: u64,
    arguments: &'plan Arguments,
    session: &'plan Session,
    standing: RefCell<Option<Standing>>,
}

/// A filled log.
enum Standing {
    /// The log, and its target, which is dropped after it.
    OnMedium(Box<Log>, Option<Target>),
    OnBroker(Box<WireLog>),
}

impl Standing {
    fn measure(&self, load: &Load) -> Result<Measured> {
        match self {
            Self::OnMedium(log, _) => log.measure(load),
            Self::OnBroker(log) => log.measure(load),
        }
    }

    fn server_ids(&self) -> Vec<u32> {
        match self {
            Self::OnMedium(_, target) => {
                target.as_ref().map(Target::server_ids).unwrap_or_default()
            }
            Self::OnBroker(log) => log.server_ids(),
        }
    }

    fn size_bytes(&self) -> u64 {
        match self {
            Self::OnMedium(log, _) => log.size_bytes(),
            Self::OnBroker(log) => log.size_bytes(),
        }
    }

    fn used_bytes(&self) -> Result<Option<u64>> {
        match self {
            Self::OnMedium(_, Some(target)) => target.used_bytes(),
            Self::OnMedium(_, None) | Self::OnBroker(_) => Ok(None),
        }
    }

    fn flags(&self) -> Vec<String> {
        match self {
            Self::OnMedium(log, _) => log.flags(),
            Self::OnBroker(log) => log.flags(),
        }
    }
}

impl<'plan> Bench<'plan> {
    fn new(
        backend: LogBackend,
        memory_bytes: u64,
        (arguments, session): (&'plan Arguments, &'plan Session),
    ) -> Self {
        Self { backend, memory_bytes, arguments, session, standing: RefCell::new(None) }
    }

    fn cost(&self, repeat: u32) -> Cost {
        let of_brokers = match self.backend {
            LogBackend::Broker(_) => {
                self.arguments.deliveries.len() + self.arguments.consumers.len()
            }
            _ => 0,
        };
        let load_count = self.loads().len() * (1 + self.arguments.rates.len()) + of_brokers;
        let seconds = self.arguments.seconds(self.session.profile) * 1.2 * load_count as f64;
        let whole_seconds = Duration::from_secs_f64(seconds.ceil()).as_secs();
        let fill_bytes = if repeat == 0 { self.arguments.log_bytes() } else { 0 };
        let bytes_per_s = self.backend.bytes_per_s_expected();
        Cost {
            seconds: seconds + fill_bytes as f64 / bytes_per_s as f64,
            written_bytes: fill_bytes + bytes_per_s * whole_seconds / 2,
            memory_bytes: self.memory_bytes,
        }
    }

    fn sync(&self) -> Sync {
        if self.arguments.sync { Sync::EachAppend } else { Sync::Never }
    }

    /// Returns each mix with each number of threads, as fast as possible.
    fn loads(&self) -> Vec<Load> {
        let arguments = self.arguments;
        let (ramp, duration) = self.times();
        let mut loads: Vec<Load> = Vec::new();
        for count in arguments.threads(self.session.cores) {
            for &mix in &arguments.mixes {
                let load = Load {
                    mix,
                    threads: if count == 1 { Threads::One } else { Threads::Apart },
                    readers: (count - 1).max(1),
                    data: arguments.data,
                    sync: self.sync(),
                    pacing: Loop::Closed,
                    seed: self.session.seed,
                    ramp,
                    duration,
                };
                let is_known = loads.iter().any(|other| {
                    (other.mix, other.thread_count()) == (load.mix, load.thread_count())
                });
                // With a broker each thread has its own connection for one kind of request.
                let is_in_turn = load.threads == Threads::One && mix.has_reads();
                let fits = !(is_in_turn && matches!(self.backend, LogBackend::Broker(_)));
                // Appends use one thread, regardless of the number.
                if fits && !is_known {
                    loads.push(load);
                }
            }
        }
        loads
    }

    fn measure(&self, repeat: u32) -> Result<Vec<Row>> {
        let standing = self.standing.take();
        let standing = match standing {
            Some(standing) => standing,
            None => self.fill()?,
        };
        let rows = self.measure_loads(&standing, repeat)?;
        // After an error the state of the log is unknown, so the next step creates another.
        self.standing.replace(Some(standing));
        Ok(rows)
    }

    fn fill(&self) -> Result<Standing> {
        let arguments = self.arguments;
        let log_bytes = arguments.log_bytes();
        let batches = Batches::new(arguments.data, self.session.seed ^ 0x10C);
        if let LogBackend::Broker(kind) = self.backend {
            let context = || format!("cannot fill a log of {kind}");
            let log = WireLog::fill((kind, self.sync()), log_bytes, batches);
            let log = log.with_context(context)?;
            return Ok(Standing::OnBroker(Box::new(log)));
        }
        let place = Place::new(log_bytes, self.session.destroy.clone());
        let open_backend = self.backend.open(&place)?;
        let readers = arguments.threads(self.session.cores).into_iter().max().unwrap_or(1);
        let log = Log::fill(
            (&self.backend.to_string(), open_backend.medium),
            log_bytes,
            readers,
            batches,
        )?;
        Ok(Standing::OnMedium(Box::new(log), open_backend.target))
    }

    fn measure_loads(&self, standing: &Standing, repeat: u32) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        let mut appends_alone = None;
        for (index, mut load) in self.loads().into_iter().enumerate() {
            // Messages are unique across measurements.
            load.seed = load.seed.wrapping_add((u64::from(repeat) << 32) + (index as u64) * 1000);
            let mut closed = self.measure_load(standing, &load, (repeat, None))?;
            let total = closed.figures[MESSAGES_TOTAL];
            if load.mix == Mix::APPENDS {
                appends_alone = Some(total);
            } else if let Some(alone) = appends_alone {
                closed.figures.insert(RATIO_TO_APPENDS.to_owned(), total / alone);
            }
            let fastest = closed.app.map_or(0.0, |app| app.iops);
            rows.push(closed);
            for &percent in &self.arguments.rates {
                ensure!(
                    fastest > 0.0,
                    "no operation completed, so there is no maximum rate to derive rates from"
                );
                load.seed += 100;
                load.pacing = Loop::Open { operations_per_s: fastest * f64::from(percent) / 100.0 };
                rows.push(self.measure_load(standing, &load, (repeat, Some(percent)))?);
            }
        }
        if let Standing::OnBroker(log) = standing {
            for &messages_per_s in &self.arguments.deliveries {
                rows.push(self.measure_delivery(log, messages_per_s, repeat)?);
            }
            for &consumers in &self.arguments.consumers {
                rows.push(self.measure_fan_out(log, consumers, repeat)?);
            }
        }
        Ok(rows)
    }

    fn measure_delivery(&self, log: &WireLog, messages_per_s: u32, repeat: u32) -> Result<Row> {
        let (ramp, duration) = self.times();
        let delivery = Delivery { messages_per_s, ramp, duration };
        let measure = || delivery::measure(log, delivery);
        let (meter, cpu, started) = with_cpu(&log.server_ids(), measure)?;
        let mut row = record::delivery_row(&self.backend.to_string(), delivery, &meter);
        row.repeat = repeat;
        row.time.started_unix_ms = started;
        row.cpu = Some(cpu);
        Ok(row)
    }

    fn measure_fan_out(&self, log: &WireLog, consumers: usize, repeat: u32) -> Result<Row> {
        let (ramp, duration) = self.times();
        let fan_out = FanOut { consumers, ramp, duration };
        let measure = || fan_out::measure(log, fan_out);
        let (consumed, cpu, started) = with_cpu(&log.server_ids(), measure)?;
        let mut row = record::fan_out_row(&self.backend.to_string(), fan_out, consumed);
        row.repeat = repeat;
        row.time.started_unix_ms = started;
        row.cpu = Some(cpu);
        Ok(row)
    }

    /// Returns the warm-up time and the measured time.
    fn times(&self) -> (Duration, Duration) {
        let duration = Duration::from_secs_f64(self.arguments.seconds(self.session.profile));
        (duration.mul_f64(0.2).min(Duration::from_secs(1)), duration)
    }

    fn measure_load(
        &self,
        standing: &Standing,
        load: &Load,
        (repeat, rate_percent): (u32, Option<u32>),
    ) -> Result<Row> {
        let (measured, cpu, started) = with_cpu(&standing.server_ids(), || standing.measure(load))?;
        let about = About {
            target: &self.backend.to_string(),
            log_bytes: standing.size_bytes(),
            repeat,
            rate_percent,
        };
        let mut row = record::row(about, load, &measured);
        row.time.started_unix_ms = started;
        row.cpu = Some(cpu);
        let written_bytes = standing.size_bytes();
        let used_bytes = standing.used_bytes()?;
        row.store = used_bytes.map(|used_bytes| StoreUse { written_bytes, used_bytes });
        standing.flags().into_iter().for_each(|flag| row.flag(flag));
        Ok(row)
    }
}

/// Measures, and returns processor times and the start in Unix milliseconds. The load generator is
/// this process, including warm-up.
fn with_cpu<T>(server_ids: &[u32], measure: impl FnOnce() -> Result<T>) -> Result<(T, Cpu, u64)> {
    let started = crate::run::unix_ms(SystemTime::now());
    let cpu_meter = CpuMeter::start(server_ids)?;
    let own_before = processor_seconds(std::process::id())?;
    let measured = measure()?;
    let own_s = processor_seconds(std::process::id())? - own_before;
    let (cpu, _) = cpu_meter.finish()?;
    Ok((measured, Cpu { generator_s: cpu.generator_s + own_s, ..cpu }, started))
}
