//! Throughput, operations and latency over the number of jobs.

use maud::{Markup, html};
use results::Suite;

use super::jobs::{at, by_subject, count_text, job_text, size_text, steps};
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

/// The papers' second footnote: where the time goes at one job.
pub(crate) fn footnote(book: &Book, subjects: &[(String, Vec<Group>)]) -> Markup {
    let rows: Vec<Vec<Cell>> = subjects
        .iter()
        .flat_map(|(name, groups)| groups.iter().map(move |group| (name, group)))
        .filter(|(_, group)| group.first().figure("latency/completion_mean").is_some())
        .filter(|(_, group)| group.count("jobs") == Some(1))
        .map(|(name, group)| {
            let time = |path: &str| Cell::estimate(book.estimate(group, path), Format::Micros);
            vec![
                Cell::text(name.clone()),
                Cell::text(job_text(group)),
                time("latency/submission_mean"),
                time("latency/completion_mean"),
            ]
        })
        .collect();
    let caption =
        "Mean time to hand a request to the kernel, and from there to its end, in µs. The \
                   ForsaOS paper states 0.314 µs of completion at 4K and 0.635 µs at 128K for \
                   sequential reads, the rest being submission."
            .to_owned();
    let columns = [Column::text("Target"), Column::text("Job")]
        .into_iter()
        .chain(["submission", "completion"].map(Column::number))
        .collect();
    html! { @if !rows.is_empty() { (Table { caption, columns, rows }.show()) } }
}

fn lines(
    book: &Book,
    (groups, block_bytes): (&[Group], u64),
    (title, path, format, hint): (&str, &str, Format, &'static str),
) -> Lines {
    let lines = FORSA_PATTERNS.iter().filter_map(|(pattern, name)| {
        let points: Vec<_> = steps(groups, "jobs")
            .into_iter()
            .filter_map(|jobs| {
                let counts = [("jobs", jobs), ("block_bytes", block_bytes)];
                Some((jobs, book.estimate(at(groups, pattern, &counts)?, path)?))
            })
            .collect();
        (!points.is_empty()).then(|| Line { name: (*name).to_owned(), points })
    });
    Lines { title: title.to_owned(), hint, level_name: "jobs", format, lines: lines.collect() }
}

fn table(book: &Book, groups: &[Group], block_bytes: u64) -> Table {
    let mut columns = vec![Column::text("Pattern"), Column::number("jobs")];
    columns.extend(CHARTS.iter().map(|(title, _, format, _)| {
        Column::number(format!("{title} {}", format.name()).trim_end().to_owned())
    }));
    columns.extend(["p99, µs", "p99.9, µs", "outside requests"].map(Column::number));
    let mut rows = Vec::new();
    for (pattern, name) in FORSA_PATTERNS {
        for jobs in steps(groups, "jobs") {
            let counts = [("jobs", jobs), ("block_bytes", block_bytes)];
            let Some(group) = at(groups, pattern, &counts) else { continue };
            let of = |path: &str, format| Cell::estimate(book.estimate(group, path), format);
            let mut cells = vec![Cell::text(name)];
            cells.push(Cell::number(group.first().figure("params/jobs"), Format::Count));
            cells.extend(CHARTS.iter().map(|(_, path, format, _)| of(path, *format)));
            cells.push(of("latency/p99", Format::Micros));
            cells.push(of("latency/p999", Format::Micros));
            cells.push(of("generator_share", Format::Percent));
            rows.push(cells);
        }
    }
    let caption = "“Outside requests” is the share of the time that the load generator spent \
                   between its requests."
        .to_owned();
    Table { caption, columns, rows }
}

/// Submission and completion, stacked, by pattern and jobs.
fn split(book: &Book, groups: &[Group], block_bytes: u64) -> Option<Bars> {
    let mut bars = Vec::new();
    for (pattern, name) in FORSA_PATTERNS {
        for jobs in steps(groups, "jobs") {
            let counts = [("jobs", jobs), ("block_bytes", block_bytes)];
            let Some(group) = at(groups, pattern, &counts) else { continue };
            let parts = ["latency/submission_mean", "latency/completion_mean"]
                .map(|path| book.estimate(group, path));
            if let [Some(submission), Some(completion)] = parts {
                bars.push(Bar {
                    group: name.to_owned(),
                    name: count_text(jobs, "job"),
                    parts: vec![submission, completion],
                    ..Bar::default()
                });
            }
        }
    }
    (!bars.is_empty()).then(|| Bars {
        title: "Where the latency goes".to_owned(),
        hint: "lower is better",
        format: Format::Micros,
        line: None,
        part_names: &["submission", "completion"],
        beside: None,
        bars,
    })
}
