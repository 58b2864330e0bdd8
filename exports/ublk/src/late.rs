//! Blocking requests of a device, which wait for a flush to disk or for absent data, and the
//! threads that serve them.
//!
//! The threads are started by the first request that needs them; most devices never do. The number
//! of waiting requests is bounded by the depth of the device's queues.

use std::io;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use block_device::BlockDevice;
use export_kit::{LateQueue, QueueEnd};
use kernel::{UblkRequest, UblkWaker};

use crate::bounded::until;
use crate::serving::{Failure, Outcome, Scratch, wants_flush};

/// Number of threads that read absent data. One more thread flushes.
const READER_COUNT: usize = 3;

/// Maximum time for requests in progress when the device is left to the next server.
const LAST_WORK_TIME_MAX: Duration = Duration::from_secs(5);

/// Served requests on their way back to their queue.
#[derive(Debug)]
pub(crate) struct Inbox {
    answered: Mutex<Vec<(UblkRequest, Outcome)>>,
    waker: UblkWaker,
}

impl Inbox {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { answered: Mutex::default(), waker: UblkWaker::new()? })
    }

    pub(crate) fn waker(&self) -> &UblkWaker {
        &self.waker
    }

    pub(crate) fn take(&self) -> Vec<(UblkRequest, Outcome)> {
        std::mem::take(&mut *self.answered.lock().expect(NOT_POISONED))
    }

    fn put(&self, request: UblkRequest, outcome: Outcome) {
        self.answered.lock().expect(NOT_POISONED).push((request, outcome));
        self.waker.wake();
    }
}

/// Work that the threads share with the queues.
pub(crate) struct LateWork {
    device: Arc<dyn BlockDevice>,
    inboxes: Arc<[Inbox]>,
    /// Flush requests, with the number of bytes to report on success.
    flushes: LateQueue<(UblkRequest, u64)>,
    others: LateQueue<UblkRequest>,
    threads: OnceLock<Vec<JoinHandle<()>>>,
}

impl LateWork {
    pub(crate) fn new(device: Arc<dyn BlockDevice>, inboxes: Arc<[Inbox]>) -> Arc<Self> {
        let (flushes, others) = (LateQueue::default(), LateQueue::default());
        Arc::new(Self { device, inboxes, flushes, others, threads: OnceLock::new() })
    }

    /// Answers a request with `bytes` after a flush that starts after this call.
    pub(crate) fn flush(self: &Arc<Self>, request: UblkRequest, bytes: u64) {
        self.start();
        self.flushes.push((request, bytes));
    }

    /// Serves a request, and flushes if the request requires it.
    pub(crate) fn serve(self: &Arc<Self>, request: UblkRequest) {
        self.start();
        self.others.push(request);
    }

    /// Stops the threads after their current requests, and waits for them for a bounded time.
    /// Requests that were not started are left to the device's next server.
    pub(crate) fn close(&self) {
        self.flushes.close(QueueEnd::Dropped);
        self.others.close(QueueEnd::Dropped);
        let threads = self.threads.get().map_or(&[][..], Vec::as_slice);
        let are_done = || threads.iter().all(JoinHandle::is_finished).then_some(());
        if until(LAST_WORK_TIME_MAX, are_done).is_none() {
            tracing::warn!("abandoning ublk workers stuck in flush or read");
        }
    }

    /// Starts the threads. If none can be started, requests wait for the next server, because this
    /// process cannot serve them.
    fn start(self: &Arc<Self>) {
        self.threads.get_or_init(|| {
            let flusher = self.spawn("ublk-flush", Self::flush_all);
            let readers = (0..READER_COUNT).map(|_| self.spawn("ublk-read", Self::serve_all));
            [flusher].into_iter().chain(readers).flatten().collect()
        });
    }

    fn spawn(self: &Arc<Self>, name: &str, work: fn(&Self)) -> Option<JoinHandle<()>> {
        let late = Arc::clone(self);
        let begun = thread::Builder::new().name(name.to_owned()).spawn(move || {
            mark_thread();
            work(&late);
        });
        begun
            .inspect_err(
                |error| tracing::error!(name, %error, "cannot start a thread for a ublk device"),
            )
            .ok()
    }

    fn flush_all(&self) {
        self.flushes.serve_together(|requests| {
            let flushed = self.flush_device();
            for (request, bytes) in requests {
                self.answer(request, flushed.map(|()| bytes));
            }
        });
    }

    fn serve_all(&self) {
        let mut scratch = Scratch::new();
        self.others.serve_each(|mut request| {
            let mut outcome = scratch.serve(&mut request, &*self.device);
            if outcome.is_ok() && wants_flush(&request) {
                outcome = outcome.and_then(|bytes| self.flush_device().map(|()| bytes));
            }
            self.answer(request, outcome);
        });
    }

    fn flush_device(&self) -> Result<(), Failure> {
        self.device.flush().map_err(|error| {
            tracing::warn!(%error, "flush of a ublk device failed");
            error.into()
        })
    }

    fn answer(&self, request: UblkRequest, outcome: Outcome) {
        self.inboxes[usize::from(request.queue())].put(request, outcome);
    }
}

const NOT_POISONED: &str = "nothing panics while it holds this lock";

/// Marks a thread that serves a device (`PR_SET_IO_FLUSHER`), because it must not wait for memory
/// that only this device can free.
pub(crate) fn mark_thread() {
    if let Err(error) = kernel::serve_block_io() {
        tracing::debug!(
            %error, "cannot mark a thread that serves a block device (PR_SET_IO_FLUSHER)"
        );
    }
}
