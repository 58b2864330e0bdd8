//! Disk operations on threads of their own, limited in number.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

/// Maximum number of concurrent disk operations.
pub(crate) const WORK_COUNT_MAX: usize = 8;

/// Maximum time that a request waits for one of them to end.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Places for disk operations. One whose disk hangs keeps its place.
#[derive(Clone, Debug)]
pub(crate) struct Work(Arc<Semaphore>);

/// No place became free in time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Busy;

impl Work {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(WORK_COUNT_MAX)))
    }

    /// Runs a blocking operation. It continues if the caller goes away.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        operation: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Busy> {
        let place = timeout(WAIT_MAX, Arc::clone(&self.0).acquire_owned()).await;
        let Ok(Ok(place)) = place else { return Err(Busy) };
        let running = spawn_blocking(move || {
            let _place = place;
            operation()
        });
        // Fails only while the runtime ends.
        running.await.map_err(|_| Busy)
    }
}
