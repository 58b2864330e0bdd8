//! Throughput, operations and latency over the number of jobs.

use maud::{Markup, html};
use results::Suite;

use super::jobs::{at, by_subject, count_text, job_text, size_text, steps};
use super::layout::GroupTable;
use crate::book::Book;
use crate::chart::{Bar, Bars, Line, Lines};
use crate::figure::Format;
use crate::group::Group;
use crate::papers::FORSA_PATTERNS;
use crate::table::{Cell, Column, Table};

const CHARTS: [(&str, &str, Format, &str); 3] = [
    ("Throughput", "app/bytes_per_s", Format::MegabytesPerSecond, "higher is better"),
    ("Operations per second", "app/iops", Format::Count, "higher is better"),
    ("Mean total latency", "latency/mean", Format::Micros, "lower is better"),
];

pub(crate) fn body(book: &Book) -> Option<Markup> {
    let groups = book.groups(Suite::Forsa);
    let subjects = by_subject(book, &groups);
    (!groups.is_empty()).then(|| {
        html! {
            p { "fio at queue depth 1, the whole target written before with blocks of the same "
                "size. More jobs than cores share them." }
            @for (name, groups) in &subjects {
                @for block_bytes in steps(groups, "block_bytes") {
                    h3 { (name) ", " (size_text(block_bytes)) " blocks" }
                    div.charts {
                        @for chart in CHARTS { (lines(book, (groups, block_bytes), chart).show()) }
                    }
                    (table(book, groups, block_bytes).show_behind())
                    @if let Some(split) = split(book, groups, block_bytes) { (split.show()) }
                }
            }
        }
    })
}

/// Returns the papers' second footnote: the composition of latency with one job.
pub(crate) fn footnote(book: &Book, subjects: &[(String, Vec<Group>)]) -> Markup {
    let rows: Vec<Vec<Cell>> = subjects
        .iter()
        .flat_map(|(name, groups)| groups.iter().map(move |group| (name, group)))
        .filter(|(_, group)| group.first().figure("latency/completion_mean").is_some())
        .filter(|(_, group)| group.count("jobs") == Some(1))
        .map(|(name, group)| {
            let time = |path: &str| Cell::estimate(book.estimate(group, path), Format::Micros);
            let mut cells = [name.clone(), job_text(group)].map(Cell::text).to_vec();
            cells.extend(["latency/submission_mean", "latency/completion_mean"].map(time));
            cells
        })
        .collect();
    let caption =
        "Mean time to hand a request to the kernel, and from there to its end, in µs. The \
                   ForsaOS paper states 0.314 µs of completion at 4K and 0.635 µs at 128K for \
                   sequential reads, the rest being submission."
            .to_owned();
    let mut columns = ["Target", "Job"].map(Column::text).to_vec();
    columns.extend(["submission", "completion"].map(Column::number));
    html! { @if !rows.is_empty() { (Table { caption, columns, rows }.show()) } }
}

/// Returns the groups of a block size by pattern and number of jobs, with the pattern's name.
fn ordered<'all, 'book>(
    groups: &'all [Group<'book>],
    block_bytes: u64,
) -> impl Iterator<Item = (&'static str, u64, &'all Group<'book>)> {
    FORSA_PATTERNS.into_iter().flat_map(move |(pattern, name)| {
        steps(groups, "jobs").into_iter().filter_map(move |jobs| {
            let counts = [("jobs", jobs), ("block_bytes", block_bytes)];
            Some((name, jobs, at(groups, pattern, &counts)?))
        })
    })
}

fn lines(
    book: &Book,
    (groups, block_bytes): (&[Group], u64),
    (title, path, format, hint): (&str, &str, Format, &'static str),
) -> Lines {
    let lines = FORSA_PATTERNS.map(|(_, name)| Line {
        name: name.to_owned(),
        points: ordered(groups, block_bytes)
            .filter(|(of, ..)| *of == name)
            .filter_map(|(_, jobs, group)| Some((jobs, book.estimate(group, path)?)))
            .collect(),
    });
    let lines = lines.into_iter().filter(|line| !line.points.is_empty()).collect();
    Lines { title: title.to_owned(), hint, level_name: "jobs", format, lines }
}

fn table(book: &Book, groups: &[Group], block_bytes: u64) -> Table {
    let name = |group: &Group| {
        let known = FORSA_PATTERNS.iter().find(|(pattern, _)| group.word("rw") == Some(pattern));
        known.map_or("", |(_, name)| *name)
    };
    let table = GroupTable::new(book).text("Pattern", name).count("jobs", "params/jobs");
    let table = CHARTS.iter().fold(table, |table, (title, path, format, _)| {
        let heading = format!("{title} {}", format.name());
        table.derived((heading.trim_end(), *format), |group| book.estimate(group, path))
    });
    let groups = ordered(groups, block_bytes).map(|(.., group)| group);
    let caption = "“Outside requests” is the share of the time that the load generator spent \
                   between its requests.";
    table
        .figure(("p99, µs", "latency/p99", Format::Micros))
        .figure(("p99.9, µs", "latency/p999", Format::Micros))
        .figure(("outside requests", "generator_share", Format::Percent))
        .rows(groups, caption)
}

/// Returns stacked submission and completion times, by pattern and jobs.
fn split(book: &Book, groups: &[Group], block_bytes: u64) -> Option<Bars> {
    let bar = |(name, jobs, group): (&str, u64, &Group)| {
        let parts = ["latency/submission_mean", "latency/completion_mean"]
            .map(|path| book.estimate(group, path));
        let parts = parts.into_iter().collect::<Option<Vec<_>>>()?;
        let (group, name) = (name.to_owned(), count_text(jobs, "job"));
        Some(Bar { group, name, parts, ..Bar::default() })
    };
    let bars: Vec<Bar> = ordered(groups, block_bytes).filter_map(bar).collect();
    (!bars.is_empty()).then(|| Bars {
        part_names: &["submission", "completion"],
        ..Bars::new("Where the latency goes", "lower is better", Format::Micros, bars)
    })
}
