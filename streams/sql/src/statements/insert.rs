//! INSERT: converts rows of a query to records.

use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::array::{Array as _, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int32Type, TimestampMicrosecondType};
use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::ast::{
    Expr, Insert, ObjectName, ObjectNamePart, Query, SelectItem, SetExpr, Statement, TableObject,
    Value, visit_expressions, visit_expressions_mut,
};
use live_queries::Type;
use record_batch::Header;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::engine::{BYTES_SUFFIX, SCHEMA};
use crate::error::{SqlError, SqlState};
use crate::host::PublishedRecord;
use crate::typed::{Assigned, Object, TypedTable};
use crate::wire::PgType;

/// Maximum number of parameters of a statement.
const PARAMETER_COUNT_MAX: usize = 65_535;

/// A column that accepts inserts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Partition,
    Time,
    Key,
    Value,
    Headers,
    /// A field of the value, by its index among the table's declared columns.
    Field(usize),
}

/// Plan of an INSERT with resolved table and columns.
#[derive(Clone, Debug)]
pub(crate) struct InsertPlan {
    /// Name of the target table in the statement.
    pub(crate) table: String,
    pub(crate) topic: Arc<str>,
    has_bytes: bool,
    columns: Vec<Column>,
    /// True with an explicit column list. Otherwise the columns are all declared ones, and rows may
    /// omit trailing columns.
    are_named: bool,
    typed: Option<TypedTable>,
    source: Box<Query>,
}

