//! Window functions whose results are unused. PostgreSQL does not compute them, so the order of its
//! rows can differ from the engine's.

use std::collections::HashSet;

use datafusion::common::{Column, JoinType, Result};
use datafusion::logical_expr::expr::Sort;
use datafusion::logical_expr::{Expr, LogicalPlan, Window};

use super::refusal::refused;

/// Rejects an aggregate whose input is sorted by an unused window function.
pub(super) fn check_used<'a>(
    input: &LogicalPlan,
    above: impl Iterator<Item = &'a Expr>,
) -> Result<()> {
    let used = above.flat_map(Expr::column_refs).cloned().collect();
    match has_unused_window(input, used) {
        false => Ok(()),
        true => Err(refused("an aggregate over a window of which nothing is used")
            .with_hint("Write ORDER BY in the aggregate, or leave the window out.")
            .into_engine()),
    }
}

/// Returns whether the order of a plan's rows comes from a window function that is not among the
/// `used` columns.
fn has_unused_window(plan: &LogicalPlan, used: HashSet<Column>) -> bool {
    let refs = |exprs: &mut dyn Iterator<Item = &Expr>| -> HashSet<Column> {
        exprs.flat_map(Expr::column_refs).cloned().collect()
    };
    match plan {
        LogicalPlan::Projection(it) => {
            let columns = it.schema.columns();
            let mut exprs = it.expr.iter().zip(columns).filter(|(_, name)| used.contains(name));
            let below = refs(&mut exprs.by_ref().map(|(expr, _)| expr));
            has_unused_window(&it.input, below)
        }
        LogicalPlan::SubqueryAlias(it) => {
            let columns = it.schema.columns().into_iter().zip(it.input.schema().columns());
            let below = columns.filter(|(name, _)| used.contains(name)).map(|(_, inner)| inner);
            has_unused_window(&it.input, below.collect())
        }
        LogicalPlan::Filter(it) => {
            let mut below = used;
            below.extend(it.predicate.column_refs().into_iter().cloned());
            has_unused_window(&it.input, below)
        }
        LogicalPlan::Limit(it) => has_unused_window(&it.input, used),
        LogicalPlan::Join(it) if matches!(it.join_type, JoinType::Inner | JoinType::Left) => {
            let mut below = used;
            below.extend(refs(&mut it.on.iter().map(|(left, _)| left)));
            below.extend(refs(&mut it.filter.iter()));
            has_unused_window(&it.left, below)
        }
        LogicalPlan::Window(it) => {
            let given = it.input.schema().columns().len();
            let columns = it.schema.columns();
            let is_used = columns.iter().skip(given).any(|name| used.contains(name));
            let is_sorted = window_keys(it).is_some_and(|keys| !keys.is_empty());
            let mut below = used;
            below.extend(refs(&mut it.window_expr.iter()));
            is_sorted && !is_used || has_unused_window(&it.input, below)
        }
        _ => false,
    }
}

/// Returns the sort keys of a window, those of its first function.
pub(super) fn window_keys(of: &Window) -> Option<Vec<Sort>> {
    let Some(Expr::WindowFunction(first)) = of.window_expr.first().map(bare) else { return None };
    let parts = first.params.partition_by.iter().map(|it| Sort::new(it.clone(), true, false));
    Some(parts.chain(first.params.order_by.iter().cloned()).collect())
}

fn bare(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) => bare(&alias.expr),
        other => other,
    }
}
