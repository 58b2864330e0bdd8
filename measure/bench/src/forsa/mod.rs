//! The ForsaOS matrix: block size, pattern and number of jobs at queue depth 1, with fio, using the
//! paper's flags and fairer ones.

mod tables;
mod variant;

use std::rc::Rc;

use anyhow::{Result, ensure};
use results::{Suite, papers};

use crate::fio_step::{self, Cores, FioStep, memory_bytes, sort_out};
use crate::run::{Plan, Profile, Session};
use crate::targets::fio::{Amount, Job, Pattern};
use crate::targets::{Kind, LazyTarget, Spec};

pub(crate) use tables::describe;
use variant::Variant;

/// Numbers of jobs in the paper's charts.
const JOBS: [u32; 6] = [1, 2, 4, 8, 16, 32];

/// Maximum number of jobs. More reveal nothing and use memory.
const JOBS_MAX: u32 = 256;

#[derive(Clone, Debug, clap::Args, serde::Serialize)]
pub(crate) struct Arguments {
    /// volume, nbd, fuse, zram, tmpfs, loop, disk and more, or a path with a slash
    #[arg(long = "target", value_delimiter = ',', default_value = "volume", value_name = "NAME")]
    targets: Vec<String>,
    /// Variants of the matrix [default: set by --profile]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "NAME")]
    variants: Vec<Variant>,
    /// Numbers of jobs [default: those of the paper]
    #[arg(long, value_delimiter = ',', value_name = "COUNT")]
    jobs: Vec<u32>,
    /// Seconds for each cell of the matrix [default: set by --profile]
    #[arg(long)]
    seconds: Option<f64>,
    /// Size of each target [default: set by --profile]
    #[arg(long, value_name = "MIB")]
    size_mib: Option<u64>,
}

impl Arguments {
    fn variants(&self, profile: Profile) -> Vec<Variant> {
        match (&self.variants[..], profile) {
            ([], Profile::Quick) => vec![Variant::Paper, Variant::PreBuilt],
            ([], _) => Variant::ALL.to_vec(),
            (variants, _) => variants.to_vec(),
        }
    }

    /// Returns the numbers of jobs. The fairer variants are compared with the paper's tables, which
    /// have fewer than its charts.
    fn jobs(&self, variant: Variant) -> Vec<u32> {
        match (&self.jobs[..], variant) {
            ([], Variant::Paper) => JOBS.to_vec(),
            ([], _) => papers::FORSA_JOBS.to_vec(),
            (counts, _) => counts.to_vec(),
        }
    }

    fn seconds(&self, profile: Profile) -> f64 {
        self.seconds.unwrap_or(match profile {
            Profile::Quick => 0.7,
            Profile::Standard => 2.2,
            Profile::Full => 1800.0,
        })
    }

    fn check(&self) -> Result<()> {
        let fit = self.jobs.iter().all(|count| (1..=JOBS_MAX).contains(count));
        ensure!(fit, "--jobs must be 1 to {JOBS_MAX}");
        ensure!(self.seconds.is_none_or(|it| it > 0.0), "--seconds must be more than 0");
        ensure!(self.size_mib.is_none_or(|it| it >= 64), "--size-mib must be 64 or more");
        Ok(())
    }
}

/// Plans target by target. Everything is written once per block size.
pub(crate) fn plan<'plan>(
    arguments: &'plan Arguments,
    session: &'plan Session,
) -> Result<Plan<'plan>> {
    arguments.check()?;
    let kinds = arguments.targets.iter().map(|word| word.parse::<Kind>().map(Spec::from));
    let place = fio_step::place(arguments.size_mib, session);
    let (targets, skipped) = sort_out(Suite::Forsa, kinds.collect::<Result<_>>()?, &place);
    let mut plan = Plan { steps: Vec::new(), skipped };
    for target in targets {
        for block_bytes in papers::FORSA_BLOCK_BYTES {
            let mut begins_with_fill = true;
            for repeat in 0..session.profile.repeats() {
                for (variant, job) in jobs(arguments, session, block_bytes) {
                    let step = step(&target, (variant, job), (repeat, begins_with_fill));
                    plan.steps.push(step.into_step(session));
                    begins_with_fill = false;
                }
            }
        }
    }
    Ok(plan)
}

fn jobs(arguments: &Arguments, session: &Session, block_bytes: u32) -> Vec<(Variant, Job)> {
    let amount = Amount::Seconds(arguments.seconds(session.profile));
    let mut jobs = Vec::new();
    for variant in arguments.variants(session.profile) {
        for pattern in Pattern::ALL {
            for count in arguments.jobs(variant) {
                jobs.push((variant, variant.job(pattern, block_bytes, count, amount)));
            }
        }
    }
    jobs
}

fn step(
    target: &Rc<LazyTarget>,
    (variant, job): (Variant, Job),
    (repeat, begins_with_fill): (u32, bool),
) -> FioStep {
    FioStep {
        suite: Suite::Forsa,
        case: variant.case(&job),
        target: Rc::clone(target),
        fill_block_bytes: job.block_bytes,
        job,
        repeat,
        cores: Cores::Free,
        memory_bytes: memory_bytes(std::slice::from_ref(target)),
        begins_with_fill,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::parsed;

    fn planned(words: &[&str], check: impl FnOnce(Result<Plan>)) {
        let (arguments, session) = parsed(words);
        check(plan(&arguments, &session));
    }

    #[test]
    fn the_standard_matrix_has_every_cell_of_the_paper_six_times() {
        planned(&["--target=null", "--profile=standard", "--variants=paper"], |plan| {
            let plan = plan.expect("it needs nothing");
            if !plan.skipped.is_empty() {
                eprintln!("skipped: {:?}", plan.skipped);
                return;
            }
            assert_eq!(plan.steps.len(), 2 * 4 * 6 * 6);
            assert!(plan.steps.iter().any(|step| step.case == "randwrite 131072 jobs=32 depth=1"));
        });
    }

    #[test]
    fn the_fairer_ways_are_measured_where_the_paper_has_tables() {
        planned(&["--target=null", "--profile=standard"], |plan| {
            let plan = plan.expect("it needs nothing");
            let fair = plan.steps.iter().filter(|step| step.case.ends_with("io_uring"));
            let skipped = !plan.skipped.is_empty();
            assert!(skipped || fair.count() == 2 * 4 * papers::FORSA_JOBS.len() * 6);
        });
    }

    #[test]
    fn a_target_that_is_unknown_is_an_error_that_lists_those_that_are() {
        planned(&["--target=floppy"], |plan| {
            let error = plan.err().expect("there is none");
            assert!(error.to_string().contains("zram"), "{error}");
        });
    }

    #[test]
    fn a_device_that_was_not_given_up_is_skipped_with_what_to_say() {
        planned(&["--target=/dev/null"], |plan| {
            let plan = plan.expect("it can be planned");
            assert!(plan.steps.is_empty());
            assert!(plan.skipped[0].reason.contains("neither"), "{:?}", plan.skipped);
        });
    }
}
