//! Output of the program.

use std::io::{self, Write};

use serde::Serialize;

/// Output format.
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

/// Cells by row. The first row is the heading.
pub(crate) type Table = Vec<Vec<String>>;

/// Creates a table with only a heading, from names separated by bars.
pub(crate) fn heading(names: &str) -> Table {
    vec![names.split(" | ").map(str::to_owned).collect()]
}

/// Formats a table with a heading and right-aligned cells.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    aligned(rows, |cell, width| format!("{cell:>width$}"))
}

/// Formats a left-aligned table, for words.
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

/// Formats bytes: `1.53 GiB`.
pub(crate) fn bytes_text(bytes: u64) -> String {
    api::ByteSize(bytes).rounded()
}

/// Prints text to standard output.
pub(crate) fn note(text: &str) {
    line(text);
}

/// Prints the progress of a run to standard error.
pub(crate) fn progress(text: &str) {
    eprintln!("{text}");
}

/// Prints an error: for people to standard error, for programs to standard output.
pub(crate) fn failure(error: &anyhow::Error, form: Form) {
    let message = format!("{error:#}");
    match form {
        Form::Json => {
            line(&serde_json::json!({"error": {"kind": "failed", "message": message}}).to_string());
        }
        Form::Text => eprintln!("memlane-bench: {message}"),
    }
}

/// Prints a line to standard output. A closed pipe, for example of `head`, is not an error: the
/// program runs to its end with its normal exit code.
fn line(text: &str) {
    let mut out = io::stdout().lock();
    let printed = writeln!(out, "{text}").and_then(|()| out.flush());
    if let Err(error) = printed
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        eprintln!("memlane-bench: cannot print: {error}");
    }
}
