//! Keeps the current values of topics that ask for it: a few threads that follow their partitions.
//!
//! A thread looks at its partitions when one of them has more, and each second: then values expire,
//! topics that come, go or change their settings are noticed, and memory of the log that was
//! deleted is let go. Between pieces of a checkpoint it goes on following.

mod followed;
mod worker;

use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::Context;
use tokio::sync::watch;

use self::worker::{Share, Worker};
use crate::topics::Topics;

/// One thread takes in more than a million records a second.
const PROCESSORS_FOR_THREAD: usize = 4;
const THREADS_MAX: usize = 4;

/// They end when the broker stops.
pub(crate) struct FollowingThreads(Vec<JoinHandle<()>>);

impl FollowingThreads {
    /// Starts them. They end after `stops` says so, when they have written checkpoints.
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

    /// Waits for their end.
    pub(crate) fn join(self) {
        for thread in self.0 {
            if thread.join().is_err() {
                tracing::error!("a thread of the current values panicked");
            }
        }
    }
}
