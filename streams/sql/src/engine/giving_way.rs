//! Cooperative scheduling. A source in memory, and an operator that produces many rows from few,
//! are always ready with more, so their consumer would never yield, and would delay cancellation
//! and other queries.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;

use super::operator::{above, with_inputs};
use super::slices::Yielding;

const NESTED_LOOP: &str = "NestedLoopJoinExec";
const RECURSION: &str = "RecursiveQueryExec";

/// Operators whose output can be far longer than their input.
const MULTIPLYING: &[&str] = &[
    "CrossJoinExec",
    "HashJoinExec",
    NESTED_LOOP,
    "PiecewiseMergeJoin",
    RECURSION,
    "SortMergeJoin",
    "SymmetricHashJoinExec",
    "UnnestExec",
];

/// Makes them yield periodically.
#[derive(Debug)]
pub(super) struct GiveWay;

impl PhysicalOptimizerRule for GiveWay {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            // Suffixes of some operators' names vary between versions.
            let multiplies = MULTIPLYING.iter().any(|name| node.name().starts_with(name));
            // It compares each batch of its right side with all rows of the left one.
            let node = match node.name() {
                NESTED_LOOP => sliced(node)?,
                _ => node,
            };
            Ok(match multiplies || node.children().is_empty() {
                // Its batches are those of its steps, and may have one row each.
                true if node.name() == RECURSION => Transformed::yes(above(node, Yielding::Merged)),
                true => Transformed::yes(above(node, Yielding::Whole)),
                false => Transformed::no(node),
            })
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "give_way"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Makes a nested loop join take small batches.
fn sliced(node: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let children = node.children();
    let [left, right] = children.as_slice() else { return Ok(node) };
    let inputs = vec![Arc::clone(left), above(Arc::clone(right), Yielding::Sliced)];
    with_inputs(node, inputs)
}
