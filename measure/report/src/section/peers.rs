//! The same jobs on volumes and on alternatives, with their guarantees and costs.

use maud::{Markup, html};
use results::{CPU_FOR_EACH_IO, Suite};

use super::jobs::job_text;
use super::layout::{GroupTable, OTHER_SERIES, OWN_SERIES, listing};
use crate::bars::{latency_times_min, volume_like};
use crate::book::Book;
use crate::chart::{Bar, Bars};
use crate::figure::{Estimated, Format};
use crate::group::Group;
use crate::table::{Cell, Column, Table};

const LATENCY: &str = "latency/mean";

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

/// Returns the groups of each job, sorted by job.
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
            (min, format!("goal: at least {min_text}"))
        });
        let is_ours = group.target().starts_with("volume");
        let over_volume = over_volume(book, groups, group)?;
        Some(Bar {
            series: if is_ours { OWN_SERIES } else { OTHER_SERIES },
            limit,
            beside: book.estimate(group, LATENCY),
            ..Bar::new("", book.target_name(group), over_volume)
        })
    };
    let mut bars: Vec<Bar> = groups.iter().filter_map(bar).collect();
    bars.sort_by(|a, b| {
        a.series.cmp(&b.series).then(a.parts[0].value().total_cmp(&b.parts[0].value()))
    });
    let title = groups.first().map_or(String::new(), job_text);
    let hint = "mean latency over the volume's · lower is better";
    Bars {
        line: Some((1.0, "volume".to_owned())),
        beside: Some(("mean latency", Format::Micros)),
        ..Bars::new(title, hint, Format::Ratio, bars)
    }
}

/// Returns the latency relative to the volume with the same access path.
fn over_volume(book: &Book, groups: &[Group], group: &Group) -> Option<Estimated> {
    let name = volume_like(group.target());
    let reference =
        groups.iter().find(|other| other.run() == group.run() && other.target() == name)?;
    book.ratio((group, LATENCY), (reference, LATENCY))
}

fn table(book: &Book, groups: &[Group]) -> Table {
    let cpu = format!("figures/{CPU_FOR_EACH_IO}");
    let caption = "Processor time is that of the whole machine while the job ran, the load \
                   generator's included, for each operation; jobs under 20 s cannot claim any.";
    GroupTable::new(book)
        .target("Target")
        .figure(("mean, µs", LATENCY, Format::Micros))
        .derived(("over the volume's", Format::Ratio), |group| over_volume(book, groups, group))
        .figure(("p99, µs", "latency/p99", Format::Micros))
        .figure(("p99.9, µs", "latency/p999", Format::Micros))
        .figure(("IOPS", "app/iops", Format::Count))
        .figure(("MB/s", "app/bytes_per_s", Format::MegabytesPerSecond))
        .figure(("processor µs per I/O", &cpu, Format::Micros))
        .rows(groups, caption)
}

/// Returns guarantees and costs: durability of acknowledged data, and idle consumption of a server.
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

/// Returns the applications' own results.
fn whole_workloads(book: &Book, groups: &[Group]) -> Table {
    let rows = groups.iter().flat_map(|group| {
        group.first().row.figures.keys().map(move |name| {
            let (words, format) = figure_words(name);
            let estimate = book.estimate(group, &format!("figures/{name}"));
            let (case, target) = (Cell::text(group.case()), Cell::text(book.target_name(group)));
            [case, target, Cell::text(words), Cell::estimate(estimate, format)]
        })
    });
    listing("Workload", "Whole workloads on the same targets, and none.", rows)
}

/// Returns a figure's name for people, with its display unit.
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
