//! Comparison of two recorded runs.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use results::{CaseComparison, Comparison, Estimate, RunFolder, Verdict, compare, summarise};

use crate::output::{self, Form};

/// Exit code for a regression.
const WORSE_EXIT_CODE: u8 = 3;

/// Exit code if the runs are not comparable.
const NOT_COMPARABLE_EXIT_CODE: u8 = 4;

#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Exit status: 0 nothing is worse, 3 something is worse, 4 the runs are \
                        not comparable, 1 failure. A case differs if the 95 % confidence \
                        intervals of its repeats do not overlap and the medians differ by more \
                        than the tolerance. That takes at least three repeats, as in the \
                        standard profile.")]
pub(crate) struct Arguments {
    /// Directory of the baseline run
    #[arg(value_name = "A")]
    before: PathBuf,
    /// Directory of the run to compare with it
    #[arg(value_name = "B")]
    after: PathBuf,
    /// Tolerance of a median before it counts as worse: 5%, 0.5%
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = share)]
    fail_if_worse: f64,
}

pub(crate) fn run(arguments: &Arguments, form: Form) -> Result<ExitCode> {
    let before = RunFolder::open(&arguments.before)?;
    let after = RunFolder::open(&arguments.after)?;
    let (cases_before, cases_after) = (summarise(before.rows()), summarise(after.rows()));
    let comparison = compare(
        (before.manifest(), &cases_before),
        (after.manifest(), &cases_after),
        arguments.fail_if_worse,
    );
    match form {
        Form::Json => output::json(&comparison),
        Form::Text => output::note(&text(&comparison)),
    }
    Ok(ExitCode::from(exit_code(comparison.verdict)))
}

fn exit_code(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Same | Verdict::Better => 0,
        Verdict::Worse => WORSE_EXIT_CODE,
        Verdict::NotComparable => NOT_COMPARABLE_EXIT_CODE,
    }
}

/// Parses `5%` or `5` as 0.05.
fn share(text: &str) -> Result<f64> {
    let number = text.trim().trim_end_matches('%').trim();
    match number.parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent / 100.0),
        _ => bail!("invalid share {text:?}; use for example 5%"),
    }
}

fn text(comparison: &Comparison) -> String {
    let mut parts = Vec::new();
    if !comparison.cases.is_empty() {
        let names = "suite | case | target | measure | A | B | gain | verdict";
        let mut table = output::heading(names);
        table.extend(comparison.cases.iter().map(line));
        parts.push(output::table(&table));
    }
    parts.extend(comparison.notes.iter().cloned());
    parts.extend(comparison.obstacle.clone());
    let count = |verdict| comparison.cases.iter().filter(|case| case.verdict == verdict).count();
    parts.push(format!(
        "{}: {} worse, {} better, {} the same, {} not comparable",
        comparison.verdict.name(),
        count(Verdict::Worse),
        count(Verdict::Better),
        count(Verdict::Same),
        count(Verdict::NotComparable)
    ));
    parts.join("\n")
}

fn line(case: &CaseComparison) -> Vec<String> {
    let estimate = |it: &Option<Estimate>| it.as_ref().map_or_else(|| "-".to_owned(), cell);
    let gain = case.gain.map_or_else(|| "-".to_owned(), |gain| format!("{:+.1} %", gain * 100.0));
    let verdict = match &case.reason {
        Some(reason) => format!("{}: {reason}", case.verdict.name()),
        None => case.verdict.name().to_owned(),
    };
    vec![
        case.suite.name().to_owned(),
        case.case.clone(),
        case.target.clone(),
        case.measure.clone().unwrap_or_default(),
        estimate(&case.before),
        estimate(&case.after),
        gain,
        verdict,
    ]
}

/// Formats `701 [690, 712]`, with a suitable number of digits.
fn cell(estimate: &Estimate) -> String {
    let digits = if estimate.median.abs() < 100.0 { 3 } else { 0 };
    let median = format!("{:.digits$}", estimate.median);
    match estimate.ci95 {
        Some((low, high)) => format!("{median} [{low:.digits$}, {high:.digits$}]"),
        None => median,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tolerance_is_a_share_in_percent() {
        assert_eq!(share("5%").ok(), Some(0.05));
        assert_eq!(share("0.5").ok(), Some(0.005));
        assert!(share("five").is_err());
        assert!(share("-1%").is_err());
    }

    #[test]
    fn only_what_got_worse_or_cannot_be_said_fails() {
        let codes = [Verdict::Same, Verdict::Better, Verdict::Worse, Verdict::NotComparable];
        assert_eq!(codes.map(exit_code), [0, 0, 3, 4]);
    }
}
