//! The same jobs on volumes and alternatives, in an order determined by the seed.
//!
//! All targets are set up together and stay until the last job, so that all repeats have the same
//! conditions. Only one is under load at a time. Each is also measured with the cores kept awake
//! for it, because Memlane's daemon requests that itself under load.

mod idle;
mod pgbench;
mod tables;
mod virtual_disks;

use std::rc::Rc;

use anyhow::{Result, ensure};
use results::Suite;
use system::Random;

use crate::fio_step::{
    self, AWAKE_SUFFIX, Cores, FioStep, case_name, memory_bytes, shuffle, sort_out,
};
use crate::run::{Plan, Profile, Session, Skip};
use crate::targets::fio::{Amount, Contents, FileEngine, Job, Pattern, Starts};
use crate::targets::{CoresAwake, Kind, LazyTarget, Spec};

pub(crate) use tables::describe;

const FILL_BLOCK_BYTES: u32 = 128 << 10;
const BLOCK_BYTES: [u32; 2] = [4 << 10, 128 << 10];
const DEPTHS: [u32; 2] = [1, 16];

/// Minimum number of repeats for intervals.
const REPEATS_MIN: u32 = 3;

fn repeats(profile: Profile) -> u32 {
    profile.repeats().max(REPEATS_MIN)
}

/// All compared targets, Memlane first.
const TARGETS: &[Kind] = &[
    Kind::Volume,
    Kind::VolumeFile,
    Kind::VolumeRun,
    Kind::VolumeNbd,
    Kind::Zram,
    Kind::Tmpfs,
    Kind::Loop,
    Kind::Nbdkit,
    Kind::QemuNbd,
    Kind::QemuExportNbd,
    Kind::QemuExportFuse,
    Kind::Brd,
    Kind::NullBlk,
    Kind::Disk,
    Kind::Null,
    Kind::VolumeVhost,
    Kind::QemuExportVhost,
    Kind::QemuExportVhostThread,
    Kind::QemuExportVhostUring,
];

/// The parts of the suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Part {
    /// Reads and writes with fio
    Jobs,
    /// PostgreSQL with pgbench
    Pgbench,
    /// CPU time of idle servers
    Idle,
}

#[derive(Clone, Debug, clap::Args, serde::Serialize)]
pub(crate) struct Arguments {
    /// Run only these parts
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PART")]
    only: Vec<Part>,
    /// Run jobs only on these targets [default: all]
    #[arg(long = "target", value_delimiter = ',', value_name = "NAME")]
    targets: Vec<String>,
    /// Run only jobs whose names have this prefix: randread, "randread 4096", "randread 4096 jobs=1
    /// depth=16"
    #[arg(long = "case", value_delimiter = ',', value_name = "NAME")]
    cases: Vec<String>,
    /// Seconds for each job [default: set by --profile]
    #[arg(long)]
    seconds: Option<f64>,
    /// Size of each target [default: set by --profile]
    #[arg(long, value_name = "MIB")]
    size_mib: Option<u64>,
}

impl Arguments {
    fn wants(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }

    fn seconds(&self, profile: Profile) -> f64 {
        self.seconds.unwrap_or(match profile {
            Profile::Quick => 0.45,
            Profile::Standard => 2.2,
            Profile::Full => 60.0,
        })
    }

    /// Returns the jobs per target, and those also run with the cores kept awake.
    fn jobs(&self, profile: Profile) -> Vec<(Job, Cores)> {
        let mut jobs = jobs(self.seconds(profile), awake_jobs(profile));
        jobs.retain(|(job, _)| {
            let name = case_name(job);
            self.cases.is_empty() || self.cases.iter().any(|case| name.starts_with(case))
        });
        jobs
    }

    fn specs(&self, profile: Profile) -> Result<Vec<Spec>> {
        if !self.targets.is_empty() {
            return self.targets.iter().map(|word| Ok(word.parse::<Kind>()?.into())).collect();
        }
        // QEMU's two NBD servers share their code.
        let is_kept = |kind: &&Kind| profile != Profile::Quick || **kind != Kind::QemuExportNbd;
        Ok(TARGETS.iter().filter(is_kept).cloned().map(Spec::from).collect())
    }
}

pub(crate) fn plan<'plan>(
    arguments: &'plan Arguments,
    session: &'plan Session,
) -> Result<Plan<'plan>> {
    ensure!(arguments.seconds.is_none_or(|it| it > 0.0), "--seconds must be more than 0");
    ensure!(arguments.size_mib.is_none_or(|it| it >= 64), "--size-mib must be 64 or more");
    let is_known = !arguments.jobs(session.profile).is_empty();
    ensure!(
        is_known,
        "--case names no job: {} is the name of one",
        case_name(&jobs(1.0, AwakeJobs::None)[0].0)
    );
    let mut plan = Plan::default();
    if arguments.wants(Part::Jobs) {
        add_jobs(arguments, session, &mut plan)?;
    }
    if arguments.wants(Part::Pgbench) {
        pgbench::add(session, &mut plan);
    }
    if arguments.wants(Part::Idle) {
        idle::add_eight_volumes(session, &mut plan);
    }
    Ok(plan)
}

