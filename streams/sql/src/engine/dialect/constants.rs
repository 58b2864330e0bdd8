//! Constants in HAVING, GROUP BY, LIMIT and OFFSET, as PostgreSQL reads them.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, GroupByExpr, LimitClause, Query, Select, SelectItem, SetExpr,
    UnaryOperator, Value, Visit, Visitor,
};

use super::inexact::is_aggregate;
use super::refusal::refused;
use super::written::{binary, call, nested, number, text_of};
use crate::error::{SqlError, SqlState};

/// Rejects keys of GROUP BY that are constants other than column positions, and window functions
/// where no rows are known yet.
pub(super) fn check_groups(select: &Select) -> Result<(), SqlError> {
    if let Some(having) = &select.having
        && parts_of(having).has_window
    {
        return Err(no_windows("HAVING"));
    }
    let GroupByExpr::Expressions(keys, _) = &select.group_by else { return Ok(()) };
    for key in keys {
        if parts_of(key).has_window {
            return Err(no_windows("GROUP BY"));
        }
        let Expr::Value(value) = key else { continue };
        let is_place = match &value.value {
            Value::Number(digits, _) => digits.bytes().all(|it| it.is_ascii_digit()),
            Value::Placeholder(_) => true,
            _ => false,
        };
        if !is_place {
            let what = "non-integer constant in GROUP BY";
            return Err(SqlError::new(SqlState::SYNTAX, what));
        }
    }
    Ok(())
}

fn has_aggregate(select: &Select) -> bool {
    select.projection.iter().any(|it| match it {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
            parts_of(expr).has_aggregate
        }
        _ => false,
    })
}

/// Rejects subqueries whose row the engine would lose: with HAVING and without an aggregate in its
/// column, where it depends on the outer query and reads no rows; with WHERE and without FROM.
pub(super) fn check_subquery(query: &Query) -> Result<(), SqlError> {
    let SetExpr::Select(select) = query.body.as_ref() else { return Ok(()) };
    match has_aggregate(select) {
        false if select.having.is_some() => {
            Err(refused("a subquery with HAVING that selects no aggregate"))
        }
        true if select.from.is_empty() && select.selection.is_some() => {
            let what = "a subquery of an aggregate with WHERE and without FROM";
            Err(refused(what).with_hint("Write FROM (VALUES (1)) AS name (column)."))
        }
        _ => Ok(()),
    }
}

fn no_windows(clause: &str) -> SqlError {
    let what = format!("window functions are not allowed in {clause}");
    SqlError::new(SqlState("42P20"), what)
}

/// Makes a query with a constant HAVING and without GROUP BY an aggregate of all rows.
pub(super) fn group_by_having(select: &mut Select) {
    let GroupByExpr::Expressions(keys, _) = &select.group_by else { return };
    let Some(having) = &select.having else { return };
    let parts = parts_of(having);
    if !keys.is_empty() || parts.has_column || parts.has_aggregate || parts.has_query {
        return;
    }
    let all = call("count", vec![number("1")]);
    let is_counted = binary(all, BinaryOperator::GtEq, number("0"));
    // The engine ignores a condition that is NULL.
    let having = match having {
        Expr::Value(value) if value.value == Value::Null => {
            Expr::Value(Value::Boolean(false).into())
        }
        other => nested(other.clone()),
    };
    select.having = Some(binary(is_counted, BinaryOperator::And, having));
}

/// Rounds LIMIT and OFFSET to integers.
///
/// # Errors
/// They are no numbers, or refer to columns.
pub(super) fn round_limits(query: &mut Query) -> Result<(), SqlError> {
    let Some(clause) = &mut query.limit_clause else { return Ok(()) };
    match clause {
        LimitClause::LimitOffset { limit, offset, .. } => {
            if let Some(limit) = limit {
                round("LIMIT", limit)?;
            }
            if let Some(offset) = offset {
                round("OFFSET", &mut offset.value)?;
            }
            Ok(())
        }
        LimitClause::OffsetCommaLimit { .. } => Ok(()),
    }
}

fn round(clause: &str, count: &mut Expr) -> Result<(), SqlError> {
    let parts = parts_of(count);
    if parts.has_column && !parts.has_query {
        let what = format!("argument of {clause} must not contain variables");
        return Err(SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, what));
    }
    if let Some(text) = text_of(count) {
        let Ok(whole) = text.trim().parse::<i64>() else {
            let what = format!("invalid input syntax for type bigint: {text:?}");
            return Err(SqlError::new(SqlState::INVALID_TEXT, what));
        };
        *count = number(&whole.to_string());
        return Ok(());
    }
    let (is_negative, digits) = match &*count {
        Expr::Value(value) => (false, &value.value),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match expr.as_ref() {
            Expr::Value(value) => (true, &value.value),
            _ => return Ok(()),
        },
        _ => return Ok(()),
    };
    let Value::Number(digits, _) = digits else { return Ok(()) };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if !whole.bytes().chain(fraction.bytes()).all(|it| it.is_ascii_digit()) {
        return Ok(());
    }
    let up = i128::from(fraction.as_bytes().first().is_some_and(|it| *it >= b'5'));
    let whole = if whole.is_empty() { Ok(0) } else { whole.parse::<i128>() };
    let rounded = whole.ok().map(|it| it + up).filter(|it| *it <= i128::from(i64::MAX));
    let Some(rounded) = rounded else {
        return Err(SqlError::new(SqlState::OUT_OF_RANGE, "bigint out of range"));
    };
    match is_negative && rounded > 0 {
        true => {}
        false => *count = number(&rounded.to_string()),
    }
    Ok(())
}

/// What an expression is made of, outside of its subqueries.
#[derive(Default)]
struct Parts {
    depth: usize,
    has_query: bool,
    has_column: bool,
    has_aggregate: bool,
    has_window: bool,
}

/// Returns whether an expression has an aggregate, outside of its subqueries.
pub(super) fn is_aggregating(expr: &Expr) -> bool {
    parts_of(expr).has_aggregate
}

fn parts_of(expr: &Expr) -> Parts {
    let mut parts = Parts::default();
    let _: ControlFlow<()> = expr.visit(&mut parts);
    parts
}

impl Visitor for Parts {
    type Break = ();

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth += 1;
        self.has_query = true;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if self.depth > 0 {
            return ControlFlow::Continue(());
        }
        match expr {
            Expr::Identifier(_) | Expr::CompoundIdentifier(_) => self.has_column = true,
            Expr::Function(call) if call.over.is_some() => self.has_window = true,
            Expr::Function(call) => self.has_aggregate |= is_aggregate(&call.name.to_string()),
            _ => {}
        }
        ControlFlow::Continue(())
    }
}
