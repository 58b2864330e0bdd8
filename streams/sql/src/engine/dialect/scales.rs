//! Scales of numerics. PostgreSQL keeps the scale of each value, the engine that of a column: the
//! result of `round`, `trunc` and the like gets the scale that the call names, and texts of
//! numerics whose scale is not known are rejected.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DECIMAL128_MAX_PRECISION, DataType};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, JoinType, Result, ScalarValue};
use datafusion::logical_expr::expr::{Cast, ScalarFunction};
use datafusion::logical_expr::utils::grouping_set_to_exprlist;
use datafusion::logical_expr::{Distinct, Expr, ExprSchemable, LogicalPlan};

use super::casts::{NUMERIC, NUMERIC_OF_FLOAT, numeric_of_float};
use super::conversions::To;
use super::numerics::is_unknown;
use super::planned::type_of;
use super::refusal::refused;
use super::scale_functions::is_packed;

/// Maximum number of digits that `round` and `trunc` keep exactly.
const DIGITS_MAX: i64 = 20;

/// Precision of the results of `round` and `trunc`. With one more, trailing zeros are not shown.
const PRECISION: u8 = DECIMAL128_MAX_PRECISION - 1;

/// Functions that return one of their arguments.
const GIVE_ONE: &[&str] = &["coalesce", "greatest", "least", "make_array", "nullif"];

/// Aggregates and window functions whose results have the scales of their arguments.
const OF_VALUES: &[&str] = &[
    "array_agg",
    "first_value",
    "lag",
    "last_value",
    "lead",
    "max",
    "min",
    "mode",
    "nth_value",
    "percentile_disc",
    "sum",
];

/// Maximum depth of plan nodes between a value and its use.
const DEPTH_MAX: usize = 64;

/// Casts the result of `round`, `trunc`, `ceil` and `floor` with a literal number of digits to that
/// scale.
pub(super) fn rounded(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    if let Expr::Cast(cast) = &expr
        && is_exact(cast.field.data_type())
        && cast.expr.get_type(schema)?.is_floating()
    {
        let exact = numeric_of_float().call(vec![(*cast.expr).clone()]);
        let field = Arc::clone(&cast.field);
        return Ok(Expr::Cast(Cast { expr: Box::new(exact), field }));
    }
    let Expr::ScalarFunction(call) = &expr else { return Ok(expr) };
    let Some(digits) = digits_of(call) else { return Ok(expr) };
    if let ("round", [number, _]) = (call.func.name(), call.args.as_slice())
        && let Expr::ScalarFunction(number) = number
        && let (NUMERIC, [float]) = (number.func.name(), number.args.as_slice())
        && float.get_type(schema)?.is_floating()
        && (0..=DIGITS_MAX).contains(&digits)
    {
        let to = DataType::Decimal128(PRECISION, i8::try_from(digits).unwrap_or(0));
        return numeric_of_float().call(vec![float.clone()]).cast_to(&to, schema);
    }
    let (DataType::Decimal128(precision, scale) | DataType::Decimal256(precision, scale)) =
        expr.get_type(schema)?
    else {
        return Ok(expr);
    };
    let Ok(to) = i8::try_from(digits.max(0)) else { return Ok(expr) };
    if digits > DIGITS_MAX || to == scale && precision < DECIMAL128_MAX_PRECISION {
        return Ok(expr);
    }
    let whole = i16::from(precision) - i16::from(scale) + 1;
    let precision = u8::try_from(whole + i16::from(to)).unwrap_or(PRECISION).min(PRECISION);
    expr.cast_to(&DataType::Decimal128(precision, to), schema)
}

/// Returns the literal number of digits of a call of `round`, `trunc`, `ceil` or `floor`.
fn digits_of(call: &ScalarFunction) -> Option<i64> {
    let mut digits = match (call.func.name(), call.args.as_slice()) {
        ("round" | "trunc", [_, digits]) => digits,
        ("ceil" | "floor" | "trunc", [_]) => return Some(0),
        _ => return None,
    };
    while let Expr::Cast(cast) = digits {
        digits = &cast.expr;
    }
    match digits {
        Expr::Literal(ScalarValue::Int64(digits), _) => *digits,
        Expr::Literal(ScalarValue::Int32(digits), _) => digits.map(i64::from),
        _ => None,
    }
}

