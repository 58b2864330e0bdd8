//! `ARRAY(SELECT …)`: rewritten to an aggregate that preserves the query's order.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, FunctionArgumentClause, FunctionArguments, GroupByExpr,
    Ident, OrderByExpr, OrderByKind, Query, SelectItem, SetExpr, TableFactor, Value,
    visit_expressions, visit_expressions_mut,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;

use super::inexact::is_aggregate;
use super::series::query_of;
use super::written::call;
use crate::error::{SqlError, SqlState};

/// Names of the query's column and of additional sort columns.
const ELEMENT: &str = "element";
const SORTED_BY: &str = "sorted_by_";

/// Returns the expression for the array of a query's result. It is an empty array if the query
/// returns no rows.
pub(super) fn array_of(mut query: Query) -> Result<Expr, SqlError> {
    let keys = match &query.order_by {
        None => Vec::new(),
        Some(order) => match &order.kind {
            OrderByKind::Expressions(keys) => keys.clone(),
            OrderByKind::All(_) => {
                return Err(SqlError::unsupported("ORDER BY ALL is not supported"));
            }
        },
    };
    if let Some(array) = aggregate_of(&query, &keys)? {
        return Ok(array);
    }
    if let Some(list) = elements_of(&query) {
        return Ok(call("coalesce", vec![list, parsed("ARRAY[]")?]));
    }
    let (added, sorted) = sorted_by(&mut query, keys)?;
    let columns: Vec<_> = [ELEMENT.to_owned()].into_iter().chain(added).collect();
    let order = match sorted.is_empty() {
        true => String::new(),
        false => format!(" ORDER BY {}", sorted.join(", ")),
    };
    let text = format!(
        "coalesce((SELECT array_agg({ELEMENT}{order}) FROM (SELECT 1) AS elements({})), \
         ARRAY[])",
        columns.join(", ")
    );
    let mut array = parsed(&text)?;
    replace(&mut array, |outer| {
        let SetExpr::Select(select) = outer.body.as_mut() else { return };
        if let Some(TableFactor::Derived { subquery, .. }) =
            select.from.first_mut().map(|it| &mut it.relation)
        {
            **subquery = query;
        }
    });
    Ok(array)
}

/// Returns the array of a query that does nothing but unnest it.
fn elements_of(query: &Query) -> Option<Expr> {
    let SetExpr::Select(select) = query.body.as_ref() else { return None };
    let plain = query_of(select.projection.clone())?;
    let (
        Query { body, .. },
        [
            SelectItem::UnnamedExpr(Expr::Function(rows))
            | SelectItem::ExprWithAlias { expr: Expr::Function(rows), .. },
        ],
    ) = (&plain, select.projection.as_slice())
    else {
        return None;
    };
    let FunctionArguments::List(list) = &rows.args else { return None };
    match list.args.as_slice() {
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(list))]
            if rows.name.to_string() == "unnest"
                && **body == *query.body
                && query.order_by.is_none()
                && query.limit_clause.is_none() =>
        {
            Some(list.clone())
        }
        _ => None,
    }
}

fn parsed(text: &str) -> Result<Expr, SqlError> {
    let parser = Parser::new(&PostgreSqlDialect {}).try_with_sql(text);
    Ok(parser.and_then(|mut it| it.parse_expr())?)
}

