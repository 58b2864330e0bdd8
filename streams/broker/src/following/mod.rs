//! Maintenance of the current values of topics: a few threads that follow their partitions.
//!
//! A thread processes its partitions when one of them has new records, and each second. The latter
//! expires values, notices changes of topics and their settings, and releases memory of deleted
//! parts of the log. It continues following between parts of a checkpoint.

mod followed;
mod worker;

use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::Context;
use tokio::sync::watch;

use self::worker::{Share, Worker};
use crate::topics::Topics;

/// Number of threads by processors. One thread processes more than a million records per second.
const PROCESSORS_FOR_THREAD: usize = 4;
const THREADS_MAX: usize = 4;

/// Follower threads, which end when the broker stops.
pub(crate) struct FollowingThreads(Vec<JoinHandle<()>>);

impl FollowingThreads {
    /// Starts the threads. They end after `stops` is true, once they have written checkpoints.
    pub(crate) fn start(
        topics: &Arc<Topics>,
        stops: &watch::Receiver<bool>,
    ) -> anyhow::Result<Self> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let count = (processors / PROCESSORS_FOR_THREAD).clamp(1, THREADS_MAX);
        let mut threads = Vec::new();
        for number in 0..count {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
            let worker = Worker::new(Arc::clone(topics), Share { number, count });
            let stops = stops.clone();
            let work = move || runtime.block_on(worker.run(stops));
            let thread = std::thread::Builder::new().name("values".to_owned()).spawn(work);
            threads.push(thread.context("cannot start a thread for current values")?);
        }
        Ok(Self(threads))
    }

    /// Waits for the end of the threads.
    pub(crate) fn join(self) {
        for thread in self.0 {
            if thread.join().is_err() {
                tracing::error!("a thread of the current values panicked");
            }
        }
    }
}
