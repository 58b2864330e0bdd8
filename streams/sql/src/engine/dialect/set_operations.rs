//! EXCEPT ALL and INTERSECT ALL: duplicates are numbered, so that each pair of row and number
//! occurs once.

use datafusion::sql::sqlparser::ast::{
    Expr, Query, SelectItem, SetExpr, SetOperator, SetQuantifier, TableFactor, Value, ValueWithSpan,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;

use super::names::figure;
use super::refusal::refused;
use crate::error::SqlError;

/// Alias of a side in the rewritten query.
pub(super) const SIDES: &str = "sides\0";

/// Rewrites such operations in a query, without its subqueries.
pub(super) fn number_rows(body: &mut SetExpr) -> Result<(), SqlError> {
    let SetExpr::SetOperation { left, op, set_quantifier, right } = body else { return Ok(()) };
    number_rows(left)?;
    number_rows(right)?;
    let is_all = matches!(set_quantifier, SetQuantifier::All);
    if !is_all || !matches!(op, SetOperator::Except | SetOperator::Intersect) {
        return Ok(());
    }
    let Some(names) = names(left) else {
        return Err(
            refused(&format!("{op} ALL of SELECT *")).with_hint("List the columns in SELECT.")
        );
    };
    if has_null(left) || has_null(right) {
        return Err(refused(&format!("{op} ALL with an untyped NULL"))
            .with_hint("Specify the type, as in NULL::text."));
    }
    let columns: Vec<_> = (0..names.len()).map(|it| format!("column_{it}")).collect();
    let columns = columns.join(", ");
    let side = || {
        format!(
            "SELECT {columns}, row_number() OVER (PARTITION BY {columns}) FROM (SELECT 1) AS \
             \"{SIDES}\"({columns})"
        )
    };
    let named = names
        .iter()
        .enumerate()
        .map(|(index, name)| format!("column_{index} AS \"{}\"", name.replace('"', "\"\"")));
    let named: Vec<_> = named.collect();
    let text = format!(
        "SELECT {} FROM ({} {op} {}) AS numbered({columns}, number)",
        named.join(", "),
        side(),
        side()
    );
    let parsed = Parser::new(&PostgreSqlDialect {}).try_with_sql(&text);
    let mut numbered = *parsed.and_then(|mut it| it.parse_query())?.body;
    if let Some(SetExpr::SetOperation { left: one, right: other, .. }) =
        derived(&mut numbered).map(|it| it.body.as_mut())
    {
        put_into(one, left);
        put_into(other, right);
    }
    *body = numbered;
    Ok(())
}

fn has_null(body: &SetExpr) -> bool {
    let SetExpr::Select(select) = body else { return false };
    select.projection.iter().any(|item| match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
            matches!(expr, Expr::Value(ValueWithSpan { value: Value::Null, .. }))
        }
        _ => false,
    })
}

fn put_into(side: &mut SetExpr, body: &mut SetExpr) {
    if let Some(query) = derived(side) {
        std::mem::swap(query.body.as_mut(), body);
    }
}

/// Returns the subquery in a SELECT's FROM.
fn derived(body: &mut SetExpr) -> Option<&mut Query> {
    let SetExpr::Select(select) = body else { return None };
    match &mut select.from.first_mut()?.relation {
        TableFactor::Derived { subquery, .. } => Some(subquery),
        _ => None,
    }
}

/// Returns the column names, if their number is known from the query.
pub(super) fn names(body: &SetExpr) -> Option<Vec<String>> {
    match body {
        SetExpr::Query(query) => names(&query.body),
        SetExpr::SetOperation { left, .. } => names(left),
        SetExpr::Values(values) => {
            let count = values.rows.first()?.content.len();
            Some((1..=count).map(|it| format!("column{it}")).collect())
        }
        SetExpr::Select(select) => {
            let names = select.projection.iter().map(|item| match item {
                SelectItem::UnnamedExpr(expr) => Some(figure(expr).0),
                SelectItem::ExprWithAlias { alias, .. } => Some(super::names::folded(alias)),
                _ => None,
            });
            names.collect()
        }
        _ => None,
    }
}
