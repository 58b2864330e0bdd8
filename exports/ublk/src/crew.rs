//! The threads of a device that may wait: for a disk that takes a flush, and for data that is not
//! in memory.
//!
//! They are started when the first request needs them, and not at all for most devices. Requests
//! that wait are bounded by the device's queues: each holds a place in one.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use block_device::BlockDevice;
use kernel::{UblkRequest, UblkWaker};

use crate::bounded::until;
use crate::serving::{Failure, Outcome, Scratch, wants_flush};

/// Threads that read what is not in memory. One more flushes.
const READER_COUNT: usize = 3;

/// How long what the threads are at may take when the device is left.
const LAST_WORK_TIME_MAX: Duration = Duration::from_secs(5);

/// Requests that were served for a queue, on their way back to it.
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
        std::mem::take(&mut *self.answered.lock().expect(NO_PANIC))
    }

    fn put(&self, request: UblkRequest, outcome: Outcome) {
        self.answered.lock().expect(NO_PANIC).push((request, outcome));
        self.waker.wake();
    }
}

/// What the threads share with the queues.
pub(crate) struct Crew {
    device: Arc<dyn BlockDevice>,
    inboxes: Arc<[Inbox]>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// With what they are answered when the flush succeeds.
    to_flush: Vec<(UblkRequest, u64)>,
    to_serve: Vec<UblkRequest>,
    threads: Vec<JoinHandle<()>>,
    is_closed: bool,
}

impl Crew {
    pub(crate) fn new(device: Arc<dyn BlockDevice>, inboxes: Arc<[Inbox]>) -> Arc<Self> {
        Arc::new(Self { device, inboxes, state: Mutex::default(), changed: Condvar::new() })
    }

    /// Has a request answered with `bytes` after a flush that begins from now on.
    pub(crate) fn flush(self: &Arc<Self>, request: UblkRequest, bytes: u64) {
        let mut state = self.started();
        state.to_flush.push((request, bytes));
        self.changed.notify_all();
    }

    /// Has a request served, and flushed if it asks for that.
    pub(crate) fn serve(self: &Arc<Self>, request: UblkRequest) {
        let mut state = self.started();
        state.to_serve.push(request);
        self.changed.notify_all();
    }

    /// Lets the threads end, each after what it is at, and waits for them for a while; what nobody
    /// has begun is left to the next server of the device.
    pub(crate) fn close(&self) {
        let threads = {
            let mut state = self.lock();
            state.is_closed = true;
            std::mem::take(&mut state.threads)
        };
        self.changed.notify_all();
        let are_done = || threads.iter().all(JoinHandle::is_finished).then_some(());
        if until(LAST_WORK_TIME_MAX, are_done).is_none() {
            tracing::warn!("a flush or a read of a block device does not end; it is left alone");
        }
    }

    /// The state, with threads that look at it. Without any, requests wait for the next server:
    /// a process that cannot start threads is of no use to them.
    fn started(self: &Arc<Self>) -> MutexGuard<'_, State> {
        let mut state = self.lock();
        if state.threads.is_empty() && !state.is_closed {
            let flusher = self.start("ublk-flush", Self::flush_all);
            let readers = (0..READER_COUNT).map(|_| self.start("ublk-read", Self::serve_all));
            state.threads.extend([flusher].into_iter().chain(readers).flatten());
        }
        state
    }

    fn start(self: &Arc<Self>, name: &str, work: fn(&Self)) -> Option<JoinHandle<()>> {
        let crew = Arc::clone(self);
        let begun = thread::Builder::new().name(name.to_owned()).spawn(move || {
            mark_thread();
            work(&crew);
        });
        begun
            .inspect_err(|error| tracing::error!(name, %error, "a block device lacks a thread"))
            .ok()
    }

    fn flush_all(&self) {
        while let Some(requests) = self.take(|state| match state.to_flush.is_empty() {
            true => None,
            false => Some(std::mem::take(&mut state.to_flush)),
        }) {
            let flushed = self.flush_device();
            for (request, bytes) in requests {
                self.answer(request, flushed.map(|()| bytes));
            }
        }
    }

    fn serve_all(&self) {
        let mut scratch = Scratch::new();
        while let Some(mut request) = self.take(|state| state.to_serve.pop()) {
            let mut outcome = scratch.serve(&mut request, &*self.device);
            if outcome.is_ok() && wants_flush(&request) {
                outcome = outcome.and_then(|bytes| self.flush_device().map(|()| bytes));
            }
            self.answer(request, outcome);
        }
    }

    fn flush_device(&self) -> Result<(), Failure> {
        self.device.flush().map_err(|error| {
            tracing::warn!(%error, "a flush of a block device failed");
            error.into()
        })
    }

    /// What `pick` finds, once there is something; `None` when the crew is closed.
    fn take<T>(&self, mut pick: impl FnMut(&mut State) -> Option<T>) -> Option<T> {
        let mut state = self.lock();
        loop {
            if state.is_closed {
                return None;
            }
            match pick(&mut state) {
                Some(found) => return Some(found),
                None => state = self.changed.wait(state).expect(NO_PANIC),
            }
        }
    }

    fn answer(&self, request: UblkRequest, outcome: Outcome) {
        self.inboxes[usize::from(request.queue())].put(request, outcome);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect(NO_PANIC)
    }
}

const NO_PANIC: &str = "nobody panics with this lock";

/// A thread that serves a device must not wait for memory that only that device can free.
pub(crate) fn mark_thread() {
    if let Err(error) = kernel::serve_block_io() {
        tracing::debug!(%error, "a thread that serves a block device is not marked as such");
    }
}
