//! `RANGE n PRECEDING` and `n FOLLOWING`: the engine computes the bounds in the type of the sorted
//! column, where they overflow, and accepts columns of any type.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    Expr, ExprSchemable, LogicalPlan, Window, WindowFrameBound, WindowFrameUnits, cast,
};

use super::own::sql_name;
use super::refusal::refused;
use crate::error::SqlError;

/// Digits of any bigint and of its sum with another one.
const DIGITS: u8 = 20;

/// Sorts by integers that do not overflow, and rejects columns that are no numbers or times.
pub(super) fn with_exact_ranges(window: Window) -> Result<Transformed<LogicalPlan>> {
    let input = std::sync::Arc::clone(&window.input);
    let plan = LogicalPlan::Window(window);
    let names = NamePreserver::new(&plan);
    plan.map_expressions(|expr| {
        let name = names.save(&expr);
        let Expr::WindowFunction(mut call) = expr else { return Ok(Transformed::no(expr)) };
        let is_quoted = has_quoted_bound(&call);
        let Some(key) = ranged(&mut call) else {
            return Ok(Transformed::no(Expr::WindowFunction(call)));
        };
        let wide = match key.get_type(input.schema())? {
            it if it.is_numeric() && is_quoted => {
                return Err(refused("RANGE with a bound in quotes").into_engine());
            }
            DataType::Int16 | DataType::Int32 | DataType::Int64 => DataType::Decimal128(DIGITS, 0),
            it if it.is_numeric() || it.is_temporal() || it.is_null() => {
                return Ok(Transformed::no(Expr::WindowFunction(call)));
            }
            other => {
                let of = sql_name(&other);
                let what = "RANGE with offset PRECEDING/FOLLOWING is not supported for column type";
                return Err(SqlError::unsupported(format!("{what} {of}")).into_engine());
            }
        };
        *key = cast(key.clone(), wide);
        Ok(Transformed::yes(name.restore(Expr::WindowFunction(call))))
    })
}

/// Returns the sorted expression of a call whose frame has such a bound.
fn ranged(call: &mut WindowFunction) -> Option<&mut Expr> {
    let frame = &call.params.window_frame;
    let is_offset = |bound: &WindowFrameBound| match bound {
        WindowFrameBound::Preceding(it) | WindowFrameBound::Following(it) => !it.is_null(),
        WindowFrameBound::CurrentRow => false,
    };
    if frame.units != WindowFrameUnits::Range
        || !is_offset(&frame.start_bound) && !is_offset(&frame.end_bound)
    {
        return None;
    }
    match call.params.order_by.as_mut_slice() {
        [key] => Some(&mut key.expr),
        _ => None,
    }
}

/// Returns whether a bound is a literal in quotes, which the planner takes for an interval.
fn has_quoted_bound(call: &WindowFunction) -> bool {
    let frame = &call.params.window_frame;
    [&frame.start_bound, &frame.end_bound].into_iter().any(|bound| match bound {
        WindowFrameBound::Preceding(it) | WindowFrameBound::Following(it) => {
            it.to_string().contains(' ')
        }
        WindowFrameBound::CurrentRow => false,
    })
}
