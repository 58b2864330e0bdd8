//! Tables of all rows of the recorded runs, by run.

use std::fmt::Write;

use results::{Estimate, Manifest, Row, Suite, Summary, Validity, summarise};
use serde_json::Value;

use super::table;
use crate::figure::Format;

const HEAD: &str = "# Rows of the recorded runs

Every measurement behind [the page on performance](PAGE), run by run. Like that page, this one is
generated from the recorded runs.

Figures are medians of repeats; brackets hold 95 % intervals. Windows are the seconds that a
repeat was measured for; *valid* are the repeats that count, and remarks say why others do not.
";

/// Returns the tables, with a link back to the page of this file name.
pub(super) fn write(page: &str, runs: &[(Manifest, Vec<Row>)]) -> String {
    let mut text = HEAD.replace("PAGE", &format!("../{page}"));
    for (index, (manifest, rows)) in runs.iter().enumerate() {
        text += &format!("\n## Run {}\n\n{}", index + 1, machine(manifest));
        text += &tables(manifest, rows);
    }
    text
}

fn machine(manifest: &Manifest) -> String {
    let host = &manifest.host;
    let commit = manifest.tool.commit.as_deref().unwrap_or("unknown");
    let virtualisation = host.virtualisation.as_deref().unwrap_or("unknown");
    let mut text = format!(
        "{} cores of {}, {} of memory, Linux {}, virtualisation: {virtualisation}. Memlane {}, \
         commit `{commit}`. Profile `{}`, seed {}.",
        host.cores,
        host.cpu,
        Format::Mebibytes.text_with_unit(host.memory_bytes as f64),
        host.kernel,
        manifest.tool.version,
        manifest.profile,
        manifest.seed,
    );
    if manifest.profile == "quick" {
        text += " A smoke test: its figures decide nothing.";
    }
    let mut words = manifest.command_line.clone();
    if let Some(program) = words.first_mut() {
        *program = program.rsplit('/').next().unwrap_or_default().to_owned();
    }
    text + &format!("\n\n```sh\n{}\n```\n", words.join(" "))
}

fn tables(manifest: &Manifest, rows: &[Row]) -> String {
    let summaries = summarise(rows);
    let mut suites: Vec<Suite> = summaries.iter().map(|summary| summary.suite).collect();
    suites.sort_unstable();
    suites.dedup();
    let mut text = String::new();
    for suite in suites {
        // The recorded order of targets was randomized by the seed.
        let mut own: Vec<_> = summaries.iter().filter(|summary| summary.suite == suite).collect();
        own.sort_by(|a, b| (&a.case, &a.target).cmp(&(&b.case, &b.target)));
        let lines: Vec<Vec<String>> =
            own.iter().map(|summary| line(manifest, summary, rows)).collect();
        let columns = ["case", "target", "median", "valid", "window, s", "remarks"];
        // Writing to a String does not fail.
        let _ = write!(text, "\n### {}\n\n{}", suite.name(), table(&columns, &lines));
        text += &promises(suite, rows);
    }
    text
}

/// Returns the durability guarantee of each target, without repetition.
fn promises(suite: Suite, rows: &[Row]) -> String {
    let mut told: Vec<(&str, Vec<&str>)> = Vec::new();
    for row in rows.iter().filter(|row| row.suite == suite) {
        let Some(promise) = row.params.get("durability").and_then(Value::as_str) else { continue };
        match told.iter_mut().find(|(known, _)| *known == promise) {
            Some((_, targets)) if targets.contains(&&*row.target) => {}
            Some((_, targets)) => targets.push(&row.target),
            None => told.push((promise, vec![&row.target])),
        }
    }
    if told.is_empty() {
        return String::new();
    }
    let lines = told.iter().map(|(promise, targets)| {
        let mut targets = targets.clone();
        targets.sort_unstable();
        vec![(*promise).to_owned(), targets.join("; ")]
    });
    let lines: Vec<Vec<String>> = lines.collect();
    format!("\n{}", table(&["what acknowledged data survives", "targets"], &lines))
}

/// Returns the headline of a case. For many requests in flight it is their rate.
fn result(summary: &Summary, is_deep: bool) -> Option<(&str, &Estimate)> {
    let rate = summary.measures.get_key_value("iops").filter(|_| is_deep);
    rate.map(|(name, estimate)| (name.as_str(), estimate)).or_else(|| summary.result())
}