/// Rejects texts of numerics whose scale is not known.
pub(super) fn check_texts(plan: &LogicalPlan, schema: &DFSchema) -> Result<()> {
    let inputs = plan.inputs();
    plan.apply_expressions(|expr| {
        expr.apply(|part| {
            if let Expr::ScalarFunction(call) = part
                && is_text(call)
                && let [number] = call.args.as_slice()
                && let Ok(of) = type_of(number, schema)
                && of.is_decimal()
            {
                let is_unknown = is_unknown(&of) && !is_trimmed(number, schema);
                if is_unknown || is_mixed(number, &inputs, 0) {
                    return Err(refused("the text of a numeric whose scale is not known")
                        .with_hint("Round it, as in round(x, 2)::text.")
                        .into_engine());
                }
            }
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(())
}

pub(super) fn is_text(call: &ScalarFunction) -> bool {
    [To::Text.name(), To::Output.name()].contains(&call.func.name())
}

/// Returns whether PostgreSQL shows no trailing zeros of a number either.
pub(super) fn is_trimmed(number: &Expr, schema: &DFSchema) -> bool {
    match number {
        Expr::Alias(alias) => is_trimmed(&alias.expr, schema),
        Expr::ScalarFunction(call) => match (call.func.name(), call.args.as_slice()) {
            ("trim_scale", _) => true,
            (NUMERIC, [of]) => type_of(of, schema).is_ok_and(|it| it.is_floating()),
            _ => false,
        },
        _ => false,
    }
}

/// Returns whether the values of a numeric may have several scales in PostgreSQL.
pub(super) fn is_mixed(expr: &Expr, inputs: &[&LogicalPlan], depth: usize) -> bool {
    let mixed = |it: &Expr| is_mixed(it, inputs, depth);
    let merged = |it: &Expr| is_widened(it, inputs) || mixed(it);
    match expr {
        Expr::Alias(alias) => mixed(&alias.expr),
        Expr::Column(column) => inputs.iter().any(|input| {
            let index = input.schema().maybe_index_of_column(column);
            index.is_some_and(|it| is_mixed_column(input, it, depth + 1))
        }),
        Expr::Case(case) => {
            case.when_then_expr.iter().any(|(_, then)| merged(then))
                || case.else_expr.as_deref().is_some_and(merged)
        }
        Expr::ScalarFunction(call) if GIVE_ONE.contains(&call.func.name()) => {
            call.args.iter().any(merged)
        }
        Expr::ScalarFunction(call) if call.args.first().is_some_and(is_packed) => true,
        Expr::ScalarFunction(call) => call.args.iter().any(mixed),
        Expr::AggregateFunction(call) if is_of_values(call.func.name()) => {
            call.params.args.iter().any(mixed)
        }
        Expr::WindowFunction(call) if is_of_values(call.fun.name()) => {
            call.params.args.iter().any(mixed) || has_other_default(&call.params.args, inputs)
        }
        Expr::Negative(inner) => mixed(inner),
        Expr::Cast(cast) if !is_given_scale(cast) => mixed(&cast.expr),
        Expr::ScalarSubquery(subquery) => is_mixed_column(&subquery.subquery, 0, depth + 1),
        _ => false,
    }
}

/// Returns whether the default of `lag` or `lead` has another scale than the values.
fn has_other_default(args: &[Expr], inputs: &[&LogicalPlan]) -> bool {
    let ([value, _, default], [input, ..]) = (args, inputs) else { return false };
    let type_of = |it: &Expr| it.get_type(input.schema().as_ref()).unwrap_or(DataType::Null);
    let (value, default) = (type_of(value), type_of(default));
    !default.is_null() && scale_of(&value) != scale_of(&default)
}

fn is_of_values(function: &str) -> bool {
    OF_VALUES.iter().any(|it| it.eq_ignore_ascii_case(function))
}

fn is_mixed_column(plan: &LogicalPlan, index: usize, depth: usize) -> bool {
    let inputs = plan.inputs();
    if depth > DEPTH_MAX || !is_exact(plan.schema().field(index).data_type()) {
        return false;
    }
    let of = |expr: Option<&Expr>| expr.is_some_and(|it| is_mixed(it, &inputs, depth));
    match plan {
        LogicalPlan::Projection(projection) => of(projection.expr.get(index)),
        LogicalPlan::Aggregate(aggregate) => {
            let count = aggregate.schema.fields().len() - aggregate.aggr_expr.len();
            match (index.checked_sub(count), grouping_set_to_exprlist(&aggregate.group_expr)) {
                (Some(index), _) => of(aggregate.aggr_expr.get(index)),
                (None, Ok(keys)) => of(keys.get(index).copied()),
                (None, Err(_)) => false,
            }
        }
        LogicalPlan::Distinct(Distinct::On(on)) => of(on.select_expr.get(index)),
        LogicalPlan::Unnest(unnest) => {
            let at = unnest.dependency_indices.get(index);
            at.is_some_and(|at| is_mixed_column(&unnest.input, *at, depth + 1))
        }
        LogicalPlan::Window(window) => {
            let count = window.input.schema().fields().len();
            match index.checked_sub(count) {
                None => is_mixed_column(&window.input, index, depth + 1),
                Some(index) => of(window.window_expr.get(index)),
            }
        }
        LogicalPlan::Values(values) => {
            values.values.iter().filter_map(|it| it.get(index)).any(|it| is_widened(it, &inputs))
        }
        LogicalPlan::Union(union) => union.inputs.iter().any(|input| {
            is_mixed_column(input, index, depth + 1) || is_widened_column(input, index)
        }),
        LogicalPlan::Join(join) => {
            let count = join.left.schema().fields().len();
            match (join.join_type, index.checked_sub(count)) {
                (JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark, _) => {
                    is_mixed_column(&join.right, index, depth + 1)
                }
                (_, None) => is_mixed_column(&join.left, index, depth + 1),
                (_, Some(index)) => is_mixed_column(&join.right, index, depth + 1),
            }
        }
        LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Subquery(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Limit(_)
        | LogicalPlan::Distinct(Distinct::All(_)) => is_mixed_column(inputs[0], index, depth + 1),
        _ => false,
    }
}

fn is_widened_column(plan: &Arc<LogicalPlan>, index: usize) -> bool {
    match plan.as_ref() {
        LogicalPlan::Projection(projection) => {
            projection.expr.get(index).is_some_and(|it| is_widened(it, &plan.inputs()))
        }
        _ => false,
    }
}

/// Returns whether an expression casts exact numbers to another scale.
fn is_widened(expr: &Expr, inputs: &[&LogicalPlan]) -> bool {
    match expr {
        Expr::Alias(alias) => is_widened(&alias.expr, inputs),
        Expr::Cast(cast) => {
            let from = match inputs.first() {
                Some(input) => cast.expr.get_type(input.schema().as_ref()),
                None => cast.expr.get_type(&DFSchema::empty()),
            };
            !is_given_scale(cast)
                && from.is_ok_and(|it| {
                    scale_of(&it).is_some() && scale_of(&it) != scale_of(cast.field.data_type())
                })
        }
        _ => false,
    }
}

/// Name of the field of a cast that a statement contains, with a precision and a scale.
pub(in crate::engine) const GIVEN: &str = "numeric";

/// Returns whether the values of a cast have the scale of its type: a statement contains the cast,
/// or the operand is rounded to that scale.
pub(super) fn is_given_scale(cast: &Cast) -> bool {
    let is_rounded = match cast.expr.as_ref() {
        Expr::ScalarFunction(call) if call.func.name() == NUMERIC_OF_FLOAT => true,
        Expr::ScalarFunction(call) => {
            let scale = scale_of(cast.field.data_type()).map(i64::from);
            digits_of(call).is_some_and(|digits| Some(digits.max(0)) == scale)
        }
        _ => false,
    };
    is_rounded || cast.field.name() == GIVEN
}

pub(super) fn is_exact(data_type: &DataType) -> bool {
    match data_type {
        DataType::List(element) => is_exact(element.data_type()),
        other => other.is_decimal(),
    }
}

fn scale_of(data_type: &DataType) -> Option<i8> {
    match data_type {
        DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) => Some(*scale),
        it if it.is_integer() => Some(0),
        _ => None,
    }
}
