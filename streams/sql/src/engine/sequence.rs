//! Order of rows from sequential sources (`generate_series`, VALUES, arrays), of the parts of a
//! UNION ALL, and of sorted results. The engine would distribute them to several threads and return
//! rows in order of completion.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::limit::GlobalLimitExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::stream::{RecordBatchReceiverStream, RecordBatchStreamAdapter};
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{
    ExecutionPlan, ExecutionPlanProperties, Partitioning, PlanProperties,
};
use futures::{StreamExt, stream};

use super::log_scan::LogScan;
use super::operator::{Operator, above, with_inputs};

/// Maximum number of batches buffered for a part.
const BATCHES_WAITING: usize = 2;

/// Preserves the order of rows from sequential sources. Rows of topics are ordered within a
/// partition only, and lose the order when several threads process them.
#[derive(Debug)]
pub(super) struct KeepSequence;

impl PhysicalOptimizerRule for KeepSequence {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = in_final_order(plan.transform_up(in_sequence).data()?)?;
        Ok(match part_count(&plan) > 1 && is_united(&plan) {
            true => above(plan, InTurn),
            false => plan,
        })
    }

    fn name(&self) -> &'static str {
        "keep_sequence"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

fn in_sequence(node: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    if let Some(dealt) = node.downcast_ref::<RepartitionExec>() {
        let input = dealt.input();
        let is_sequence = part_count(input) == 1 && !reads_topics(input) || is_united(input);
        return Ok(match dealt.partitioning() {
            Partitioning::RoundRobinBatch(_) if is_sequence => Transformed::yes(Arc::clone(input)),
            _ => Transformed::no(node),
        });
    }
    let Some(merged) = node.downcast_ref::<CoalescePartitionsExec>() else {
        return Ok(Transformed::no(node));
    };
    if !is_united(merged.input()) {
        return Ok(Transformed::no(node));
    }
    let turns = above(Arc::clone(merged.input()), InTurn);
    Ok(Transformed::yes(match merged.fetch() {
        None => turns,
        fetch => Arc::new(GlobalLimitExec::new(turns, 0, fetch)),
    }))
}

/// Computes what is above the last sort of a plan on one thread. The engine requires the order of
/// ORDER BY only up to that sort, and would deal its batches to several threads for an expression
/// above it.
fn in_final_order(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    if plan.downcast_ref::<SortPreservingMergeExec>().is_some() {
        return Ok(plan);
    }
    if let Some(dealt) = plan.downcast_ref::<RepartitionExec>() {
        let input = dealt.input();
        let is_sorted = part_count(input) == 1 && input.output_ordering().is_some();
        return Ok(match dealt.partitioning() {
            Partitioning::RoundRobinBatch(_) if is_sorted => Arc::clone(input),
            _ => plan,
        });
    }
    let orders = plan.maintains_input_order();
    if !orders.contains(&true) {
        return Ok(plan);
    }
    let inputs = plan.children().into_iter().map(Arc::clone).zip(orders);
    let inputs = inputs.map(|(input, is_kept)| match is_kept {
        true => in_final_order(input),
        false => Ok(input),
    });
    let inputs = inputs.collect::<Result<Vec<_>>>()?;
    with_inputs(plan, inputs)
}

fn part_count(plan: &Arc<dyn ExecutionPlan>) -> usize {
    plan.output_partitioning().partition_count()
}

fn reads_topics(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.downcast_ref::<LogScan>().is_some() || plan.children().into_iter().any(reads_topics)
}

/// Returns whether the partitions of a plan are those of a union.
fn is_united(plan: &Arc<dyn ExecutionPlan>) -> bool {
    if plan.downcast_ref::<UnionExec>().is_some() {
        return true;
    }
    match plan.children().as_slice() {
        [input] => {
            plan.downcast_ref::<RepartitionExec>().is_none()
                && part_count(input) == part_count(plan)
                && is_united(input)
        }
        _ => false,
    }
}

/// Returns all rows of the first partition, then those of the next. Partitions start at the same
/// time, and buffer their first rows until it is their turn.
#[derive(Clone, Copy, Debug)]
struct InTurn;

impl Operator for InTurn {
    const NAME: &'static str = "InTurn";
    const PASSES_ON: bool = false;

    fn properties(input: &Arc<dyn ExecutionPlan>) -> Arc<PlanProperties> {
        Arc::new(PlanProperties::new(
            EquivalenceProperties::new(input.schema()),
            Partitioning::UnknownPartitioning(1),
            input.pipeline_behavior(),
            input.boundedness(),
        ))
    }

    fn execute(
        &self,
        input: &Arc<dyn ExecutionPlan>,
        _: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let begun = (0..part_count(input)).map(|part| {
            let (parts, context) = (Arc::clone(input), Arc::clone(&context));
            let mut builder = RecordBatchReceiverStream::builder(input.schema(), BATCHES_WAITING);
            let rows = builder.tx();
            builder.spawn(async move {
                let mut batches = parts.execute(part, context)?;
                while let Some(batch) = batches.next().await {
                    let is_error = batch.is_err();
                    if rows.send(batch).await.is_err() || is_error {
                        break;
                    }
                }
                Ok(())
            });
            builder.build()
        });
        let begun: Vec<_> = begun.collect();
        let rows = stream::iter(begun).flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(input.schema(), rows)))
    }
}
