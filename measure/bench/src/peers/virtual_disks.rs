//! Virtual disks without a virtual machine: volumes over vhost-user-blk compared with exports of
//! QEMU's storage daemon, using the same driver and the same jobs as other targets.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use anyhow::{Result, anyhow, bail};
use results::{CPU_FOR_EACH_IO, Io, LatencyKind, Row, Suite};
use system::{Random, processor_seconds};

use super::{AWAKE_SUFFIX, repeats};
use crate::fio_step::{BUSY_FLAG, Cores, SETTLING_TIME_LIMIT, case_name, params_of, shuffle};
use crate::run::{Cost, Plan, Session, Skip, Step, unix_ms};
use crate::targets::fio::{Job, Pattern};
use crate::targets::{
    Access, CoresAwake, CpuMeter, Kind, Place, Spec, Target, VhostDriver, VhostJob, wait_until_idle,
};

/// Times for plans: starting a server and writing everything once.
const SET_UP_SECONDS: f64 = 4.0;
const SETTLING_SECONDS: f64 = 0.2;

const GENERATOR: &str = "virtio-driver, one queue, sleeping for answers";

/// A disk, served and connected on first use. A failure is not retried.
struct Disk {
    spec: Spec,
    place: Place,
    made: RefCell<Option<Result<Made, String>>>,
}

/// Fields are dropped in order.
struct Made {
    driver: VhostDriver,
    target: Target,
}

/// Adds the jobs on these kinds, which are vhost-user disks.
pub(super) fn add<'plan>(
    kinds: &[Kind],
    (jobs, seconds): (&[(Job, Cores)], f64),
    place: &Place,
    session: &'plan Session,
    plan: &mut Plan<'plan>,
) {
    let mut disks = Vec::new();
    for kind in kinds {
        let spec = Spec::from(kind.clone());
        match spec.missing_for_any(place) {
            None => {
                disks.push(Rc::new(Disk { spec, place: place.clone(), made: RefCell::new(None) }))
            }
            Some(reason) => {
                plan.skipped.push(Skip::new(Suite::Peers, "all cases", spec, reason));
            }
        }
    }
    let memory_bytes = disks.iter().map(|disk| disk.spec.memory_bytes(place)).sum();
    let mut random = Random::new(session.seed ^ 0x5d);
    for repeat in 0..repeats(session.profile) {
        let mut steps = Vec::new();
        for disk in &disks {
            for (number, &(job, cores)) in jobs.iter().enumerate() {
                let fills = repeat == 0 && number == 0;
                let asked = Asked { job, cores, repeat, seconds };
                steps.push(step(disk, asked, (fills, memory_bytes), session));
            }
        }
        shuffle(&mut steps, &mut random);
        plan.steps.extend(steps);
    }
}

/// A job on a disk.
#[derive(Clone, Copy)]
struct Asked {
    job: Job,
    cores: Cores,
    repeat: u32,
    seconds: f64,
}

fn step<'plan>(
    disk: &Rc<Disk>,
    asked: Asked,
    (fills, memory_bytes): (bool, u64),
    session: &'plan Session,
) -> Step<'plan> {
    let suffix = if asked.cores == Cores::Awake { AWAKE_SUFFIX } else { "" };
    let target = format!("{}{suffix}", disk.spec);
    let set_up = if fills { SET_UP_SECONDS } else { 0.0 };
    let held = Rc::clone(disk);
    Step {
        suite: Suite::Peers,
        case: case_name(&asked.job),
        target: target.clone(),
        repeat: asked.repeat,
        cost: Cost {
            seconds: asked.seconds + SETTLING_SECONDS + set_up,
            written_bytes: if fills { disk.place.size_bytes } else { 0 },
            memory_bytes,
        },
        measure: Box::new(move || Ok(vec![held.measure(&target, &asked, session.seed)?])),
    }
}

impl Disk {
    fn measure(&self, name: &str, asked: &Asked, seed: u64) -> Result<Row> {
        let mut kept = self.made.borrow_mut();
        let made =
            kept.get_or_insert_with(|| self.make(seed).map_err(|error| format!("{error:#}")));
        let made = made.as_mut().map_err(|error| anyhow!("{error}"))?;
        let is_quiet = wait_until_idle(SETTLING_TIME_LIMIT)?;
        let _awake = match asked.cores {
            Cores::Free => None,
            Cores::Awake => Some(CoresAwake::hold()?),
        };
        let own_s = processor_seconds(std::process::id())?;
        let meter = CpuMeter::start(&made.target.server_ids())?;
        let job = VhostJob {
            is_write: asked.job.pattern == Pattern::RandomWrite,
            block_bytes: asked.job.block_bytes as usize,
            queue_depth: asked.job.queue_depth as usize,
            time: Duration::from_secs_f64(asked.seconds),
        };
        let outcome = match made.driver.run(&job) {
            Ok(outcome) => outcome,
            Err(error) => {
                // Its ring still has requests in flight, whose responses would reach the next job.
                *kept = None;
                return Err(error);
            }
        };
        let (mut cpu, elapsed) = meter.finish()?;
        cpu.generator_s = processor_seconds(std::process::id())? - own_s;
        let mut row = Row::new(Suite::Peers, case_name(&asked.job), name);
        row.repeat = asked.repeat;
        row.params.extend(params_of(&asked.job, &made.target, GENERATOR));
        row.time.duration_s = outcome.duration_s;
        row.time.started_unix_ms = unix_ms(SystemTime::now() - elapsed);
        let iops = outcome.ops as f64 / outcome.duration_s;
        let (block, ops) = (u64::from(asked.job.block_bytes), outcome.ops);
        let bytes_per_s = iops * block as f64;
        row.app = Some(Io { ops, bytes: ops * block, iops, bytes_per_s });
        row.latency = Some(outcome.latencies.recorded(LatencyKind::Service)?);
        row.figures.insert(CPU_FOR_EACH_IO.to_owned(), cpu.busy_s() * 1e9 / ops as f64);
        row.cpu = Some(cpu);
        if !is_quiet {
            row.flag(BUSY_FLAG);
        }
        Ok(row)
    }

    fn make(&self, seed: u64) -> Result<Made> {
        let target = self.spec.open(&self.place)?;
        let Access::VhostUser { socket } = target.access() else {
            bail!("{} has no socket of vhost-user", self.spec);
        };
        let mut driver = VhostDriver::connect(socket, seed)?;
        driver.fill()?;
        Ok(Made { driver, target })
    }
}
