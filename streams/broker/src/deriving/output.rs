//! Conversion of query rows to records of the derived topic.

use std::borrow::Cow;

use bytes::Bytes;
use live_queries::{OutputColumn, Query, ResultRow, Row, RowError, TableKind, Type, Value};
use record_batch::{Header, NewRecord, Record};
use sql::{SqlError, SqlState};
use sqlparser::ast::{
    Expr, Ident, ObjectNamePart, SelectItem, SelectItemQualifiedWildcardKind, SetExpr,
};

/// Header of a derived record with the offset of its source record.
pub(super) const SOURCE_HEADER: &str = "memlane-source-offset";

/// Mapping from a query's columns to a record. Columns named key, value, headers and time become
/// these parts of the record, and all others form a JSON object. Columns that are selected
/// unchanged are copied as bytes.
#[derive(Debug, Default)]
pub(super) struct RecordShape {
    /// Index of the columns key and time; `None` copies them from the source.
    key: Option<usize>,
    time: Option<usize>,
    value: ValueShape,
}

#[derive(Debug, Default)]
enum ValueShape {
    #[default]
    Source,
    Column(usize),
    Object(Vec<(String, usize)>),
}

const AS_IT_IS: [&str; 4] = ["key", "value", "headers", "time"];

/// Form of references to the source's columns in a query.
#[derive(Clone, Copy)]
pub(super) enum ColumnNames<'a> {
    Bare,
    /// Qualified by this alias, because another table is joined.
    Qualified(&'a str),
}

impl RecordShape {
    /// Removes unchanged columns from a query, which need no evaluation.
    pub(super) fn take(
        query: &mut sqlparser::ast::Query,
        kind: TableKind,
        names: ColumnNames<'_>,
    ) -> Result<Taken, SqlError> {
        let SetExpr::Select(select) = &mut *query.body else {
            return Err(SqlError::new(SqlState::NOT_SUPPORTED, "only SELECT is supported"));
        };
        let mut taken = Taken { has_value: false, is_keyed: kind == TableKind::Values };
        select.projection.retain(|item| match item {
            item if names.is_all(item) => {
                taken.has_value = true;
                false
            }
            SelectItem::UnnamedExpr(expr) => {
                let Some(name) = names.column(expr) else { return true };
                taken.has_value |= name == "value";
                !AS_IT_IS.contains(&name.as_str())
            }
            _ => true,
        });
        if select.projection.is_empty() {
            if !taken.has_value {
                let what = "the query selects no column for the value of the records";
                return Err(SqlError::new(SqlState::NOT_SUPPORTED, what)
                    .with_hint("Select value, or columns for a JSON object."));
            }
            // A query needs at least one column. This one is cheap, and is not used in records.
            let expr = names.expr("partition");
            let alias = Ident::with_quote('"', UNUSED);
            select.projection.push(SelectItem::ExprWithAlias { expr, alias });
        }
        Ok(taken)
    }

    /// Builds the output record of a row and its source record.
    pub(super) fn record(
        &self,
        query: &Query,
        (row, record): (&Row<'_>, &Record<'_>),
    ) -> Result<NewRecord, RowError> {
        let columns = query.project(row).expect("queries of records have rows")?;
        let source_key = || record.key.map(Bytes::copy_from_slice);
        let source_value = || record.value.map(Bytes::copy_from_slice);
        let value = match &self.value {
            ValueShape::Source => source_value(),
            ValueShape::Column(index) => bytes_of(&columns[*index]),
            ValueShape::Object(fields) => {
                let fields = fields.iter().map(|(name, index)| (name.as_str(), &columns[*index]));
                Some(json_object(fields))
            }
        };
        let time = self.time.map(|index| &columns[index]);
        let timestamp_ms = match time {
            Some(Value::Time(microseconds)) => microseconds.div_euclid(1_000),
            _ => record.timestamp_ms,
        };
        let headers = record.headers.iter().filter_map(|(name, value)| {
            let name = std::str::from_utf8(name).ok().filter(|it| *it != SOURCE_HEADER)?;
            Some(Header { name: name.to_owned(), value: value.map(Bytes::copy_from_slice) })
        });
        let key = self.key.map_or_else(source_key, |index| bytes_of(&columns[index]));
        Ok(NewRecord { key, value, headers: headers.collect(), timestamp_ms })
    }
}

const UNUSED: &str = "memlane unused";

