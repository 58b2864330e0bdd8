//! Containment of panics in the engine: a panic ends only its statement, because all state for
//! planning and running a statement is private and dropped with it.
//!
//! Changes to topics by a host are not covered: the host handles them itself. Locks held during a
//! panic stay poisoned and terminate the process when they are next taken.

use std::any::Any;

use datafusion::common::runtime::{JoinSetTracer, set_join_set_tracer};
use futures::FutureExt;
use futures::future::BoxFuture;
use service_manager::{Panic, text_of};

use crate::error::{SqlError, SqlState};

/// Runs a part of a statement, and converts a panic into an error.
pub(crate) fn contain<T>(work: impl FnOnce() -> Result<T, SqlError>) -> Result<T, SqlError> {
    service_manager::contain(work).unwrap_or_else(|panic| Err(error_of(&panic)))
}

/// Same as [`contain`] for a future.
pub(crate) async fn contain_future<T>(
    work: impl Future<Output = Result<T, SqlError>>,
) -> Result<T, SqlError> {
    service_manager::contain_future(work).await.unwrap_or_else(|panic| Err(error_of(&panic)))
}

fn error_of(panic: &Panic) -> SqlError {
    let what = format!("internal error (panic) in the server: {}", text_of(panic));
    SqlError::new(SqlState::INTERNAL, what)
        .with_hint("Find the statement and the location in the server log, and report the bug.")
}

/// Makes panics in the engine's spawned tasks fail the statement alone: the engine propagates a
/// task's panic to the consumer of its rows.
pub(crate) fn contain_tasks() {
    // Fails if another server in this process has installed it.
    drop(set_join_set_tracer(&Tasks));
}

struct Tasks;

type Given = Box<dyn Any + Send>;

impl JoinSetTracer for Tasks {
    fn trace_future(&self, work: BoxFuture<'static, Given>) -> BoxFuture<'static, Given> {
        let contained = async { service_manager::contain_future(work).await };
        contained.map(|done| done.unwrap_or_else(|it| std::panic::resume_unwind(it))).boxed()
    }

    fn trace_block(
        &self,
        work: Box<dyn FnOnce() -> Given + Send>,
    ) -> Box<dyn FnOnce() -> Given + Send> {
        Box::new(|| {
            service_manager::contain(work).unwrap_or_else(|it| std::panic::resume_unwind(it))
        })
    }
}
