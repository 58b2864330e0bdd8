//! Filters above aggregates that return a row without input.
//!
//! The engine moves a condition without columns, such as `(SELECT false)` or `4 = 3` for a constant
//! of the select list, below the aggregate. There it leaves no rows to the aggregate, which without
//! GROUP BY returns a row nevertheless: `SELECT count(*) FROM t HAVING (SELECT false)` would return
//! 0 and not nothing.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::{Expr, GroupingSet, LogicalPlan};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// Wrapper of the engine's rule that moves filters. It leaves those above such aggregates in place.
#[derive(Debug)]
pub(super) struct FiltersAbove(pub(super) Arc<dyn OptimizerRule + Send + Sync>);

/// Rule of the engine that moves filters.
pub(super) const MOVES_FILTERS: &str = "push_down_filter";

impl OptimizerRule for FiltersAbove {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        match &plan {
            LogicalPlan::Filter(filter) if returns_a_row_without_input(&filter.input) => {
                Ok(Transformed::no(plan))
            }
            _ => self.0.rewrite(plan, config),
        }
    }
}

/// Looks below other filters, which the engine's rule merges with the upper one.
fn returns_a_row_without_input(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Filter(filter) => returns_a_row_without_input(&filter.input),
        LogicalPlan::Aggregate(aggregate) => has_an_empty_group(&aggregate.group_expr),
        _ => false,
    }
}

/// Checks for a group of all rows: no grouping at all, or a grouping set without columns.
fn has_an_empty_group(groups: &[Expr]) -> bool {
    match groups {
        [] => true,
        [Expr::GroupingSet(GroupingSet::Rollup(_) | GroupingSet::Cube(_))] => true,
        [Expr::GroupingSet(GroupingSet::GroupingSets(sets))] => sets.iter().any(Vec::is_empty),
        _ => false,
    }
}
