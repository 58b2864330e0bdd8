//! The engine beside copies of bare memory.

use maud::{Markup, html};
use results::Suite;

use super::jobs::{count_text, size_text};
use crate::bars::floors_max;
use crate::book::Book;
use crate::chart::{Bar, Bars};
use crate::figure::Format;
use crate::group::Group;
use crate::table::{Cell, Column, Table};

pub(crate) fn body(book: &Book) -> Option<Markup> {
    let groups = book.groups(Suite::Engine);
    let steps = book.groups(Suite::Steps);
    (!groups.is_empty() || !steps.is_empty()).then(|| {
        html! {
            @if !groups.is_empty() {
                p { "The floor is a copy of the same size in the same order on bare memory, "
                    "measured in turns with the engine. One is the floor." }
                (bars(book, &groups).show())
                (table(book, &groups).show_behind())
            }
            @if !steps.is_empty() { (step_bars(book, &steps).show()) }
        }
    })
}

fn bars(book: &Book, groups: &[Group]) -> Bars {
    let bar = |group: &Group| {
        let ratio = book.estimate(group, "figures/ratio_to_floor")?;
        let word = |name: &str| group.word(name).unwrap_or_default();
        let size = group.count("block_bytes").map(size_text).unwrap_or_default();
        let threads = match group.count("threads") {
            Some(1) | None => String::new(),
            Some(threads) => format!(", {}", count_text(threads, "thread")),
        };
        let heading = format!("{} {size} {}{threads}", word("op"), word("pattern"));
        let name = match word("data") {
            "" => group.case(),
            data => data,
        };
        let limit = floors_max(group).map(|max| {
            let max_text = Format::Ratio.text_with_unit(max);
            (max, format!("the bar is at most {max_text}"))
        });
        Some(Bar {
            group: heading.trim().to_owned(),
            name: name.to_owned(),
            parts: vec![ratio],
            limit,
            beside: book.estimate(group, "figures/ns_mean"),
            ..Bar::default()
        })
    };
    Bars {
        title: "Time per request over the floor".to_owned(),
        hint: "lower is better",
        format: Format::Ratio,
        line: Some((1.0, "floor".to_owned())),
        part_names: &[],
        beside: Some(("mean", Format::Nanos)),
        bars: groups.iter().filter_map(bar).collect(),
    }
}

fn table(book: &Book, groups: &[Group]) -> Table {
    const COLUMNS: [(&str, &str, Format); 13] = [
        ("ns", "figures/ns_mean", Format::Nanos),
        ("floor ns", "figures/floor_ns_mean", Format::Nanos),
        ("ratio", "figures/ratio_to_floor", Format::Ratio),
        ("p50", "latency/p50", Format::Nanos),
        ("p99", "latency/p99", Format::Nanos),
        ("p99.9", "latency/p999", Format::Nanos),
        ("p99.99", "latency/p9999", Format::Nanos),
        ("max", "latency/max", Format::Nanos),
        ("MB/s", "app/bytes_per_s", Format::MegabytesPerSecond),
        ("reduction", "figures/reduction", Format::Ratio),
        ("cycles per 4 KiB", "figures/cycles_per_4kib", Format::Count),
        ("floor with decoding", "figures/floor_decode_ns_mean", Format::Nanos),
        ("of the floor's scaling", "figures/scaling_to_floor", Format::Ratio),
    ];
    let is_there = |path: &str| groups.iter().any(|group| group.first().figure(path).is_some());
    let shown: Vec<_> = COLUMNS.iter().filter(|(_, path, _)| is_there(path)).collect();
    let row = |group: &Group| {
        let mut cells = vec![Cell::Code(group.case().to_owned())];
        cells.extend(
            shown
                .iter()
                .map(|(_, path, format)| Cell::estimate(book.estimate(group, path), *format)),
        );
        cells
    };
    let mut columns = vec![Column::text("Case")];
    columns.extend(shown.iter().map(|(name, ..)| Column::number(*name)));
    let caption =
        "Nanoseconds per request. Percentiles come from a round in which each request is \
                   timed, which adds the cost of the clock."
            .to_owned();
    Table { caption, columns, rows: groups.iter().map(row).collect() }
}

fn step_bars(book: &Book, groups: &[Group]) -> Bars {
    let bar = |group: &Group| {
        let parts = vec![book.estimate(group, "figures/ns_mean")?];
        Some(Bar { name: group.case().to_owned(), parts, ..Bar::default() })
    };
    Bars {
        title: "Each step of a 4 KiB request by itself".to_owned(),
        hint: "lower is better",
        format: Format::Nanos,
        line: None,
        part_names: &[],
        beside: None,
        bars: groups.iter().filter_map(bar).collect(),
    }
}
