//! Typed tables for the engine: views over the table of a topic.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{AsArray, IntervalMonthDayNanoArray};
use datafusion::arrow::datatypes::{
    DECIMAL128_MAX_PRECISION, DataType, Field, IntervalMonthDayNano, IntervalUnit, Schema,
    SchemaRef, TimeUnit,
};
use datafusion::catalog::TableProvider;
use datafusion::catalog::view::ViewTable;
use datafusion::common::{Column, Result, TableReference};
use datafusion::datasource::provider_as_source;
use datafusion::functions::expr_fn::nullif;
use datafusion::logical_expr::expr::FieldMetadata;
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlanBuilder, ScalarUDF, Volatility, cast, create_udf, lit, try_cast,
};
use live_queries::{ColumnSource, Step, Table, TableColumn, Type};

use super::columns::{Form, LogColumn, schema_of};
use super::dialect::{To, conversion, lenient, number_cast};
use super::json::field;
use super::log_table::LogTable;
use crate::error::{SqlError, SqlState};
use crate::wire::{json_field, jsonb_field};

/// Creates the view of a table, with these columns as jsonb. Columns that a query does not use are
/// not extracted from values, and filters on the record's own columns reach the log.
pub(super) fn view(
    table: &Table,
    is_jsonb: &dyn Fn(&str) -> bool,
    records: LogTable,
) -> Result<Arc<dyn TableProvider>> {
    let name = TableReference::bare(Arc::clone(&records.topic));
    let plan = LogicalPlanBuilder::scan(name, provider_as_source(Arc::new(records)), None)?;
    let columns = table.columns.iter().map(|column| match is_jsonb(&column.name) {
        true => conversion(To::Jsonb).call(vec![selected(column)]).alias(&column.name),
        false => selected(column),
    });
    let plan = plan.project(columns)?.build()?;
    Ok(Arc::new(ViewTable::new(plan, None)))
}

/// Returns the columns of a table, with these columns as jsonb.
pub(super) fn schema(table: &Table, is_jsonb: &dyn Fn(&str) -> bool) -> SchemaRef {
    let records = schema_of(&LogColumn::ALL, Form::Text);
    let field = |column: &TableColumn| match (of_record(&column.source), column.data_type) {
        (Some(of), _) => records.field_with_name(of.name()).expect("records have it").clone(),
        (None, Type::Json) if is_jsonb(&column.name) => {
            jsonb_field(&column.name, DataType::Utf8View)
        }
        (None, Type::Json) => json_field(&column.name, DataType::Utf8View),
        (None, _) => Field::new(&column.name, data_type(column), true),
    };
    Arc::new(Schema::new(table.columns.iter().map(field).collect::<Vec<_>>()))
}

/// Returns the record's column of a source, or `None` if the source is a part of the value.
fn of_record(source: &ColumnSource) -> Option<LogColumn> {
    Some(match source {
        ColumnSource::Partition => LogColumn::Partition,
        ColumnSource::Offset => LogColumn::Offset,
        ColumnSource::Time => LogColumn::Time,
        ColumnSource::Key => LogColumn::Key,
        ColumnSource::Value => LogColumn::Value,
        ColumnSource::Headers => LogColumn::Headers,
        ColumnSource::Path(_) | ColumnSource::PathOrNull(_) | ColumnSource::Field { .. } => {
            return None;
        }
    })
}

fn data_type(column: &TableColumn) -> DataType {
    match column.data_type {
        Type::Numeric if matches!(column.source, ColumnSource::Field { is_whole: true, .. }) => {
            DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0)
        }
        Type::Bool => DataType::Boolean,
        Type::Int4 => DataType::Int32,
        Type::Int8 => DataType::Int64,
        Type::Numeric => DataType::Decimal128(38, 10),
        Type::Float8 => DataType::Float64,
        Type::Timestamptz => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        Type::Interval => DataType::Interval(IntervalUnit::MonthDayNano),
        _ => DataType::Utf8View,
    }
}

/// Returns the expression over the topic's table for a column.
fn selected(column: &TableColumn) -> Expr {
    let data_type = data_type(column);
    let cast_to = |path: &[Step], failure: Failure| match column.data_type {
        Type::Json => at(path, true),
        Type::Text => at(path, false),
        Type::Interval => INTERVAL.call(vec![at(path, false)]),
        _ => converted(at(path, false), &data_type, failure),
    };
    let found = match &column.source {
        ColumnSource::Path(path) => cast_to(path, Failure::Error),
        ColumnSource::PathOrNull(path) => cast_to(path, Failure::Null),
        ColumnSource::Field { name, .. } => {
            let found = cast_to(&[Step::Key(name.clone())], Failure::Error);
            match column.data_type {
                Type::Json => return json_or_null(found, &column.name),
                _ => found,
            }
        }
        other => {
            // Not aliased, so that the engine recognizes it as the same column.
            let of = of_record(other).expect("all others are of records");
            return Expr::Column(Column::from_name(of.name()));
        }
    };
    found.alias(&column.name)
}

