//! The engine compared with copies of bare memory.

use maud::{Markup, html};
use results::Suite;

use super::jobs::{count_text, size_text};
use super::layout::{GroupTable, Named};
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
            (max, format!("goal: at most {max_text}"))
        });
        let beside = book.estimate(group, "figures/ns_mean");
        Some(Bar { limit, beside, ..Bar::new(heading.trim(), name, ratio) })
    };
    let bars = groups.iter().filter_map(bar).collect();
    Bars {
        line: Some((1.0, "floor".to_owned())),
        beside: Some(("mean", Format::Nanos)),
        ..Bars::new("Time per request over the floor", "lower is better", Format::Ratio, bars)
    }
}

fn table(book: &Book, groups: &[Group]) -> Table {
    const FIGURES: [Named; 13] = [
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
    let caption = "Nanoseconds per request. Percentiles come from a round in which each request is \
                   timed, which adds the cost of the clock.";
    GroupTable::new(book)
        .cell(Column::text("Case"), |group| Cell::Code(group.case().to_owned()))
        .known_figures(groups, &FIGURES)
        .rows(groups, caption)
}

fn step_bars(book: &Book, groups: &[Group]) -> Bars {
    let bar =
        |group: &Group| Some(Bar::new("", group.case(), book.estimate(group, "figures/ns_mean")?));
    let bars = groups.iter().filter_map(bar).collect();
    let title = "Each step of a 4 KiB request by itself";
    Bars::new(title, "lower is better", Format::Nanos, bars)
}
