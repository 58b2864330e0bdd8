//! Small batches for nested loop joins. Such a join compares a batch with all rows of the other
//! side before it can be cancelled.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use datafusion::arrow::array::RecordBatch;
use datafusion::common::Result;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties};
use futures::{StreamExt, stream};

/// Rows of the first batch. Later ones have more, or fewer, by the time that the join takes.
const ROW_COUNT: usize = 32;

/// Time of a join for a batch.
const TIME_MIN: Duration = Duration::from_millis(2);
const TIME_MAX: Duration = Duration::from_millis(10);

/// Pass-through of rows in small batches, which waits briefly after each that took long.
#[derive(Debug)]
pub(super) struct SlicedExec {
    plan: Arc<dyn ExecutionPlan>,
}

impl SlicedExec {
    pub(super) fn new(plan: Arc<dyn ExecutionPlan>) -> Self {
        Self { plan }
    }
}

impl DisplayAs for SlicedExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl ExecutionPlan for SlicedExec {
    fn name(&self) -> &'static str {
        "SlicedExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.plan.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.plan]
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
        let plan = children.pop().expect("it has one child");
        Ok(Arc::new(Self { plan }))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, options)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let mut rows = self.plan.execute(partition, context)?;
        let schema = rows.schema();
        let mut slices = Slices::default();
        let sliced = stream::poll_fn(move |context| slices.poll(&mut rows, context));
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, sliced)))
    }
}

/// The rows of a batch that were not passed on yet.
#[derive(Default)]
struct Slices {
    rest: Option<RecordBatch>,
    row_count: usize,
    /// Time when the last slice was passed on.
    passed: Option<Instant>,
}

impl Slices {
    fn poll(
        &mut self,
        rows: &mut SendableRecordBatchStream,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<RecordBatch>>> {
        match self.passed.take().map(|it| it.elapsed()) {
            None => self.row_count = self.row_count.max(ROW_COUNT),
            Some(time) if time > TIME_MAX => {
                self.row_count = (self.row_count / 2).max(1);
                // The consumer can end the join here.
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            Some(time) if time < TIME_MIN => self.row_count = self.row_count.saturating_mul(2),
            Some(_) => {}
        }
        let batch = match self.rest.take() {
            Some(rest) => rest,
            None => match rows.poll_next_unpin(context) {
                Poll::Ready(Some(Ok(batch))) => batch,
                other => return other,
            },
        };
        let count = self.row_count.min(batch.num_rows());
        if count < batch.num_rows() {
            self.rest = Some(batch.slice(count, batch.num_rows() - count));
        }
        self.passed = Some(Instant::now());
        Poll::Ready(Some(Ok(batch.slice(0, count))))
    }
}
