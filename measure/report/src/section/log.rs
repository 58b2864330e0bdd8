//! The message log: latencies of all targets on one logarithmic axis, and messages per second.

use maud::{Markup, html};
use results::Suite;
use serde_json::Value;

use super::layout::{GroupTable, Named, PERCENTILES, bars, strips};
use crate::book::Book;
use crate::chart::{Bars, Lane, Timeline};
use crate::figure::Format;
use crate::group::Group;
use crate::table::Table;

pub(crate) fn body(book: &Book) -> Option<Markup> {
    let groups = book.groups(Suite::Log);
    const TITLE: &str = "Latency of an operation of 128 messages";
    let timeline = timeline(book, &groups);
    let name = |group: &Group| format!("{}: {}", book.target_name(group), group.case());
    let series = |group: &Group| series(book, &groups, group);
    (!groups.is_empty()).then(|| {
        html! {
            p { "512-byte messages, 128 of them in each append of 64 KiB; readers begin at "
                "arbitrary points and check every message. Open loops count from when a request "
                "was due." }
            (strips(book, &groups, TITLE, (name, series)).show())
            @if !timeline.lanes.is_empty() { (timeline.show()) }
            (throughput(book, &groups).show())
            (messages(book, &groups).show())
            (latencies(book, &groups).show())
        }
    })
}

/// Returns the same colour for the same target.
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

/// Shows the first repeat of each closed loop that has slices.
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
    let series = |group: &Group| series(book, groups, group);
    let bars = bars(book, groups, "figures/messages_per_s_total", series);
    Bars::higher_is_better("Messages per second, reads and appends together", Format::Count, bars)
}

fn messages(book: &Book, groups: &[Group]) -> Table {
    const FIGURES: [Named; 3] = [
        ("read", "figures/messages_per_s_read", Format::Count),
        ("appended", "figures/messages_per_s_write", Format::Count),
        ("total", "figures/messages_per_s_total", Format::Count),
    ];
    let table = GroupTable::new(book).target("Target").case("Load").figures(&FIGURES);
    table.rows(groups, "Messages per second; higher is better.")
}

fn latencies(book: &Book, groups: &[Group]) -> Table {
    let from_when = |group: &Group| match group.word("loop") {
        Some("open") => "due",
        _ => "sent",
    };
    GroupTable::new(book)
        .target("Target")
        .case("Load")
        .figures(&PERCENTILES)
        .text("from when", from_when)
        .rows(groups, "Latency of an operation of 128 messages in µs; lower is better.")
}