/// Puts the aggregate directly into a SELECT that returns all its rows, so that it can still refer
/// to outer columns. Returns `None` for other queries.
fn aggregate_of(query: &Query, keys: &[OrderByExpr]) -> Result<Option<Expr>, SqlError> {
    let SetExpr::Select(select) = query.body.as_ref() else { return Ok(None) };
    let is_grouped = !matches!(&select.group_by, GroupByExpr::Expressions(list, _)
        if list.is_empty());
    let is_plain = query.with.is_none()
        && query.limit_clause.is_none()
        && select.distinct.is_none()
        && select.having.is_none()
        && !is_grouped;
    let (true, [item]) = (is_plain, select.projection.as_slice()) else { return Ok(None) };
    let (SelectItem::UnnamedExpr(element) | SelectItem::ExprWithAlias { expr: element, .. }) = item
    else {
        return Ok(None);
    };
    let is_of_row = |it: &Expr| !has_call_of_rows(it);
    if !is_of_row(element) || !keys.iter().all(|it| is_of_row(&it.expr)) {
        return Ok(None);
    }
    let sorted = keys.iter().map(|key| {
        let expr = if is_own(&key.expr, item) { element } else { &key.expr };
        OrderByExpr { expr: expr.clone(), ..key.clone() }
    });
    let mut places = HashSet::new();
    let sorted: Vec<_> = sorted.filter(|it| places.insert(it.expr.clone())).collect();
    let mut array = parsed("coalesce((SELECT array_agg(1)), ARRAY[])")?;
    let (mut query, element) = (query.clone(), element.clone());
    query.order_by = None;
    replace(&mut array, |outer| {
        let (SetExpr::Select(template), SetExpr::Select(select)) =
            (outer.body.as_mut(), query.body.as_mut())
        else {
            return;
        };
        let Some(SelectItem::UnnamedExpr(Expr::Function(mut call))) = template.projection.pop()
        else {
            return;
        };
        if let FunctionArguments::List(list) = &mut call.args {
            list.args = vec![FunctionArg::Unnamed(FunctionArgExpr::Expr(element))];
            if !sorted.is_empty() {
                list.clauses.push(FunctionArgumentClause::OrderBy(sorted));
            }
        }
        select.projection = vec![SelectItem::UnnamedExpr(Expr::Function(call))];
        *outer = query;
    });
    Ok(Some(array))
}

/// Returns whether an expression contains a call that may be an aggregate, a window function or a
/// set-returning function.
fn has_call_of_rows(expr: &Expr) -> bool {
    let found = visit_expressions(expr, |it| match it {
        Expr::Function(call) if call.over.is_some() => ControlFlow::Break(()),
        Expr::Function(call) if is_aggregate(&call.name.to_string()) => ControlFlow::Break(()),
        Expr::Function(call) if call.name.to_string() == "unnest" => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    });
    found.is_break()
}

/// Returns whether a sort key is the query's column, by expression, name or position.
fn is_own(key: &Expr, item: &SelectItem) -> bool {
    let (own, alias) = match item {
        SelectItem::UnnamedExpr(expr) => (expr, None),
        SelectItem::ExprWithAlias { expr, alias } => (expr, Some(&alias.value)),
        _ => return false,
    };
    key == own
        || matches!(key, Expr::Identifier(it) if Some(&it.value) == alias)
        || matches!(key, Expr::Value(it) if matches!(it.value, Value::Number(..)))
}

/// Adds sort columns to the query. Returns their names and the ORDER BY in terms of names.
fn sorted_by(
    query: &mut Query,
    keys: Vec<OrderByExpr>,
) -> Result<(Vec<String>, Vec<String>), SqlError> {
    let select = match query.body.as_mut() {
        SetExpr::Select(select) => select,
        _ => {
            let sorted = keys.iter().map(|key| format!("{ELEMENT}{}", key.options));
            return Ok((Vec::new(), sorted.collect()));
        }
    };
    let [item] = select.projection.as_slice() else {
        return Err(SqlError::new(SqlState::SYNTAX, "subquery must return only one column"));
    };
    if !matches!(item, SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. }) {
        return Err(SqlError::unsupported("ARRAY (SELECT *) is not supported"));
    }
    let item = item.clone();
    let (mut added, mut sorted, mut has_own) = (Vec::new(), Vec::new(), false);
    for (index, key) in keys.into_iter().enumerate() {
        if is_own(&key.expr, &item) {
            if has_own {
                continue;
            }
            has_own = true;
            sorted.push(format!("{ELEMENT}{}", key.options));
            continue;
        }
        if select.distinct.is_some() {
            return Err(SqlError::unsupported(
                "ARRAY (SELECT DISTINCT …) with ORDER BY of other expressions is not supported",
            ));
        }
        let name = format!("{SORTED_BY}{index}");
        sorted.push(format!("{name}{}", key.options));
        let alias = Ident::new(name.clone());
        select.projection.push(SelectItem::ExprWithAlias { expr: key.expr, alias });
        added.push(name);
    }
    Ok((added, sorted))
}

/// Modifies the query in a template.
fn replace(array: &mut Expr, change: impl FnOnce(&mut Query)) {
    let mut change = Some(change);
    let _: ControlFlow<()> = visit_expressions_mut(array, |expr| match expr {
        Expr::Subquery(query) => {
            if let Some(change) = change.take() {
                change(query);
            }
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    });
}
