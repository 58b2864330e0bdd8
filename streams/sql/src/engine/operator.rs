//! Operators with one input that this crate adds to the engine's plans.

use std::fmt::Debug;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};

/// Operator whose rows have the columns of its input.
pub(super) trait Operator: Clone + Debug + Send + Sync + 'static {
    const NAME: &'static str;

    /// False if the properties of the rows differ from those of the input.
    const PASSES_ON: bool = true;

    /// Returns the partitions and the order of the rows.
    fn properties(input: &Arc<dyn ExecutionPlan>) -> Arc<PlanProperties> {
        Arc::clone(input.properties())
    }

    /// Starts computing a partition.
    fn execute(
        &self,
        input: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream>;
}

/// Adds an operator above a plan.
pub(super) fn above<T: Operator>(
    input: Arc<dyn ExecutionPlan>,
    operator: T,
) -> Arc<dyn ExecutionPlan> {
    let properties = T::properties(&input);
    Arc::new(Node { operator, input, properties })
}

/// Replaces the inputs of an operator.
pub(super) fn with_inputs(
    node: Arc<dyn ExecutionPlan>,
    inputs: Vec<Arc<dyn ExecutionPlan>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    node.replace_children(inputs, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
}

#[derive(Debug)]
struct Node<T> {
    operator: T,
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

impl<T: Operator> DisplayAs for Node<T> {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(T::NAME)
    }
}

impl<T: Operator> ExecutionPlan for Node<T> {
    fn name(&self) -> &'static str {
        T::NAME
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![T::PASSES_ON]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(above(children.pop().expect("it has one child"), self.operator.clone()))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        with_inputs(self, children)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        self.operator.execute(&self.input, partition, context)
    }
}
