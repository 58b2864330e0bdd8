//! `FETCH FIRST n ROWS WITH TIES`: the rows of which at most n - 1 sort before, by their rank.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, OrderByExpr, OrderByKind, Query, Select, SelectItem, SetExpr, Value,
    WindowSpec, WindowType, visit_expressions,
};

use super::names::{figure, folded};
use super::refusal::refused;
use super::written::{binary, call};
use crate::error::{SqlError, SqlState};

/// Restricts a sorted query to its first `count` rows, and those equal to the last of them.
pub(super) fn keep_ties(query: &mut Query, count: Expr) -> Result<(), SqlError> {
    let Some(order_by) = &query.order_by else {
        let what = "WITH TIES cannot be specified without ORDER BY clause";
        return Err(SqlError::new(SqlState::SYNTAX, what));
    };
    let refused = || refused("FETCH FIRST … WITH TIES of a query of this form");
    let is_count = matches!(&count, Expr::Value(it) if matches!(it.value, Value::Number(..)));
    let (SetExpr::Select(select), OrderByKind::Expressions(keys), None, true) =
        (query.body.as_mut(), &order_by.kind, &query.limit_clause, is_count)
    else {
        return Err(refused());
    };
    let keys = keys.iter().map(|key| {
        let expr = sorted_by(&key.expr, select)?;
        (!has_window(&expr)).then(|| OrderByExpr { expr, ..key.clone() })
    });
    let keys = keys.collect::<Option<Vec<_>>>();
    let (Some(order_by), None) = (keys, &select.distinct) else { return Err(refused()) };
    let mut rank = call("rank", Vec::new());
    if let Expr::Function(rank) = &mut rank {
        let spec = WindowSpec {
            window_name: None,
            partition_by: Vec::new(),
            order_by,
            window_frame: None,
        };
        rank.over = Some(WindowType::WindowSpec(spec));
    }
    select.qualify = Some(binary(rank, BinaryOperator::LtEq, count));
    Ok(())
}

/// Returns the expression of a sort key, which may be the name or the place of a column.
fn sorted_by(key: &Expr, select: &Select) -> Option<Expr> {
    let items = || {
        select.projection.iter().map(|item| match item {
            SelectItem::UnnamedExpr(expr) => Some((figure(expr).0, expr)),
            SelectItem::ExprWithAlias { expr, alias } => Some((folded(alias), expr)),
            _ => None,
        })
    };
    match key {
        Expr::Identifier(name) => {
            let found = items().flatten().find(|(output, _)| *output == folded(name));
            Some(found.map_or_else(|| key.clone(), |(_, expr)| expr.clone()))
        }
        Expr::Value(value) => {
            let Value::Number(place, _) = &value.value else { return None };
            let items = items().collect::<Option<Vec<_>>>()?;
            let (_, expr) = items.get(place.parse::<usize>().ok()?.checked_sub(1)?)?;
            Some((*expr).clone())
        }
        _ => Some(key.clone()),
    }
}

fn has_window(expr: &Expr) -> bool {
    let found = visit_expressions(expr, |it| match it {
        Expr::Function(call) if call.over.is_some() => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    found.is_break()
}
