//! Output of rows as they arrive: a table as text, or one line of JSON each.

use std::fmt::Write as _;
use std::io::{self, BufWriter, Write};

use serde::de::IgnoredAny;
use tokio_postgres::types::Type;

use crate::failure::Failure;
use crate::output::{Form, is_still_read};
use crate::table::WIDTH_MAX;
use crate::visible;

/// Number of rows from which column widths are computed.
const ROWS_AT_ONCE: usize = 1000;

/// Separator of columns.
const GAP: &str = "  ";

/// Printer to standard output, until that is closed.
pub(super) struct Printer {
    out: BufWriter<io::StdoutLock<'static>>,
    form: Form,
    /// Types of the columns, for JSON.
    types: Vec<Type>,
    columns: Vec<String>,
    widths: Vec<usize>,
    has_head: bool,
    /// Rows of text that were not printed yet.
    pending: Vec<Vec<String>>,
    /// Remaining number of rows to print.
    left: u64,
}

impl Printer {
    pub(super) fn new(form: Form, types: Vec<Type>, rows_max: u64) -> Self {
        Self {
            out: BufWriter::new(io::stdout().lock()),
            form,
            types,
            columns: Vec::new(),
            widths: Vec::new(),
            has_head: false,
            pending: Vec::new(),
            left: rows_max,
        }
    }

    /// Returns whether all requested rows were printed.
    pub(super) fn is_done(&self) -> bool {
        self.left == 0
    }

    /// Starts the rows of a statement.
    pub(super) fn begin(&mut self, mut columns: Vec<String>) {
        if self.form == Form::Text {
            columns.iter_mut().for_each(|it| *it = visible::in_line(it).into_owned());
        }
        let width = |name: &String| name.chars().count().min(WIDTH_MAX);
        self.widths = columns.iter().map(width).collect();
        self.columns = columns;
        self.has_head = false;
    }

    pub(super) fn row<'a>(
        &mut self,
        cells: impl Iterator<Item = Option<&'a str>>,
    ) -> Result<(), Failure> {
        self.left = self.left.saturating_sub(1);
        match self.form {
            Form::Json => {
                let line = json_line(&self.columns, &self.types, cells);
                let written = self.out.write_all(visible::in_json(&line).as_bytes());
                self.judge(written)
            }
            Form::Text => {
                let shown = |cell: &'a str| visible::in_line(cell).into_owned();
                self.pending.push(cells.map(|it| it.map_or("NULL".to_owned(), shown)).collect());
                match self.pending.len() {
                    ROWS_AT_ONCE.. => self.print_pending(),
                    _ => Ok(()),
                }
            }
        }
    }

    /// Ends a statement that returned or changed `count` rows.
    pub(super) fn end(&mut self, count: u64) -> Result<(), Failure> {
        if self.form == Form::Json {
            return Ok(());
        }
        self.print_pending()?;
        let rows = if count == 1 { "row" } else { "rows" };
        let written = match self.columns.is_empty() {
            true if count == 0 => writeln!(self.out, "done"),
            true => writeln!(self.out, "done: {count} {rows}"),
            false => {
                // A result without rows also has a heading.
                let head = if self.has_head { Ok(()) } else { self.print_head() };
                head.and_then(|()| writeln!(self.out, "({count} {rows})"))
            }
        };
        self.columns.clear();
        self.judge(written)
    }

    /// Prints all rows that have arrived.
    pub(super) fn flush(&mut self) -> Result<(), Failure> {
        self.print_pending()?;
        let flushed = self.out.flush();
        self.judge(flushed)
    }

    fn print_pending(&mut self) -> Result<(), Failure> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let rows = std::mem::take(&mut self.pending);
        for (at, width) in self.widths.iter_mut().enumerate() {
            let longest = rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
            *width = (*width).max(longest).min(WIDTH_MAX);
        }
        let head = if self.has_head { Ok(()) } else { self.print_head() };
        let written = head.and_then(|()| rows.iter().try_for_each(|row| self.print_line(row)));
        self.judge(written)
    }

    fn print_head(&mut self) -> io::Result<()> {
        self.has_head = true;
        let names = std::mem::take(&mut self.columns);
        let printed = self.print_line(&names);
        self.columns = names;
        printed
    }

    fn print_line(&mut self, cells: &[String]) -> io::Result<()> {
        let padded = cells.iter().zip(&self.widths).map(|(cell, &width)| format!("{cell:<width$}"));
        let line = padded.collect::<Vec<_>>().join(GAP);
        writeln!(self.out, "{}", line.trim_end())
    }

    /// Stops printing if the output was closed.
    fn judge(&mut self, written: io::Result<()>) -> Result<(), Failure> {
        if !is_still_read(written, "rows")? {
            self.left = 0;
        }
        Ok(())
    }
}

/// Formats a JSON object, with numbers, booleans and JSON as such, and other types as text.
fn json_line<'a>(
    columns: &[String],
    types: &[Type],
    cells: impl Iterator<Item = Option<&'a str>>,
) -> String {
    let mut line = "{".to_owned();
    for (at, (name, cell)) in columns.iter().zip(cells).enumerate() {
        let comma = if at == 0 { "" } else { "," };
        let value = cell.map_or("null".to_owned(), |cell| json_value(cell, types.get(at)));
        write!(line, "{comma}{}:{value}", json_text(name)).expect("text can be appended to");
    }
    line.push_str("}\n");
    line
}

fn json_value(cell: &str, kind: Option<&Type>) -> String {
    let is_number = || serde_json::from_str::<serde_json::Number>(cell).is_ok();
    let is_json = || serde_json::from_str::<IgnoredAny>(cell).is_ok();
    match kind {
        Some(&Type::BOOL) => (cell == "t").to_string(),
        Some(&(Type::INT2 | Type::INT4 | Type::INT8 | Type::OID)) if is_number() => cell.to_owned(),
        Some(&(Type::FLOAT4 | Type::FLOAT8 | Type::NUMERIC)) if is_number() => cell.to_owned(),
        Some(&(Type::JSON | Type::JSONB)) if is_json() => cell.to_owned(),
        _ => json_text(cell),
    }
}

fn json_text(text: &str) -> String {
    serde_json::to_string(text).expect("text is JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_keeps_types() {
        let names = ["b", "i", "n", "x", "j", "t", "a\"b"].map(str::to_owned);
        let types = [
            Type::BOOL,
            Type::INT8,
            Type::NUMERIC,
            Type::FLOAT8,
            Type::JSON,
            Type::TEXT,
            Type::TEXT,
        ];
        let cells = ["t", "7", "1.50", "NaN", "{\"a\":[1]}", "7"].map(Some);
        let line = json_line(&names, &types, cells.into_iter().chain([None]));
        assert_eq!(
            line,
            "{\"b\":true,\"i\":7,\"n\":1.50,\"x\":\"NaN\",\"j\":{\"a\":[1]},\"t\":\"7\",\
             \"a\\\"b\":null}\n"
        );
    }
}