fn line(manifest: &Manifest, summary: &Summary, rows: &[Row]) -> Vec<String> {
    let own: Vec<&Row> = rows
        .iter()
        .filter(|row| {
            (row.suite, &row.case, &row.target) == (summary.suite, &summary.case, &summary.target)
        })
        .collect();
    let windows: Vec<f64> =
        own.iter().map(|row| row.time.duration_s).filter(|it| *it > 0.0).collect();
    let window = Estimate::new(&windows).map_or("–".to_owned(), |it| format!("{:.1}", it.median));
    let mut remarks = flags(&own);
    remarks.extend(reasons(&own));
    if manifest.profile == "quick" {
        remarks.push("smoke test".to_owned());
    }
    let is_deep = own
        .iter()
        .any(|row| row.params.get("queue_depth").and_then(Value::as_u64).is_some_and(|it| it > 1));
    let median = result(summary, is_deep);
    vec![
        summary.case.clone(),
        summary.target.clone(),
        median.map_or("–".to_owned(), |(name, estimate)| interval(name, estimate)),
        summary.valid.to_string(),
        window,
        remarks.join("; "),
    ]
}

/// Returns the flags of repeats, each without its figures but with the number of repeats.
fn flags(rows: &[&Row]) -> Vec<String> {
    let of_row = |row: &&Row| {
        let words = |flag: &String| {
            flag.split_once(": ").map_or(flag.clone(), |(words, _)| words.to_owned())
        };
        let mut flags: Vec<String> = Vec::new();
        for flag in row.flags.iter().map(words) {
            if !flags.contains(&flag) {
                flags.push(flag);
            }
        }
        flags
    };
    let of = rows.len();
    let told = counted(rows.iter().flat_map(of_row));
    told.into_iter().map(|(flag, count)| format!("{flag} ({count} of {of})")).collect()
}

/// Returns the reasons why repeats are invalid or skipped, without repetition.
fn reasons(rows: &[&Row]) -> Vec<String> {
    let reasons = rows.iter().filter_map(|row| match &row.validity {
        Validity::Valid => None,
        Validity::Invalid(reason) => Some(format!("invalid: {}", shortened(reason))),
        Validity::Skipped(reason) => Some(format!("skipped: {}", shortened(reason))),
    });
    let tell = |(reason, count): (String, u32)| match count {
        1 => reason,
        _ => format!("{count} {reason}"),
    };
    counted(reasons).into_iter().map(tell).collect()
}

/// Counts equal texts, in order of first appearance.
fn counted(texts: impl Iterator<Item = String>) -> Vec<(String, u32)> {
    let mut told: Vec<(String, u32)> = Vec::new();
    for text in texts {
        match told.iter_mut().find(|(known, _)| *known == text) {
            Some((_, count)) => *count += 1,
            None => told.push((text, 1)),
        }
    }
    told
}

/// Shortens a reason to one line. The full output of programs is in the run's folder.
fn shortened(reason: &str) -> String {
    const CHARACTERS_MAX: usize = 240;
    let line = reason.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(CHARACTERS_MAX) {
        Some((end, _)) => format!("{} …", &line[..end]),
        None => line,
    }
}

/// Formats `11.8 [11.3 – 12.3] µs (latency, mean)`.
fn interval(name: &str, estimate: &Estimate) -> String {
    let (words, format) = match name {
        "ns_mean" => ("a request, mean".to_owned(), Format::Nanos),
        "latency_ns_mean" => ("latency, mean".to_owned(), Format::Micros),
        "bytes_per_s" => ("throughput".to_owned(), Format::MegabytesPerSecond),
        results::FIRST_READ_NS => ("to the first read".to_owned(), Format::Micros),
        "iops" | results::NOPM => (name.to_uppercase(), Format::Count),
        _ => (name.replace('_', " "), Format::Count),
    };
    let text = |value: f64| format.text(value);
    let median = match estimate.ci95 {
        Some((low, high)) => format!("{} [{} – {}]", text(estimate.median), text(low), text(high)),
        None => text(estimate.median),
    };
    match format.name() {
        "" => format!("{median} {words}"),
        unit => format!("{median} {unit} ({words})"),
    }
}
