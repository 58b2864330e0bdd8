//! The message log: latency on one log axis for all targets, and messages per second.

use maud::{Markup, html};
use results::Suite;
use serde_json::Value;

use crate::book::Book;
use crate::chart::{Bar, Bars, Lane, Strip, Strips, Timeline};
use crate::figure::Format;
use crate::group::Group;
use crate::table::{Cell, Column, Table};

/// By the strips' percentiles.
const PERCENTILES: [&str; 6] =
    ["latency/p50", "latency/p90", "latency/p99", "latency/p999", "latency/p9999", "latency/max"];

pub(crate) fn body(book: &Book) -> Option<Markup> {
    let groups = book.groups(Suite::Log);
    let timeline = timeline(book, &groups);
    (!groups.is_empty()).then(|| {
        html! {
            p { "512-byte messages, 128 of them in each append of 64 KiB; readers begin at "
                "arbitrary points and check every message. Open loops count from when a request "
                "was due." }
            (strips(book, &groups).show())
            @if !timeline.lanes.is_empty() { (timeline.show()) }
            (throughput(book, &groups).show())
            (messages(book, &groups).show())
            (latencies(book, &groups).show())
        }
    })
}

fn name(book: &Book, group: &Group) -> String {
    format!("{}: {}", book.target_name(group), group.case())
}

/// The same colour for the same target.
fn series(book: &Book, groups: &[Group], group: &Group) -> usize {
    let mut targets: Vec<String> = Vec::new();
    for group in groups {
        let target = book.target_name(group);
        if !targets.contains(&target) {
            targets.push(target);
        }
    }
    let own = book.target_name(group);
    targets.iter().position(|target| *target == own).unwrap_or(0)
}

fn strips(book: &Book, groups: &[Group]) -> Strips {
    let strip = |group: &Group| Strip {
        name: name(book, group),
        percentiles: PERCENTILES.iter().map(|path| book.estimate(group, path)).collect(),
        series: series(book, groups, group),
    };
    Strips {
        title: "Latency of an operation of 128 messages".to_owned(),
        hint: "log scale, lower is better",
        format: Format::Micros,
        strips: groups.iter().map(strip).collect(),
    }
}

/// The first repeat of each closed loop that has slices.
fn timeline(book: &Book, groups: &[Group]) -> Timeline {
    let mut lanes = Vec::new();
    for group in groups.iter().filter(|group| group.word("loop") != Some("open")) {
        let kinds = group.first().value.get("series").and_then(Value::as_array);
        for kind in kinds.into_iter().flatten() {
            let slices = kind.get("slices").and_then(Value::as_array).cloned().unwrap_or_default();
            let slice_ms = kind.get("slice_ms").and_then(Value::as_f64).unwrap_or_default();
            let what = kind.get("name").and_then(Value::as_str).unwrap_or_default();
            lanes.push(Lane {
                name: book.target_name(group),
                detail: format!(
                    "{}: {what}, {:.0} s",
                    group.case(),
                    slices.len() as f64 * slice_ms / 1e3
                ),
                series: series(book, groups, group),
                slices: slices.iter().map(median_and_max).collect(),
            });
        }
    }
    Timeline {
        title: "Latency over the time of a run".to_owned(),
        hint: "log scale, lower is better",
        format: Format::Micros,
        lanes,
    }
}

fn median_and_max(slice: &Value) -> Option<(f64, f64)> {
    let number = |name: &str| slice.get(name).and_then(Value::as_f64);
    (number("ops")? > 0.0).then_some((number("p50")?, number("max")?))
}

fn throughput(book: &Book, groups: &[Group]) -> Bars {
    let bar = |group: &Group| {
        let total = book.estimate(group, "figures/messages_per_s_total")?;
        Some(Bar {
            group: group.case().to_owned(),
            name: book.target_name(group),
            parts: vec![total],
            series: series(book, groups, group),
            ..Bar::default()
        })
    };
    let bars = groups.iter().filter_map(bar).collect();
    Bars::higher_is_better("Messages per second, reads and appends together", Format::Count, bars)
}

fn messages(book: &Book, groups: &[Group]) -> Table {
    let row = |group: &Group| {
        let of = |kind: &str| {
            let path = format!("figures/messages_per_s_{kind}");
            Cell::estimate(book.estimate(group, &path), Format::Count)
        };
        let mut cells = vec![Cell::text(book.target_name(group)), Cell::text(group.case())];
        cells.extend(["read", "write", "total"].map(of));
        cells
    };
    let mut columns = vec![Column::text("Target"), Column::text("Load")];
    columns.extend(["read", "appended", "total"].map(Column::number));
    let caption = "Messages per second; higher is better.".to_owned();
    Table { caption, columns, rows: groups.iter().map(row).collect() }
}

fn latencies(book: &Book, groups: &[Group]) -> Table {
    let row = |group: &Group| {
        let of = |path: &&str| Cell::estimate(book.estimate(group, path), Format::Micros);
        let mut cells = vec![Cell::text(book.target_name(group)), Cell::text(group.case())];
        cells.extend(PERCENTILES.iter().map(of));
        cells.push(Cell::text(match group.word("loop") {
            Some("open") => "due",
            _ => "sent",
        }));
        cells
    };
    let mut columns = vec![Column::text("Target"), Column::text("Load")];
    columns.extend(["p50", "p90", "p99", "p99.9", "p99.99", "max"].map(Column::number));
    columns.push(Column::text("from when"));
    let caption = "Latency of an operation of 128 messages in µs; lower is better.".to_owned();
    Table { caption, columns, rows: groups.iter().map(row).collect() }
}
