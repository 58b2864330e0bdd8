//! Cost of durability: durable writes, images, and overwrites beside snapshots.

use maud::{Markup, html};
use results::Suite;

use crate::book::Book;
use crate::chart::{Bar, Bars, Strip, Strips};
use crate::figure::Format;
use crate::group::Group;
use crate::table::{Cell, Column, Table};

/// By the strips' percentiles.
const PERCENTILES: [&str; 6] =
    ["latency/p50", "latency/p90", "latency/p99", "latency/p999", "latency/p9999", "latency/max"];

/// Colours of the page: ours, and the disk.
const VOLUME_SERIES: usize = 0;
const DISK_SERIES: usize = 6;

pub(crate) fn body(book: &Book) -> Option<Markup> {
    let groups = book.groups(Suite::Durability);
    let timed = |group: &&Group| group.first().row.latency.is_some();
    let (requests, images): (Vec<&Group>, Vec<&Group>) = groups.iter().partition(timed);
    (!groups.is_empty()).then(|| {
        html! {
            p { "The journal and the images lie on the disk that volumes are compared with. A "
                "durable write is a write of 4 KiB and the flush behind it." }
            @if !requests.is_empty() {
                (rates(book, &requests).show())
                (strips(book, &requests).show())
                (latencies(book, &requests).show())
            }
            @if !images.is_empty() {
                (copies(book, &images).show())
                (other_figures(book, &images).show())
            }
        }
    })
}

fn series(group: &Group) -> usize {
    if group.target().contains("volume") { VOLUME_SERIES } else { DISK_SERIES }
}

fn rates(book: &Book, groups: &[&Group]) -> Bars {
    let bar = |group: &&Group| {
        Some(Bar {
            group: group.case().to_owned(),
            name: book.target_name(group),
            parts: vec![book.estimate(group, "app/iops")?],
            series: series(group),
            ..Bar::default()
        })
    };
    let bars = groups
        .iter()
        .filter(|group| group.word("op") == Some("durable write"))
        .filter_map(bar)
        .collect();
    Bars::higher_is_better("Durable writes per second", Format::Count, bars)
}

fn strips(book: &Book, groups: &[&Group]) -> Strips {
    let strip = |group: &&Group| Strip {
        name: format!("{}: {}", book.target_name(group), group.case()),
        percentiles: PERCENTILES.iter().map(|path| book.estimate(group, path)).collect(),
        series: series(group),
    };
    Strips {
        title: "Latency of a request".to_owned(),
        hint: "log scale, lower is better",
        format: Format::Micros,
        strips: groups.iter().map(strip).collect(),
    }
}

fn latencies(book: &Book, groups: &[&Group]) -> Table {
    const COLUMNS: [(&str, &str, Format); 8] = [
        ("mean, µs", "latency/mean", Format::Micros),
        ("p50, µs", "latency/p50", Format::Micros),
        ("p99, µs", "latency/p99", Format::Micros),
        ("p99.9, µs", "latency/p999", Format::Micros),
        ("max, µs", "latency/max", Format::Micros),
        ("per second", "app/iops", Format::Count),
        ("flushes in a commit", "figures/flushes_per_transaction", Format::Ratio),
        ("longest snapshot, µs", "figures/snapshot_ns_max", Format::Micros),
    ];
    let row = |group: &&Group| {
        let of = |(_, path, format): &(&str, &str, Format)| {
            Cell::estimate(book.estimate(group, path), *format)
        };
        let mut cells = vec![Cell::text(book.target_name(group)), Cell::text(group.case())];
        cells.extend(COLUMNS.iter().map(of));
        cells
    };
    let mut columns = vec![Column::text("Target"), Column::text("Load")];
    columns.extend(COLUMNS.map(|(name, ..)| Column::number(name)));
    let caption = "From when a request was sent. A commit of the journal serves all flushes that \
                   waited for it."
        .to_owned();
    Table { caption, columns, rows: groups.iter().map(row).collect() }
}

/// Images beside plain copies to the disk and back.
fn copies(book: &Book, groups: &[&Group]) -> Bars {
    let bar = |group: &&Group| {
        Some(Bar {
            group: group.case().to_owned(),
            name: book.target_name(group),
            parts: vec![book.estimate(group, "figures/bytes_per_s")?],
            series: series(group),
            ..Bar::default()
        })
    };
    let bars = groups.iter().filter_map(bar).collect();
    Bars::higher_is_better(
        "Bytes of data saved and restored per second",
        Format::MegabytesPerSecond,
        bars,
    )
}

fn other_figures(book: &Book, groups: &[&Group]) -> Table {
    const KINDS: [(&str, &str, Format); 3] = [
        ("bytes_per_s", "MB/s", Format::MegabytesPerSecond),
        ("bytes_of_full_image_share", "bytes of the full image", Format::Percent),
        ("first_read_ns", "from the start of the daemon, µs", Format::Micros),
    ];
    let mut rows = Vec::new();
    for group in groups {
        for (name, words, format) in KINDS {
            let Some(estimate) = book.estimate(group, &format!("figures/{name}")) else { continue };
            rows.push(vec![
                Cell::text(group.case()),
                Cell::text(book.target_name(group)),
                Cell::text(words),
                Cell::estimate(Some(estimate), format),
            ]);
        }
    }
    let columns = vec![
        Column::text("What"),
        Column::text("Target"),
        Column::text("Figure"),
        Column::number("measured"),
    ];
    Table { caption: "Data that cannot be made smaller.".to_owned(), columns, rows }
}
