//! Plan of a run, complete before the run starts.

use anyhow::Result;
use results::{Row, StepKey, Suite};

/// Duration and number of repeats: what a run is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Profile {
    /// Smoke test that takes minutes; not for publication.
    Quick,
    /// Six repeats, long enough for confidence intervals.
    Standard,
    /// Durations of the papers; takes hours.
    Full,
}

impl Profile {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Standard => "standard",
            Self::Full => "full",
        }
    }

    /// Returns the number of independent repeats of each case.
    pub(crate) fn repeats(self) -> u32 {
        match self {
            Self::Quick => 1,
            Self::Standard => 6,
            Self::Full => 3,
        }
    }
}

/// Cost of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Cost {
    pub(crate) seconds: f64,
    pub(crate) written_bytes: u64,
    /// Additional memory while it runs.
    pub(crate) memory_bytes: u64,
}

/// A planned measurement. Steps run in the order of the plan, which interleaves targets. A step is
/// dropped when it ends. Resources held only by it and earlier steps are released then.
pub(crate) struct Step<'plan> {
    pub(crate) suite: Suite,
    /// Case, as in [`Row`]. With `repeat` it identifies the step for resumed runs.
    pub(crate) case: String,
    pub(crate) target: String,
    pub(crate) repeat: u32,
    pub(crate) cost: Cost,
    /// Performs the measurement. An error becomes an invalid row, unless the run was interrupted.
    /// Long operations must check `system::Interruption` and then fail.
    pub(crate) measure: Box<dyn FnMut() -> Result<Vec<Row>> + 'plan>,
}

impl Step<'_> {
    pub(crate) fn key(&self) -> StepKey {
        StepKey {
            suite: self.suite,
            case: self.case.clone(),
            target: self.target.clone(),
            repeat: self.repeat,
        }
    }
}

/// A case that will not be measured here.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub(crate) struct Skip {
    pub(crate) suite: Suite,
    pub(crate) case: String,
    pub(crate) target: String,
    /// Missing facility, and advice.
    pub(crate) reason: String,
}

impl Skip {
    pub(crate) fn new(
        suite: Suite,
        case: impl Into<String>,
        target: impl ToString,
        reason: impl Into<String>,
    ) -> Self {
        Self { suite, case: case.into(), target: target.to_string(), reason: reason.into() }
    }
}

/// Formats skipped cases, one line for each reason: cases that are skipped on the same targets for
/// the same reason share a line.
pub(crate) fn skips_text(skips: &[Skip]) -> Vec<String> {
    let mut by_target: Vec<(Suite, &str, &str, Vec<&str>)> = Vec::new();
    for skip in skips {
        let (suite, target, reason) = (skip.suite, skip.target.as_str(), skip.reason.as_str());
        let known = by_target.iter_mut().find(|it| (it.0, it.1, it.2) == (suite, target, reason));
        match known {
            Some((_, _, _, cases)) => cases.push(&skip.case),
            None => by_target.push((suite, target, reason, vec![&skip.case])),
        }
    }
    let mut lines: Vec<(Suite, Vec<&str>, &str, Vec<&str>)> = Vec::new();
    for (suite, target, reason, cases) in by_target {
        let known = lines.iter_mut().find(|it| (it.0, it.2, &it.3) == (suite, reason, &cases));
        match known {
            Some((_, targets, _, _)) => targets.push(target),
            None => lines.push((suite, vec![target], reason, cases)),
        }
    }
    let text = |(suite, targets, reason, cases): &(Suite, Vec<&str>, &str, Vec<&str>)| {
        let (cases, targets) = (cases.join(", "), targets.join(" and "));
        format!("skipped: {} {cases} on {targets}: {reason}", suite.name())
    };
    lines.iter().map(text).collect()
}

/// All steps of one or more suites.
#[derive(Default)]
pub(crate) struct Plan<'plan> {
    pub(crate) steps: Vec<Step<'plan>>,
    pub(crate) skipped: Vec<Skip>,
}

impl Plan<'_> {
    /// Returns total seconds and bytes written, and the maximum memory of any step.
    pub(crate) fn cost(&self) -> Cost {
        self.steps.iter().fold(Cost::default(), |sum, step| Cost {
            seconds: sum.seconds + step.cost.seconds,
            written_bytes: sum.written_bytes + step.cost.written_bytes,
            memory_bytes: sum.memory_bytes.max(step.cost.memory_bytes),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_that_are_skipped_for_one_reason_share_a_line() {
        let skip = |case, target, reason| Skip::new(Suite::Cpio, case, target, reason);
        let skips = [
            skip("sort", "volume NBD", "no files"),
            skip("sort", "ring", "no files"),
            skip("lmdb", "volume NBD", "no files"),
            skip("lmdb", "ring", "no files"),
            skip("duckdb", "all targets", "not installed"),
            skip("tpcc", "ring", "too large"),
        ];
        let lines = skips_text(&skips);
        assert_eq!(
            lines,
            [
                "skipped: cpio sort, lmdb on volume NBD and ring: no files",
                "skipped: cpio duckdb on all targets: not installed",
                "skipped: cpio tpcc on ring: too large",
            ]
        );
    }
}
