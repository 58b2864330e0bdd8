//! Queries give way. An operator that makes many rows of few is always ready with more, so what
//! reads it would never end its turn: the timeout, the client that has left and other queries would
//! wait for it.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coop::CooperativeExec;

/// Operators whose output may be far longer than their input.
const MULTIPLYING: &[&str] = &[
    "CrossJoinExec",
    "HashJoinExec",
    "NestedLoopJoinExec",
    "PiecewiseMergeJoin",
    "RecursiveQueryExec",
    "SortMergeJoin",
    "SymmetricHashJoinExec",
    "UnnestExec",
];

/// Has such operators end their turn once in a while.
#[derive(Debug)]
pub(super) struct GiveWay;

impl PhysicalOptimizerRule for GiveWay {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            // Names of some operators end differently from one version to the next.
            let multiplies = MULTIPLYING.iter().any(|name| node.name().starts_with(name));
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
