//! Qualified column names in join keys.
//!
//! The engine computes keys in a projection whose columns are named by the key's text with
//! qualified names, and then looks them up by the text of the key. Keys that other rules leave with
//! unqualified names would not be found.

use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::expr_rewriter::normalize_col;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// Must be the last rule.
#[derive(Debug)]
pub(super) struct NameJoinKeys;

impl OptimizerRule for NameJoinKeys {
    fn name(&self) -> &'static str {
        "name_join_keys"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Join(mut join) = plan else { return Ok(Transformed::no(plan)) };
        let mut is_changed = false;
        for (left, right) in &mut join.on {
            is_changed |= name(left, &join.left)?;
            is_changed |= name(right, &join.right)?;
        }
        Ok(Transformed::new_transformed(LogicalPlan::Join(join), is_changed))
    }
}

/// Qualifies the columns of a key. Returns whether it has changed.
fn name(key: &mut Expr, input: &LogicalPlan) -> Result<bool> {
    let named = normalize_col(key.clone(), input)?;
    let is_changed = named != *key;
    *key = named;
    Ok(is_changed)
}
