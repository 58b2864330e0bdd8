//! Typed tables as the engine sees them: what is selected from the table of a topic.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::catalog::TableProvider;
use datafusion::catalog::view::ViewTable;
use datafusion::common::{Column, Result};
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::{Expr, LogicalPlanBuilder, cast, lit, try_cast};
use live_queries::{Step, Type};

use super::columns::{Form, LogColumn, schema_of};
use super::json::field;
use super::log_table::LogTable;
use crate::typed::{OnError, TypedColumn, TypedTable};
use crate::wire::json_field;

/// The view that shows a typed table. What is not asked for of its columns is not looked for in
/// values, and filters on what records have reach the log.
pub(super) fn view(table: &TypedTable, records: LogTable) -> Result<Arc<dyn TableProvider>> {
    let source = provider_as_source(Arc::new(records));
    let mut columns: Vec<Expr> = table
        .columns
        .iter()
        .map(|it| declared(it, table.on_error).alias(it.name.clone()))
        .collect();
    let others = LogColumn::ALL.into_iter().filter(|it| *it != LogColumn::Value);
    let others = others.map(LogColumn::name).filter(|name| table.column(name).is_none());
    columns.extend(others.map(|name| Expr::Column(Column::from_name(name))));
    let plan = LogicalPlanBuilder::scan(table.topic.as_str(), source, None)?;
    let plan = plan.project(columns)?.build()?;
    Ok(Arc::new(ViewTable::new(plan, None)))
}

/// Its columns: those that are declared, and those of records that have other names.
pub(super) fn schema(table: &TypedTable) -> SchemaRef {
    let mut fields: Vec<_> = table
        .columns
        .iter()
        .map(|it| match it.data_type {
            Type::Json => json_field(&it.name, DataType::Utf8View),
            other => Field::new(&it.name, data_type(other), true),
        })
        .collect();
    let records = schema_of(&LogColumn::ALL, Form::Text);
    let others = records.fields().iter().filter(|it| it.name() != LogColumn::Value.name());
    let others = others.filter(|it| table.column(it.name()).is_none());
    fields.extend(others.map(|it| it.as_ref().clone()));
    Arc::new(Schema::new(fields))
}

fn data_type(of: Type) -> DataType {
    match of {
        Type::Bool => DataType::Boolean,
        Type::Int4 => DataType::Int32,
        Type::Int8 => DataType::Int64,
        Type::Numeric => DataType::Decimal128(38, 10),
        Type::Float8 => DataType::Float64,
        Type::Timestamptz => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        _ => DataType::Utf8View,
    }
}

fn declared(column: &TypedColumn, on_error: OnError) -> Expr {
    let steps = column.path.iter().map(|step| match step {
        Step::Key(name) => lit(name.as_str()),
        Step::Index(index) => lit(i64::from(*index)),
    });
    let value = Expr::Column(Column::from_name(LogColumn::Value.name()));
    let steps = steps.collect();
    let text = match column.data_type {
        Type::Json => return field(value, steps, true),
        Type::Text => return field(value, steps, false),
        _ => field(value, steps, false),
    };
    let data_type = data_type(column.data_type);
    match on_error {
        OnError::Null => try_cast(text, data_type),
        OnError::Fail => cast(text, data_type),
    }
}