impl InsertPlan {
    /// Resolves an INSERT. `typed` looks up a typed table by name, and fails for tables that do not
    /// accept inserts.
    pub(crate) fn new(
        insert: &Insert,
        typed: impl FnOnce(&str) -> Result<Option<TypedTable>, SqlError>,
    ) -> Result<Self, SqlError> {
        if insert.on.is_some() {
            let what = "INSERT with ON CONFLICT is not supported";
            let hint = "Records have no unique columns: with memlane.values=latest the last record \
                        of a key is its current value.";
            return Err(SqlError::unsupported(what).with_hint(hint));
        }
        if insert.returning.is_some() {
            let what = "INSERT with RETURNING is not supported";
            let hint = "Offsets and times are assigned at COMMIT: query them by key afterwards.";
            return Err(SqlError::unsupported(what).with_hint(hint));
        }
        let TableObject::TableName(table) = &insert.table else {
            return Err(SqlError::unsupported("INSERT into anything but a table is not supported"));
        };
        let Some(mut source) = insert.source.clone() else {
            return Err(SqlError::unsupported("INSERT without VALUES or a query is not supported"));
        };
        let table = table_name(table)?;
        let typed = typed(&table)?;
        let (topic, has_bytes) = match (&typed, table.strip_suffix(BYTES_SUFFIX)) {
            (Some(typed), _) => (typed.topic.as_str(), false),
            (None, Some(topic)) => (topic, true),
            (None, None) => (table.as_str(), false),
        };
        let topic: Arc<str> = topic.into();
        let mut columns = Vec::new();
        let are_named = !insert.columns.is_empty();
        if !are_named {
            let Some(typed) = &typed else {
                let what = "INSERT into a topic requires a column list";
                let hint = format!("Write INSERT INTO {table} (key, value).");
                return Err(SqlError::new(SqlState::SYNTAX, what).with_hint(hint));
            };
            columns.extend((0..typed.columns.len()).map(Column::Field));
        }
        let mut names: Vec<_> = insert.columns.iter().map(last_part).collect();
        take_defaults(&mut source, &mut names);
        for name in names {
            let declared = typed.as_ref().and_then(|it| it.position(&name));
            let column = match name.as_str() {
                _ if declared.is_some() => Column::Field(declared.expect("it was looked at")),
                "partition" => Column::Partition,
                "time" => Column::Time,
                "key" => Column::Key,
                "value" if typed.is_none() => Column::Value,
                "headers" => Column::Headers,
                "offset" => {
                    let what = "cannot insert into column \"offset\": the log assigns offsets";
                    return Err(SqlError::new(SqlState::SYNTAX, what));
                }
                other => {
                    let what = format!("column {other:?} of relation {table:?} does not exist");
                    return Err(SqlError::new(SqlState::UNDEFINED_COLUMN, what));
                }
            };
            if columns.contains(&column) {
                let what = format!("column {name:?} specified more than once");
                return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, what));
            }
            columns.push(column);
        }
        if let Some(typed) = &typed {
            typed.check_insert()?;
        }
        Ok(Self { table, topic, has_bytes, columns, are_named, typed, source })
    }

    /// Returns the names of the columns that a typed table declares.
    pub(crate) fn declared_names(&self) -> Vec<String> {
        let columns = self.typed.iter().flat_map(|it| &it.columns);
        columns.map(|it| it.name.clone()).collect()
    }

    /// Returns the types of the target columns.
    pub(crate) fn types(&self) -> Vec<PgType> {
        self.columns.iter().map(|it| self.pg_type(*it)).collect()
    }

    fn pg_type(&self, column: Column) -> PgType {
        match column {
            Column::Partition => PgType::INT4,
            Column::Time => PgType::TIMESTAMPTZ,
            Column::Key | Column::Value if self.has_bytes => PgType::BYTEA,
            Column::Key | Column::Value | Column::Headers => PgType::TEXT,
            Column::Field(index) => {
                self.typed.as_ref().map_or(PgType::TEXT, |typed| typed.columns[index].pg_type())
            }
        }
    }

    /// Returns the types of the parameters, `$1` first: declared by the client, else the type of
    /// the target column, else text.
    pub(crate) fn parameter_types(&self, declared: &[u32]) -> Result<Vec<u32>, SqlError> {
        let mut types = declared.to_vec();
        let mut note = |text: &str, of: PgType| -> Result<(), SqlError> {
            let index = parameter_index(text)?;
            if types.len() <= index {
                types.resize(index + 1, 0);
            }
            if types[index] == 0 {
                types[index] = of.oid;
            }
            Ok(())
        };
        if let SetExpr::Values(values) = &*self.source.body {
            for row in &values.rows {
                for (expr, column) in row.iter().zip(&self.columns) {
                    if let Some(name) = placeholder(expr) {
                        note(name, self.pg_type(*column))?;
                    }
                }
            }
        }
        let rest = visit_expressions(&*self.source, |expr| match placeholder(expr) {
            Some(name) => match note(name, PgType::TEXT) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => ControlFlow::Break(error),
            },
            None => ControlFlow::Continue(()),
        });
        match rest {
            ControlFlow::Break(error) => Err(error),
            ControlFlow::Continue(()) => Ok(types),
        }
    }

    /// Returns the source query with parameters replaced by values.
    pub(crate) fn query(&self, parameters: &[ScalarValue]) -> Result<Statement, SqlError> {
        let mut source = self.source.clone();
        let replaced = visit_expressions_mut(&mut *source, |expr| {
            let Some(index) = placeholder(expr).map(parameter_index) else {
                return ControlFlow::Continue(());
            };
            match index.and_then(|index| literal(parameters, index)) {
                Ok(value) => {
                    *expr = Expr::Value(value.into());
                    ControlFlow::Continue(())
                }
                Err(error) => ControlFlow::Break(error),
            }
        });
        match replaced {
            ControlFlow::Break(error) => Err(error),
            ControlFlow::Continue(()) => Ok(Statement::Query(source)),
        }
    }

    /// Converts rows of the source query to records.
    pub(crate) fn records(&self, rows: &RecordBatch) -> Result<Vec<PublishedRecord>, SqlError> {
        let (expected, found) = (self.columns.len(), rows.num_columns());
        if found > expected || found < expected && self.are_named {
            let what = match found > expected {
                true => "INSERT has more expressions than target columns",
                false => "INSERT has more target columns than expressions",
            };
            return Err(SqlError::new(SqlState::SYNTAX, what));
        }
        self.check_texts(rows)?;
        let mut records: Vec<PublishedRecord> = Vec::new();
        records.resize_with(rows.num_rows(), PublishedRecord::default);
        let mut objects = vec![Object::default(); rows.num_rows()];
        for (column, array) in self.columns.iter().zip(rows.columns()) {
            let to = |name: &str, data_type| Assigned { name, data_type }.of(array);
            match column {
                Column::Partition => {
                    let array = to("partition", Type::Int4)?;
                    let numbers = array.as_primitive::<Int32Type>().iter();
                    records.iter_mut().zip(numbers).for_each(|(it, number)| it.partition = number);
                }
                Column::Time => {
                    let array = to("time", Type::Timestamptz)?;
                    let times = array.as_primitive::<TimestampMicrosecondType>().iter();
                    for (record, time) in records.iter_mut().zip(times) {
                        record.time_ms = time.map(milliseconds).transpose()?;
                    }
                }
                Column::Field(index) => {
                    let typed = self.typed.as_ref().expect("fields are of typed tables");
                    let column = &typed.columns[*index];
                    let is_key = typed.key.as_ref() == Some(&column.name);
                    for (row, field) in column.fields(array)?.into_iter().enumerate() {
                        let Some(field) = field else { continue };
                        if is_key && !self.columns.contains(&Column::Key) {
                            records[row].key = Some(field.text.clone().into());
                        }
                        objects[row].put(&column.path, field.json);
                    }
                }
                Column::Key | Column::Value => {
                    let name = if *column == Column::Key { "key" } else { "value" };
                    let of = if self.has_bytes { Type::Bytea } else { Type::Text };
                    let array = cast(&to(name, of)?, &DataType::BinaryView)
                        .map_err(|error| SqlError::new(SqlState::INTERNAL, error.to_string()))?;
                    for (record, bytes) in records.iter_mut().zip(array.as_binary_view()) {
                        let bytes = bytes.map(Bytes::copy_from_slice);
                        match column {
                            Column::Key => record.key = bytes,
                            _ => record.value = bytes,
                        }
                    }
                }
                Column::Headers => {
                    let array = to("headers", Type::Json)?;
                    for (record, text) in records.iter_mut().zip(array.as_string_view()) {
                        record.headers = text.map_or_else(|| Ok(Vec::new()), headers)?;
                    }
                }
            }
        }
        if self.typed.is_some() {
            for (record, object) in records.iter_mut().zip(objects) {
                record.value = Some(object.to_string().into());
            }
        }
        Ok(records)
    }
}

