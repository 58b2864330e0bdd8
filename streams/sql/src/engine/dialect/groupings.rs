//! GROUP BY and DISTINCT ON by column positions, rows of columns, and ROLLUP and CUBE within
//! GROUPING SETS.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Distinct, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr, Select,
    SelectItem, Value, visit_expressions,
};

use super::refusal::refused;
use crate::error::{SqlError, SqlState};

/// Maximum number of grouping sets of a CUBE, which is PostgreSQL's.
const CUBE_COLUMNS_MAX: usize = 12;

/// Spells out the keys of a SELECT.
pub(super) fn spell_groupings(select: &mut Select) -> Result<(), SqlError> {
    if let Some(Distinct::On(keys)) = &mut select.distinct {
        let clause = "SELECT DISTINCT ON";
        keys.iter_mut().try_for_each(|it| by_place(it, &select.projection, clause))?;
    }
    let Select { group_by: GroupByExpr::Expressions(list, _), projection, .. } = select else {
        return Ok(());
    };
    // A row of columns groups by each of them.
    while let Some(at) = list.iter().position(|it| matches!(it, Expr::Tuple(all) if is_some(all))) {
        let Expr::Tuple(all) = list.remove(at) else { continue };
        list.splice(at..at, all);
    }
    check_operands(list, projection)?;
    for key in list.iter_mut() {
        if let Some(sets) = of_rows(key) {
            *key = Expr::GroupingSets(sets);
        }
    }
    for key in list {
        let sets = match key {
            Expr::GroupingSets(sets) => {
                let spelled = sets.drain(..).map(spelled).collect::<Result<Vec<_>, _>>()?;
                sets.extend(spelled.into_iter().flatten());
                sets
            }
            Expr::Rollup(sets) | Expr::Cube(sets) => sets,
            _ => continue,
        };
        for key in sets.iter_mut().flatten() {
            by_place(key, projection, "GROUP BY")?;
        }
    }
    Ok(())
}

/// Rejects operators on an expression of GROUP BY: the engine takes `a + 1 + 1` for one operation.
fn check_operands(keys: &[Expr], projection: &[SelectItem]) -> Result<(), SqlError> {
    let is_key = |expr: &Expr| {
        matches!(bare(expr), Expr::BinaryOp { .. })
            && keys.iter().any(|key| bare(key) == bare(expr))
    };
    for item in projection {
        let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item else {
            continue;
        };
        let found = visit_expressions(expr, |it| match it {
            Expr::BinaryOp { left, right, .. } if is_key(left) || is_key(right) => {
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        });
        if found.is_break() {
            return Err(refused("an operator with an expression of GROUP BY as an operand")
                .with_hint("Compute the expression in a subquery in FROM."));
        }
    }
    Ok(())
}

fn bare(expr: &Expr) -> &Expr {
    match expr {
        Expr::Nested(inner) => bare(inner),
        other => other,
    }
}

fn is_some(all: &[Expr]) -> bool {
    !all.is_empty()
}

/// Replaces the position of a column by the column.
fn by_place(key: &mut Expr, projection: &[SelectItem], clause: &str) -> Result<(), SqlError> {
    let Expr::Value(value) = &*key else { return Ok(()) };
    let Value::Number(digits, _) = &value.value else { return Ok(()) };
    let place = digits.parse::<usize>().ok().and_then(|it| it.checked_sub(1));
    *key = match place.and_then(|it| projection.get(it)) {
        Some(SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) => {
            expr.clone()
        }
        Some(_) => return Err(refused(&format!("a column position in {clause} with SELECT *"))),
        None => {
            let what = format!("{clause} position {digits} is not in select list");
            return Err(SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, what));
        }
    };
    Ok(())
}

/// Returns the sets of a ROLLUP or CUBE of rows of columns.
fn of_rows(key: &Expr) -> Option<Vec<Vec<Expr>>> {
    match key {
        Expr::Rollup(keys) if keys.iter().any(|it| it.len() != 1) => Some(prefixes(keys)),
        Expr::Cube(keys) if keys.iter().any(|it| it.len() != 1) => subsets(keys).ok(),
        _ => None,
    }
}

fn prefixes(keys: &[Vec<Expr>]) -> Vec<Vec<Expr>> {
    (0..=keys.len()).rev().map(|count| keys[..count].concat()).collect()
}

fn subsets(keys: &[Vec<Expr>]) -> Result<Vec<Vec<Expr>>, SqlError> {
    if keys.len() > CUBE_COLUMNS_MAX {
        let what = format!("CUBE is limited to {CUBE_COLUMNS_MAX} elements");
        return Err(SqlError::new(SqlState("54011"), what));
    }
    let sets = (0..1_usize << keys.len()).rev().map(|set| {
        let is_in = |index: &usize| set >> index & 1 == 1;
        (0..keys.len()).filter(is_in).flat_map(|index| keys[index].clone()).collect()
    });
    Ok(sets.collect())
}

/// Returns the sets of ROLLUP or CUBE, which the parser takes for calls within GROUPING SETS.
fn spelled(set: Vec<Expr>) -> Result<Vec<Vec<Expr>>, SqlError> {
    let [Expr::Function(call)] = set.as_slice() else { return Ok(vec![set]) };
    let name = call.name.to_string().to_ascii_lowercase();
    if !matches!(name.as_str(), "rollup" | "cube") {
        return Ok(vec![set]);
    }
    let keys = arguments(call).ok_or_else(|| refused("ROLLUP or CUBE of this form"))?;
    match name.as_str() {
        "rollup" => Ok(prefixes(&keys)),
        _ => subsets(&keys),
    }
}

fn arguments(call: &Function) -> Option<Vec<Vec<Expr>>> {
    let FunctionArguments::List(list) = &call.args else { return None };
    let keys = list.args.iter().map(|it| match it {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Tuple(all))) => Some(all.clone()),
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(vec![expr.clone()]),
        _ => None,
    });
    keys.collect()
}
