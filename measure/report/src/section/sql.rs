//! SQL and live queries over topics, compared with PostgreSQL and with a consumer of the same
//! broker.

use maud::{Markup, html};
use results::Suite;

use super::layout::{GroupTable, Named, OTHER_SERIES, OWN_SERIES, PERCENTILES, bars, strips};
use crate::book::Book;
use crate::chart::Bars;
use crate::figure::Format;
use crate::group::Group;
use crate::table::Table;

pub(crate) fn body(book: &Book) -> Option<Markup> {
    const DELIVERY: &str = "From when a message was due until a client has it";
    let timed = |group: &Group| group.first().row.latency.is_some();
    let (delivered, others): (Vec<Group>, Vec<Group>) =
        book.groups(Suite::Sql).into_iter().partition(timed);
    let name = |group: &Group| book.target_name(group);
    let rates = |path, title| {
        let bars = bars(book, &others, path, series);
        Bars::higher_is_better(title, Format::Count, bars)
    };
    (!delivered.is_empty() || !others.is_empty()).then(|| {
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
                (strips(book, &delivered, DELIVERY, (name, series)).show())
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

fn table(book: &Book, groups: &[Group]) -> Table {
    const FIGURES: [Named; 9] = [
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
    let caption = "Medians. A core that is busy all the time is what a rate is bound by; of \
                   clients it is the sum over their cores.";
    let table = GroupTable::new(book).case("What").target("Target");
    table.known_figures(groups, &FIGURES).rows(groups, caption)
}

fn latencies(book: &Book, groups: &[Group]) -> Table {
    let table = GroupTable::new(book).target("Target").case("Load").figures(&PERCENTILES);
    table.rows(groups, "In µs, both clients at the same time; lower is better.")
}
