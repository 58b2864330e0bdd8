//! Limits on requests that may wait for the kernel, a disk or the image store. Other requests, such
//! as those for status and metrics, always find a thread.

use std::sync::Arc;

use api::{Problem, ProblemKind};
use axum::http::Method;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum number of threads for blocking operations.
pub(super) const BLOCKING_THREAD_COUNT_MAX: usize = 16;

/// Maximum number of requests that may wait, of those that run at the same time.
const RUNNING_COUNT_MAX: usize = 12;

/// Maximum number of them that run or wait for others. More are refused, so that they do not use up
/// the connections.
const ADMITTED_COUNT_MAX: usize = 40;

const _: () = assert!(RUNNING_COUNT_MAX < BLOCKING_THREAD_COUNT_MAX);

/// Places of requests that may wait.
#[derive(Clone, Debug)]
pub(super) struct Places {
    admitted: Arc<Semaphore>,
    running: Arc<Semaphore>,
}

/// Place of one request. It is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    _admitted: OwnedSemaphorePermit,
    _running: OwnedSemaphorePermit,
}

impl Places {
    pub(super) fn new() -> Self {
        let permits = |count| Arc::new(Semaphore::new(count));
        Self { admitted: permits(ADMITTED_COUNT_MAX), running: permits(RUNNING_COUNT_MAX) }
    }

    /// Waits for a place. Fails at once if too many requests wait already.
    pub(super) async fn take(&self) -> Result<Place, Problem> {
        let admitted = Arc::clone(&self.admitted).try_acquire_owned().map_err(|_| {
            let detail = format!(
                "{ADMITTED_COUNT_MAX} changes and requests for images are waiting for the kernel, \
                 a disk or the image store; see memlane status, and retry later"
            );
            Problem::new(ProblemKind::Busy, detail)
        })?;
        let running = Arc::clone(&self.running).acquire_owned().await;
        Ok(Place { _admitted: admitted, _running: running.expect("it is never closed") })
    }
}

/// Returns whether a request may wait for more than memory.
pub(super) fn may_wait(method: &Method, path: &str) -> bool {
    let only_reads = method == Method::GET || method == Method::HEAD;
    path.starts_with(api::IMAGES_PATH) || !(only_reads || path.starts_with(api::TASKS_PATH))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_and_requests_for_images_may_wait() {
        for (method, path, expected) in [
            (Method::GET, "/v1/status", false),
            (Method::GET, "/v1/volumes/images", false),
            (Method::HEAD, "/metrics", false),
            (Method::POST, "/v1/volumes", true),
            (Method::DELETE, "/v1/attachments/a", true),
            (Method::GET, "/v1/images", true),
            (Method::GET, "/v1/images/7", true),
            (Method::DELETE, "/v1/tasks/7", false),
        ] {
            assert_eq!(may_wait(&method, path), expected, "{method} {path}");
        }
    }
}
