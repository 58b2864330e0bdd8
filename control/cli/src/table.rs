//! Text tables with automatic column widths, sorted and selected by options.

use api::ByteSize;
use clap::Args;

use crate::failure::Failure;
use crate::visible;

/// Separator of columns.
const GAP: &str = "  ";

/// Maximum width to which cells are padded, beyond which `format!` panics. Longer cells are whole.
pub(crate) const WIDTH_MAX: usize = u16::MAX as usize;

/// Order of lines and choice of columns.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct View {
    /// Sort by this column; -COLUMN sorts in descending order
    #[arg(long, value_name = "COLUMN", allow_hyphen_values = true)]
    sort: Option<String>,

    /// Show only these columns
    #[arg(short = 'o', long = "columns", value_name = "COLUMN,…", value_delimiter = ',')]
    columns: Vec<String>,
}

impl View {
    pub(crate) fn has_all_columns(&self) -> bool {
        self.columns.is_empty()
    }
}

/// Text of a cell, and its sort key: for numbers the value. Numbers are right-aligned.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    text: String,
    value: Option<f64>,
}

impl Cell {
    pub(crate) fn text(text: impl ToString) -> Self {
        Self { text: visible::in_line(&text.to_string()).into_owned(), value: None }
    }

    pub(crate) fn size(bytes: u64) -> Self {
        Self { text: ByteSize(bytes).rounded(), value: Some(bytes as f64) }
    }

    pub(crate) fn number(number: u64) -> Self {
        Self { text: number.to_string(), value: Some(number as f64) }
    }

    pub(crate) fn figure(text: String, value: Option<f64>) -> Self {
        Self { text, value: Some(value.unwrap_or(-1.0)) }
    }
}

/// Rows of cells below a heading.
#[derive(Debug)]
pub(crate) struct Table {
    heads: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

/// Heading of a column, and its cell for an item.
pub(crate) type Column<'a, T> = (&'static str, &'a dyn Fn(&T) -> Cell);

impl Table {
    /// Builds a table with a row for each item.
    pub(crate) fn of<T>(items: &[T], columns: &[Column<'_, T>]) -> Self {
        let row = |item: &T| columns.iter().map(|(_, cell)| cell(item)).collect();
        Self {
            heads: columns.iter().map(|(head, _)| *head).collect(),
            rows: items.iter().map(row).collect(),
        }
    }

    /// Sorts the table and selects columns according to `view`. An unknown column is a usage error.
    pub(crate) fn viewed(mut self, view: &View) -> Result<String, Failure> {
        if let Some(wanted) = &view.sort {
            let (name, is_descending) = match wanted.strip_prefix('-') {
                Some(name) => (name, true),
                None => (wanted.as_str(), false),
            };
            let column = self.column_of(name)?;
            let order = |a: &Cell, b: &Cell| match (a.value, b.value) {
                (Some(a), Some(b)) => a.total_cmp(&b),
                _ => a.text.cmp(&b.text),
            };
            self.rows.sort_by(|a, b| match is_descending {
                true => order(&b[column], &a[column]),
                false => order(&a[column], &b[column]),
            });
        }
        let chosen: Vec<usize> = match &view.columns[..] {
            [] => (0..self.heads.len()).collect(),
            names => names.iter().map(|name| self.column_of(name)).collect::<Result<_, _>>()?,
        };
        Ok(self.text_of(&chosen))
    }

    pub(crate) fn to_text(&self) -> String {
        self.text_of(&(0..self.heads.len()).collect::<Vec<_>>())
    }

    fn column_of(&self, name: &str) -> Result<usize, Failure> {
        self.heads.iter().position(|known| known.eq_ignore_ascii_case(name)).ok_or_else(|| {
            let known: Vec<_> = self.heads.iter().map(|name| name.to_lowercase()).collect();
            Failure::usage(format!("unknown column {name:?}; columns are {}", known.join(", ")))
        })
    }

    fn text_of(&self, chosen: &[usize]) -> String {
        let head = chosen.iter().map(|&column| self.heads[column]).collect();
        let line = |row: &Vec<Cell>| chosen.iter().map(|&it| row[it].text.clone()).collect();
        let rows: Vec<Vec<String>> = self.rows.iter().map(line).collect();
        let rows = rows.iter().map(|row| row.iter().map(String::as_str).collect());
        let lines: Vec<Vec<&str>> = [head].into_iter().chain(rows).collect();
        let width_of = |at: usize| {
            let widths = lines.iter().map(|line| line[at].chars().count());
            widths.max().unwrap_or(0).min(WIDTH_MAX)
        };
        let widths: Vec<usize> = (0..chosen.len()).map(width_of).collect();
        let is_figure = |column: usize| self.rows.iter().any(|row| row[column].value.is_some());
        let padded = |line: &Vec<&str>| {
            let cells = line.iter().zip(&widths).zip(chosen);
            let cells = cells.map(|((cell, &width), &column)| match is_figure(column) {
                true => format!("{cell:>width$}"),
                false => format!("{cell:<width$}"),
            });
            cells.collect::<Vec<_>>().join(GAP).trim_end().to_owned()
        };
        lines.iter().map(padded).collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let items = [("b", 10 << 30), ("longer", 4 << 10)];
        Table::of(&items, &[("NAME", &|it| Cell::text(it.0)), ("SIZE", &|it| Cell::size(it.1))])
    }

    #[track_caller]
    fn check(sort: Option<&str>, columns: &[&str], expected: &str) {
        let columns = columns.iter().map(|&name| name.to_owned()).collect();
        let view = View { sort: sort.map(str::to_owned), columns };
        assert_eq!(table().viewed(&view).expect("the columns are there"), expected);
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        check(None, &[], "NAME        SIZE\nb       10.0 GiB\nlonger  4.00 KiB");
    }

    #[test]
    fn figures_are_sorted_by_value_and_words_by_letter() {
        check(Some("size"), &["name"], "NAME\nlonger\nb");
        check(Some("-Size"), &["NAME"], "NAME\nb\nlonger");
        check(Some("-name"), &["size", "name"], "    SIZE  NAME\n4.00 KiB  longer\n10.0 GiB  b");
    }

    #[test]
    fn a_column_that_is_not_there_is_wrong_usage() {
        let view = View { sort: Some("colour".to_owned()), columns: Vec::new() };
        let failure = table().viewed(&view).expect_err("there is no such column");
        assert_eq!(failure.exit_code, crate::failure::EXIT_USAGE);
        assert!(failure.message.contains("name, size"), "{}", failure.message);
    }
}
