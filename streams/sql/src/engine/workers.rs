//! Threads that run queries. Operators can compute for long between two points where they yield,
//! so they never run on threads that serve connections: clients are answered immediately when a
//! statement is cancelled, and its work ends at the next such point.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use datafusion::arrow::array::RecordBatch;
use datafusion::common::Result;
use datafusion::common::runtime::SpawnedTask;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::{FutureExt, StreamExt, stream};
use tokio::runtime::{Handle, Runtime};

use crate::error::{SqlError, SqlState};
use crate::settings::threads;

#[derive(Debug)]
pub(super) struct Workers {
    /// Present until drop.
    runtime: Option<Runtime>,
}

impl Workers {
    pub(super) fn new(count: usize) -> Result<Self, SqlError> {
        let runtime = threads("sql-query").worker_threads(count).build().map_err(|error| {
            SqlError::new(SqlState::INTERNAL, format!("cannot start threads for queries: {error}"))
        })?;
        Ok(Self { runtime: Some(runtime) })
    }

    /// Starts a plan. A batch is computed when the stream is polled for it. The work ends when the
    /// stream is dropped.
    pub(super) fn start(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream, SqlError> {
        let handle = self.runtime.as_ref().expect("it is dropped last").handle();
        let entered = handle.enter();
        let rows = execute_stream(plan, context)?;
        drop(entered);
        Ok(elsewhere(rows, handle.clone()))
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        // Waiting for a runtime is not allowed on a thread of another one.
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

/// Returns the rows as a stream that computes them on the threads of another runtime.
fn elsewhere(rows: SendableRecordBatchStream, handle: Handle) -> SendableRecordBatchStream {
    let schema = rows.schema();
    let mut remote = Remote { rows: Some(rows), task: None, handle };
    let rows = stream::poll_fn(move |context| remote.poll(context));
    Box::pin(RecordBatchStreamAdapter::new(schema, rows))
}

/// A batch, and the stream behind it unless it has ended.
type Next = (Option<Result<RecordBatch>>, Option<SendableRecordBatchStream>);

struct Remote {
    rows: Option<SendableRecordBatchStream>,
    /// Task that computes the next batch.
    task: Option<SpawnedTask<Next>>,
    handle: Handle,
}

impl Remote {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<RecordBatch>>> {
        if let Some(mut rows) = self.rows.take() {
            let _entered = self.handle.enter();
            self.task = Some(SpawnedTask::spawn(async move {
                let next = rows.next().await;
                // What has ended is dropped here, before the last batch is seen.
                let rest = matches!(next, Some(Ok(_))).then_some(rows);
                (next, rest)
            }));
        }
        let Some(task) = &mut self.task else { return Poll::Ready(None) };
        let done = ready!(task.poll_unpin(context));
        self.task = None;
        let (next, rest) = match done {
            Ok(done) => done,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => {
                let what = "the database system is shutting down";
                (Some(Err(SqlError::new(SqlState::SHUTDOWN, what).into_engine())), None)
            }
        };
        self.rows = rest;
        Poll::Ready(next)
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        // Tables of joins and groups can take long to drop.
        if let Some(rows) = self.rows.take() {
            self.handle.spawn(async move { drop(rows) });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;

    use datafusion::arrow::datatypes::Schema;

    use super::*;

    /// Tells when it is dropped.
    struct Told(std::sync::mpsc::Sender<()>);

    impl Drop for Told {
        fn drop(&mut self) {
            self.0.send(()).expect("the test waits");
        }
    }

    #[test]
    fn what_nobody_waits_for_ends_at_its_next_pause_and_holds_up_nobody() {
        let workers = Workers::new(1).expect("threads");
        let handle = workers.runtime.as_ref().expect("it is there").handle().clone();
        let (begun, has_begun) = channel();
        let (go_on, may_go_on) = channel();
        let (dropped, was_dropped) = channel();
        let count = Arc::new(AtomicUsize::new(0));
        let (counted, told) = (Arc::clone(&count), Told(dropped));
        // Computes until it is told to go on, and never has a row.
        let endless = stream::poll_fn(move |context: &mut Context<'_>| {
            let _held = &told;
            counted.fetch_add(1, Ordering::Relaxed);
            begun.send(()).expect("the test waits");
            may_go_on.recv().expect("the test goes on");
            context.waker().wake_by_ref();
            Poll::Pending
        });
        let schema = Arc::new(Schema::empty());
        let endless = Box::pin(RecordBatchStreamAdapter::new(schema, endless));
        let mut rows = elsewhere(endless, handle);
        let connection = tokio::runtime::Builder::new_current_thread().build().expect("a thread");
        connection.block_on(async {
            let computing = async {
                while has_begun.try_recv().is_err() {
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! {
                biased;
                _ = rows.next() => panic!("it has no rows"),
                () = computing => {}
            }
            drop(rows);
        });
        was_dropped.try_recv().expect_err("it computes");
        go_on.send(()).expect("it waits");
        was_dropped.recv().expect("it ends");
        assert_eq!(count.load(Ordering::Relaxed), 1, "polls");
    }
}
