//! Integer literals are `integer` if they fit, as in PostgreSQL. The engine types them as `bigint`
//! without a hook for planners, so they are encoded as a literal for which it has one.

use std::ops::ControlFlow;

use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawDictionaryExpr};
use datafusion::logical_expr::{Expr as Planned, lit};
use datafusion::sql::sqlparser::ast::{
    DictionaryField, Distinct, Expr, GroupByExpr, Ident, LimitClause, NamedWindowExpr, OrderByKind,
    Query, Select, Statement, UnaryOperator, Value, ValueWithSpan, VisitMut, VisitorMut,
    WindowFrameBound, WindowSpec, WindowType,
};

use super::casts::NUMERIC_OF_INTEGER;
use super::written::number;

/// Dictionary keys that encode the type of a number. Statements cannot contain dictionaries
/// otherwise.
const INTEGER: &str = "integer";
const NUMERIC: &str = "numeric";

/// Encodes the types of integer literals. Must be the last rewrite of a statement, because others
/// look for numbers.
pub(super) fn type_integers(statement: &mut Statement) {
    let typed = statement.visit(&mut Integers);
    debug_assert!(typed.is_continue(), "nothing ends it early");
}

/// Planner that decodes typed integers.
#[derive(Debug)]
pub(in crate::engine) struct Integers;

impl ExprPlanner for Integers {
    fn plan_dictionary_literal(
        &self,
        expr: RawDictionaryExpr,
        _: &DFSchema,
    ) -> Result<PlannerResult<RawDictionaryExpr>> {
        let ([Planned::Literal(ScalarValue::Utf8(Some(key)), _)], [Planned::Literal(number, _)]) =
            (expr.keys.as_slice(), expr.values.as_slice())
        else {
            return Ok(PlannerResult::Original(expr));
        };
        let typed = match (key.as_str(), number) {
            (INTEGER, ScalarValue::Int64(Some(number))) => i32::try_from(*number).ok().map(lit),
            (NUMERIC, ScalarValue::UInt64(Some(number))) => {
                Some(lit(ScalarValue::UInt64(Some(*number)).cast_to(&NUMERIC_OF_INTEGER)?))
            }
            _ => None,
        };
        Ok(typed.map_or(PlannerResult::Original(expr), PlannerResult::Planned))
    }
}

/// Encodes an integer literal with its type. Returns `None` if the engine's type is right.
fn typed(digits: &str) -> Option<Expr> {
    let key = match (digits.parse::<i32>(), digits.parse::<i64>(), digits.parse::<u64>()) {
        (Ok(_), ..) => INTEGER,
        (_, Err(_), Ok(_)) => NUMERIC,
        _ => return None,
    };
    let value = Box::new(number(digits));
    Some(Expr::Dictionary(vec![DictionaryField { key: Ident::new(key), value }]))
}

/// Negates a literal as a whole: 2147483648 does not fit `integer`, but -2147483648 does.
fn negated(expr: &Expr) -> Option<Expr> {
    let digits = match expr {
        Expr::Nested(inner) => return negated(inner),
        Expr::Value(ValueWithSpan { value: Value::Number(digits, _), .. }) => digits,
        other => digits_of(other)?,
    };
    let other = match digits.strip_prefix('-') {
        Some(positive) => positive.to_owned(),
        None => format!("-{digits}"),
    };
    let is_whole = other.trim_start_matches('-').bytes().all(|it| it.is_ascii_digit());
    let fits = other.parse::<i64>().is_ok() || other.parse::<u64>().is_ok();
    (is_whole && fits).then(|| typed(&other).unwrap_or_else(|| number(&other)))
}

/// Returns the digits of an encoded integer.
fn digits_of(expr: &Expr) -> Option<&str> {
    let Expr::Dictionary(fields) = expr else { return None };
    let [DictionaryField { value, .. }] = fields.as_slice() else { return None };
    match value.as_ref() {
        Expr::Value(ValueWithSpan { value: Value::Number(digits, _), .. }) => Some(digits),
        _ => None,
    }
}

/// Restores a plain number where the engine requires one and its type is irrelevant.
fn restore(expr: &mut Expr) {
    if let Some(digits) = digits_of(expr) {
        *expr = number(digits);
    }
}

fn restore_window(window: &mut WindowSpec) {
    let Some(frame) = &mut window.window_frame else { return };
    for bound in [Some(&mut frame.start_bound), frame.end_bound.as_mut()].into_iter().flatten() {
        if let WindowFrameBound::Preceding(Some(rows)) | WindowFrameBound::Following(Some(rows)) =
            bound
        {
            restore(rows);
        }
    }
}

impl VisitorMut for Integers {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let changed = match expr {
            Expr::Value(ValueWithSpan { value: Value::Number(digits, _), .. }) => typed(digits),
            Expr::UnaryOp { op: UnaryOperator::Minus, expr: inner } => negated(inner),
            Expr::Rollup(sets) | Expr::Cube(sets) | Expr::GroupingSets(sets) => {
                sets.iter_mut().flatten().for_each(restore);
                None
            }
            Expr::Interval(interval) => {
                restore(&mut interval.value);
                None
            }
            Expr::Function(call) => {
                if let Some(WindowType::WindowSpec(window)) = &mut call.over {
                    restore_window(window);
                }
                None
            }
            _ => None,
        };
        if let Some(changed) = changed {
            *expr = changed;
        }
        ControlFlow::Continue(())
    }

    /// Column positions must be plain numbers.
    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        if let GroupByExpr::Expressions(keys, _) = &mut select.group_by {
            keys.iter_mut().for_each(restore);
        }
        if let Some(Distinct::On(keys)) = &mut select.distinct {
            keys.iter_mut().for_each(restore);
        }
        for window in &mut select.named_window {
            if let NamedWindowExpr::WindowSpec(window) = &mut window.1 {
                restore_window(window);
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if let Some(order_by) = &mut query.order_by
            && let OrderByKind::Expressions(keys) = &mut order_by.kind
        {
            keys.iter_mut().for_each(|key| restore(&mut key.expr));
        }
        if let Some(LimitClause::LimitOffset { limit, offset, .. }) = &mut query.limit_clause {
            limit.iter_mut().for_each(restore);
            offset.iter_mut().for_each(|it| restore(&mut it.value));
        }
        ControlFlow::Continue(())
    }
}
