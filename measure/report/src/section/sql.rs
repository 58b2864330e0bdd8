//! SQL and live queries over topics: beside PostgreSQL, and beside a consumer of the same broker.

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

/// Colours of the page: ours, and what is compared with.
const OWN_SERIES: usize = 0;
const OTHER_SERIES: usize = 6;

pub(crate) fn body(book: &Book) -> Option<Markup> {
    let groups = book.groups(Suite::Sql);
    let timed = |group: &&Group| group.first().row.latency.is_some();
    let (delivered, others): (Vec<&Group>, Vec<&Group>) = groups.iter().partition(timed);
    let rates = |path, title| rates(book, &others, (path, title));
    (!groups.is_empty()).then(|| {
        html! {
            p { "JSON records of 300 bytes. Each server has one core, clients have the others, and "
                "what is compared runs in turn. PostgreSQL has the data in its cache and no index "
                "but the primary key. Every answer was checked." }
            @for (path, title) in RATES {
                @let chart = rates(path, title);
                @if !chart.bars.is_empty() { (chart.show()) }
            }
            @if !others.is_empty() { (table(book, &others).show()) }
            @if !delivered.is_empty() {
                (strips(book, &delivered).show())
                (latencies(book, &delivered).show())
            }
        }
    })
}

const RATES: [(&str, &str); 2] = [
    ("figures/lookups_per_s", "Current values looked up per second"),
    ("figures/records_per_s", "Records per second"),
];

fn series(group: &Group) -> usize {
    let is_other = ["PostgreSQL", "Kafka"].iter().any(|name| group.target().starts_with(name));
    if is_other { OTHER_SERIES } else { OWN_SERIES }
}

fn rates(book: &Book, groups: &[&Group], (path, title): (&str, &str)) -> Bars {
    let bar = |group: &&Group| {
        Some(Bar {
            group: group.case().to_owned(),
            name: book.target_name(group),
            parts: vec![book.estimate(group, path)?],
            series: series(group),
            ..Bar::default()
        })
    };
    let bars = groups.iter().filter_map(bar).collect();
    Bars::higher_is_better(title, Format::Count, bars)
}

fn table(book: &Book, groups: &[&Group]) -> Table {
    const COLUMNS: [(&str, &str, Format); 9] = [
        ("lookups/s", "figures/lookups_per_s", Format::Count),
        ("records/s", "figures/records_per_s", Format::Count),
        ("rows/s", "figures/rows_per_s", Format::Count),
        ("acknowledged/s", "figures/acknowledged_records_per_s", Format::Count),
        ("bytes a key", "figures/index_bytes_per_key", Format::Count),
        ("first read, µs", "figures/first_read_ns", Format::Micros),
        ("values behind, µs", "figures/values_behind_ns", Format::Micros),
        ("server's core busy", "figures/server_cores_busy", Format::Percent),
        ("clients' cores busy", "figures/client_cores_busy", Format::Percent),
    ];
    let is_there = |path: &str| groups.iter().any(|group| group.first().figure(path).is_some());
    let shown: Vec<_> = COLUMNS.iter().filter(|(_, path, _)| is_there(path)).collect();
    let row = |group: &&Group| {
        let of = |(_, path, format): &&(&str, &str, Format)| {
            Cell::estimate(book.estimate(group, path), *format)
        };
        let mut cells = vec![Cell::text(group.case()), Cell::text(book.target_name(group))];
        cells.extend(shown.iter().map(of));
        cells
    };
    let mut columns = vec![Column::text("What"), Column::text("Target")];
    columns.extend(shown.iter().map(|(name, ..)| Column::number(*name)));
    let caption = "Medians. A core that is busy all the time is what a rate is bound by; of \
                   clients it is the sum over their cores."
        .to_owned();
    Table { caption, columns, rows: groups.iter().map(row).collect() }
}

fn strips(book: &Book, groups: &[&Group]) -> Strips {
    let strip = |group: &&Group| Strip {
        name: book.target_name(group),
        percentiles: PERCENTILES.iter().map(|path| book.estimate(group, path)).collect(),
        series: series(group),
    };
    Strips {
        title: "From when a message was due until a client has it".to_owned(),
        hint: "log scale, lower is better",
        format: Format::Micros,
        strips: groups.iter().map(strip).collect(),
    }
}

fn latencies(book: &Book, groups: &[&Group]) -> Table {
    let row = |group: &&Group| {
        let of = |path: &&str| Cell::estimate(book.estimate(group, path), Format::Micros);
        let mut cells = vec![Cell::text(book.target_name(group)), Cell::text(group.case())];
        cells.extend(PERCENTILES.iter().map(of));
        cells
    };
    let mut columns = vec![Column::text("Target"), Column::text("Load")];
    columns.extend(["p50", "p90", "p99", "p99.9", "p99.99", "max"].map(Column::number));
    let caption = "In µs, both clients at the same time; lower is better.".to_owned();
    Table { caption, columns, rows: groups.iter().map(row).collect() }
}
