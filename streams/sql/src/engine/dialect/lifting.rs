//! Checks of correlated subqueries that are left to the engine: it lifts their conditions over the
//! nodes of their plans, as far as they allow it.

use datafusion::common::{DFSchema, JoinType, Result};
use datafusion::logical_expr::{Distinct, Expr, FetchType, LogicalPlan, SkipType, Subquery};

use super::parts::Asked;
use super::refusal::refused;

/// Rejects a subquery that the engine cannot evaluate for each row of a node with this schema.
pub(super) fn check_subquery(subquery: &Subquery, schema: &DFSchema, asked: Asked) -> Result<()> {
    for column in &subquery.outer_ref_columns {
        if let Expr::OuterReferenceColumn(_, column) = column
            && !schema.has_column(column)
        {
            let construct = "a correlated subquery that refers to a query two levels up";
            return Err(refused(construct).into_engine());
        }
    }
    let is_correlated = follow(&subquery.subquery, asked, Depth::Top)?;
    if is_correlated && asked == Asked::Value && !is_aggregate(&subquery.subquery) {
        let construct = "a correlated scalar subquery without an aggregate";
        return Err(refused(construct).into_engine());
    }
    Ok(())
}

/// Returns whether a plan has exactly one row for lack of GROUP BY.
pub(super) fn is_aggregate(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(it) => is_aggregate(&it.input),
        LogicalPlan::SubqueryAlias(it) => is_aggregate(&it.input),
        LogicalPlan::Filter(it) => is_aggregate(&it.input),
        LogicalPlan::Sort(it) => is_aggregate(&it.input),
        LogicalPlan::Aggregate(it) => it.group_expr.is_empty(),
        _ => false,
    }
}

/// Depth in a subquery's plan: `Top` as long as only nodes that preserve the number of rows are
/// above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    Top,
    Below,
}

/// Returns whether a subquery's plan refers to outer columns. Fails if such a reference is below a
/// node over which the engine cannot lift the condition.
pub(super) fn follow(plan: &LogicalPlan, asked: Asked, depth: Depth) -> Result<bool> {
    let names_outer = plan.expressions().iter().any(Expr::contains_outer);
    let fail = |what: &str| -> Result<bool> {
        Err(refused(&format!("{what} in a correlated subquery")).into_engine())
    };
    match plan {
        LogicalPlan::Projection(_) | LogicalPlan::Sort(_) if names_outer => {
            fail("an outer column in the select list")
        }
        LogicalPlan::Projection(it) => follow(&it.input, asked, depth),
        LogicalPlan::Sort(it) => follow(&it.input, asked, depth),
        LogicalPlan::SubqueryAlias(it) => follow(&it.input, asked, depth),
        LogicalPlan::Filter(it) => {
            if names_outer && is_over_aggregate(&it.input) {
                return fail("an outer column in HAVING");
            }
            Ok(follow(&it.input, asked, depth)? || names_outer)
        }
        LogicalPlan::Distinct(Distinct::All(input)) => follow(input, asked, depth),
        LogicalPlan::Aggregate(it) => {
            let is_below = follow(&it.input, asked, Depth::Below)?;
            let is_total = it.group_expr.is_empty() && depth == Depth::Top;
            let is_lifted = is_total && matches!(asked, Asked::Value | Asked::Rows);
            match names_outer || is_below && !is_lifted {
                true => fail("an aggregate"),
                false => Ok(is_below),
            }
        }
        LogicalPlan::Limit(it) => {
            let is_some = matches!(it.get_fetch_type()?, FetchType::Literal(Some(1..)))
                && matches!(it.get_skip_type()?, SkipType::Literal(0));
            let is_lifted = is_some && asked == Asked::Existence && depth == Depth::Top;
            match follow(&it.input, asked, Depth::Below)? && !is_lifted {
                true => fail("LIMIT or OFFSET"),
                false => Ok(is_some && is_outer_below(&it.input)),
            }
        }
        LogicalPlan::Join(it) => {
            let left = follow(&it.left, asked, depth)?;
            let right = follow(&it.right, asked, depth)?;
            let is_lifted = match it.join_type {
                JoinType::Inner => true,
                JoinType::Left => !right && !names_outer,
                JoinType::Right => !left && !names_outer,
                _ => !left && !right && !names_outer,
            };
            match is_lifted {
                true => Ok(left || right || names_outer),
                false => fail("an outer join"),
            }
        }
        LogicalPlan::Subquery(it) => match it.outer_ref_columns.is_empty() {
            true => Ok(false),
            false => fail("LATERAL"),
        },
        other => {
            let mut is_correlated = names_outer;
            for input in other.inputs() {
                is_correlated |= follow(input, asked, Depth::Below)?;
            }
            match is_correlated {
                true => fail(construct(other)),
                false => Ok(false),
            }
        }
    }
}

fn construct(plan: &LogicalPlan) -> &'static str {
    match plan {
        LogicalPlan::Union(_) => "UNION",
        LogicalPlan::Window(_) => "a window function",
        LogicalPlan::Distinct(_) => "DISTINCT ON",
        LogicalPlan::Values(_) => "VALUES",
        _ => "this form",
    }
}

fn is_outer_below(plan: &LogicalPlan) -> bool {
    plan.expressions().iter().any(Expr::contains_outer)
        || plan.inputs().into_iter().any(is_outer_below)
}

fn is_over_aggregate(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(it) => is_over_aggregate(&it.input),
        LogicalPlan::SubqueryAlias(it) => is_over_aggregate(&it.input),
        LogicalPlan::Filter(it) => is_over_aggregate(&it.input),
        LogicalPlan::Aggregate(_) => true,
        _ => false,
    }
}
