//! Comparison of a suite's results with known failures.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

/// Result of one test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Passed,
    Failed,
    /// Skipped by the suite itself.
    LeftOut,
}

/// Results of tests by name.
pub(super) type Outcomes = BTreeMap<String, Outcome>;

/// Numbers for a guide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    pub passed: usize,
    /// Tests that cannot pass, for a known reason.
    pub known: usize,
    pub left_out: usize,
}

/// Compares the results with the list of known failures.
pub(super) fn judge(outcomes: Outcomes, known: &str, passed_min: usize) -> Result<Counts> {
    let known = reasons(known)?;
    let is_known = |name: &str| known.contains_key(name);
    let of = |outcome: Outcome| {
        let names = outcomes.iter().filter(move |(_, it)| **it == outcome).map(|(name, _)| &**name);
        names.collect::<Vec<&str>>()
    };
    let (passed, failed) = (of(Outcome::Passed), of(Outcome::Failed));
    let surprises: Vec<_> = failed.iter().filter(|name| !is_known(name)).collect();
    ensure!(surprises.is_empty(), "these tests failed: {surprises:?}");
    let outdated: Vec<_> = passed.iter().filter(|name| is_known(name)).collect();
    ensure!(outdated.is_empty(), "these tests pass, which are said not to: {outdated:?}");
    let count = passed.len();
    ensure!(count >= passed_min, "{count} tests passed, where at least {passed_min} should");
    Ok(Counts { passed: count, known: failed.len(), left_out: of(Outcome::LeftOut).len() })
}

fn reasons(known: &str) -> Result<BTreeMap<&str, &str>> {
    let lines = known.lines().filter(|line| !line.is_empty());
    let split = |line| str::split_once(line, ' ').with_context(|| format!("no reason: {line}"));
    lines.map(split).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &str = "cannot needs a second broker\n";

    fn judged(outcomes: &[(&str, Outcome)], known: &str) -> Result<Counts> {
        judge(outcomes.iter().map(|(name, it)| ((*name).to_owned(), *it)).collect(), known, 1)
    }

    #[test]
    fn only_tests_that_are_known_to_may_fail() -> Result<()> {
        let good =
            [("can", Outcome::Passed), ("cannot", Outcome::Failed), ("other", Outcome::LeftOut)];
        assert_eq!(judged(&good, KNOWN)?, Counts { passed: 1, known: 1, left_out: 1 });
        let surprise = [("can", Outcome::Passed), ("should", Outcome::Failed)];
        let error = judged(&surprise, KNOWN).expect_err("one failed").to_string();
        assert!(error.contains("should"), "{error}");
        Ok(())
    }

    #[test]
    fn a_list_that_is_wrong_and_a_suite_that_runs_nothing_are_faults() {
        let outdated = [("cannot", Outcome::Passed)];
        let error = judged(&outdated, KNOWN).expect_err("it passes").to_string();
        assert!(error.contains("said not to"), "{error}");
        let error = judged(&[], KNOWN).expect_err("none ran").to_string();
        assert!(error.starts_with("0 tests passed"), "{error}");
        let error = judged(&[], "alone").expect_err("no reason").to_string();
        assert!(error.contains("no reason: alone"), "{error}");
    }
}
