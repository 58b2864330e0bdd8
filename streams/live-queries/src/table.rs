//! Tables that can stand in FROM: the log of a topic, or its current values, with their columns.

use crate::json::Step;
use crate::types::Type;

/// Where a column of a table comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ColumnSource {
    Partition,
    Offset,
    Time,
    Key,
    Value,
    Headers,
    /// A declared column: a path into the value, which is JSON, taken as text and then cast.
    Path(Vec<Step>),
    /// The same, NULL where the text does not fit the type.
    PathOrNull(Vec<Step>),
    /// A column of a query, whose rows are the values: the field of this name. JSON's null is NULL
    /// in all types, for so it is written.
    Field {
        name: String,
        /// Whether a numeric has nothing behind its point.
        is_whole: bool,
    },
}

/// A column. What types suit which source says [`Table::log`]; keys and values may be `Text`,
/// `Bytea` or `Json`, declared columns any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableColumn {
    pub name: String,
    pub source: ColumnSource,
    pub data_type: Type,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TableKind {
    /// Each record is a row that never goes.
    Log,
    /// The last record of each key is a row.
    Values,
}

/// A table as queries see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    pub name: String,
    pub kind: TableKind,
    /// In the order of `SELECT *`.
    pub columns: Vec<TableColumn>,
    /// Names of columns that tell rows apart, where others than the record's key do.
    pub identity: Vec<String>,
}

impl Table {
    /// The log of topic `name`: partition, offset, time, key, value, headers; keys and values are
    /// text, and paths (`value->>'a'`) lead into values that are JSON.
    pub fn log(name: &str) -> Self {
        Self::of_records(name, TableKind::Log)
    }

    /// The current values of a topic, with the same columns.
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