fn add_jobs<'plan>(
    arguments: &'plan Arguments,
    session: &'plan Session,
    plan: &mut Plan<'plan>,
) -> Result<()> {
    let place = fio_step::place(arguments.size_mib, session);
    let specs = arguments.specs(session.profile)?;
    let (disks, specs): (Vec<Spec>, Vec<Spec>) =
        specs.into_iter().partition(|spec| spec.kind.is_vhost_user());
    let (targets, skipped) = sort_out(Suite::Peers, specs, &place);
    plan.skipped.extend(skipped);
    if let Some(reason) = CoresAwake::missing() {
        let awake = format!("all targets{AWAKE_SUFFIX}");
        plan.skipped.push(Skip::new(Suite::Peers, "all cases", awake, reason));
    }
    let memory_bytes = memory_bytes(&targets);
    let mut random = Random::new(session.seed);
    for repeat in 0..repeats(session.profile) {
        let mut steps = Vec::new();
        for target in &targets {
            for (job, cores) in arguments.jobs(session.profile) {
                let is_of_null = target.spec().kind == Kind::Null;
                if is_of_null && cores == Cores::Awake {
                    continue;
                }
                steps.push(step(target, (job, cores), (repeat, memory_bytes)));
            }
        }
        shuffle(&mut steps, &mut random);
        if repeat == 0 {
            mark_fills(&mut steps);
        }
        plan.steps.extend(steps.into_iter().map(|step| step.into_step(session)));
        if repeat == 0 && !targets.is_empty() {
            // All targets are set up now and idle.
            plan.steps.push(idle::step(&targets, session, memory_bytes));
        }
    }
    let disks: Vec<Kind> = disks.into_iter().map(|spec| spec.kind).collect();
    let profile = session.profile;
    let jobs = (&*arguments.jobs(profile), arguments.seconds(profile));
    virtual_disks::add(&disks, jobs, &place, session, plan);
    Ok(())
}

fn awake_jobs(profile: Profile) -> AwakeJobs {
    match (CoresAwake::missing(), profile) {
        (Some(_), _) => AwakeJobs::None,
        (None, Profile::Quick) => AwakeJobs::Smallest,
        (None, Profile::Standard | Profile::Full) => AwakeJobs::All,
    }
}

/// Jobs that are also run with the cores kept awake.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AwakeJobs {
    None,
    /// Jobs that sleeping cores affect most.
    Smallest,
    All,
}

fn jobs(seconds: f64, awake: AwakeJobs) -> Vec<(Job, Cores)> {
    let mut jobs = Vec::new();
    for block_bytes in BLOCK_BYTES {
        for queue_depth in DEPTHS {
            for pattern in [Pattern::RandomRead, Pattern::RandomWrite] {
                let job = Job {
                    pattern,
                    block_bytes,
                    queue_depth,
                    jobs: 1,
                    engine: match queue_depth {
                        1 => FileEngine::Psync,
                        _ => FileEngine::Libaio,
                    },
                    contents: Contents::Refilled,
                    starts: Starts::Together,
                    niceness: None,
                    amount: Amount::Seconds(seconds),
                };
                jobs.push((job, Cores::Free));
                let is_smallest = (block_bytes, queue_depth) == (BLOCK_BYTES[0], 1);
                if awake == AwakeJobs::All || (awake == AwakeJobs::Smallest && is_smallest) {
                    jobs.push((job, Cores::Awake));
                }
            }
        }
    }
    jobs
}

fn step(
    target: &Rc<LazyTarget>,
    (job, cores): (Job, Cores),
    (repeat, memory_bytes): (u32, u64),
) -> FioStep {
    FioStep {
        suite: Suite::Peers,
        case: case_name(&job),
        target: Rc::clone(target),
        job,
        fill_block_bytes: FILL_BLOCK_BYTES,
        repeat,
        cores,
        memory_bytes,
        begins_with_fill: false,
    }
}

/// Marks the first step of each target, which includes its set-up.
fn mark_fills(steps: &mut [FioStep]) {
    let mut known: Vec<Spec> = Vec::new();
    for step in steps {
        let spec = step.target.spec();
        if !known.contains(spec) {
            known.push(spec.clone());
            step.begins_with_fill = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::parsed;

    fn planned(words: &[&str], check: impl FnOnce(Plan)) {
        let (arguments, session) = parsed(words);
        check(plan(&arguments, &session).expect("it can be planned"));
    }

    fn order(seed: &str) -> Vec<String> {
        let mut order = Vec::new();
        planned(&["--only=jobs", "--profile=standard", "--seed", seed], |plan| {
            let names = plan.steps.iter().map(|step| format!("{} {}", step.case, step.target));
            order = names.collect();
        });
        order
    }

    #[test]
    fn the_seed_decides_the_order_in_which_targets_are_met() {
        assert_eq!(order("7"), order("7"));
        if order("7").len() > 8 {
            assert_ne!(order("7"), order("8"));
        }
    }

    #[test]
    fn what_is_not_here_is_skipped_with_a_reason() {
        planned(&["--only=jobs"], |plan| {
            assert!(plan.skipped.iter().all(|skip| !skip.reason.is_empty()));
            let targets = plan.steps.iter().map(|step| &step.target);
            let skipped = plan.skipped.iter().map(|skip| &skip.target);
            let named =
                |name: &str| targets.clone().chain(skipped.clone()).any(|target| target == name);
            for name in ["volume attached", "zram lz4", "QEMU vhost-user-blk over tmpfs", "brd"] {
                assert!(named(name), "{name} is neither measured nor skipped");
            }
        });
    }

    #[test]
    fn only_the_parts_that_were_asked_for_are_planned() {
        planned(&["--only=idle"], |plan| {
            let only_idle = plan.steps.iter().all(|step| step.case.starts_with("idle"));
            assert!(only_idle && plan.steps.len() + plan.skipped.len() == 1);
        });
    }
}
