//! The same jobs on volumes and on what others offer, with what each promises and costs.

use maud::{Markup, html};
use results::{CPU_FOR_EACH_IO, Suite};

use super::jobs::job_text;
use crate::bars::{latency_times_min, volume_like};
use crate::book::Book;
use crate::chart::{Bar, Bars};
use crate::figure::{Estimated, Format};
use crate::group::Group;
use crate::table::{Cell, Column, Table};

const LATENCY: &str = "latency/mean";

/// Colours of the page: ours, and others.
const VOLUME_SERIES: usize = 0;
const PEER_SERIES: usize = 6;

pub(crate) fn body(book: &Book) -> Option<Markup> {
    let groups = book.groups(Suite::Peers);
    let (jobs, others): (Vec<Group>, Vec<Group>) =
        groups.into_iter().partition(|group| group.word("rw").is_some());
    (!jobs.is_empty() || !others.is_empty()).then(|| {
        html! {
            p { "Measured in turns within one run. Figures differ when their intervals do not "
                "touch. Ratios are to the volume that is reached in the same way: as a device, by "
                "NBD, by vhost-user or as a FUSE file. A bar longer than 1 is slower than that "
                "volume." }
            @for case in cases(&jobs) {
                (bars(book, &case).show())
                (table(book, &case).show_behind())
            }
            @if !jobs.is_empty() { (promises(book, &jobs).show()) }
            @if !others.is_empty() { (whole_workloads(book, &others).show()) }
        }
    })
}

/// The groups of each job, in the order of the jobs' names.
fn cases<'book>(jobs: &[Group<'book>]) -> Vec<Vec<Group<'book>>> {
    let mut sorted = jobs.to_vec();
    sorted.sort_by_key(|group| {
        (group.count("block_bytes"), group.count("queue_depth"), group.case())
    });
    let of_one_case = |a: &Group, b: &Group| a.case() == b.case();
    sorted.chunk_by(of_one_case).map(<[Group]>::to_vec).collect()
}

fn bars(book: &Book, groups: &[Group]) -> Bars {
    let bar = |group: &Group| {
        let limit = latency_times_min(group).map(|min| {
            let min_text = Format::Ratio.text_with_unit(min);
            (min, format!("the bar is at least {min_text}"))
        });
        let is_ours = group.target().starts_with("volume");
        Some(Bar {
            name: book.target_name(group),
            parts: vec![over_volume(book, groups, group)?],
            series: if is_ours { VOLUME_SERIES } else { PEER_SERIES },
            limit,
            beside: book.estimate(group, LATENCY),
            ..Bar::default()
        })
    };
    let mut bars: Vec<Bar> = groups.iter().filter_map(bar).collect();
    bars.sort_by(|a, b| {
        a.series.cmp(&b.series).then(a.parts[0].value().total_cmp(&b.parts[0].value()))
    });
    Bars {
        title: groups.first().map_or(String::new(), job_text),
        hint: "mean latency over the volume's · lower is better",
        format: Format::Ratio,
        line: Some((1.0, "volume".to_owned())),
        part_names: &[],
        beside: Some(("mean latency", Format::Micros)),
        bars,
    }
}

/// The latency over that of the volume which is reached as this target is.
fn over_volume(book: &Book, groups: &[Group], group: &Group) -> Option<Estimated> {
    let name = volume_like(group.target());
    let reference =
        groups.iter().find(|other| other.run() == group.run() && other.target() == name)?;
    book.ratio((group, LATENCY), (reference, LATENCY))
}

fn table(book: &Book, groups: &[Group]) -> Table {
    let row = |group: &Group| {
        let of = |path: &str, format| Cell::estimate(book.estimate(group, path), format);
        vec![
            Cell::text(book.target_name(group)),
            of(LATENCY, Format::Micros),
            Cell::estimate(over_volume(book, groups, group), Format::Ratio),
            of("latency/p99", Format::Micros),
            of("latency/p999", Format::Micros),
            of("app/iops", Format::Count),
            of("app/bytes_per_s", Format::MegabytesPerSecond),
            of(&format!("figures/{CPU_FOR_EACH_IO}"), Format::Micros),
        ]
    };
    let mut columns = vec![Column::text("Target")];
    columns.extend(
        [
            "mean, µs",
            "over the volume's",
            "p99, µs",
            "p99.9, µs",
            "IOPS",
            "MB/s",
            "processor µs per I/O",
        ]
        .map(Column::number),
    );
    let caption = "Processor time is that of the whole machine while the job ran, the load \
                   generator's included, for each operation; jobs under 20 s cannot claim any."
        .to_owned();
    Table { caption, columns, rows: groups.iter().map(row).collect() }
}

/// What stands beside the speed: what acknowledged data survives, and what a server takes idle.
fn promises(book: &Book, jobs: &[Group]) -> Table {
    let idle = book.groups(Suite::Peers);
    let mut names: Vec<String> = Vec::new();
    let mut rows = Vec::new();
    for group in jobs {
        let name = book.target_name(group);
        if names.contains(&name) {
            continue;
        }
        let at_rest = idle.iter().find(|other| {
            other.run() == group.run() && other.target() == group.target() && other.case() == "idle"
        });
        let share = at_rest.and_then(|group| book.estimate(group, "figures/idle_core_percent"));
        rows.push(vec![
            Cell::text(name.clone()),
            Cell::text(group.word("durability").unwrap_or("not stated")),
            Cell::estimate(share, Format::Points),
        ]);
        names.push(name);
    }
    let columns = vec![
        Column::text("Target"),
        Column::text("What acknowledged data survives"),
        Column::number("idle server, % of a core"),
    ];
    Table { caption: "Beside the speed.".to_owned(), columns, rows }
}

/// What they call their result.
fn whole_workloads(book: &Book, groups: &[Group]) -> Table {
    let mut rows = Vec::new();
    for group in groups {
        for name in group.first().row.figures.keys() {
            let (words, format) = figure_words(name);
            let estimate = book.estimate(group, &format!("figures/{name}"));
            rows.push(vec![
                Cell::text(group.case()),
                Cell::text(book.target_name(group)),
                Cell::text(words),
                Cell::estimate(estimate, format),
            ]);
        }
    }
    let columns = vec![
        Column::text("Workload"),
        Column::text("Target"),
        Column::text("Figure"),
        Column::number("measured"),
    ];
    Table { caption: "Whole workloads on the same targets, and none.".to_owned(), columns, rows }
}

/// A figure's name for people, with the unit in which it is shown.
fn figure_words(name: &str) -> (String, Format) {
    let words = |name: &str| name.replace('_', " ");
    if let Some(name) = name.strip_suffix("_per_s") {
        return (format!("{} per second", words(name)), Format::Count);
    }
    if let Some(name) = name.strip_suffix("_percent") {
        return (format!("{}, %", words(name)), Format::Points);
    }
    if name.ends_with("_ns") || name.contains("_ns_") {
        let name = name.replace("_ns", "");
        return (format!("{}, µs", words(&name)), Format::Micros);
    }
    (words(name), Format::Count)
}
