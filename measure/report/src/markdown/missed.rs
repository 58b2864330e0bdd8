//! Missed bars, with causes.

use super::{estimated, table};
use crate::bars::{self, Bar};
use crate::book::Book;

const FUSE_ON_LOOP: &str = "Without ublk an attached volume is a loop device over a FUSE file: \
     the costs of FUSE and of the daemon are added to those of the loop device";
const FILTER_PARSES: &str = "A filter parses each record; a consumer gets batches unchanged";
const ROWS_AS_TEXT: &str =
    "Each row is parsed and written as text; a consumer gets batches unchanged";

const DISK_GAINS: &str = "The disk itself gained 1.9 to 2.6 times from eight writers";

/// Causes of missed bars by short name, found by profiles or counters.
const CAUSES: [(&str, &str); 17] = [
    ("cycles per I/O, to loop", FUSE_ON_LOOP),
    (
        "cycles per I/O, to zram",
        "zram works within the caller's system call; FUSE and the daemon do not",
    ),
    ("attached 4K read, to loop", FUSE_ON_LOOP),
    (
        "NBD depth 16, to nbdkit",
        "fio and libnbd take a whole core at 180,000 requests per second with every server",
    ),
    (
        "8 writers",
        "The loop driver delays the writes of a device during its flush, so most commits of the \
         journal have one write",
    ),
    ("8 writers, each flushed", DISK_GAINS),
    ("8 over NBD", DISK_GAINS),
    (
        "NOPM on a journal volume, to disk",
        "The journal is on the disk that it is compared with, so each commit waits for the \
         same flush",
    ),
    (
        "gain of logs only",
        "The journal is on the disk that it is compared with; a log gains only from a faster \
         disk",
    ),
    ("SQL scan, 1 %", "The batch's bytes are searched and copied out of the volume for each query"),
    (
        "SQL scan, 50 %",
        "Each match is parsed completely, because a text that is not JSON has no fields; \
         PostgreSQL parsed it when it was stored",
    ),
    ("SQL groups", "Each record is parsed; PostgreSQL parsed it when it was stored"),
    ("live query, 0 %", FILTER_PARSES),
    ("live query, 1 %", FILTER_PARSES),
    ("live query, 50 %", ROWS_AS_TEXT),
    ("live query, 100 %", ROWS_AS_TEXT),
    (
        "10,000 live queries, 0.1 %",
        "Each record produces ten rows: most of the time is spent on their memory and on the \
         FETCH statements of ten thousand cursors",
    ),
];

/// Returns a table of the missed bars, or a sentence if there are none.
pub(super) fn write(book: &Book) -> String {
    let judged = bars::judge(book);
    let told: Vec<_> = judged.iter().filter_map(|bar| Some((bar, bar.verdict(book)?))).collect();
    let is_missed = |text: &str| text.starts_with("missed");
    let lines: Vec<Vec<String>> = told
        .iter()
        .filter(|(_, verdict)| is_missed(verdict.text))
        .map(|(bar, verdict)| line(bar, verdict.text))
        .collect();
    let counted = format!("{} of {} measured goals are met.", told.len() - lines.len(), told.len());
    match lines.as_slice() {
        [] => counted + "\n",
        lines => {
            let columns = ["goal", "at", "measured", "verdict", "cause"];
            format!("{counted} The others:\n\n{}", table(&columns, lines))
        }
    }
}

fn line(bar: &Bar, verdict: &str) -> Vec<String> {
    let cause = CAUSES.iter().find(|(short, _)| *short == bar.short);
    let measured = bar.measured.as_ref().map(|it| estimated(it, bar.format)).unwrap_or_default();
    vec![
        bar.what.to_owned(),
        bar.bound.words(bar.format),
        measured,
        verdict.to_owned(),
        cause.map_or("not known", |(_, cause)| cause).to_owned(),
    ]
}
