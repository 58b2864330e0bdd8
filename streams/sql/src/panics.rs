//! Panics of the engine, which end a statement alone: what a statement is planned and run with is
//! its own, and is dropped with it.
//!
//! What a host does to topics is not among that: it says so itself. Locks that were held stay
//! poisoned, and end the process when they are next taken.

use std::any::Any;

use datafusion::common::runtime::{JoinSetTracer, set_join_set_tracer};
use futures::FutureExt;
use futures::future::BoxFuture;
use service_manager::{Panic, text_of};

use crate::error::{SqlError, SqlState};

/// Does a part of a statement, which fails where that panics.
pub(crate) fn contain<T>(work: impl FnOnce() -> Result<T, SqlError>) -> Result<T, SqlError> {
    service_manager::contain(work).unwrap_or_else(|panic| Err(error_of(&panic)))
}

/// The same of a future.
pub(crate) async fn contain_future<T>(
    work: impl Future<Output = Result<T, SqlError>>,
) -> Result<T, SqlError> {
    service_manager::contain_future(work).await.unwrap_or_else(|panic| Err(error_of(&panic)))
}

fn error_of(panic: &Panic) -> SqlError {
    let what = format!("the statement met a fault of the server: {}", text_of(panic));
    SqlError::new(SqlState::INTERNAL, what)
        .with_hint("The log of the server has the statement and where the fault is; please report.")
}

/// Has tasks that the engine makes of a statement panic for that statement: the engine hands a
/// panic of them on to what waits for their rows.
pub(crate) fn contain_tasks() {
    // Another server of the process did it before.
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
