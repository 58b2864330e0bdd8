//! Resource consumption of idle servers.

use std::rc::Rc;
use std::time::{Duration, SystemTime};

use anyhow::{Result, ensure};
use results::{Row, Suite};
use serde_json::json;
use system::{Ability, Daemon, attach, missing, processor_seconds_of_threads};

use crate::run::{Cost, Plan, Profile, Session, Skip, Step, unix_ms};
use crate::targets::{CpuMeter, LazyTarget, stay_idle};

pub(super) const CASE: &str = "idle";

/// Percentage of one core.
pub(super) const CORE_PERCENT: &str = "idle_core_percent";

const EIGHT_CASE: &str = "idle with 8 volumes attached";
const VOLUMES: u32 = 8;
const POOL_SIZE: &str = "256MiB";
const POOL_BYTES: u64 = 256 << 20;

/// Time before the window, for earlier requests to complete.
const SETTLING: Duration = Duration::from_secs(1);

fn window(profile: Profile) -> Duration {
    Duration::from_secs(match profile {
        Profile::Quick => 3,
        Profile::Standard => 10,
        Profile::Full => 60,
    })
}

/// Plans a step for all targets at once, with a row for each that has a process.
pub(super) fn step<'plan>(
    targets: &[Rc<LazyTarget>],
    session: &'plan Session,
    memory_bytes: u64,
) -> Step<'plan> {
    let targets = targets.to_vec();
    let window = window(session.profile);
    let seconds = (SETTLING + window).as_secs_f64();
    Step {
        suite: Suite::Peers,
        case: CASE.to_owned(),
        target: "all targets".to_owned(),
        repeat: 0,
        cost: Cost { seconds, written_bytes: 0, memory_bytes },
        measure: Box::new(move || watch(&targets, window)),
    }
}

fn watch(targets: &[Rc<LazyTarget>], window: Duration) -> Result<Vec<Row>> {
    stay_idle(SETTLING)?;
    let mut watches = Vec::new();
    for target in targets.iter().filter_map(|target| target.opened()) {
        let ids = target.server_ids();
        if !ids.is_empty() {
            watches.push((target.name(), Watch::start(ids)?));
        }
    }
    stay_idle(window)?;
    watches.iter().map(|(name, watch)| watch.row(CASE, name)).collect()
}

/// Adds a measurement of a separate daemon with unused volumes.
pub(super) fn add_eight_volumes<'plan>(session: &'plan Session, plan: &mut Plan<'plan>) {
    let target = "volume attached";
    if let Some(reason) = missing(&[Ability::BlockDevices]) {
        plan.skipped.push(Skip::new(Suite::Peers, EIGHT_CASE, target, reason));
        return;
    }
    let window = window(session.profile);
    for repeat in 0..session.profile.repeats() {
        plan.steps.push(Step {
            suite: Suite::Peers,
            case: EIGHT_CASE.to_owned(),
            target: target.to_owned(),
            repeat,
            cost: Cost {
                seconds: (SETTLING + window).as_secs_f64() + 3.0,
                written_bytes: 0,
                memory_bytes: POOL_BYTES,
            },
            measure: Box::new(move || {
                let mut row = watch_eight(target, window)?;
                row.repeat = repeat;
                Ok(vec![row])
            }),
        });
    }
}

fn watch_eight(target: &str, window: Duration) -> Result<Row> {
    let daemon = Daemon::start_sized(POOL_SIZE.to_owned(), "")?;
    for number in 0..VOLUMES {
        daemon.memlane(&format!("volume create idle{number} --size 16MiB"))?;
        attach(&daemon, &format!("idle{number}"))?;
    }
    stay_idle(SETTLING)?;
    let ids = daemon.serving_ids();
    ensure!(!ids.is_empty(), "the daemon does not run");
    let watch = Watch::start(ids)?;
    stay_idle(window)?;
    let row = watch.row(EIGHT_CASE, target)?;
    daemon.finish()?;
    Ok(row)
}

/// Watched processes, with nanosecond accounting if the kernel provides it. Idle consumption is
/// below the usual ticks of 10 ms.
struct Watch {
    ids: Vec<u32>,
    used_s: f64,
    meter: CpuMeter,
}

impl Watch {
    fn start(ids: Vec<u32>) -> Result<Self> {
        let used_s = seconds_of(&ids)?;
        let meter = CpuMeter::start(&ids)?;
        Ok(Self { ids, used_s, meter })
    }

    fn row(&self, case: &str, target: &str) -> Result<Row> {
        let used_s = seconds_of(&self.ids)? - self.used_s;
        let (cpu, elapsed) = self.meter.finish()?;
        let seconds = elapsed.as_secs_f64();
        let mut row = Row::new(Suite::Peers, case, target);
        row.time.duration_s = seconds;
        row.time.started_unix_ms = unix_ms(SystemTime::now() - elapsed);
        row.params.insert("op".to_owned(), json!("idle"));
        row.params.insert("processes".to_owned(), json!(self.ids.len()));
        row.figures.insert(CORE_PERCENT.to_owned(), used_s / seconds * 100.0);
        let busy_percent = cpu.busy_s() / seconds * 100.0;
        row.figures.insert("idle_machine_core_percent".to_owned(), busy_percent);
        row.cpu = Some(cpu);
        Ok(row)
    }
}

fn seconds_of(ids: &[u32]) -> Result<f64> {
    ids.iter().map(|id| processor_seconds_of_threads(*id)).sum()
}