impl InsertPlan {
    /// Rejects texts and JSON for columns of other types, unless they are literals of the
    /// statement.
    fn check_texts(&self, rows: &RecordBatch) -> Result<(), SqlError> {
        for (index, (column, field)) in
            self.columns.iter().zip(rows.schema_ref().fields()).enumerate()
        {
            let (found, to) = (PgType::of(field), self.pg_type(*column));
            let is_right = !field.data_type().is_string()
                || [PgType::TEXT.oid, found.oid].contains(&to.oid)
                || found.is_json() && (to.is_json() || *column == Column::Headers)
                || !found.is_json() && is_literal(&self.source.body, index);
            if !is_right {
                let (to, found) = (to.name(), found.name());
                let what = format!("column is of type {to} but expression is of type {found}");
                return Err(SqlError::new(SqlState::DATATYPE, what)
                    .with_hint("You will need to rewrite or cast the expression."));
            }
        }
        Ok(())
    }
}

/// Returns whether a column of the source may be a literal, whose type is that of the target.
fn is_literal(body: &SetExpr, index: usize) -> bool {
    match body {
        SetExpr::Values(_) => true,
        SetExpr::Query(query) => is_literal(&query.body, index),
        SetExpr::Select(select) => match select.projection.get(index) {
            Some(SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) => {
                matches!(expr, Expr::Value(_))
            }
            _ => false,
        },
        _ => false,
    }
}

/// Replaces DEFAULT in VALUES by NULL, which is the default of each column, and removes the column
/// `offset` if all its values are DEFAULT.
fn take_defaults(source: &mut Query, names: &mut Vec<String>) {
    let SetExpr::Values(values) = &mut *source.body else { return };
    let offset = names.iter().position(|it| it == "offset");
    let is_default =
        |at: usize| values.rows.iter().all(|row| row.get(at).is_some_and(is_default_word));
    if let Some(at) = offset.filter(|at| is_default(*at)) {
        names.remove(at);
        for row in &mut values.rows {
            row.remove(at);
        }
    }
    let exprs = values.rows.iter_mut().flat_map(|row| row.iter_mut());
    for expr in exprs.filter(|it| is_default_word(it)) {
        *expr = Expr::Value(Value::Null.into());
    }
}

fn is_default_word(expr: &Expr) -> bool {
    matches!(expr, Expr::Identifier(name)
        if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("default"))
}

/// Converts Unix microseconds to a record's timestamp. The log has none before 1970.
fn milliseconds(us: i64) -> Result<i64, SqlError> {
    match us {
        0.. => Ok(us / 1_000),
        _ => {
            let what =
                "timestamp out of range: record timestamps must be 1970-01-01 00:00:00+00 or later";
            Err(SqlError::new(SqlState::DATETIME_OVERFLOW, what))
        }
    }
}

/// Returns the name of a table without its schema: `orders` and `public.orders` are the same table.
pub(super) fn table_name(name: &ObjectName) -> Result<String, SqlError> {
    let is_of_schema = match name.0.as_slice() {
        [_] => true,
        [.., ObjectNamePart::Identifier(schema), _] => schema.value == SCHEMA,
        _ => false,
    };
    match is_of_schema {
        true => Ok(last_part(name)),
        false => {
            let what = format!("relation {name} does not exist");
            Err(SqlError::new(SqlState::UNDEFINED_TABLE, what))
        }
    }
}

fn last_part(name: &ObjectName) -> String {
    match name.0.last() {
        Some(ObjectNamePart::Identifier(ident)) => match ident.quote_style {
            Some(_) => ident.value.clone(),
            None => ident.value.to_ascii_lowercase(),
        },
        _ => String::new(),
    }
}

fn placeholder(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::Placeholder(name) => Some(name),
            _ => None,
        },
        _ => None,
    }
}

