//! Everything that is printed.
#![expect(clippy::print_stdout, reason = "the one place of this program that prints")]

use serde::Serialize;

/// Prints rows as one JSON array.
pub(crate) fn json(rows: &[impl Serialize]) {
    let text = serde_json::to_string_pretty(rows).expect("rows are plain data");
    println!("{text}");
}

/// Prints a table: the first row is its heading, numbers stand right.
pub(crate) fn table(rows: &[Vec<String>]) {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}")).collect();
        println!("{}", cells.join("  ").trim_end());
    }
}

pub(crate) fn note(text: &str) {
    println!("{text}");
}

/// Prints what went wrong, for people on standard error or for programs on standard output.
pub(crate) fn failure(error: &anyhow::Error, as_json: bool) {
    if as_json {
        let message = format!("{error:#}");
        println!("{}", serde_json::json!({"error": {"kind": "failed", "message": message}}));
    } else {
        eprintln!("memlane-bench: {error:#}");
    }
}
