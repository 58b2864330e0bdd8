//! The workload derived from TPC-C: new orders per minute, latency, and sharing between clones.

use maud::{Markup, html};
use results::Suite;

use super::layout::{GroupTable, Named};
use crate::book::Book;
use crate::chart::{Bar, Bars};
use crate::figure::Format;
use crate::group::Group;
use crate::table::Table;

const NOPM: &str = "figures/nopm";

pub(crate) fn body(book: &Book) -> Option<Markup> {
    let groups = book.groups(Suite::Tpcc);
    (!groups.is_empty()).then(|| {
        html! {
            p { "A workload derived from TPC-C. NOPM are new orders a minute by the "
                "database's own count; TPM are transactions a minute as each engine counts them, "
                "and compare with those of the same engine alone. Neither is tpmC, and NOPM of "
                "other hardware do not compare. Each run ended with its consistency conditions 1 "
                "to 4 true and with as many orders in the database as the driver counts." }
            (rates(book, &groups).show())
            (waits(book, &groups).show())
            (table(book, &groups).show())
            @let clones: Vec<&Group> = groups.iter().filter(|it| is_of_clones(it)).collect();
            @if !clones.is_empty() { (clones_table(book, &clones).show()) }
        }
    })
}

fn is_of_clones(group: &Group) -> bool {
    group.first().number("figures/clones_ram_ratio").is_some()
}

fn rates(book: &Book, groups: &[Group]) -> Bars {
    let bars = bars(book, groups, NOPM, &["closed", "thinking"]);
    let hint = "NOPM, sum of all databases · higher is better";
    Bars::new("New orders a minute, by the database", hint, Format::Count, bars)
}

fn waits(book: &Book, groups: &[Group]) -> Bars {
    let bars = bars(book, groups, "latency/p99", &["open"]);
    let title = "99 % of new orders took at most, from when they were due";
    let hint = "steady rates in shares of the peak of each target · lower is better";
    Bars::new(title, hint, Format::Micros, bars)
}

fn bars(book: &Book, groups: &[Group], path: &str, loop_names: &[&str]) -> Vec<Bar> {
    let bar = |group: &Group| {
        let is_asked = group.word("loop").is_some_and(|name| loop_names.contains(&name));
        let estimate = book.estimate(group, path).filter(|_| is_asked)?;
        let series = usize::from(group.word("driver") == Some("pgbench"));
        Some(Bar { series, ..Bar::new(group.case(), book.target_name(group), estimate) })
    };
    let mut bars: Vec<Bar> = groups.iter().filter_map(bar).collect();
    bars.sort_by(|a, b| (&a.group, &a.name).cmp(&(&b.group, &b.name)));
    bars
}

fn table(book: &Book, groups: &[Group]) -> Table {
    const FIGURES: [Named; 8] = [
        ("NOPM", NOPM, Format::Count),
        ("least of a database", "figures/nopm_least", Format::Count),
        ("most of a database", "figures/nopm_most", Format::Count),
        ("TPM, by the engine", "figures/tpm", Format::Count),
        ("new order, mean", "latency/mean", Format::Micros),
        ("99 %", "latency/p99", Format::Micros),
        ("99.9 %", "latency/p999", Format::Micros),
        ("pgbench's difference", "figures/pgbench_difference_share", Format::Percent),
    ];
    let caption = "Closed loops count from when a transaction is sent, open ones from when it is \
                   due";
    GroupTable::new(book)
        .case("Case")
        .target("Target")
        .word("Engine", "engine")
        .word("transactions by", "transactions_by")
        .figures(&FIGURES)
        .word("what survives", "durability")
        .rows(groups, caption)
}

fn clones_table(book: &Book, groups: &[&Group]) -> Table {
    const FIGURES: [Named; 5] = [
        ("loaded volume in memory", "figures/one_used_bytes", Format::Mebibytes),
        ("all clones, before they run", "figures/used_bytes_before", Format::Mebibytes),
        ("of one", "figures/clones_ram_ratio", Format::Ratio),
        ("reduction before", "figures/reduction_before", Format::Ratio),
        ("reduction after", "figures/reduction_after", Format::Ratio),
    ];
    let table = GroupTable::new(book).case("Case").figures(&FIGURES);
    table.rows(groups.iter().copied(), "Databases cloned from one load: files over memory")
}
