//! CPU cycles per I/O of applications: by consumer, by kind of time, and by number of cores.

use maud::{Markup, html};
use results::Suite;
use results::projection::{APPLICATION, CORES};

use super::layout::{GroupTable, Named};
use crate::book::Book;
use crate::chart::{Bar, Bars, Line, Lines};
use crate::figure::{Estimated, Format};
use crate::group::Group;
use crate::table::Table;

const CYCLES: &str = "figures/cpio_cycles";
const SHARES: [&str; 4] = ["user", "system", "idle", "waiting for I/O"];
const SPENDERS: [&str; 4] = ["application", "driver", "store", "rest"];

pub(crate) fn body(book: &Book) -> Option<Markup> {
    let groups = book.groups(Suite::Cpio);
    (!groups.is_empty()).then(|| {
        html! {
            p { "Processor time of the whole machine, idle and waiting left out and less what it "
                "uses when nothing is asked of it, in cycles of the time stamp counter, for each "
                "512 bytes where I/Os are counted. Lower is better, for the same application only: "
                "what the page cache answers does not reach the device." }
            (spenders(book, &groups).show())
            (time(book, &groups).show())
            (scaling(book, &groups).show())
            (table(book, &groups).show())
            p { "Memory bandwidth, and memory bytes moved for each stored byte: "
                (bandwidth(&groups)) "." }
        }
    })
}

/// Returns how memory bandwidth was counted in each run, or why not.
fn bandwidth(groups: &[Group]) -> String {
    let mut told: Vec<&str> = groups.iter().filter_map(|it| it.word("memory_bandwidth")).collect();
    told.sort_unstable();
    told.dedup();
    told.join("; ")
}

fn application<'book>(group: &Group<'book>) -> &'book str {
    group.word(APPLICATION).unwrap_or(group.case())
}

fn name(book: &Book, group: &Group) -> String {
    let target = book.target_name(group);
    match group.count(CORES) {
        Some(cores) => format!("{target}, {cores}"),
        None => target,
    }
}

/// Returns bars of four parts, by application and target.
fn bars(
    book: &Book,
    groups: &[Group],
    part: impl Fn(&Group, usize) -> Option<Estimated>,
) -> Vec<Bar> {
    let bar = |group: &Group| {
        let parts: Option<Vec<Estimated>> = (0..4).map(|index| part(group, index)).collect();
        let (heading, name) = (application(group).to_owned(), name(book, group));
        Some(Bar { group: heading, name, parts: parts?, ..Bar::default() })
    };
    let mut bars: Vec<Bar> = groups.iter().filter_map(bar).collect();
    bars.sort_by(|a, b| (&a.group, &a.name).cmp(&(&b.group, &b.name)));
    bars
}

fn spenders(book: &Book, groups: &[Group]) -> Bars {
    let part = |group: &Group, index: usize| {
        book.estimate(group, &format!("figures/{}_cycles", SPENDERS[index]))
    };
    let hint = "cycles, target and cores · lower is better";
    let bars = bars(book, groups, part);
    let bars = Bars::new("Cycles per I/O by who used them", hint, Format::Count, bars);
    Bars { part_names: &SPENDERS, ..bars }
}

fn time(book: &Book, groups: &[Group]) -> Bars {
    const FIGURES: [&str; 4] = ["user_s", "system_s", "idle_s", "io_wait_s"];
    let hint = "of all cores, target and cores";
    let bars = bars(book, groups, |group, index| share(book, group, FIGURES[index]));
    let bars = Bars::new("Where the processors' time went", hint, Format::Percent, bars);
    Bars { part_names: &SHARES, ..bars }
}

fn share(book: &Book, group: &Group, name: &str) -> Option<Estimated> {
    let of = |entry: &crate::group::Entry| {
        let second = |name: &str| entry.number(&format!("figures/{name}"));
        let all = second("user_s")? + second("system_s")? + second("idle_s")?;
        let all = all + second("io_wait_s")?;
        (all > 0.0).then_some(second(name)? / all)
    };
    let values: Vec<f64> = group.entries.iter().filter_map(|entry| of(entry)).collect();
    book.derive(group.describe(&format!("share of figures/{name}")), &values)
}

/// Returns the growth of cycles with cores, relative to one core.
fn scaling(book: &Book, groups: &[Group]) -> Lines {
    let mut lines: Vec<Line> = Vec::new();
    for one in groups.iter().filter(|group| group.count(CORES) == Some(1)) {
        let is_same = |group: &&Group| {
            application(group) == application(one)
                && (group.run(), group.target()) == (one.run(), one.target())
        };
        let point = |group: &Group| {
            Some((group.count(CORES)?, book.ratio((group, CYCLES), (one, CYCLES))?))
        };
        let mut points: Vec<(u64, Estimated)> =
            groups.iter().filter(is_same).filter_map(point).collect();
        points.sort_by_key(|point| point.0);
        let name = format!("{}, {}", application(one), book.target_name(one));
        if points.len() > 1 {
            lines.push(Line { name, points });
        }
    }
    Lines {
        title: "Cycles per I/O over those with one core".to_owned(),
        hint: "1 is ideal",
        level_name: "cores",
        format: Format::Ratio,
        lines,
    }
}

fn table(book: &Book, groups: &[Group]) -> Table {
    const FIGURES: [Named; 8] = [
        ("cycles/IO", CYCLES, Format::Count),
        ("without driver", "figures/cpio_without_driver_cycles", Format::Count),
        ("cores in use", "figures/utilisation_share", Format::Percent),
        ("MB/s at the device", "figures/device_bytes_per_s", Format::MegabytesPerSecond),
        ("store, idle, of a core", "figures/idle_store_cores", Format::Percent),
        ("machine, idle, of a core", "figures/idle_machine_cores", Format::Percent),
        ("MB/s of memory", "figures/memory_bytes_per_s", Format::MegabytesPerSecond),
        ("memory bytes, each stored", "figures/memory_bytes_per_stored_byte", Format::Ratio),
    ];
    GroupTable::new(book)
        .text("Application", |group| application(group).to_owned())
        .word("in place of", "stands_for")
        .text("Target, cores", |group| name(book, group))
        .figures(&FIGURES)
        .word("I/Os counted at", "ios_counted_at")
        .word("what survives", "durability")
        .rows(groups, "One I/O is 512 bytes, read or written")
}
