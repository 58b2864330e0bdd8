//! Dates, timestamps and timestamps with time zone together: the common type is that with a zone
//! where one has it. The engine would drop the zone.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder};
use datafusion::sql::sqlparser::ast::{
    DataType as SqlType, Expr as Parsed, TimezoneInfo, TypedString, Values,
};

use super::conversions::{self, To};
use super::rewrites::cast_to;
use super::written::is_timestamp;

/// Functions whose arguments have one type.
const OF_ONE_TYPE: &[&str] = &["coalesce", "greatest", "least", "make_array", "nullif"];

/// Converts the other times beside one with a zone.
pub(super) fn zoned(mut expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
    let values: Vec<&mut Expr> = match &mut expr {
        Expr::Case(case) => {
            let thens = case.when_then_expr.iter_mut().map(|(_, then)| then.as_mut());
            thens.chain(case.else_expr.as_deref_mut()).collect()
        }
        Expr::ScalarFunction(call) if OF_ONE_TYPE.contains(&call.func.name()) => {
            call.args.iter_mut().collect()
        }
        _ => return Ok(Transformed::no(expr)),
    };
    let types = values.iter().map(|it| it.get_type(schema)).collect::<Result<Vec<_>>>()?;
    if !types.iter().any(has_zone) || !types.iter().any(has_none) {
        return Ok(Transformed::no(expr));
    }
    for (value, data_type) in values.into_iter().zip(&types) {
        if has_none(data_type) {
            *value = conversions::call(To::Timestamptz, std::mem::take(value));
        }
    }
    Ok(Transformed::yes(expr))
}

fn has_zone(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Timestamp(_, Some(_)))
}

fn has_none(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Timestamp(_, None) | DataType::Date32)
}

/// Converts the columns of a side of a set operation where the other side's have a zone. Returns
/// whether there are any.
pub(super) fn set_zones(side: &mut Arc<LogicalPlan>, other: &LogicalPlan) -> Result<bool> {
    let pairs = side.schema().iter().zip(other.schema().fields());
    let mut is_changed = false;
    let columns: Vec<_> = pairs
        .map(|((table, field), other)| {
            let column = Expr::from((table, field));
            match has_none(field.data_type()) && has_zone(other.data_type()) {
                true => {
                    is_changed = true;
                    let zoned = conversions::call(To::Timestamptz, column);
                    zoned.alias_qualified(table.cloned(), field.name())
                }
                false => column,
            }
        })
        .collect();
    if is_changed && columns.len() == side.schema().fields().len() {
        *side = Arc::new(LogicalPlanBuilder::from(Arc::clone(side)).project(columns)?.build()?);
        return Ok(true);
    }
    Ok(false)
}

/// Casts dates and timestamps in VALUES to timestamptz if another row has that type.
pub(super) fn type_zones(values: &mut Values, index: usize) {
    let kind = |it: Option<&Parsed>| match it {
        Some(
            Parsed::Cast { data_type: it, .. }
            | Parsed::TypedString(TypedString { data_type: it, .. }),
        ) => Some(it.clone()),
        _ => None,
    };
    let is_plain = |it: &SqlType| {
        matches!(
            it,
            SqlType::Date
                | SqlType::Timestamp(None, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone)
        )
    };
    let kinds = values.rows.iter().map(|row| kind(row.content.get(index)));
    let zoned = kinds.flatten().find(|it| is_timestamp(it) && !is_plain(it));
    let Some(zoned) = zoned else { return };
    for row in &mut values.rows {
        if let Some(expr) = row.content.get_mut(index)
            && kind(Some(&*expr)).is_some_and(|it| is_plain(&it))
        {
            *expr = cast_to(expr.clone(), zoned.clone());
        }
    }
}
