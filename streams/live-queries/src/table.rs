//! Tables in FROM: the log of a topic, or its current values, with their columns.

use crate::json::Step;
use crate::types::Type;

/// Source of a column's values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ColumnSource {
    Partition,
    Offset,
    Time,
    Key,
    Value,
    Headers,
    /// A declared column: a path into the JSON value, taken as text and then cast.
    Path(Vec<Step>),
    /// Same, but NULL if the text does not fit the type.
    PathOrNull(Vec<Step>),
    /// A column of a query whose results are the topic's values: the field with this name. JSON's
    /// null is NULL in all types, as it is written for NULL.
    Field {
        name: String,
        /// True if a numeric has no fractional digits.
        is_whole: bool,
    },
}

/// A column. [`Table::log`] describes which types suit which source. Keys and values may be `Text`,
/// `Bytea` or `Json`, declared columns any type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableColumn {
    pub name: String,
    pub source: ColumnSource,
    pub data_type: Type,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TableKind {
    /// Each record is a row, which is never removed.
    Log,
    /// The last record of each key is a row.
    Values,
}

/// A table as queries see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    pub name: String,
    pub kind: TableKind,
    /// Ordered as in `SELECT *`.
    pub columns: Vec<TableColumn>,
    /// Names of the columns that identify rows, if not the record's key.
    pub identity: Vec<String>,
}

impl Table {
    /// Creates the log of topic `name`, with columns partition, offset, time, key, value, headers.
    /// Keys and values are text. Paths (`value->>'a'`) access values that are JSON.
    pub fn log(name: &str) -> Self {
        Self::of_records(name, TableKind::Log)
    }

    /// Creates the current values of a topic, with the same columns.
    pub fn values(name: &str) -> Self {
        Self::of_records(name, TableKind::Values)
    }

    fn of_records(name: &str, kind: TableKind) -> Self {
        let identity = Vec::new();
        Self { name: name.to_owned(), kind, columns: columns_of_records(), identity }
    }

    pub(crate) fn column(&self, name: &str) -> Option<&TableColumn> {
        self.columns.iter().find(|it| it.name == name)
    }
}

fn columns_of_records() -> Vec<TableColumn> {
    let column =
        |name: &str, source, data_type| TableColumn { name: name.to_owned(), source, data_type };
    vec![
        column("partition", ColumnSource::Partition, Type::Int4),
        column("offset", ColumnSource::Offset, Type::Int8),
        column("time", ColumnSource::Time, Type::Timestamptz),
        column("key", ColumnSource::Key, Type::Text),
        column("value", ColumnSource::Value, Type::Text),
        column("headers", ColumnSource::Headers, Type::Json),
    ]
}
