//! Points where operators yield. An operator whose input is always ready would otherwise compute
//! until it has all of it, and delay cancellation and other queries.

use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::concat_batches;
use datafusion::common::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{StreamExt, stream};

use super::operator::Operator;

/// Rows of the first small batch. Later ones have more, or fewer, by the time that each takes.
const ROW_COUNT: usize = 32;

/// Maximum rows of batches that are merged.
const MERGED_COUNT_MAX: usize = 8_192;

/// Time that the consumer takes for a small batch.
const TIME_MIN: Duration = Duration::from_millis(2);

/// Time after which a stream yields.
const TIME_MAX: Duration = Duration::from_millis(10);

/// Pass-through of rows that yields after a while, even if more rows are ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Yielding {
    /// Passes batches on as they are.
    Whole,
    /// Passes on small batches, for a consumer that takes long for each row.
    Sliced,
    /// Passes on several batches as one, more the more there are: consumers take time for each
    /// batch, in some cases in proportion to those before it.
    Merged,
}

impl Operator for Yielding {
    const NAME: &'static str = "YieldingExec";

    fn execute(
        &self,
        input: &Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let mut rows = input.execute(partition, context)?;
        let schema = rows.schema();
        if *self == Self::Merged {
            rows = merged(rows);
        }
        let mut slices = Slices::of(if *self == Self::Sliced { 1 } else { usize::MAX });
        let sliced = stream::poll_fn(move |context| slices.poll(&mut rows, context));
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, sliced)))
    }
}

/// Returns the rows in batches of increasing size. An error comes after the rows before it.
fn merged(mut rows: SendableRecordBatchStream) -> SendableRecordBatchStream {
    let schema = rows.schema();
    let (mut held, mut row_count, mut wanted_count) = (Vec::new(), 0, 1);
    let mut end: Option<Option<Result<RecordBatch>>> = None;
    let of = rows.schema();
    let merged = stream::poll_fn(move |context| {
        while end.is_none() && row_count < wanted_count {
            match ready!(rows.poll_next_unpin(context)) {
                Some(Ok(batch)) => {
                    row_count += batch.num_rows();
                    held.push(batch);
                }
                other => end = Some(other),
            }
        }
        if let Some(end) = end.take_if(|_| held.is_empty()) {
            return Poll::Ready(end);
        }
        (row_count, wanted_count) = (0, (wanted_count * 2).min(MERGED_COUNT_MAX));
        let batch = concat_batches(&of, &std::mem::take(&mut held));
        Poll::Ready(Some(batch.map_err(Into::into)))
    });
    Box::pin(RecordBatchStreamAdapter::new(schema, merged))
}

struct Slices {
    /// Rows of a batch that were not passed on yet.
    rest: Option<RecordBatch>,
    row_count: usize,
    row_count_min: usize,
    /// Time when the last rows were passed on.
    passed: Option<Instant>,
    /// Time when the stream was polled for the first time after it waited.
    begun: Option<Instant>,
}

impl Slices {
    fn of(row_count_min: usize) -> Self {
        let row_count = row_count_min.max(ROW_COUNT);
        Self { rest: None, row_count, row_count_min, passed: None, begun: None }
    }

    fn poll(
        &mut self,
        rows: &mut SendableRecordBatchStream,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<RecordBatch>>> {
        match self.passed.take().map(|it| it.elapsed()) {
            Some(time) if time > TIME_MAX => {
                self.row_count = (self.row_count / 2).max(self.row_count_min);
            }
            Some(time) if time < TIME_MIN => self.row_count = self.row_count.saturating_mul(2),
            _ => {}
        }
        if self.begun.get_or_insert_with(Instant::now).elapsed() > TIME_MAX {
            self.begun = None;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let batch = match self.rest.take() {
            Some(rest) => rest,
            None => match rows.poll_next_unpin(context) {
                Poll::Ready(Some(Ok(batch))) => batch,
                Poll::Pending => {
                    self.begun = None;
                    return Poll::Pending;
                }
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use datafusion::arrow::array::Int32Array;
    use datafusion::common::DataFusionError;
    use futures::StreamExt;
    use futures::executor::block_on_stream;

    use super::*;

    #[test]
    fn many_small_batches_become_few_and_no_more_are_made_than_twice_those_before() {
        const COUNT: i32 = 20_000;
        let made = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&made);
        let one = |number| {
            RecordBatch::try_from_iter([("n", Arc::new(Int32Array::from(vec![number])) as _)])
        };
        let schema = one(0).expect("a column").schema();
        let failed = stream::iter([Err(DataFusionError::Execution("it ends".to_owned()))]);
        let steps = stream::iter(0..COUNT).map(move |number| {
            counted.fetch_add(1, Ordering::Relaxed);
            Ok(one(number)?)
        });
        let rows = merged(Box::pin(RecordBatchStreamAdapter::new(schema, steps.chain(failed))));
        let (mut batch_count, mut row_count) = (0, 0);
        let mut rows = block_on_stream(rows);
        let error = loop {
            let before_count = row_count;
            match rows.next().expect("the error is last") {
                Ok(batch) => row_count += batch.num_rows(),
                Err(error) => break error,
            }
            batch_count += 1;
            let made_count = made.load(Ordering::Relaxed);
            assert!(made_count <= 2 * before_count + 1, "{made_count} after {before_count}");
        };
        assert_eq!((row_count, error.to_string()), (20_000, "Execution error: it ends".to_owned()));
        assert!(batch_count <= 16, "{batch_count} batches");
        assert!(rows.next().is_none());
    }
}
