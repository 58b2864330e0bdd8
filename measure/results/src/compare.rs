//! Comparison of two runs: significant changes, and cases that cannot be distinguished.
//!
//! Runs are comparable if they are from the same machine with the same profile. A suite is
//! comparable if it had the same configuration in both. A case differs only if the confidence
//! intervals of its repeats are disjoint and the medians differ by more than the tolerance. A case
//! without any valid repeat in the new run counts as worse, because a failure must not look like no
//! change.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::manifest::Manifest;
use crate::row::{LOOKUPS_PER_S, NOPM, RECORDS_PER_S, REPORTS_PER_MINUTE, Suite};
use crate::statistics::Estimate;
use crate::summary::Summary;

/// Measure that is preferred over a case's headline if both runs have it, because the floor cancels
/// out variations of the machine's speed.
const RATIO_TO_FLOOR: &str = "ratio_to_floor";

/// Measures of which more is better, such as rates. For all others less is better.
const MORE_IS_BETTER: [&str; 8] = [
    NOPM,
    REPORTS_PER_MINUTE,
    LOOKUPS_PER_S,
    RECORDS_PER_S,
    "messages_per_s_total",
    "reduction",
    "iops",
    "bytes_per_s",
];

/// Comparison of two runs, case by case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The weightiest verdict of all cases.
    pub verdict: Verdict,
    /// Reason why the runs are not comparable. There are no cases then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub obstacle: Option<String>,
    /// Differences between the runs that do not prevent a comparison, such as program version or
    /// kernel.
    pub notes: Vec<String>,
    pub cases: Vec<CaseComparison>,
}

/// Comparison of a case on a target in two runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CaseComparison {
    pub suite: Suite,
    pub case: String,
    pub target: String,
    pub verdict: Verdict,
    /// Measure that is compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub measure: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Estimate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Estimate>,
    /// Relative gain (positive) or loss of the second run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gain: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Verdict of a comparison, in ascending weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// A comparison is impossible.
    NotComparable,
    /// The intervals overlap, or the medians are within the tolerance.
    Same,
    Better,
    Worse,
}

impl Verdict {
    pub fn name(self) -> &'static str {
        match self {
            Self::NotComparable => "not comparable",
            Self::Same => "same",
            Self::Better => "better",
            Self::Worse => "worse",
        }
    }
}

/// Compares a run with an earlier one. Medians that differ by at most `tolerance`, relative to the
/// earlier one, count as equal.
pub fn compare(
    (before, cases_before): (&Manifest, &[Summary]),
    (after, cases_after): (&Manifest, &[Summary]),
    tolerance: f64,
) -> Comparison {
    let notes = notes(before, after);
    if let Some(obstacle) = obstacle(before, after) {
        let verdict = Verdict::NotComparable;
        return Comparison { verdict, obstacle: Some(obstacle), notes, cases: Vec::new() };
    }
    let later: BTreeMap<_, _> = cases_after.iter().map(|it| (key(it), it)).collect();
    let cases: Vec<CaseComparison> = cases_before
        .iter()
        .filter(|summary| summary.valid > 0)
        .map(|summary| match told_otherwise(summary.suite, before, after) {
            Some(reason) => undecided(summary, Verdict::NotComparable, reason),
            None => compare_case(summary, later.get(&key(summary)).copied(), tolerance),
        })
        .collect();
    let verdict = cases.iter().map(|case| case.verdict).max();
    let obstacle = match verdict {
        None => Some("the first run has no valid case".to_owned()),
        Some(Verdict::NotComparable) => {
            Some("no case is comparable; see the reason of each".to_owned())
        }
        Some(_) => None,
    };
    Comparison { verdict: verdict.unwrap_or(Verdict::NotComparable), obstacle, notes, cases }
}

fn key(summary: &Summary) -> (Suite, &str, &str) {
    (summary.suite, &summary.case, &summary.target)
}

fn obstacle(before: &Manifest, after: &Manifest) -> Option<String> {
    let (host, other) = (&before.host, &after.host);
    if before.profile != after.profile {
        let (first, second) = (&before.profile, &after.profile);
        return Some(format!("the profiles differ: {first} and {second}"));
    }
    let machine = |host: &crate::Host| {
        let (cores, gib) = (host.cores, host.memory_bytes >> 30);
        format!("{cores} cores of {} with {gib} GiB", host.cpu)
    };
    let (first, second) = (machine(host), machine(other));
    (first != second).then(|| format!("the machines differ: {first}, and {second}"))
}

