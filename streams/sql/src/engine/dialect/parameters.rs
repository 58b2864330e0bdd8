//! Types of parameters that the context determines and the engine does not infer.

use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::expr::{Cast, Placeholder};
use datafusion::logical_expr::{Expr, LogicalPlan};
use std::sync::Arc;

/// Types untyped parameters: a LIMIT and an OFFSET is a bigint, and the operand of a cast to an
/// array is this array.
pub(in crate::engine) fn with_parameter_types(plan: LogicalPlan) -> Result<LogicalPlan> {
    let changed = plan.transform_up_with_subqueries(|plan| {
        let is_limit = matches!(plan, LogicalPlan::Limit(_));
        plan.map_expressions(|expr| match is_limit {
            true => Ok(counted(expr)),
            false => expr.transform_up(|expr| Ok(of_cast(expr))),
        })
    });
    Ok(changed?.data)
}

/// Casts the parameter of a LIMIT to bigint, because clients may declare other types of numbers.
fn counted(mut expr: Expr) -> Transformed<Expr> {
    let Expr::Placeholder(parameter) = &mut expr else { return Transformed::no(expr) };
    typed(parameter, &DataType::Int64);
    Transformed::yes(Expr::Cast(Cast::new(Box::new(expr), DataType::Int64)))
}

fn of_cast(mut expr: Expr) -> Transformed<Expr> {
    if let Expr::Cast(cast) = &mut expr
        && let Expr::Placeholder(parameter @ Placeholder { field: None, .. }) = &mut *cast.expr
        && matches!(cast.field.data_type(), DataType::List(_))
    {
        typed(parameter, cast.field.data_type());
        return Transformed::yes(expr);
    }
    Transformed::no(expr)
}

fn typed(parameter: &mut Placeholder, data_type: &DataType) {
    let data_type = match data_type {
        // As clients' texts are read.
        DataType::List(of) if of.data_type().is_string() => {
            DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true)))
        }
        other => other.clone(),
    };
    let field = || Arc::new(Field::new("", data_type.clone(), true));
    parameter.field.get_or_insert_with(field);
}
