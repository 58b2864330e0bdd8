//! Everything that is printed.

use std::io::{self, Write};

use serde::Serialize;

/// For whom a program prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Text,
    Json,
}

/// Prints a value as JSON.
pub(crate) fn json(value: &(impl Serialize + ?Sized)) {
    let text = serde_json::to_string_pretty(value).expect("what is printed is plain data");
    line(&text);
}

/// Cells by lines; the first line is the heading.
pub(crate) type Table = Vec<Vec<String>>;

/// A table with a heading alone, whose names stand between bars.
pub(crate) fn heading(names: &str) -> Table {
    vec![names.split(" | ").map(str::to_owned).collect()]
}

/// A table as text: the first row is its heading, numbers stand right.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    aligned(rows, |cell, width| format!("{cell:>width$}"))
}

/// The same with everything on the left, for words.
pub(crate) fn left_table(rows: &[Vec<String>]) -> String {
    aligned(rows, |cell, width| format!("{cell:<width$}"))
}

fn aligned(rows: &[Vec<String>], pad: fn(&str, usize) -> String) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| pad(cell, *width)).collect();
        cells.join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Bytes for people: `1.53 GiB`.
pub(crate) fn bytes_text(bytes: u64) -> String {
    api::ByteSize(bytes).rounded()
}

/// Prints text on standard output.
pub(crate) fn note(text: &str) {
    line(text);
}

/// Prints how far a run is, on standard error.
pub(crate) fn progress(text: &str) {
    eprintln!("{text}");
}

/// Prints what went wrong, for people on standard error or for programs on standard output.
pub(crate) fn failure(error: &anyhow::Error, form: Form) {
    let message = format!("{error:#}");
    match form {
        Form::Json => {
            line(&serde_json::json!({"error": {"kind": "failed", "message": message}}).to_string());
        }
        Form::Text => eprintln!("memlane-bench: {message}"),
    }
}

/// A line on standard output. A reader that has seen enough, as `head` has, is no failure: the
/// program goes on to its end and its exit code.
fn line(text: &str) {
    let mut out = io::stdout().lock();
    let printed = writeln!(out, "{text}").and_then(|()| out.flush());
    if let Err(error) = printed
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        eprintln!("memlane-bench: cannot print: {error}");
    }
}