fn notes(before: &Manifest, after: &Manifest) -> Vec<String> {
    let commit = |manifest: &Manifest| {
        let commit = manifest.tool.commit.as_deref().unwrap_or("unknown");
        format!("{} at {commit}", manifest.tool.version)
    };
    let hypervisor = |manifest: &Manifest| manifest.host.virtualisation.clone().unwrap_or_default();
    let pairs = [
        ("program", commit(before), commit(after)),
        ("kernel", before.host.kernel.clone(), after.host.kernel.clone()),
        ("virtualisation", hypervisor(before), hypervisor(after)),
        ("seed", before.seed.to_string(), after.seed.to_string()),
    ];
    let differing = pairs.into_iter().filter(|(_, first, second)| first != second);
    differing.map(|(what, first, second)| format!("{what}: {first}, then {second}")).collect()
}

fn told_otherwise(suite: Suite, before: &Manifest, after: &Manifest) -> Option<String> {
    let told =
        |manifest: &Manifest| manifest.configuration.get("suites")?.get(suite.name()).cloned();
    match (told(before), told(after)) {
        (Some(first), Some(second)) if first != second => {
            Some(format!("{} was given {}", suite.name(), difference(&first, &second)))
        }
        _ => None,
    }
}

/// Describes the first difference between two configurations.
fn difference(first: &Value, second: &Value) -> String {
    let names = first.as_object().into_iter().flat_map(|fields| fields.keys());
    let differing = names.into_iter().find(|name| first.get(*name) != second.get(*name));
    match differing {
        Some(name) => {
            let second = second.get(name).unwrap_or(&Value::Null);
            format!("{name} {} and then {second}", first[name])
        }
        None => format!("{first} and then {second}"),
    }
}

fn compare_case(before: &Summary, after: Option<&Summary>, tolerance: f64) -> CaseComparison {
    let Some(after) = after else {
        let reason = "the second run does not have it".to_owned();
        return undecided(before, Verdict::NotComparable, reason);
    };
    if after.valid == 0 {
        let reason = "the second run has no valid repeat".to_owned();
        return undecided(before, Verdict::Worse, reason);
    }
    let Some((measure, estimates)) = common_measure(before, after) else {
        let reason = "the runs have no measure in common".to_owned();
        return undecided(before, Verdict::NotComparable, reason);
    };
    let (first, second) = estimates;
    let (verdict, gain, reason) = judge(measure, first, second, tolerance);
    CaseComparison {
        suite: before.suite,
        case: before.case.clone(),
        target: before.target.clone(),
        verdict,
        measure: Some(measure.to_owned()),
        before: Some(*first),
        after: Some(*second),
        gain,
        reason,
    }
}

fn common_measure<'summary>(
    before: &'summary Summary,
    after: &'summary Summary,
) -> Option<(&'summary str, (&'summary Estimate, &'summary Estimate))> {
    [Some(RATIO_TO_FLOOR), before.headline.as_deref()]
        .into_iter()
        .flatten()
        .find_map(|name| Some((name, (before.measures.get(name)?, after.measures.get(name)?))))
}

fn judge(
    measure: &str,
    before: &Estimate,
    after: &Estimate,
    tolerance: f64,
) -> (Verdict, Option<f64>, Option<String>) {
    if before.median == 0.0 {
        let verdict = if after.median == 0.0 { Verdict::Same } else { Verdict::NotComparable };
        return (verdict, None, Some("the first median is zero".to_owned()));
    }
    let change = (after.median - before.median) / before.median.abs();
    let gain = if MORE_IS_BETTER.contains(&measure) { change } else { -change };
    if before.ci95.is_none() || after.ci95.is_none() {
        let reason = "too few repeats for an interval";
        return (Verdict::NotComparable, Some(gain), Some(reason.to_owned()));
    }
    let verdict = match before.differs_from(after) && gain.abs() > tolerance {
        true if gain > 0.0 => Verdict::Better,
        true => Verdict::Worse,
        false => Verdict::Same,
    };
    (verdict, Some(gain), None)
}

