//! Summary of a run: the median of repeats for each case and target.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::row::{Row, Suite};
use crate::statistics::{Estimate, SteadyState};

/// A case on a target, over all repeats that count.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    pub suite: Suite,
    pub case: String,
    pub target: String,
    /// Repeats that count, and those that do not.
    pub valid: u64,
    pub invalid: u64,
    /// The measure that names the result; absent when nothing counts.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub headline: Option<String>,
    /// By name, as in [`Row::measures`].
    pub measures: BTreeMap<String, Estimate>,
    /// Steadiness of the headline over the repeats, or over the rounds of the least steady repeat
    /// when there are fewer than five.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub steady_state: Option<SteadyState>,
    /// Every flag of any repeat.
    pub flags: Vec<String>,
}

impl Summary {
    /// The measure that names the result.
    pub fn result(&self) -> Option<(&str, &Estimate)> {
        let name = self.headline.as_deref()?;
        Some((name, self.measures.get(name)?))
    }
}

/// Creates one summary per suite, case and target, in order of first appearance.
pub fn summarise<'row>(rows: impl IntoIterator<Item = &'row Row>) -> Vec<Summary> {
    let mut order = Vec::new();
    let mut groups: BTreeMap<(Suite, &str, &str), Vec<&Row>> = BTreeMap::new();
    for row in rows {
        let key = (row.suite, row.case.as_str(), row.target.as_str());
        let group = groups.entry(key).or_insert_with(|| {
            order.push(key);
            Vec::new()
        });
        group.push(row);
    }
    order.iter().map(|key| summary(&groups[key])).collect()
}

fn summary(rows: &[&Row]) -> Summary {
    let valid: Vec<&Row> = rows.iter().copied().filter(|row| row.is_valid()).collect();
    let headline = valid.iter().find_map(|row| row.headline()).map(|(name, _)| name.to_owned());
    let mut values: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (name, value) in valid.iter().flat_map(|row| row.measures()) {
        values.entry(name).or_default().push(value);
    }
    let steady_state = headline
        .as_ref()
        .and_then(|name| SteadyState::new(&values[name]).or_else(|| least_steady(&valid)));
    let estimate = |(name, values): (String, Vec<f64>)| Some((name, Estimate::new(&values)?));
    let mut flags: Vec<String> = Vec::new();
    for flag in rows.iter().flat_map(|row| &row.flags) {
        if !flags.contains(flag) {
            flags.push(flag.clone());
        }
    }
    Summary {
        suite: rows[0].suite,
        case: rows[0].case.clone(),
        target: rows[0].target.clone(),
        valid: valid.len() as u64,
        invalid: (rows.len() - valid.len()) as u64,
        headline,
        measures: values.into_iter().filter_map(estimate).collect(),
        steady_state,
        flags,
    }
}

fn least_steady(rows: &[&Row]) -> Option<SteadyState> {
    let states = rows.iter().filter_map(|row| SteadyState::new(&row.rounds));
    states.max_by(|a, b| b.is_steady.cmp(&a.is_steady).then(a.range.total_cmp(&b.range)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Validity;

    fn row(case: &str, repeat: u32, ns_mean: f64) -> Row {
        let mut row = Row::new(Suite::Engine, case, "engine");
        row.repeat = repeat;
        row.figures.insert("ns_mean".to_owned(), ns_mean);
        row
    }

    #[test]
    fn repeats_become_a_median_and_invalid_ones_are_counted_apart() {
        let mut bad = row("a", 3, 1e9);
        bad.validity = Validity::Invalid("steal".to_owned());
        let rows = [row("a", 0, 3.0), row("b", 0, 9.0), row("a", 1, 1.0), row("a", 2, 2.0), bad];
        let summaries = summarise(&rows);
        assert_eq!(summaries.iter().map(|it| &*it.case).collect::<Vec<_>>(), ["a", "b"]);
        let (name, estimate) = summaries[0].result().expect("three repeats count");
        assert_eq!((name, estimate.n, estimate.median), ("ns_mean", 3, 2.0));
        assert_eq!((summaries[0].valid, summaries[0].invalid), (3, 1));
    }

    #[test]
    fn a_case_that_never_succeeded_has_no_result() {
        let mut bad = row("a", 0, 1.0);
        bad.validity = Validity::Skipped("no root".to_owned());
        let summaries = summarise(&[bad]);
        assert_eq!(summaries[0].result(), None);
        assert_eq!(summaries[0].invalid, 1);
    }

    #[test]
    fn repeats_that_drift_are_not_steady() {
        let rows: Vec<Row> = (0..5).map(|it| row("a", it, 100.0 + 10.0 * f64::from(it))).collect();
        let steady = summarise(&rows)[0].steady_state.expect("five repeats are enough");
        assert!(!steady.is_steady);
    }
}
