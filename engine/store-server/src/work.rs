//! Disk operations on separate threads, limited in number.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{block_in_place, spawn_blocking};
use tokio::time::timeout;

/// Maximum number of concurrent disk operations.
pub(crate) const WORK_COUNT_MAX: usize = 8;

/// Maximum time that a request waits for a place.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Places for disk operations. An operation on a hung disk keeps its place.
#[derive(Clone, Debug)]
pub(crate) struct Work {
    places: Arc<Semaphore>,
    wait_max: Duration,
}

/// Error: no place became free in time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Busy;

impl Work {
    pub(crate) fn new() -> Self {
        Self { places: Arc::new(Semaphore::new(WORK_COUNT_MAX)), wait_max: WAIT_MAX }
    }

    async fn place(&self) -> Result<OwnedSemaphorePermit, Busy> {
        let place = timeout(self.wait_max, Arc::clone(&self.places).acquire_owned()).await;
        place.ok().and_then(Result::ok).ok_or(Busy)
    }

    /// Runs a blocking operation on the thread of the caller, which saves waking another thread.
    /// The caller's task hangs if the operation does, but no other task.
    pub(crate) async fn run_here<T>(&self, operation: impl FnOnce() -> T) -> Result<T, Busy> {
        let _place = self.place().await?;
        Ok(block_in_place(operation))
    }

    /// Runs a blocking operation, which continues if the caller is dropped.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        operation: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Busy> {
        let place = self.place().await?;
        let running = spawn_blocking(move || {
            let _place = place;
            operation()
        });
        // Fails only while the runtime shuts down.
        running.await.map_err(|_| Busy)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[tokio::test]
    async fn operations_that_hang_make_others_fail_and_not_wait_for_ever() {
        let work = Work { wait_max: Duration::from_millis(50), ..Work::new() };
        let (begin, begun) = channel();
        let mut ends = Vec::new();
        let mut hanging = Vec::new();
        for _ in 0..WORK_COUNT_MAX {
            let (end, ended) = channel::<()>();
            let (work, begin) = (work.clone(), begin.clone());
            hanging.push(tokio::spawn(async move {
                let hang = move || {
                    begin.send(()).expect("the test listens");
                    ended.recv()
                };
                work.run(hang).await.map(drop)
            }));
            ends.push(end);
        }
        let mut begun_count = 0;
        while begun_count < WORK_COUNT_MAX {
            tokio::time::sleep(Duration::from_millis(1)).await;
            begun_count += begun.try_iter().count();
        }
        work.run(|| ()).await.expect_err("all places are taken");
        // The end of a request does not free the place of its operation.
        hanging.remove(0).abort();
        work.run(|| ()).await.expect_err("the operation still hangs");
        drop(ends);
        for it in hanging {
            it.await.expect("no panic").expect("it ends");
        }
        work.run(|| ()).await.expect("places are free");
    }
}
