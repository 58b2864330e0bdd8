//! Step of a plan that runs a fio job on a target, and the resulting row.

use std::fs;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result};
use results::{CPU_FOR_EACH_IO, Row, Suite};
use serde_json::{Value, json};
use system::Random;

use crate::run::{Cost, Profile, Session, Skip, Step};
use crate::targets::fio::{Amount, Contents, Job, Starts};
use crate::targets::{
    CoresAwake, Kind, LazyTarget, Measured, Place, Spec, Target, fill, measure, wait_until_idle,
};

/// Overhead of a fio run beyond its measured time.
const FIO_SECONDS: f64 = 0.28;

/// Times for plans: preparation of a measurement, and set-up of a target.
const SETTLING_SECONDS: f64 = 0.15;
const SET_UP_SECONDS: f64 = 2.0;

/// Approximate throughput of targets, for plans.
const BYTES_PER_S_EXPECTED: f64 = 1e9;

/// Maximum time to wait for earlier activity to finish.
pub(crate) const SETTLING_TIME_LIMIT: Duration = Duration::from_secs(2);
pub(crate) const BUSY_FLAG: &str = "the machine was busy before it began";

pub(crate) const AWAKE_SUFFIX: &str = " (cores kept awake)";

/// State of the cores during a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cores {
    /// Not influenced.
    Free,
    /// Kept awake, for targets that do not do so themselves.
    Awake,
}

/// A single measurement of a job on a target.
pub(crate) struct FioStep {
    pub(crate) suite: Suite,
    pub(crate) case: String,
    pub(crate) target: Rc<LazyTarget>,
    pub(crate) job: Job,
    /// Request size of the initial fill, which is done once.
    pub(crate) fill_block_bytes: u32,
    pub(crate) repeat: u32,
    pub(crate) cores: Cores,
    /// Memory used during the step, including targets set up beside it.
    pub(crate) memory_bytes: u64,
    /// Set if this step includes the initial fill.
    pub(crate) begins_with_fill: bool,
}

impl FioStep {
    pub(crate) fn into_step(self, session: &Session) -> Step<'_> {
        let suffix = if self.cores == Cores::Awake { AWAKE_SUFFIX } else { "" };
        let target = format!("{}{suffix}", self.target.spec());
        Step {
            suite: self.suite,
            case: self.case.clone(),
            target: target.clone(),
            repeat: self.repeat,
            cost: self.cost(),
            measure: Box::new(move || Ok(vec![self.measure(&target, session)?])),
        }
    }

    fn cost(&self) -> Cost {
        let seconds = match self.job.amount {
            Amount::Seconds(seconds) => seconds,
            Amount::Once => self.target.place().size_bytes as f64 / BYTES_PER_S_EXPECTED,
        };
        let (fill_bytes, set_up_seconds) = match self.begins_with_fill {
            true => (self.target.place().size_bytes, SET_UP_SECONDS),
            false => (0, 0.0),
        };
        let written =
            if self.job.pattern.is_write() { seconds * BYTES_PER_S_EXPECTED } else { 0.0 };
        Cost {
            seconds: SETTLING_SECONDS
                + FIO_SECONDS
                + seconds
                + set_up_seconds
                + fill_bytes as f64 / BYTES_PER_S_EXPECTED,
            written_bytes: fill_bytes + whole(written),
            memory_bytes: self.memory_bytes,
        }
    }

    fn measure(&self, name: &str, session: &Session) -> Result<Row> {
        let target = self.target.get()?;
        fill(target, self.fill_block_bytes)?;
        let is_quiet = wait_until_idle(SETTLING_TIME_LIMIT)?;
        let measured = {
            let _awake = match self.cores {
                Cores::Free => None,
                Cores::Awake => Some(CoresAwake::hold()?),
            };
            measure(&self.job, target)?
        };
        let raw = session.raw_path.join(self.raw_name(name));
        fs::write(&raw, &measured.raw)
            .with_context(|| format!("cannot keep fio's report in {}", raw.display()))?;
        let mut row = self.row(name, target, measured);
        if !is_quiet {
            row.flag(BUSY_FLAG);
        }
        Ok(row)
    }

    fn raw_name(&self, target: &str) -> PathBuf {
        let words = format!("{} {target} {} {}", self.suite.name(), self.case, self.repeat);
        let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
        PathBuf::from(words.chars().map(plain).collect::<String>()).with_extension("json")
    }

    fn row(&self, name: &str, target: &Target, measured: Measured) -> Row {
        let mut row = Row::new(self.suite, &*self.case, name);
        row.repeat = self.repeat;
        row.params.extend(self.params(target, &measured));
        row.time = measured.time;
        row.device = measured.device;
        row.store = measured.store;
        row.cpu = Some(measured.cpu);
        row.generator_share = Some(measured.generator_share);
        let outcome = measured.outcome;
        let mut figure = |name: &str, value: f64| row.figures.insert(name.to_owned(), value);
        let ops = outcome.io.ops as f64;
        figure(CPU_FOR_EACH_IO, measured.cpu.busy_s() * 1e9 / ops);
        if let Some(device) = measured.device {
            let requests = device.read_requests + device.write_requests;
            figure("device_iops", requests as f64 / outcome.duration_s);
        }
        for (name, mean) in [
            ("submission_ns_mean", outcome.latency.submission_mean),
            ("completion_ns_mean", outcome.latency.completion_mean),
        ] {
            if let Some(mean) = mean {
                figure(name, mean);
            }
        }
        row.app = Some(outcome.io);
        row.latency = Some(outcome.latency);
        if target.counts_exactly() == Some(false) {
            row.flag("the device does not count requests to the sector");
        }
        if target.loses_concurrent_writes() {
            row.flag("it loses data when several writes are under way");
        }
        row
    }

    fn params(&self, target: &Target, measured: &Measured) -> Vec<(String, Value)> {
        let job = &self.job;
        let own = [
            ("buffers", json!(contents_name(job.contents))),
            ("starts", json!(if job.starts == Starts::Apart { "apart" } else { "together" })),
            ("fill_block_bytes", json!(self.fill_block_bytes)),
            ("command", json!(measured.command)),
            ("watched_s", json!(measured.watched_s)),
        ];
        let mut params = params_of(job, target, &measured.outcome.version);
        params.extend(own.map(|(name, value)| (name.to_owned(), value)));
        params
    }
}