impl ColumnNames<'_> {
    /// Returns whether a select item is the source's `*`.
    fn is_all(self, item: &SelectItem) -> bool {
        match (self, item) {
            (Self::Bare, SelectItem::Wildcard(_)) => true,
            (Self::Qualified(alias), SelectItem::QualifiedWildcard(kind, _)) => {
                let SelectItemQualifiedWildcardKind::ObjectName(name) = kind else { return false };
                matches!(&*name.0, [ObjectNamePart::Identifier(it)] if folded(it) == alias)
            }
            _ => false,
        }
    }

    /// Returns the name of the source's column, if the expression is one.
    fn column(self, expr: &Expr) -> Option<String> {
        match (self, expr) {
            (Self::Bare, Expr::Identifier(name)) => Some(folded(name)),
            (Self::Qualified(alias), Expr::CompoundIdentifier(names)) => match &**names {
                [table, name] if folded(table) == alias => Some(folded(name)),
                _ => None,
            },
            _ => None,
        }
    }

    fn expr(self, column: &str) -> Expr {
        let column = Ident::new(column);
        match self {
            Self::Bare => Expr::Identifier(column),
            Self::Qualified(alias) => {
                Expr::CompoundIdentifier(vec![Ident::with_quote('"', alias), column])
            }
        }
    }
}

/// Columns that were removed from a query.
pub(super) struct Taken {
    has_value: bool,
    /// True if the source's key must be kept.
    is_keyed: bool,
}

impl Taken {
    /// Returns the record's shape with the remaining columns of the query.
    pub(super) fn with_columns(self, columns: &[OutputColumn]) -> Result<RecordShape, SqlError> {
        let refused = |what: &str| Err(SqlError::new(SqlState::NOT_SUPPORTED, what));
        let mut shape = RecordShape::default();
        let mut fields: Vec<(String, usize)> = Vec::new();
        for (index, column) in columns.iter().enumerate() {
            match column.name.as_str() {
                UNUSED => {}
                "key" if self.is_keyed => {
                    return refused("column key cannot be changed in a query on current values");
                }
                "key" => shape.key = Some(index),
                "time" if column.data_type != Type::Timestamptz => {
                    return refused("column time must be of type timestamptz");
                }
                "time" => shape.time = Some(index),
                "headers" => return refused("column headers can only be selected unchanged"),
                "value" if self.has_value => {
                    return refused("column \"value\" specified more than once");
                }
                "value" => shape.value = ValueShape::Column(index),
                name => {
                    if fields.iter().any(|(it, _)| it == name) {
                        let what = format!("column {name:?} specified more than once");
                        return Err(SqlError::new(SqlState::NOT_SUPPORTED, what));
                    }
                    fields.push((name.to_owned(), index));
                }
            }
        }
        let has_value = self.has_value || matches!(shape.value, ValueShape::Column(_));
        match (has_value, fields.is_empty()) {
            (true, false) => {
                return refused(
                    "columns other than key, time and headers cannot be selected together with \
                     value",
                );
            }
            (false, true) => {
                return refused("the query selects no column for the value of the records");
            }
            (false, false) => shape.value = ValueShape::Object(fields),
            (true, true) => {}
        }
        Ok(shape)
    }
}

fn folded(name: &Ident) -> String {
    match name.quote_style {
        Some(_) => name.value.clone(),
        None => name.value.to_ascii_lowercase(),
    }
}

/// Returns key and value of a group's row.
pub(super) fn group_record(query: &Query, row: &ResultRow) -> (Bytes, Bytes) {
    let identity = query.identity().expect("it was checked");
    let field = |index: usize| (query.columns()[index].name.as_str(), &row.columns[index]);
    let key = json_object(identity.iter().map(|index| field(*index)));
    (key, json_object((0..row.columns.len()).map(field)))
}

/// Converts a value to the key or value of a record; NULL becomes none.
fn bytes_of(value: &Value<'_>) -> Option<Bytes> {
    match value {
        Value::Null => None,
        Value::Bytes(bytes) => Some(Bytes::copy_from_slice(bytes)),
        other => Some(text_of(other).into_owned().into()),
    }
}

fn text_of<'a>(value: &'a Value<'_>) -> Cow<'a, str> {
    match value {
        Value::Text(text) | Value::Json(text) => Cow::Borrowed(text),
        Value::Bool(it) => Cow::Borrowed(if *it { "true" } else { "false" }),
        other => Cow::Owned(other.to_string()),
    }
}

/// Builds a JSON object with these fields. Numbers, booleans and JSON are unquoted, other values
/// except NULL are text.
fn json_object<'a>(fields: impl Iterator<Item = (&'a str, &'a Value<'static>)>) -> Bytes {
    let mut json = String::from("{");
    for (index, (name, value)) in fields.enumerate() {
        if index > 0 {
            json.push(',');
        }
        json.push_str(&quoted(name));
        json.push(':');
        let text = text_of(value);
        match value {
            Value::Null => json.push_str("null"),
            Value::Bool(_) | Value::Int(_) | Value::Numeric(_) | Value::Json(_) => {
                json.push_str(&text);
            }
            Value::Float(it) if it.is_finite() => json.push_str(&text),
            _ => json.push_str(&quoted(&text)),
        }
    }
    json.push('}');
    json.into()
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("text is JSON")
}