fn parameter_index(name: &str) -> Result<usize, SqlError> {
    let number = name.strip_prefix('$').and_then(|number| number.parse::<usize>().ok());
    let index = number.filter(|it| *it <= PARAMETER_COUNT_MAX).and_then(|it| it.checked_sub(1));
    index.ok_or_else(|| SqlError::new(SqlState::SYNTAX, format!("there is no parameter {name}")))
}

fn literal(parameters: &[ScalarValue], index: usize) -> Result<Value, SqlError> {
    let value = parameters.get(index).ok_or_else(|| {
        SqlError::new(SqlState::PROTOCOL, format!("no value found for parameter ${}", index + 1))
    })?;
    if value.is_null() {
        return Ok(Value::Null);
    }
    Ok(match value {
        ScalarValue::Binary(Some(bytes)) | ScalarValue::BinaryView(Some(bytes)) => {
            Value::HexStringLiteral(bytes.iter().map(|byte| format!("{byte:02X}")).collect())
        }
        ScalarValue::List(list) => Value::SingleQuotedString(array_text(&list.value(0))?),
        other => match other.cast_to(&DataType::Utf8)? {
            ScalarValue::Utf8(Some(text)) => Value::SingleQuotedString(text),
            _ => Value::Null,
        },
    })
}

/// Formats an array as PostgreSQL's literals are.
fn array_text(elements: &ArrayRef) -> Result<String, SqlError> {
    let mut texts = Vec::new();
    for index in 0..elements.len() {
        let element = ScalarValue::try_from_array(elements, index)?;
        texts.push(match element.is_null() {
            true => "NULL".to_owned(),
            false => {
                let text = element.cast_to(&DataType::Utf8)?.to_string();
                format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
            }
        });
    }
    Ok(format!("{{{}}}", texts.join(",")))
}

/// Members of a JSON object in their original order, because headers are ordered.
struct Members(Vec<(String, serde_json::Value)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = Members;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        from.deserialize_map(InOrder)
    }
}

/// Parses headers from a JSON object in the format of the column `headers`.
fn headers(text: &str) -> Result<Vec<Header>, SqlError> {
    let wrong = || {
        let what = "invalid headers: use a JSON object whose values are strings, arrays of \
                    strings, or null";
        SqlError::new(SqlState::INVALID_TEXT, what)
    };
    let Members(members) = serde_json::from_str(text).map_err(|_| wrong())?;
    let mut headers = Vec::new();
    for (name, value) in &members {
        let mut add = |value: &serde_json::Value| {
            let text = value.as_str();
            if text.is_none() && !value.is_null() {
                return Err(wrong());
            }
            let value = text.map(|text| Bytes::copy_from_slice(text.as_bytes()));
            headers.push(Header { name: name.clone(), value });
            Ok(())
        };
        match value.as_array() {
            Some(list) => list.iter().try_for_each(&mut add)?,
            None => add(value)?,
        }
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statements::command::{Command, read_command};
    use crate::statements::text::split;

    fn plan(text: &str) -> Result<InsertPlan, SqlError> {
        match read_command(&split(text)?[0])? {
            Command::Insert(insert) => InsertPlan::new(&insert, |_| Ok(None)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn parameters_have_the_types_of_their_columns() {
        let insert = "insert into orders (value, partition, key) values ($3, $1, $2), ('a', 1, $4)";
        let types = plan(insert).expect("good").parameter_types(&[0, 17]).expect("good");
        assert_eq!(types, [23, 17, 25, 25]);
    }

    #[test]
    fn parameters_become_literals() {
        let plan = plan("insert into orders (key, value) values ($1, $2)").expect("good");
        let values = [ScalarValue::from("it's"), ScalarValue::Utf8(None)];
        let query = plan.query(&values).expect("two values");
        assert_eq!(query.to_string(), "VALUES ('it''s', NULL)");
        assert_eq!(plan.query(&values[..1]).expect_err("one value").state, SqlState::PROTOCOL);
    }

    #[test]
    fn columns_that_cannot_be_inserted_are_refused() {
        for text in [
            "insert into orders values ('a')",
            "insert into orders (\"offset\") values (1)",
            "insert into orders (nothing) values (1)",
            "insert into orders (key, key) values (1, 2)",
            "insert into other.orders (key) values (1)",
            "insert into orders (key) values (1) returning key",
        ] {
            plan(text).expect_err(text);
        }
    }

    #[test]
    fn headers_are_read_as_they_are_shown() {
        let found = headers(r#"{"a": "1", "b": ["2", null]}"#).expect("good");
        let names: Vec<_> = found.iter().map(|it| (it.name.as_str(), it.value.clone())).collect();
        let value = |text: &'static str| Some(Bytes::from_static(text.as_bytes()));
        assert_eq!(names, [("a", value("1")), ("b", value("2")), ("b", None)]);
        for text in ["[]", "1", "{\"a\": 1}", "{", ""] {
            headers(text).expect_err(text);
        }
    }
}
