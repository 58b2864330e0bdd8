//! Scales of the values of scalar subqueries. A subquery returns its value and the scale packed as
//! one value, in a column below the expressions that use it, so that it is evaluated only once.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan, Projection, Subquery};

use super::scale_columns::{Scaled, needs_scale};
use super::scale_exprs::Columns;
use super::scale_functions::{PACKED, PACKED_VALUE, packed, packed_field};

/// Packs the values of scalar subqueries in a select list whose scales differ by value.
pub(super) fn with_packed_values(
    plan: LogicalPlan,
    asks: usize,
) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Projection(projection) = &plan else { return Ok(Transformed::no(plan)) };
    let (mut columns, mut values) = (Vec::new(), HashMap::new());
    for expr in &projection.expr {
        expr.apply(|part| {
            if let Expr::ScalarSubquery(subquery) = part
                && !values.contains_key(part)
                && let Some(of_subquery) = packed_subquery(subquery, asks)?
            {
                let name = format!("{PACKED}{asks} {}", columns.len());
                columns.push(Expr::ScalarSubquery(of_subquery).alias(&name));
                let column = Expr::Column(Column::new_unqualified(name));
                values.insert(part.clone(), packed_field(column, PACKED_VALUE));
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
    }
    if columns.is_empty() {
        return Ok(Transformed::no(plan));
    }
    let names = NamePreserver::new(&plan);
    let exprs = projection.expr.iter().map(|expr| {
        let name = names.save(expr);
        let changed = expr.clone().transform_up(|part| {
            Ok(values.get(&part).map_or_else(
                || Transformed::no(part.clone()),
                |value| Transformed::yes(value.clone()),
            ))
        })?;
        Ok(name.restore(changed.data))
    });
    let exprs = exprs.collect::<Result<Vec<_>>>()?;
    let before = projection.input.schema().columns().into_iter().map(Expr::Column);
    let below = Projection::try_new(before.chain(columns).collect(), Arc::clone(&projection.input));
    let below = Arc::new(LogicalPlan::Projection(below?));
    Ok(Transformed::yes(LogicalPlan::Projection(Projection::try_new(exprs, below)?)))
}

fn packed_subquery(subquery: &Subquery, asks: usize) -> Result<Option<Subquery>> {
    let mut plan = subquery.subquery.as_ref().clone();
    let Some(value) = plan.schema().columns().into_iter().next() else { return Ok(None) };
    if !needs_scale(&plan, 0) {
        return Ok(None);
    }
    let Some(scale) = Scaled::new(&mut plan, asks).scale_of(0)? else { return Ok(None) };
    let value = packed(Expr::Column(value), scale.expr()).alias(PACKED);
    let plan = LogicalPlan::Projection(Projection::try_new(vec![value], Arc::new(plan))?);
    Ok(Some(Subquery { subquery: Arc::new(plan), ..subquery.clone() }))
}