/// Returns the parameters in rows of a job with random data on a filled target, for any load
/// generator.
pub(crate) fn params_of(job: &Job, target: &Target, generator: &str) -> Vec<(String, Value)> {
    let params = [
        ("rw", json!(job.pattern.to_string())),
        ("block_bytes", json!(job.block_bytes)),
        ("jobs", json!(job.jobs)),
        ("queue_depth", json!(job.queue_depth)),
        ("data", json!("random")),
        ("working_bytes", json!(target.size_bytes())),
        ("preconditioned", json!(true)),
        ("durability", json!(target.durability().to_string())),
        ("reduces", json!(target.reduces())),
        ("generator", json!(generator)),
        ("server", json!(target.server_command())),
    ];
    params.map(|(name, value)| (name.to_owned(), value)).into()
}

fn contents_name(contents: Contents) -> &'static str {
    match contents {
        Contents::Refilled => "refilled",
        Contents::PreBuilt => "pre-built",
    }
}

/// Formats `randread 4096 jobs=1 depth=1`.
pub(crate) fn case_name(job: &Job) -> String {
    let Job { pattern, block_bytes, jobs, queue_depth, .. } = job;
    format!("{pattern} {block_bytes} jobs={jobs} depth={queue_depth}")
}

/// Returns the size of targets, which exceeds the caches.
pub(crate) fn place(size_mib: Option<u64>, session: &Session) -> Place {
    let mib = size_mib.unwrap_or(match session.profile {
        Profile::Quick => 512,
        Profile::Standard => 1024,
        Profile::Full => 2048,
    });
    Place::new(mib << 20, session.destroy.clone())
}

/// Returns the available targets, and skips for requested ones that are not. A device given by the
/// user always counts as requested.
pub(crate) fn sort_out(
    suite: Suite,
    specs: Vec<Spec>,
    place: &Place,
) -> (Vec<Rc<LazyTarget>>, Vec<Skip>) {
    let named = place.destroy.clone().map(|device| Spec::from(Kind::Path(device)));
    let mut targets: Vec<Rc<LazyTarget>> = Vec::new();
    let mut skipped = Vec::new();
    for spec in specs.into_iter().chain(named) {
        if targets.iter().any(|target| *target.spec() == spec) {
            continue;
        }
        match spec.missing(place) {
            None => targets.push(Rc::new(LazyTarget::new(spec, place.clone()))),
            Some(reason) => skipped.push(Skip::new(suite, "all cases", spec, reason)),
        }
    }
    (targets, skipped)
}

/// Returns the total memory of the targets.
pub(crate) fn memory_bytes(targets: &[Rc<LazyTarget>]) -> u64 {
    targets.iter().map(|target| target.spec().memory_bytes(target.place())).sum()
}

/// Shuffles items with a seeded generator.
pub(crate) fn shuffle<T>(items: &mut [T], random: &mut Random) {
    for end in (1..items.len()).rev() {
        let other = random.index(end + 1);
        items.swap(end, other);
    }
}

fn whole(bytes: f64) -> u64 {
    std::time::Duration::from_secs_f64(bytes / 1e9).as_nanos().try_into().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_decides_the_order() {
        let order = |seed| {
            let mut items: Vec<u32> = (0..20).collect();
            shuffle(&mut items, &mut Random::new(seed));
            items
        };
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
        let mut sorted = order(3);
        sorted.sort_unstable();
        assert_eq!(sorted, (0..20).collect::<Vec<u32>>());
    }

    #[test]
    fn bytes_are_made_whole() {
        assert_eq!(whole(1_500_000_000.4), 1_500_000_000);
    }
}
