//! Table of figures.

use std::io::{self, Write};

use anyhow::{Context, Result};

const LABEL_WIDTH: usize = 34;
const CELL_WIDTH: usize = 12;

/// Rows of a label and cells. The first row is the header.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<(String, Vec<String>)>,
}

impl Table {
    /// Adds a row. `None` is shown as a dash.
    pub(crate) fn row(&mut self, label: &str, cells: &[Option<String>]) {
        let cells = cells.iter().map(|cell| cell.clone().unwrap_or_else(|| "-".to_owned()));
        self.rows.push((label.to_owned(), cells.collect()));
    }

    pub(crate) fn print(&self) -> Result<()> {
        io::stdout().write_all(self.text().as_bytes()).context("cannot print the table")
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (label, cells) in &self.rows {
            let mut line = format!("{label:LABEL_WIDTH$}");
            for cell in cells {
                line.push_str(&format!("{cell:>CELL_WIDTH$}"));
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Formats `1234567` as `1,234,567`.
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_told_apart() {
        assert_eq!([0, 999, 1000, 1_234_567].map(thousands), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn cells_stand_under_each_other() {
        let mut table = Table::default();
        table.row("", &[Some("here".to_owned()), Some("there".to_owned())]);
        table.row("speed", &[Some("1".to_owned()), None]);
        let ends: Vec<_> = table.text().lines().map(str::len).collect();
        assert_eq!(ends, [LABEL_WIDTH + 2 * CELL_WIDTH; 2]);
    }
}