/// Result for a text that is not valid for a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    Null,
    Error,
}

/// Returns the conversion of a text to the type of a column, with the semantics of casts.
fn converted(text: Expr, to: &DataType, failure: Failure) -> Expr {
    let function = match to {
        DataType::Float64 => Some(conversion(To::Float8)),
        DataType::Timestamp(..) => Some(conversion(To::Timestamptz)),
        other => number_cast(other),
    };
    match (function, failure) {
        (Some(function), Failure::Error) => function.call(vec![text]),
        (Some(function), Failure::Null) => lenient(function).call(vec![text]),
        (None, Failure::Error) => cast(text, to.clone()),
        (None, Failure::Null) => try_cast(text, to.clone()),
    }
}

/// Returns a lookup of a path in the value, as JSON or text.
fn at(path: &[Step], as_json: bool) -> Expr {
    let steps = path.iter().map(|step| match step {
        Step::Key(name) => lit(name.as_str()),
        Step::Index(index) => lit(i64::from(*index)),
    });
    let value = Expr::Column(Column::from_name(LogColumn::Value.name()));
    field(value, steps.collect(), as_json)
}

/// Maps JSON's null to NULL.
fn json_or_null(json: Expr, name: &str) -> Expr {
    let field = json_field(name, DataType::Utf8View);
    let metadata = FieldMetadata::from(&field);
    nullif(json, lit("null")).alias_with_metadata(name, Some(metadata))
}

/// Conversion of text to interval. The engine's own cast does not support this format.
static INTERVAL: LazyLock<ScalarUDF> = LazyLock::new(|| {
    let to = DataType::Interval(IntervalUnit::MonthDayNano);
    let read = |arguments: &[ColumnarValue]| {
        let texts = ColumnarValue::values_to_arrays(arguments)?.swap_remove(0);
        let texts = texts.as_string_view().iter();
        let intervals = texts.map(|text| text.map(interval).transpose());
        let intervals: IntervalMonthDayNanoArray = intervals.collect::<Result<_>>()?;
        Ok(ColumnarValue::Array(Arc::new(intervals)))
    };
    let from = vec![DataType::Utf8View];
    create_udf("json_interval", from, to, Volatility::Immutable, Arc::new(read))
});

/// Parses `-2 days -01:30:00.5`, the format of live queries.
fn interval(text: &str) -> Result<IntervalMonthDayNano> {
    read_interval(text).ok_or_else(|| {
        let what = format!("invalid input syntax for type interval: {text:?}");
        SqlError::new(SqlState::INVALID_TEXT, what).into_engine()
    })
}

fn read_interval(text: &str) -> Option<IntervalMonthDayNano> {
    let (days, clock) = match text.split_once(" day") {
        Some((days, rest)) => (days.parse().ok()?, rest.strip_prefix('s').unwrap_or(rest).trim()),
        None if text.is_empty() => return None,
        None => (0, text),
    };
    if clock.is_empty() {
        return Some(IntervalMonthDayNano::new(0, days, 0));
    }
    let (sign, clock) = clock.strip_prefix('-').map_or((1, clock), |rest| (-1, rest));
    let mut parts = clock.splitn(3, ':');
    let mut next = || parts.next();
    let (hours, minutes): (i64, i64) = (next()?.parse().ok()?, next()?.parse().ok()?);
    let (seconds, fraction) = {
        let seconds = next()?;
        seconds.split_once('.').unwrap_or((seconds, "0"))
    };
    let nanos: i64 = format!("{fraction:0<9}").parse().ok()?;
    let minutes = hours.checked_mul(60)?.checked_add(minutes)?;
    let seconds = minutes.checked_mul(60)?.checked_add(seconds.parse().ok()?)?;
    let nanos = seconds.checked_mul(1_000_000_000)?.checked_add(nanos)?;
    Some(IntervalMonthDayNano::new(0, days, sign * nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_read_as_live_queries_write_them() {
        for (text, expected) in [
            ("00:00:00", Some((0, 0))),
            ("1 day", Some((1, 0))),
            ("-2 days -01:30:00.5", Some((-2, -5_400_500_000_000))),
            ("10 days 23:59:59.999999", Some((10, 86_399_999_999_000))),
            ("-00:00:00.000001", Some((0, -1_000))),
            ("", None),
            ("1 month", None),
            ("01:30", None),
        ] {
            let read = read_interval(text).map(|it| (it.days, it.nanoseconds));
            assert_eq!(read, expected, "{text}");
        }
    }
}
