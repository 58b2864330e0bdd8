//! Threads of an export: their limit, and detection of their end.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::thread;

use crate::error::ExportError;

/// Limit on the threads of all exports of a process. Each thread has a buffer of 1 MiB.
#[derive(Debug)]
pub struct ThreadBudget {
    limit: usize,
    free: AtomicUsize,
}

/// Threads reserved for an export. They are released when the last one has ended.
pub(crate) struct Reserved {
    budget: Arc<ThreadBudget>,
    count: usize,
}

impl ThreadBudget {
    pub fn new(thread_count_max: usize) -> Self {
        Self { limit: thread_count_max, free: AtomicUsize::new(thread_count_max) }
    }

    pub(crate) fn take(self: &Arc<Self>, count: usize) -> Result<Reserved, ExportError> {
        let left = |free: usize| free.checked_sub(count);
        match self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left) {
            Ok(_) => Ok(Reserved { budget: Arc::clone(self), count }),
            Err(_) => Err(ExportError::TooManyThreads { thread_count_max: self.limit }),
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.budget.free.fetch_add(self.count, Ordering::Relaxed);
    }
}

/// Starts a thread that holds a clone of `alive` while it runs.
pub(crate) fn spawn(
    name: &str,
    alive: &Sender<()>,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    let alive = alive.clone();
    let work = move || {
        work();
        drop(alive);
    };
    thread::Builder::new().name(name.to_owned()).spawn(work).map(drop)
}