fn undecided(summary: &Summary, verdict: Verdict, reason: String) -> CaseComparison {
    CaseComparison {
        suite: summary.suite,
        case: summary.case.clone(),
        target: summary.target.clone(),
        verdict,
        measure: None,
        before: None,
        after: None,
        gain: None,
        reason: Some(reason),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::manifest::tests::manifest;
    use crate::row::{Row, Validity};
    use crate::summary::summarise;

    const FIVE: [f64; 5] = [100.0, 101.0, 99.0, 100.0, 100.5];

    fn rows(figure: &str, values: &[f64]) -> Vec<Row> {
        let row = |(repeat, value): (u32, &f64)| {
            let mut row = Row::new(Suite::Log, "a", "volume");
            row.repeat = repeat;
            row.figures.insert(figure.to_owned(), *value);
            row
        };
        (0..).zip(values).map(row).collect()
    }

    fn compared(before: &[Row], after: &[Row], tolerance: f64) -> Comparison {
        let (before, after) = (summarise(before), summarise(after));
        compare((&manifest(), &before), (&manifest(), &after), tolerance)
    }

    #[track_caller]
    fn check(figure: &str, before: &[f64], after: &[f64], tolerance: f64, expected: Verdict) {
        let comparison = compared(&rows(figure, before), &rows(figure, after), tolerance);
        assert_eq!(comparison.verdict, expected, "{comparison:?}");
    }

    fn scaled(factor: f64) -> [f64; 5] {
        FIVE.map(|value| value * factor)
    }

    #[test]
    fn longer_times_are_worse_and_higher_rates_better() {
        check("ns_mean", &FIVE, &scaled(1.2), 0.05, Verdict::Worse);
        check("ns_mean", &FIVE, &scaled(0.8), 0.05, Verdict::Better);
        check("messages_per_s_total", &FIVE, &scaled(1.2), 0.05, Verdict::Better);
        check("reduction", &FIVE, &scaled(0.8), 0.05, Verdict::Worse);
    }

    #[test]
    fn every_headline_is_a_cost_or_known_to_be_better_when_higher() {
        for name in crate::HEADLINES {
            let costs = ["_ns", "_cycles", crate::INDEX_BYTES_PER_KEY];
            let is_cost = name.contains("ns_") || costs.iter().any(|it| name.ends_with(it));
            assert!(is_cost || MORE_IS_BETTER.contains(&name), "{name}");
        }
    }

    #[test]
    fn what_intervals_or_the_tolerance_cover_is_the_same() {
        check("ns_mean", &FIVE, &scaled(1.04), 0.05, Verdict::Same);
        check("ns_mean", &FIVE, &scaled(1.04), 0.0, Verdict::Worse);
        check("ns_mean", &FIVE, &[90.0, 150.0, 110.0, 170.0, 95.0], 0.0, Verdict::Same);
    }

    #[test]
    fn one_repeat_tells_nothing_apart() {
        check("ns_mean", &[100.0], &[900.0], 0.05, Verdict::NotComparable);
    }

    #[test]
    fn the_ratio_to_the_floor_is_compared_before_the_time_itself() {
        let slow_hour = |factor: f64| {
            let mut rows = rows("ns_mean", &scaled(factor));
            let ratios = [1.30, 1.31, 1.29, 1.30, 1.30];
            for (row, ratio) in rows.iter_mut().zip(ratios) {
                row.figures.insert(RATIO_TO_FLOOR.to_owned(), ratio);
            }
            rows
        };
        let comparison = compared(&slow_hour(1.0), &slow_hour(2.0), 0.05);
        assert_eq!(comparison.verdict, Verdict::Same);
        assert_eq!(comparison.cases[0].measure.as_deref(), Some(RATIO_TO_FLOOR));
    }

    #[test]
    fn a_case_that_fails_since_is_worse() {
        let mut failing = rows("ns_mean", &FIVE);
        for row in &mut failing {
            row.validity = Validity::Invalid("the disk is on fire".to_owned());
        }
        let comparison = compared(&rows("ns_mean", &FIVE), &failing, 0.05);
        assert_eq!(comparison.verdict, Verdict::Worse);
    }

    #[test]
    fn other_machines_and_profiles_are_not_comparable() {
        let cases = summarise(&rows("ns_mean", &FIVE));
        let mut other = [manifest(), manifest()];
        other[0].host.cores = 64;
        other[1].profile = "full".to_owned();
        for other in other {
            let comparison = compare((&manifest(), &cases), (&other, &cases), 0.05);
            assert_eq!(comparison.verdict, Verdict::NotComparable);
            assert!(comparison.obstacle.is_some());
        }
    }

    #[test]
    fn a_suite_that_was_told_otherwise_is_not_comparable() {
        let cases = summarise(&rows("ns_mean", &FIVE));
        let told = |size: u64| {
            let mut manifest = manifest();
            manifest.configuration = json!({"suites": {"log": {"size_mib": size}}});
            manifest
        };
        let comparison = compare((&told(1), &cases), (&told(2), &cases), 0.05);
        assert_eq!(comparison.verdict, Verdict::NotComparable);
        let reason = comparison.cases[0].reason.as_deref();
        assert_eq!(reason, Some("log was given size_mib 1 and then 2"));
    }

    #[test]
    fn one_worse_case_outweighs_any_number_of_better_ones() {
        let mut before = rows("ns_mean", &FIVE);
        let mut after = rows("ns_mean", &scaled(0.5));
        for (rows, factor) in [(&mut before, 1.0), (&mut after, 2.0)] {
            let mut worse = super::tests::rows("ns_mean", &scaled(factor));
            worse.iter_mut().for_each(|row| row.case = "b".to_owned());
            rows.extend(worse);
        }
        assert_eq!(compared(&before, &after, 0.05).verdict, Verdict::Worse);
    }
}
