//! Goals, results, and the machine of the run.

use maud::{Markup, html};
use results::Manifest;
use serde_json::{Value, json};

use crate::bars::{self, Bar};
use crate::book::Book;
use crate::chart;
use crate::figure::Format;
use crate::table::{Cell, Column, Table};

pub(crate) fn body(book: &Book) -> Option<Markup> {
    let bars = bars::judge(book);
    let (measured, open): (Vec<&Bar>, Vec<&Bar>) =
        bars.iter().partition(|bar| bar.measured.is_some());
    Some(html! {
        @if measured.is_empty() {
            p.none { "No measurement here decides a goal." }
        } @else {
            (sentence(book, &measured))
            (chart_of(book, &measured).show())
            (table(book, &measured).show())
        }
        @if !open.is_empty() {
            @let names = open.iter().map(|bar| bar.what).collect::<Vec<_>>().join("; ");
            p.note { "Not measured: " (names) "." }
        }
        @for (index, manifest) in book.manifests.iter().enumerate() {
            (machine(index, manifest))
        }
    })
}

fn sentence(book: &Book, measured: &[&Bar]) -> Markup {
    let is_met =
        |bar: &&&Bar| bar.verdict(book).is_some_and(|verdict| verdict.is_met == Some(true));
    let met = measured.iter().filter(is_met).count();
    html! {
        p { (met) " of " (measured.len()) " measured goals are met. A goal within the interval of \
             its figure is not decided by this run. A smoke test (profile quick) decides no goal." }
    }
}

/// Shows each figure relative to its bound, so that one line represents all bounds.
fn chart_of(book: &Book, measured: &[&Bar]) -> chart::Bars {
    let bar = |bar: &&Bar| {
        let estimate = bar.measured.as_ref()?;
        let bound = bar.bound.words(bar.format);
        let what = json!({"bar": bar.what, "bound": bound, "figure": estimate.median.pointer});
        let share = book.follow(what, estimate, |value| bar.bound.share_taken(value));
        let series = if bar.bound.holds(estimate.value()) { 2 } else { 1 };
        Some(chart::Bar { series, ..chart::Bar::new("", bar.short, share) })
    };
    let title = "Each figure relative to its goal";
    let hint = "lower is better; up to the line the goal is met";
    let bars = measured.iter().filter_map(bar).collect();
    let line = Some((1.0, "goal".to_owned()));
    chart::Bars { line, ..chart::Bars::new(title, hint, Format::Ratio, bars) }
}

fn table(book: &Book, bars: &[&Bar]) -> Table {
    let row = |bar: &&Bar| {
        let estimate = bar.measured.clone().expect("only measured bars come here");
        let verdict = bar.verdict(book).expect("it was measured");
        vec![
            Cell::text(bar.what),
            Cell::text(bar.bound.words(bar.format)),
            Cell::estimate(Some(estimate), bar.format),
            Cell::Verdict { is_good: verdict.is_met, text: verdict.text.to_owned() },
        ]
    };
    Table {
        caption: "Ratios within one run, medians with 95 % intervals.".to_owned(),
        columns: vec![
            Column::text("What"),
            Column::text("Goal"),
            Column::number("Measured"),
            Column::text("Verdict"),
        ],
        rows: bars.iter().map(row).collect(),
    }
}

fn machine(index: usize, manifest: &Manifest) -> Markup {
    let host = serde_json::to_value(&manifest.host).expect("a machine is plain data");
    html! {
        h3 { "Run " (index + 1) ": " (manifest.id) }
        dl {
            dt { "Program" } dd {
                "memlane " (manifest.tool.version)
                @if let Some(commit) = &manifest.tool.commit { ", " code { (commit) } }
            }
            dt { "Profile" } dd { (manifest.profile)
                @if manifest.profile == "quick" { " (a smoke test: not for publication)" } }
            dt { "Seed" } dd { (manifest.seed) }
            dt { "Command" } dd { code { (manifest.command_line.join(" ")) } }
            (properties(&host))
            @for (name, probe) in &manifest.probes {
                dt { (name) } dd { @if !probe.is_available { "not available: " } (probe.detail) }
            }
        }
    }
}

fn properties(of: &Value) -> Markup {
    html! {
        @for (name, value) in of.as_object().into_iter().flatten() {
            @let text = property(name, value);
            @if !text.is_empty() { dt { (name.replace('_', " ")) } dd { (text) } }
        }
    }
}

/// Formats a property of a machine according to the unit in its name.
fn property(name: &str, value: &Value) -> String {
    match (name, value.as_f64()) {
        ("mitigations", _) => affected(value),
        (name, Some(bytes)) if name.ends_with("_bytes") => Format::Mebibytes.text_with_unit(bytes),
        (name, Some(share)) if name.ends_with("_share") => Format::Percent.text_with_unit(share),
        _ => plain(value),
    }
}

/// Returns only vulnerabilities that affect the machine. The rest is in the JSON.
fn affected(mitigations: &Value) -> String {
    let all = mitigations.as_object().into_iter().flatten();
    let own: serde_json::Map<String, Value> = all
        .filter(|(_, state)| state.as_str() != Some("Not affected"))
        .map(|(name, state)| (name.clone(), state.clone()))
        .collect();
    plain(&Value::Object(own))
}

/// Formats JSON for people.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(plain).collect::<Vec<_>>().join(", "),
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| format!("{name}: {}", plain(value));
            fields.iter().map(field).collect::<Vec<_>>().join("; ")
        }
        other => other.to_string(),
    }
}
