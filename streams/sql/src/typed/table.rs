//! Typed tables.

use live_queries::{ColumnSource, Step, Table, TableColumn, TableKind, Type};

use crate::error::SqlError;
use crate::wire::PgType;

/// A table over a topic's JSON values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TypedTable {
    pub(crate) name: String,
    pub(crate) topic: String,
    pub(crate) kind: TableKind,
    pub(crate) on_error: OnError,
    /// Column whose text becomes the key of inserted records.
    pub(crate) key: Option<String>,
    /// Declared columns.
    pub(crate) columns: Vec<TypedColumn>,
}

/// A column: its path in the value, and the type that its text is cast to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TypedColumn {
    pub(crate) name: String,
    pub(crate) path: Vec<Step>,
    pub(crate) data_type: Type,
    /// Queries show its JSON as jsonb.
    pub(crate) is_jsonb: bool,
}

impl TypedColumn {
    /// Returns the type that clients see.
    pub(crate) fn pg_type(&self) -> PgType {
        if self.is_jsonb { PgType::JSONB } else { PgType::of_live(self.data_type) }
    }
}

/// Handling of a field that does not have the type of its column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnError {
    Null,
    /// Fails queries that use the column.
    Fail,
}

impl TypedTable {
    pub(crate) fn column(&self, name: &str) -> Option<&TypedColumn> {
        self.columns.iter().find(|it| it.name == name)
    }

    pub(crate) fn is_jsonb(&self, column: &str) -> bool {
        self.column(column).is_some_and(|it| it.is_jsonb)
    }

    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|it| it.name == name)
    }

    /// Returns the table for live queries: the declared columns, then the columns of records with
    /// other names.
    pub(crate) fn live(&self) -> Table {
        let mut table = match self.kind {
            TableKind::Log => Table::log(&self.name),
            TableKind::Values => Table::values(&self.name),
        };
        table
            .columns
            .retain(|it| it.source != ColumnSource::Value && self.column(&it.name).is_none());
        let declared = self.columns.iter().map(|it| {
            let path = it.path.clone();
            let source = match self.on_error {
                OnError::Null => ColumnSource::PathOrNull(path),
                OnError::Fail => ColumnSource::Path(path),
            };
            TableColumn { name: it.name.clone(), source, data_type: it.data_type }
        });
        table.columns.splice(0..0, declared);
        table
    }

    /// Rejects inserts into a table whose rows cannot be converted to objects.
    ///
    /// # Errors
    /// A path leads into a list, or through a field that is a column itself.
    pub(crate) fn check_insert(&self) -> Result<(), SqlError> {
        let unsupported = |column: &TypedColumn, why: &str| {
            let what = format!("cannot insert into table {:?}: {:?} {why}", self.name, column.name);
            Err(SqlError::unsupported(what))
        };
        for column in &self.columns {
            if column.path.iter().any(|step| matches!(step, Step::Index(_))) {
                return unsupported(column, "is an element of a list");
            }
            let is_inside = |other: &TypedColumn| {
                other.name != column.name && column.path.starts_with(&other.path)
            };
            if self.columns.iter().any(is_inside) {
                return unsupported(column, "is part of another column");
            }
        }
        Ok(())
    }
}
