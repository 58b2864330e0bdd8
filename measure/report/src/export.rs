//! Export for other programs: CSV, and charts as Vega-Lite specifications.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use results::Suite;
use serde_json::{Value, json};

use crate::book::Book;
use crate::group::Entry;

/// Formats every row as one line. Columns are the paths of all scalar values.
pub(crate) fn csv(book: &Book) -> Result<String> {
    let lines: Vec<BTreeMap<String, String>> = book.entries().iter().map(flat).collect();
    let columns: BTreeSet<&String> = lines.iter().flat_map(BTreeMap::keys).collect();
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(columns.iter().map(|column| column.as_bytes()))?;
    for line in &lines {
        writer.write_record(
            columns.iter().map(|column| line.get(*column).map_or(&b""[..], |text| text.as_bytes())),
        )?;
    }
    let bytes = writer.into_inner().context("memory takes everything")?;
    String::from_utf8(bytes).context("text stays text")
}

/// Returns a row's scalar values by path, without histograms and slices.
fn flat(entry: &Entry) -> BTreeMap<String, String> {
    let mut leaves = BTreeMap::from([("run".to_owned(), (entry.run + 1).to_string())]);
    add_leaves(&mut leaves, "", &entry.value);
    leaves
}

fn add_leaves(leaves: &mut BTreeMap<String, String>, path: &str, value: &Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                add_leaves(leaves, &path, value);
            }
        }
        Value::Array(values) if values.iter().all(Value::is_string) => {
            let words: Vec<&str> = values.iter().filter_map(Value::as_str).collect();
            leaves.insert(path.to_owned(), words.join("; "));
        }
        Value::Array(_) | Value::Null => {}
        Value::String(text) => {
            leaves.insert(path.to_owned(), text.clone());
        }
        other => {
            leaves.insert(path.to_owned(), other.to_string());
        }
    }
}

/// Returns file names and specifications for the measured suites.
pub(crate) fn vega(book: &Book) -> Vec<(String, String)> {
    let charts = [
        (Suite::Forsa, "line", "params.jobs", "app.bytes_per_s", "params.rw"),
        (Suite::Fusion, "line", "params.queue_depth", "app.bytes_per_s", "params.block_bytes"),
        (Suite::Engine, "bar", "case", "figures.ratio_to_floor", "params.data"),
        (Suite::Log, "bar", "case", "figures.messages_per_s_total", "target"),
        (Suite::Reduction, "bar", "case", "store.used_bytes", "target"),
        (Suite::Peers, "bar", "case", "latency.mean", "target"),
    ];
    let chart = |(suite, mark, level, upright, colour): (Suite, &str, &str, &str, &str)| {
        let valid = |entry: &&Entry| entry.row.suite == suite && entry.row.is_valid();
        let values: Vec<Value> = book.entries().iter().filter(valid).map(typed).collect();
        // Dots are part of our names. Vega would interpret them as nested objects.
        let field = |path: &str| path.replace('.', "\\.");
        let spec = json!({
            "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
            "data": {"values": values},
            "mark": {"type": mark, "tooltip": true},
            "encoding": {
                "x": {"field": field(level), "type": "ordinal"},
                "y": {"field": field(upright), "type": "quantitative", "aggregate": "median"},
                "color": {"field": field(colour), "type": "nominal"},
                "row": {"field": "target", "type": "nominal"},
            },
        });
        let is_empty = spec["data"]["values"].as_array().is_none_or(Vec::is_empty);
        let text = serde_json::to_string_pretty(&spec).expect("a specification is plain data");
        (!is_empty).then(|| (format!("{}.vl.json", suite.name()), text + "\n"))
    };
    charts.into_iter().filter_map(chart).collect()
}

/// Returns a row's scalar values, with numbers as numbers.
fn typed(entry: &Entry) -> Value {
    let leaf = |(path, text): (String, String)| {
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
        (path, number.map_or(Value::String(text), |number| json!(number)))
    };
    Value::Object(flat(entry).into_iter().map(leaf).collect())
}
