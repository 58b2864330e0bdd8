//! Options, plan and tables of the suite.

use std::thread;

use anyhow::{Context, Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use results::{Row, Suite, summarise};
use serde::Serialize;

use super::figures::Figures;
use super::measure::{Given, measure};
use crate::case::{self, Case, Op, Pattern};
use crate::contents::Data;
use crate::output::{self, Form};
use crate::run::{Cost, Plan, Profile, Session, Step};

/// Default seconds per case without a profile.
const SECONDS: f64 = 1.0;

/// Load of open loops in recorded runs.
const LOAD: f64 = 0.5;

/// Set-up time per GiB of working set, for plans.
const BED_SECONDS_A_GIB: f64 = 2.0;

#[derive(Clone, Debug, clap::Args, Serialize)]
#[command(after_help = "ratio_to_floor compares with copies by the same number of threads: \
                        floor_ns_mean with one thread, floor_threads_ns_mean with several. \
                        reduction is the ratio after at most ten idle seconds; \
                        idle_s_to_reduction is the time for which the engine had background work \
                        after the volume was filled.")]
pub(crate) struct Arguments {
    /// Seconds for each case [default: set by --profile, otherwise 1]
    #[arg(long)]
    seconds: Option<f64>,
    /// Run only cases with these parameters: op=read,threads=1,…
    #[arg(long, value_delimiter = ',', value_name = "KEY=VALUE")]
    only: Vec<String>,
    /// Working set of each case, in MiB
    #[arg(long, default_value_t = 2048)]
    working_mib: u64,
    /// Afterwards send requests at this share of the maximum rate, in an open loop
    #[arg(long, value_name = "SHARE")]
    load: Option<f64>,
}

impl Arguments {
    fn check(&self) -> Result<()> {
        let is_positive = |number: f64| number.is_finite() && number > 0.0;
        ensure!(self.seconds.is_none_or(is_positive), "--seconds must be more than 0");
        ensure!(self.working_mib >= 64, "--working-mib must be 64 or more");
        let is_share = |load: f64| is_positive(load) && load < 1.0;
        ensure!(self.load.is_none_or(is_share), "--load must be between 0 and 1");
        Ok(())
    }

    fn given(&self, seconds: f64, load: Option<f64>) -> Given {
        let working_bytes = self.working_mib << 20;
        Given { seconds: self.seconds.unwrap_or(seconds), working_bytes, load: self.load.or(load) }
    }
}

/// Measures the selected cases once and prints them.
pub(crate) fn run(arguments: &Arguments, form: Form) -> Result<()> {
    arguments.check()?;
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let cases = case::choose(&arguments.only, cores)?;
    let bar = progress_bar(cases.len());
    let mut all = Vec::new();
    for case in cases {
        bar.set_message(case.name());
        let figures = measure(&case, &arguments.given(SECONDS, None));
        all.push(figures.with_context(|| format!("cannot measure {}", case.name()))?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    if form == Form::Json {
        output::json(&all);
        return Ok(());
    }
    output::note(&output::table(&table(&all)));
    output::note("floor: copies of the same size in the same order on bare memory, same run");
    Ok(())
}

/// Plans one step per case and repeat.
pub(crate) fn plan<'plan>(
    arguments: &'plan Arguments,
    session: &'plan Session,
) -> Result<Plan<'plan>> {
    arguments.check()?;
    let cases = match session.profile {
        Profile::Quick | Profile::Standard if arguments.only.is_empty() => {
            telling_cases(session.cores)
        }
        _ => case::choose(&arguments.only, session.cores)?,
    };
    let seconds = match session.profile {
        Profile::Quick => 1.0,
        Profile::Standard => 5.0,
        Profile::Full => 30.0,
    };
    let mut plan = Plan::default();
    for repeat in 0..session.profile.repeats() {
        for case in &cases {
            let load = is_loaded(case).then_some(LOAD);
            plan.steps.push(step(*case, arguments.given(seconds, load), repeat));
        }
    }
    Ok(plan)
}

fn step<'plan>(case: Case, given: Given, repeat: u32) -> Step<'plan> {
    let working_gib = given.working_bytes as f64 / f64::from(1 << 30);
    // Bare memory, the pool and the originals of duplicates.
    let memory_bytes = given.working_bytes * 3 + given.working_bytes / 8;
    let loops = if given.load.is_some() { 2.0 } else { 1.0 };
    Step {
        suite: Suite::Engine,
        case: case.name(),
        target: "engine".to_owned(),
        repeat,
        cost: Cost {
            seconds: given.seconds * 1.5 * loops + working_gib * BED_SECONDS_A_GIB,
            written_bytes: given.working_bytes,
            memory_bytes,
        },
        measure: Box::new(move || {
            let figures = measure(&case, &given)?;
            Ok(vec![figures.recorded(&case, given.working_bytes, repeat)?])
        }),
    }
}

/// Returns the most informative cases for short runs.
fn telling_cases(cores: usize) -> Vec<Case> {
    let case = |op, block_bytes, data, threads| Case {
        op,
        block_bytes,
        pattern: Pattern::Rand,
        data,
        threads,
    };
    let (small, large) = (4 << 10, 128 << 10);
    let mut cases = vec![
        case(Op::Read, small, Data::Random, 1),
        case(Op::Read, small, Data::Compressible, 1),
        case(Op::Read, large, Data::Random, 1),
        case(Op::Overwrite, small, Data::Random, 1),
        case(Op::Overwrite, small, Data::Compressible, 1),
        case(Op::Overwrite, small, Data::Duplicate, 1),
        case(Op::Overwrite, small, Data::Zero, 1),
        case(Op::Overwrite, small, Data::Mixed, 1),
        case(Op::Overwrite, large, Data::Random, 1),
        case(Op::Write, large, Data::Random, 1),
        case(Op::Discard, small, Data::Random, 1),
    ];
    if cores > 1 {
        cases.push(case(Op::Read, small, Data::Random, 2));
        cases.push(case(Op::Overwrite, small, Data::Random, 2));
    }
    cases
}

fn is_loaded(case: &Case) -> bool {
    let is_telling = matches!(case.data, Data::Random | Data::Compressible);
    case.op == Op::Overwrite && case.block_bytes == 4096 && case.threads == 1 && is_telling
}

/// Formats the suite's rows: medians of all repeats.
pub(crate) fn describe(rows: &[&Row]) -> String {
    let mut table =
        output::heading("case | ns | p99 | p99.9 | GB/s | floor ns | ratio | reduction | n");
    for summary in summarise(rows.iter().copied()) {
        let cell = |name: &str, scale: f64, digits: usize| {
            let median = summary.measures.get(name).map(|estimate| estimate.median / scale);
            median.map_or_else(|| "-".to_owned(), |median| format!("{median:.digits$}"))
        };
        table.push(vec![
            summary.case.clone(),
            cell("ns_mean", 1.0, 0),
            cell("latency_ns_p99", 1.0, 0),
            cell("latency_ns_p999", 1.0, 0),
            cell("bytes_per_s", 1e9, 2),
            cell("floor_ns_mean", 1.0, 0),
            cell("ratio_to_floor", 1.0, 2),
            cell("reduction", 1.0, 2),
            summary.valid.to_string(),
        ]);
    }
    output::table(&table)
}

fn table(all: &[Figures]) -> Vec<Vec<String>> {
    let mut table = output::heading(
        "op | bytes | order | data | threads | ns | p50 | p99 | p99.9 | max | GB/s | floor ns | \
         ratio | reduction | LZ4",
    );
    for figures in all {
        table.push(vec![
            figures.op.name().to_owned(),
            figures.block_bytes.to_string(),
            figures.pattern.name().to_owned(),
            figures.data.to_owned(),
            figures.threads.to_string(),
            format!("{:.0}", figures.ns_mean),
            figures.ns_p50.to_string(),
            figures.ns_p99.to_string(),
            figures.ns_p999.to_string(),
            figures.ns_max.to_string(),
            format!("{:.2}", figures.bytes_per_s / 1e9),
            format!("{:.0}", figures.floor_threads_ns_mean.unwrap_or(figures.floor_ns_mean)),
            format!("{:.2}", figures.ratio_to_floor),
            format!("{:.2}", figures.reduction),
            figures.lz4_reduction.map_or_else(|| "-".to_owned(), |it| format!("{it:.2}")),
        ]);
    }
    table
}

fn progress_bar(length: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} {elapsed} eta {eta}")
        .expect("the template is fixed");
    ProgressBar::new(length as u64).with_style(style)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::parsed;

    #[test]
    fn every_telling_case_is_one_of_the_matrix() {
        let all = case::choose(&[], 2).expect("nothing is asked for");
        assert!(telling_cases(2).iter().all(|case| all.contains(case)));
    }

    #[test]
    fn a_case_is_measured_in_every_figure() {
        let case = Case {
            op: Op::Overwrite,
            block_bytes: 4096,
            pattern: Pattern::Rand,
            data: Data::Compressible,
            threads: 1,
        };
        let given = Given { seconds: 0.05, working_bytes: 16 << 20, load: Some(0.5) };
        let figures = measure(&case, &given).expect("there is memory for it");
        assert!(figures.ratio_to_floor > 0.0);
        assert!(figures.lz4_reduction.is_some_and(|it| it > 1.0));
        assert!(figures.intended_ns_p999 >= figures.intended_ns_p50);
        let row = figures.recorded(&case, given.working_bytes, 0).expect("requests were made");
        let schema = jsonschema::validator_for(&results::schema()).expect("the schema is one");
        let file = serde_json::json!([row]);
        let errors: Vec<String> = schema.iter_errors(&file).map(|it| it.to_string()).collect();
        assert!(errors.is_empty(), "{errors:?}");
        assert_eq!(row.headline().map(|(name, _)| name), Some("ns_mean"));
        assert!(row.measures()["intended_ns_p999"] > 0.0);
    }

    #[test]
    fn programs_find_every_figure_by_its_name() {
        let case = choose_one();
        let given = Given { seconds: 0.05, working_bytes: 16 << 20, load: None };
        let figures = measure(&case, &given).expect("there is memory for it");
        let printed = serde_json::to_value(&figures).expect("it is plain data");
        for name in ["ns_mean", "ns_p50", "ns_p99", "ns_p999", "ns_p9999", "ns_max"] {
            assert!(printed[name].as_f64().is_some_and(|it| it > 0.0), "{name}: {printed}");
        }
        for name in ["bytes_per_s", "floor_ns_mean", "ratio_to_floor"] {
            assert!(printed[name].as_f64().is_some_and(|it| it > 0.0), "{name}: {printed}");
        }
        assert_eq!(printed["op"], "read");
        assert_eq!(printed["pattern"], "rand");
        assert_eq!(printed["data"], "random");
        assert_eq!((&printed["block_bytes"], &printed["threads"]), (&4096.into(), &1.into()));
    }

    /// Selects a case as a script would.
    fn choose_one() -> Case {
        let only = "op=read,data=random,block_bytes=4096,pattern=rand,threads=1";
        let (arguments, _) = parsed::<Arguments>(&["--seconds", "1.5", "--only", only]);
        assert_eq!(arguments.seconds, Some(1.5));
        let cases = case::choose(&arguments.only, 2).expect("there is such a case");
        assert_eq!(cases.len(), 1);
        cases[0]
    }

    #[test]
    fn two_threads_are_compared_with_the_floor_of_two() {
        let case = Case {
            op: Op::Write,
            block_bytes: 4096,
            pattern: Pattern::Rand,
            data: Data::Duplicate,
            threads: 2,
        };
        let given = Given { seconds: 0.05, working_bytes: 16 << 20, load: None };
        let figures = measure(&case, &given).expect("there is memory for it");
        let floor = figures.floor_threads_ns_mean.expect("there are two threads");
        assert!((figures.ratio_to_floor - figures.ns_mean / floor).abs() < 1e-9);
        assert!(figures.scaling_to_floor.is_some_and(|it| it > 0.0));
        // The few writes in the time may use less memory than the pool's own tables.
        assert!(figures.reduction > 0.0, "{}", figures.reduction);
    }
}
