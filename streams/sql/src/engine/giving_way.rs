//! Cooperative scheduling. An operator that produces many rows from few is always ready with more,
//! so its consumer would never yield, and would delay timeouts, cancellation and other queries.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};

use super::slices::SlicedExec;

const NESTED_LOOP: &str = "NestedLoopJoinExec";

/// Operators whose output can be far longer than their input.
const MULTIPLYING: &[&str] = &[
    "CrossJoinExec",
    "HashJoinExec",
    NESTED_LOOP,
    "PiecewiseMergeJoin",
    "RecursiveQueryExec",
    "SortMergeJoin",
    "SymmetricHashJoinExec",
    "UnnestExec",
];

/// Makes such operators yield periodically.
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
            Ok(match multiplies {
                true => Transformed::yes(Arc::new(CooperativeExec::new(node)) as _),
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
    let right = Arc::new(SlicedExec::new(Arc::clone(right)));
    let children = vec![Arc::clone(left), right as Arc<dyn ExecutionPlan>];
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    node.replace_children(children, options)
}
