//! The Fusion ioMemory matrix: transfer size, queue depth and pattern, with fio and libaio.

mod tables;

use std::rc::Rc;

use anyhow::{Result, ensure};
use results::Suite;
use system::Random;

use crate::fio_step::{self, Cores, FioStep, case_name, memory_bytes, shuffle, sort_out};
use crate::run::{Plan, Profile, Session};
use crate::targets::fio::{Amount, Contents, FileEngine, Job, Pattern, Starts};
use crate::targets::{Kind, Layout, Spec};

pub(crate) use tables::describe;

/// Request size of the initial fill.
const FILL_BLOCK_BYTES: u32 = 128 << 10;

const DEPTH_MAX: u32 = 1024;
const BLOCK_KIB_MAX: u32 = 16 << 10;

/// Targets of the jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum On {
    /// The target itself
    Raw,
    /// A file on an ext4 file system on the target, as in the paper
    Ext4,
}

#[derive(Clone, Debug, clap::Args, serde::Serialize)]
pub(crate) struct Arguments {
    /// volume, nbd, fuse, zram, tmpfs, loop, disk and more, or a path with a slash
    #[arg(long = "target", value_delimiter = ',', default_value = "volume", value_name = "NAME")]
    targets: Vec<String>,
    /// Object that the jobs use
    #[arg(long, value_enum, value_delimiter = ',', default_value = "raw", value_name = "WHAT")]
    on: Vec<On>,
    /// Transfer sizes [default: set by --profile]
    #[arg(long, value_delimiter = ',', value_name = "KIB")]
    block_kib: Vec<u32>,
    /// Queue depths [default: set by --profile]
    #[arg(long, value_delimiter = ',', value_name = "COUNT")]
    depths: Vec<u32>,
    /// Seconds for each cell of the matrix [default: set by --profile]
    #[arg(long)]
    seconds: Option<f64>,
    /// Size of each target [default: set by --profile]
    #[arg(long, value_name = "MIB")]
    size_mib: Option<u64>,
}

impl Arguments {
    fn block_kib(&self, profile: Profile) -> Vec<u32> {
        match (&self.block_kib[..], profile) {
            ([], Profile::Quick) => vec![2, 4, 16, 64, 256, 1024],
            ([], _) => (1..=10).map(|shift| 1 << shift).collect(),
            (sizes, _) => sizes.to_vec(),
        }
    }

    fn depths(&self, profile: Profile) -> Vec<u32> {
        match (&self.depths[..], profile) {
            ([], Profile::Quick) => vec![1, 8, 64],
            ([], _) => (0..=6).map(|shift| 1 << shift).collect(),
            (depths, _) => depths.to_vec(),
        }
    }

    fn seconds(&self, profile: Profile) -> f64 {
        self.seconds.unwrap_or(match profile {
            Profile::Quick => 0.45,
            Profile::Standard => 1.0,
            Profile::Full => 60.0,
        })
    }

    fn check(&self) -> Result<()> {
        let sizes_fit = self.block_kib.iter().all(|kib| (1..=BLOCK_KIB_MAX).contains(kib));
        ensure!(sizes_fit, "--block-kib must be 1 to {BLOCK_KIB_MAX}");
        let depths_fit = self.depths.iter().all(|depth| (1..=DEPTH_MAX).contains(depth));
        ensure!(depths_fit, "--depths must be 1 to {DEPTH_MAX}");
        ensure!(self.seconds.is_none_or(|it| it > 0.0), "--seconds must be more than 0");
        ensure!(self.size_mib.is_none_or(|it| it >= 64), "--size-mib must be 64 or more");
        Ok(())
    }

    fn specs(&self) -> Result<Vec<Spec>> {
        let mut specs = Vec::new();
        for word in &self.targets {
            let kind: Kind = word.parse()?;
            for on in &self.on {
                let layout = match on {
                    On::Raw => Layout::Raw,
                    On::Ext4 => Layout::Ext4,
                };
                specs.push(Spec { kind: kind.clone(), layout });
            }
        }
        Ok(specs)
    }
}

/// Plans target by target, with the cells of each repeat in an order determined by the seed.
pub(crate) fn plan<'plan>(
    arguments: &'plan Arguments,
    session: &'plan Session,
) -> Result<Plan<'plan>> {
    arguments.check()?;
    let mut place = fio_step::place(arguments.size_mib, session);
    if arguments.block_kib(session.profile).iter().any(|kib| kib << 10 < place.sector_bytes) {
        place.sector_bytes = 512;
    }
    let (targets, skipped) = sort_out(Suite::Fusion, arguments.specs()?, &place);
    let mut random = Random::new(session.seed);
    let mut plan = Plan { steps: Vec::new(), skipped };
    for target in targets {
        let mut begins_with_fill = true;
        for repeat in 0..session.profile.repeats() {
            let mut jobs = jobs(arguments, session.profile);
            shuffle(&mut jobs, &mut random);
            for job in jobs {
                let step = FioStep {
                    suite: Suite::Fusion,
                    case: case_name(&job),
                    target: Rc::clone(&target),
                    job,
                    fill_block_bytes: FILL_BLOCK_BYTES,
                    repeat,
                    cores: Cores::Free,
                    memory_bytes: memory_bytes(std::slice::from_ref(&target)),
                    begins_with_fill,
                };
                plan.steps.push(step.into_step(session));
                begins_with_fill = false;
            }
        }
    }
    Ok(plan)
}

fn jobs(arguments: &Arguments, profile: Profile) -> Vec<Job> {
    let mut jobs = Vec::new();
    for kib in arguments.block_kib(profile) {
        for queue_depth in arguments.depths(profile) {
            for pattern in Pattern::ALL {
                jobs.push(Job {
                    pattern,
                    block_bytes: kib << 10,
                    queue_depth,
                    jobs: 1,
                    engine: FileEngine::Libaio,
                    contents: Contents::Refilled,
                    starts: Starts::Together,
                    niceness: None,
                    amount: Amount::Seconds(arguments.seconds(profile)),
                });
            }
        }
    }
    jobs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::parsed;

    #[test]
    fn the_standard_matrix_has_ten_sizes_seven_depths_and_four_patterns_six_times() {
        let (arguments, session) = parsed(&["--target=null", "--profile=standard"]);
        let plan = plan(&arguments, &session).expect("it needs nothing");
        if !plan.skipped.is_empty() {
            eprintln!("skipped: {:?}", plan.skipped);
            return;
        }
        assert_eq!(plan.steps.len(), 10 * 7 * 4 * 6);
        for case in ["read 2048 jobs=1 depth=1", "randwrite 1048576 jobs=1 depth=64"] {
            assert_eq!(plan.steps.iter().filter(|step| step.case == case).count(), 6);
        }
    }
}
