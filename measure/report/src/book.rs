//! All measurements of a page, with values computed from them.

use std::cell::RefCell;
use std::collections::BTreeMap;

use results::{Estimate, Manifest, Row, Suite};
use serde_json::{Value, json};

use crate::figure::{Estimated, Figure};
use crate::group::{Entry, Group};
use crate::papers;

/// Format and version of the document: `docs/formats/report-1.schema.json`.
const SCHEMA: &str = "report/1";

/// The document shown by a page. Values computed by sections are added to it.
pub(crate) struct Book {
    pub(crate) manifests: Vec<Manifest>,
    entries: Vec<Entry>,
    derived: RefCell<Vec<Value>>,
}

impl Book {
    /// Creates a book of runs in display order.
    pub(crate) fn new(runs: impl IntoIterator<Item = (Manifest, Vec<Row>)>) -> Self {
        let (mut manifests, mut entries) = (Vec::new(), Vec::new());
        for (run, (manifest, rows)) in runs.into_iter().enumerate() {
            manifests.push(manifest);
            for row in rows {
                let value = serde_json::to_value(&row).expect("rows are plain data");
                entries.push(Entry { run, index: entries.len(), row, value });
            }
        }
        Self { manifests, entries, derived: RefCell::default() }
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the valid measurements of a suite, grouped by repeats, in recorded order.
    pub(crate) fn groups(&self, suite: Suite) -> Vec<Group<'_>> {
        let mut groups: Vec<Group> = Vec::new();
        let mut places = BTreeMap::new();
        for entry in &self.entries {
            if entry.row.suite != suite || !entry.row.is_valid() {
                continue;
            }
            let key = (entry.run, &*entry.row.case, &*entry.row.target);
            let place = *places.entry(key).or_insert(groups.len());
            match groups.get_mut(place) {
                Some(group) => group.entries.push(entry),
                None => groups.push(Group { entries: vec![entry] }),
            }
        }
        groups
    }

    /// Returns the median of a figure over a group's repeats. `path` is its path within a row:
    /// `latency/mean`, `figures/ns_mean`.
    pub(crate) fn estimate(&self, group: &Group<'_>, path: &str) -> Option<Estimated> {
        let values: Vec<f64> =
            group.entries.iter().filter_map(|entry| entry.number(path)).collect();
        self.derive(group.describe(path), &values)
    }

    /// Returns the median ratio of two figures, paired by repeat.
    pub(crate) fn ratio(
        &self,
        of: (&Group<'_>, &str),
        to: (&Group<'_>, &str),
    ) -> Option<Estimated> {
        let values: Vec<f64> =
            of.0.entries
                .iter()
                .filter_map(|entry| {
                    let other = to.0.of_repeat(entry.row.repeat)?;
                    Some(entry.number(of.1)? / other.number(to.1)?)
                })
                .collect();
        let description = json!({"of": of.0.describe(of.1), "to": to.0.describe(to.1)});
        self.derive(description, &values)
    }

    /// Records an estimate of values with its description.
    pub(crate) fn derive(&self, what: Value, values: &[f64]) -> Option<Estimated> {
        Some(self.record(what, Estimate::new(values)?))
    }

    /// Records an estimate derived from another by a monotonic function.
    pub(crate) fn follow(
        &self,
        what: Value,
        from: &Estimated,
        function: impl Fn(f64) -> f64,
    ) -> Estimated {
        let ends = from.interval.as_ref().map(|(low, high)| {
            let (one, other) = (function(low.value), function(high.value));
            (one.min(other), one.max(other))
        });
        self.record(what, Estimate { n: from.n, median: function(from.value()), ci95: ends })
    }

    fn record(&self, what: Value, estimate: Estimate) -> Estimated {
        let mut derived = self.derived.borrow_mut();
        let place = format!("/derived/{}", derived.len());
        let mut record = json!({"what": what});
        let numbers = serde_json::to_value(estimate).expect("an estimate is plain data");
        let (Value::Object(record_map), Value::Object(numbers)) = (&mut record, numbers) else {
            unreachable!("both are objects");
        };
        record_map.extend(numbers);
        derived.push(record);
        let figure = |value, name: &str| Figure { value, pointer: format!("{place}/{name}") };
        let interval = |(low, high)| (figure(low, "ci95/0"), figure(high, "ci95/1"));
        Estimated {
            n: estimate.n,
            median: figure(estimate.median, "median"),
            interval: estimate.ci95.map(interval),
        }
    }

    /// Returns the complete document, as embedded in the page.
    pub(crate) fn document(&self) -> Value {
        let rows: Vec<&Value> = self.entries.iter().map(|entry| &entry.value).collect();
        json!({
            "schema": SCHEMA,
            "runs": self.manifests,
            "rows": rows,
            "derived": *self.derived.borrow(),
            "papers": papers::document(),
        })
    }

    /// Returns the name of a target, with its run if there are several.
    pub(crate) fn target_name(&self, group: &Group<'_>) -> String {
        let target = group.target();
        match self.manifests.len() {
            0 | 1 => target.to_owned(),
            _ => format!("{target} (run {})", group.run() + 1),
        }
    }
}
