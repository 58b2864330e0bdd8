//! What the workers of one connection share.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use export_kit::Counters;
use rustix::event::{EventfdFlags, eventfd};

use crate::connection::Connection;
use crate::files::Files;
use crate::flush_desk::FlushDesk;
use crate::habits::Habits;
use crate::pace::Pace;
use crate::roster::Roster;
use crate::watch::Watch;

pub(super) struct Shared {
    pub(super) connection: Arc<Connection>,
    pub(super) files: Arc<dyn Files>,
    pub(super) counters: Vec<Counters>,
    pub(super) roster: Roster,
    pub(super) pace: Pace,
    pub(super) desk: FlushDesk,
    pub(super) habits: Habits,
    pub(super) watch: Watch,
    /// Threads that have not ended.
    pub(super) running: Mutex<usize>,
    pub(super) one_ended: Condvar,
    pub(super) core_count: usize,
    pub(super) is_over: AtomicBool,
    /// Readable once the crew shall stop.
    pub(super) stop: OwnedFd,
    /// Readable while a leader that sleeps has been relieved.
    pub(super) relief: OwnedFd,
}

impl Shared {
    /// For so many workers, none of which has begun.
    pub(super) fn new(
        worker_count: usize,
        connection: Arc<Connection>,
        files: Arc<dyn Files>,
    ) -> io::Result<Self> {
        Ok(Self {
            connection,
            files,
            counters: (0..worker_count).map(|_| Counters::default()).collect(),
            roster: Roster::new(worker_count),
            pace: Pace::new(),
            desk: FlushDesk::new(worker_count),
            habits: Habits::new(),
            watch: Watch::new(),
            running: Mutex::new(0),
            one_ended: Condvar::new(),
            core_count: thread::available_parallelism().map_or(1, usize::from),
            is_over: AtomicBool::new(false),
            stop: eventfd(0, EventfdFlags::CLOEXEC)?,
            relief: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    pub(super) fn count_running(&self, change: impl FnOnce(&mut usize)) {
        change(&mut self.running.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Ends the whole crew, because there will be no more requests.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.roster.call_all();
        self.watch.wake();
    }

    /// Has a worker lead instead of one that sleeps.
    pub(super) fn relieve_leader(&self, worker: usize) -> bool {
        let leads = self.roster.try_relieve(worker);
        if leads && let Err(error) = rustix::io::write(&self.relief, &1_u64.to_ne_bytes()) {
            // It wakes with the next request.
            tracing::warn!(%error, "a worker that was relieved cannot be woken");
        }
        leads
    }

    /// One that slept knows that it was relieved.
    pub(super) fn note_relieved(&self) {
        // Nothing to be read: another one that was relieved read for both.
        let _ = rustix::io::read(&self.relief, &mut [0; 8]);
    }

    /// How many requests all workers but one have begun to answer.
    pub(super) fn begun_by_others(&self, than: usize) -> u64 {
        let others = self.counters.iter().enumerate().filter(|&(index, _)| index != than);
        others.map(|(_, counters)| counters.request_count()).sum()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Leader,
    Called,
}

pub(super) fn report(sent: io::Result<()>) {
    if let Err(error) = sent {
        // The end of the connection is noticed when it is read next.
        tracing::warn!(%error, "the kernel did not take a reply");
    }
}
