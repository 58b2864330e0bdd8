//! Common code of the sections: tables with a row per group, and charts of groups.

use crate::book::Book;
use crate::chart::{Bar, Strip, Strips};
pub(super) use crate::chart::{OTHER_SERIES, OWN_SERIES};
use crate::figure::{Estimated, Format};
use crate::group::Group;
use crate::table::{Cell, Column, Table};

/// A figure in a table: heading, path within a row, format.
pub(super) type Named<'text> = (&'text str, &'text str, Format);

/// Percentiles in the order of the strips, for strips and their tables.
pub(super) const PERCENTILES: [Named; 6] = [
    ("p50", "latency/p50", Format::Micros),
    ("p90", "latency/p90", Format::Micros),
    ("p99", "latency/p99", Format::Micros),
    ("p99.9", "latency/p999", Format::Micros),
    ("p99.99", "latency/p9999", Format::Micros),
    ("max", "latency/max", Format::Micros),
];

type CellOf<'a> = Box<dyn Fn(&Group) -> Cell + 'a>;

/// A table with a row per group, built column by column.
pub(super) struct GroupTable<'a> {
    book: &'a Book,
    columns: Vec<Column>,
    cells: Vec<CellOf<'a>>,
}

impl<'a> GroupTable<'a> {
    pub(super) fn new(book: &'a Book) -> Self {
        Self { book, columns: Vec::new(), cells: Vec::new() }
    }

    pub(super) fn cell(mut self, column: Column, cell: impl Fn(&Group) -> Cell + 'a) -> Self {
        self.columns.push(column);
        self.cells.push(Box::new(cell));
        self
    }

    pub(super) fn text<Text: Into<String>>(
        self,
        name: &str,
        text: impl Fn(&Group) -> Text + 'a,
    ) -> Self {
        self.cell(Column::text(name), move |group| Cell::text(text(group)))
    }

    pub(super) fn case(self, name: &str) -> Self {
        self.text(name, |group| group.case().to_owned())
    }

    /// Adds the target, with its run if the page has several.
    pub(super) fn target(self, name: &str) -> Self {
        let book = self.book;
        self.text(name, |group| book.target_name(group))
    }

    /// Adds a text parameter, or a dash.
    pub(super) fn word(self, name: &str, parameter: &'a str) -> Self {
        self.text(name, |group| group.word(parameter).unwrap_or("–").to_owned())
    }

    /// Adds a numeric value.
    pub(super) fn count(self, name: &str, path: &'a str) -> Self {
        let cell = |group: &Group| Cell::number(group.first().figure(path), Format::Count);
        self.cell(Column::number(name), cell)
    }

    pub(super) fn figure(self, (name, path, format): Named<'a>) -> Self {
        let book = self.book;
        self.derived((name, format), |group| book.estimate(group, path))
    }

    pub(super) fn figures(self, named: &[Named<'a>]) -> Self {
        named.iter().fold(self, |table, named| table.figure(*named))
    }

    /// Adds those figures that the first repeat of any group has.
    pub(super) fn known_figures(self, groups: &[Group], named: &[Named<'a>]) -> Self {
        let is_known = |path| groups.iter().any(|group| group.first().figure(path).is_some());
        let known = named.iter().filter(|(_, path, _)| is_known(path));
        known.fold(self, |table, named| table.figure(*named))
    }

    pub(super) fn derived(
        self,
        (name, format): (&str, Format),
        estimate: impl Fn(&Group) -> Option<Estimated> + 'a,
    ) -> Self {
        self.cell(Column::number(name), move |group| Cell::estimate(estimate(group), format))
    }

    pub(super) fn rows<'all, 'book: 'all>(
        self,
        groups: impl IntoIterator<Item = &'all Group<'book>>,
        caption: impl Into<String>,
    ) -> Table {
        let row = |group| self.cells.iter().map(|cell| cell(group)).collect();
        let rows = groups.into_iter().map(row).collect();
        Table { caption: caption.into(), columns: self.columns, rows }
    }
}

/// Creates a table of figures that only some groups have, with a row per figure.
pub(super) fn listing(
    heading: &str,
    caption: &str,
    rows: impl Iterator<Item = [Cell; 4]>,
) -> Table {
    let mut columns = [heading, "Target", "Figure"].map(Column::text).to_vec();
    columns.push(Column::number("measured"));
    Table { caption: caption.to_owned(), columns, rows: rows.map(Vec::from).collect() }
}

/// Creates a bar for each group with the figure, below its case.
pub(super) fn bars<'all, 'book: 'all>(
    book: &Book,
    groups: impl IntoIterator<Item = &'all Group<'book>>,
    path: &str,
    series: impl Fn(&Group) -> usize,
) -> Vec<Bar> {
    let bar = |group: &'all Group<'book>| {
        let estimate = book.estimate(group, path)?;
        let bar = Bar::new(group.case(), book.target_name(group), estimate);
        Some(Bar { series: series(group), ..bar })
    };
    groups.into_iter().filter_map(bar).collect()
}

/// Creates strips of the groups' latencies on one axis.
pub(super) fn strips(
    book: &Book,
    groups: &[Group],
    title: &str,
    (name, series): (impl Fn(&Group) -> String, impl Fn(&Group) -> usize),
) -> Strips {
    let strip = |group: &Group| Strip {
        name: name(group),
        percentiles: PERCENTILES.map(|(_, path, _)| book.estimate(group, path)).to_vec(),
        series: series(group),
    };
    Strips {
        title: title.to_owned(),
        hint: "log scale, lower is better",
        format: Format::Micros,
        strips: groups.iter().map(strip).collect(),
    }
}
