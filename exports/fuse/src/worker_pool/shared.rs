//! State shared by the workers of one connection.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use rustix::event::{EventfdFlags, eventfd};

use crate::connection::Connection;
use crate::file_users::OpenFiles;
use crate::files::Files;
use crate::in_flight::MessageBuffer;
use crate::schedule::Schedule;
use crate::server::Server;

pub(super) struct Shared {
    pub(super) connection: Arc<Connection>,
    pub(super) files: Arc<dyn Files>,
    pub(super) open: Arc<OpenFiles>,
    pub(super) schedule: Schedule,
    /// Requests of an earlier process that no worker serves yet.
    unanswered: Mutex<Vec<MessageBuffer>>,
    /// Number of running threads.
    pub(super) running: Mutex<usize>,
    pub(super) one_ended: Condvar,
    pub(super) is_over: AtomicBool,
    /// Readable when the worker pool is stopping.
    pub(super) stop: OwnedFd,
    /// Readable while a relieved leader still sleeps.
    pub(super) relief: OwnedFd,
}

impl Shared {
    pub(super) fn new(
        schedule: Schedule,
        unanswered: Vec<MessageBuffer>,
        connection: Arc<Connection>,
        files: Arc<dyn Files>,
        open: Arc<OpenFiles>,
    ) -> io::Result<Self> {
        Ok(Self {
            connection,
            files,
            open,
            schedule,
            unanswered: Mutex::new(unanswered),
            running: Mutex::new(0),
            one_ended: Condvar::new(),
            is_over: AtomicBool::new(false),
            stop: eventfd(0, EventfdFlags::CLOEXEC)?,
            relief: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    pub(super) fn next_unanswered(&self) -> Option<MessageBuffer> {
        self.unanswered.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    /// Server for a request that this worker has read.
    pub(super) fn server<'worker>(
        &'worker self,
        worker: usize,
        before_wait: &'worker dyn Fn(),
        flushed: &'worker dyn Fn(u64, bool),
    ) -> Server<'worker> {
        Server {
            files: self.files.as_ref(),
            open: &self.open,
            counters: self.schedule.counters(worker),
            sink: self.connection.as_ref(),
            before_wait,
            flushed,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    pub(super) fn count_running(&self, change: impl FnOnce(&mut usize)) {
        change(&mut self.running.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Ends the whole worker pool, because no more requests will arrive.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.schedule.end();
    }

    /// Replaces a sleeping leader by this worker. Returns whether it leads.
    pub(super) fn relieve_leader(&self, worker: usize) -> bool {
        let leads = self.schedule.try_relieve(worker);
        if leads && let Err(error) = rustix::io::write(&self.relief, &1_u64.to_ne_bytes()) {
            // The former leader wakes up at the next request.
            tracing::warn!(%error, "cannot wake a FUSE worker");
        }
        leads
    }

    /// Clears the event after a sleeping leader has noticed that it was relieved.
    pub(super) fn note_relieved(&self) {
        // The event may be clear, if another relieved leader has read it.
        let _ = rustix::io::read(&self.relief, &mut [0; 8]);
    }
}
