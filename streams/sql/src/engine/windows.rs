//! Memory accounting of window functions. The engine does not account for the rows that they
//! buffer. This counts rows that went in and did not come out yet.

use std::sync::{Arc, Mutex};

use datafusion::arrow::array::RecordBatch;
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::TryStreamExt;

use super::growing::array_bytes;
use super::operator::{Operator, above, with_inputs};

const NO_PANIC: &str = "no thread panics with this lock";

/// Inserts counters below and above such operators.
#[derive(Debug)]
pub(super) struct CountWindows;

impl PhysicalOptimizerRule for CountWindows {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            if !matches!(node.name(), "WindowAggExec" | "BoundedWindowAggExec") {
                return Ok(Transformed::no(node));
            }
            let held = Arc::new(Held::default());
            let metered = |plan, end| above(plan, Metered { end, held: Arc::clone(&held) });
            let inputs = node.children().into_iter().map(Arc::clone);
            let inputs = inputs.map(|input| metered(input, End::In)).collect();
            let node = with_inputs(node, inputs)?;
            Ok(Transformed::yes(metered(node, End::Out)))
        })
        .data()
    }

    fn name(&self) -> &'static str {
        "count_windows"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Rows buffered by an operator, per partition.
#[derive(Debug, Default)]
struct Held {
    partitions: Mutex<Vec<Option<Kept>>>,
}

#[derive(Debug)]
struct Kept {
    reservation: MemoryReservation,
    rows_in: usize,
    bytes_in: usize,
    rows_out: usize,
}

impl Held {
    fn begin(&self, partition: usize, reservation: MemoryReservation) {
        let mut partitions = self.partitions.lock().expect(NO_PANIC);
        if partitions.len() <= partition {
            partitions.resize_with(partition + 1, || None);
        }
        partitions[partition] = Some(Kept { reservation, rows_in: 0, bytes_in: 0, rows_out: 0 });
    }

    fn count(&self, partition: usize, batch: &RecordBatch, end: End) -> Result<()> {
        let mut partitions = self.partitions.lock().expect(NO_PANIC);
        let Some(kept) = partitions.get_mut(partition).and_then(Option::as_mut) else {
            return Ok(());
        };
        match end {
            End::Out => kept.rows_out += batch.num_rows(),
            End::In => {
                kept.rows_in += batch.num_rows();
                for column in batch.columns() {
                    kept.bytes_in += array_bytes(column)?;
                }
            }
        }
        // Assumes that all rows of a query have the same size.
        let rows = kept.rows_in.saturating_sub(kept.rows_out);
        let bytes = kept.bytes_in.checked_div(kept.rows_in).unwrap_or(0).saturating_mul(rows);
        kept.reservation.try_resize(bytes)
    }

    fn end(&self, partition: usize) {
        self.partitions.lock().expect(NO_PANIC)[partition] = None;
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    In,
    Out,
}

/// Counting pass-through of rows.
#[derive(Clone, Debug)]
struct Metered {
    end: End,
    held: Arc<Held>,
}

impl Operator for Metered {
    const NAME: &'static str = "MeteredExec";

    fn execute(
        &self,
        input: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        if self.end == End::Out {
            let reservation = MemoryConsumer::new("window").register(context.memory_pool());
            self.held.begin(partition, reservation);
        }
        let rows = input.execute(partition, context)?;
        let schema = rows.schema();
        let counting = Counting { held: Arc::clone(&self.held), partition, end: self.end };
        let rows = rows.and_then(move |batch| {
            let counted = counting.held.count(partition, &batch, counting.end);
            std::future::ready(counted.map(|()| batch))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, rows)))
    }
}

/// Stream that counts rows, and releases the memory when it is dropped.
struct Counting {
    held: Arc<Held>,
    partition: usize,
    end: End,
}

impl Drop for Counting {
    fn drop(&mut self) {
        if self.end == End::Out {
            self.held.end(self.partition);
        }
    }
}
