//! Documentation generated from recorded runs: a page for decision makers, its pictures, and a page
//! of all rows.

mod missed;
mod rows;
mod uses;

use std::fmt::Write;
use std::time::{Duration, SystemTime};

use results::{Manifest, Row};

use crate::book::Book;
use crate::figure::{Estimated, Format};

/// Minimum duration in seconds of measured rates and latencies on the page.
const WINDOW_MIN_S: f64 = 2.0;

/// Minimum number of repeats for a distribution-free interval between two measured values.
const INTERVAL_REPEATS_MIN: u64 = 6;

const HEAD: &str = "# Performance

Memlane beside the systems that it can replace, measured in turn on the same machine. The column
*survives* names what acknowledged data survives: a kill of its server, or a loss of power.
";

const EARLIER: &str = "[Notes on performance](performance-notes.md) has earlier figures.";

const NOT_FOR: &str = "
Memlane also needs memory for its index and its programs: for a few hundred MiB of data, tmpfs takes
less. It runs on one machine: [scope](scope.md) lists further limits.
";

/// A generated file: its path relative to the page, and its text.
pub(crate) type File = (String, String);

/// Returns the page named `page`, and the files in the folder of that name without `.md`.
pub(crate) fn write(page: &str, runs: &[(Manifest, Vec<Row>)]) -> Vec<File> {
    let folder = page.trim_end_matches(".md");
    let counted = runs.iter().map(|(manifest, rows)| {
        (manifest.clone(), rows.iter().filter(|row| is_counted(row)).cloned().collect())
    });
    let book = Book::new(counted);
    let pictures = uses::pictures(&book);
    let text = decision(&book, folder, &pictures);
    let mut files = vec![(page.to_owned(), text)];
    files.push((format!("{folder}/rows.md"), rows::write(page, runs)));
    files.extend(pictures.into_iter().map(|(file, _, text)| (format!("{folder}/{file}"), text)));
    files
}

/// Returns whether a row was measured for long enough. Durations of single events and shares of
/// bytes are valid regardless of the duration.
fn is_counted(row: &Row) -> bool {
    let is_figure = |name: &String| name.ends_with("_ns") || name.ends_with("_share");
    let is_event = row.app.is_none() && row.latency.is_none() && row.figures.keys().any(is_figure);
    is_event || !(0.0..WINDOW_MIN_S).contains(&row.time.duration_s)
}

fn decision(book: &Book, folder: &str, pictures: &[(&str, String, String)]) -> String {
    let measured = uses::measured(book);
    let mut text = format!("{HEAD}\n{}", uses::compared(&measured));
    let missing = uses::missing(&measured);
    if !missing.is_empty() {
        // Writing to a String does not fail.
        let _ = write!(text, "\nNot measured in these runs: {}. {EARLIER}\n", missing.join(", "));
    }
    text += "\n## When not to use it\n\n";
    for line in uses::lost(&measured) {
        // Writing to a String does not fail.
        let _ = writeln!(text, "- {line}");
    }
    text += NOT_FOR;
    text += "\n## Charts\n";
    for (file, caption, _) in pictures {
        let _ = write!(text, "\n{caption}.\n\n![{caption}]({folder}/{file})\n");
    }
    text += "\n## Missed goals\n\n";
    text += &missed::write(book);
    text + &made(book, folder)
}

/// Describes machine and method of measurement.
fn made(book: &Book, folder: &str) -> String {
    let distinct = |text: &dyn Fn(&Manifest) -> String| {
        let mut all: Vec<String> = Vec::new();
        for value in book.manifests.iter().map(text) {
            if !all.contains(&value) {
                all.push(value);
            }
        }
        all.join("; ")
    };
    let machine = distinct(&|it| {
        let host = &it.host;
        let memory = Format::Mebibytes.text_with_unit(host.memory_bytes as f64);
        format!("{} cores of {}, {memory} of memory, Linux {}", host.cores, host.cpu, host.kernel)
    });
    let commits = distinct(&|it| {
        let commit = it.tool.commit.as_deref().unwrap_or("unknown");
        format!("`{}`", commit.get(..12).unwrap_or(commit))
    });
    let days = distinct(&|it| day(it.started_unix_ms));
    let profiles = distinct(&|it| it.profile.clone());
    format!(
        "
## Method

Machine: {machine}. Date: {days}. Commit: {commits}. Profile: {profiles}.

Figures are medians of repeats. Brackets contain 95 % confidence intervals by order statistics, if
there are at least six repeats. A ratio is the median of the ratios of the repeats, in which both
systems were measured in turn. The best peer is the fastest one, with the processor's cores kept
from sleeping if it is faster then, as Memlane keeps them itself. Rates and latencies that were
measured for less than two seconds are omitted.

[All rows]({folder}/rows.md) have the commands that measured them. [Measuring](guides/measuring.md)
explains the suites, [notes on performance](performance-notes.md) the causes.

This page is generated. `make performance` measures the figures on your machine and writes the page.
"
    )
}

/// Formats the date of a time, in UTC.
fn day(unix_ms: u64) -> String {
    let time = SystemTime::UNIX_EPOCH + Duration::from_millis(unix_ms);
    let mut text = humantime::format_rfc3339_seconds(time).to_string();
    text.truncate("2026-01-31".len());
    text
}

fn has_interval(estimate: &Estimated) -> bool {
    estimate.n >= INTERVAL_REPEATS_MIN
}

/// Formats a median, with its interval if there are enough repeats.
fn estimated(estimate: &Estimated, format: Format) -> String {
    let median = format.text_with_unit(estimate.value());
    match &estimate.interval {
        Some((low, high)) if has_interval(estimate) => {
            format!("{median} [{} – {}]", format.text(low.value), format.text(high.value))
        }
        _ => median,
    }
}

fn table(columns: &[&str], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let heading: Vec<String> = columns.iter().map(|&column| column.to_owned()).collect();
    let mut text = line(&heading) + &format!("|{}\n", "---|".repeat(columns.len()));
    rows.iter().for_each(|row| text += &line(row));
    text
}
