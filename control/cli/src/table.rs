//! Tables of text: columns as wide as they need to be.

/// Between two columns.
const GAP: &str = "  ";

/// Which side a column's cells keep to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Left,
    Right,
}

/// Lines of cells. The first line is the head.
#[derive(Debug)]
pub(crate) struct Table {
    sides: Vec<Side>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(columns: &[(&str, Side)]) -> Self {
        let head = columns.iter().map(|(name, _)| (*name).to_owned()).collect();
        let sides = columns.iter().map(|&(_, side)| side).collect();
        Self { sides, rows: vec![head] }
    }

    /// Adds a line, with a cell for each column.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.sides.len(), "a cell for each column");
        self.rows.push(cells);
    }

    pub(crate) fn to_text(&self) -> String {
        let width_of = |column: usize| {
            self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.sides.len()).map(width_of).collect();
        let line = |row: &Vec<String>| {
            let cells = row.iter().zip(&widths).zip(&self.sides);
            let padded = cells.map(|((cell, &width), side)| match side {
                Side::Left => format!("{cell:<width$}"),
                Side::Right => format!("{cell:>width$}"),
            });
            padded.collect::<Vec<_>>().join(GAP).trim_end().to_owned()
        };
        self.rows.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&[("NAME", Side::Left), ("SIZE", Side::Right)]);
        table.row(vec!["a".to_owned(), "10 GiB".to_owned()]);
        table.row(vec!["longer".to_owned(), "4 KiB".to_owned()]);
        assert_eq!(table.to_text(), "NAME      SIZE\na       10 GiB\nlonger   4 KiB");
    }
}
