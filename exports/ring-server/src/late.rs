//! Requests that may wait for a disk: done by threads of their own, so that nothing else waits.
//!
//! There are two, started with the first request for them: one flushes, once for all requests that
//! have come meanwhile; the other one moves data that are not in memory. Each request keeps its
//! slot, so no more can wait than the client has slots. A flush that never ends keeps its thread,
//! the device and the client's memory, and nothing else.

use std::io;
use std::sync::Arc;
use std::thread;

use export_kit::{Inside, LateQueue, QueueEnd};
use shared_ring::Ticket;

use crate::executor::{Executor, Parts, Request, Use};
use crate::status;

/// The end of the thread that takes entries. Dropping it tells the other threads that the client
/// has gone.
pub(crate) struct LateWork {
    parts: Parts,
    /// For the thread that moves data, and until the client has gone.
    inside: Arc<Inside<u64, Use>>,
    flushes: Arc<LateQueue<Ticket>>,
    data: Arc<LateQueue<(Request, Ticket)>>,
    has_flusher: bool,
    has_mover: bool,
}

impl LateWork {
    pub(crate) fn new(parts: Parts, inside: Arc<Inside<u64, Use>>) -> Self {
        let (flushes, data) = (Arc::default(), Arc::default());
        Self { parts, inside, flushes, data, has_flusher: false, has_mover: false }
    }

    /// Has a ticket completed after a flush that begins from now on.
    pub(crate) fn flush(&mut self, ticket: Ticket) {
        self.parts.ring.keep_for_later(&ticket);
        match self.start_flusher() {
            Ok(()) => self.flushes.push(ticket),
            Err(error) => self.refuse(ticket, &error),
        }
    }

    /// Has a request done, flushed if it asks for that, and its ticket completed.
    pub(crate) fn perform(&mut self, request: Request, ticket: Ticket) {
        self.parts.ring.keep_for_later(&ticket);
        match self.start_mover() {
            Ok(()) => self.data.push((request, ticket)),
            Err(error) => self.refuse(ticket, &error),
        }
    }

    fn refuse(&self, ticket: Ticket, error: &io::Error) {
        tracing::warn!(%error, "cannot start a thread for a ring request that may block");
        self.parts.counters.count_error();
        self.parts.ring.complete_late(ticket, status::no_thread());
    }

    fn start_flusher(&mut self) -> io::Result<()> {
        if !self.has_flusher {
            let (parts, flushes) = (self.parts.clone(), Arc::clone(&self.flushes));
            start("ring-flush", move || flush_all(&parts, &flushes))?;
            self.has_flusher = true;
        }
        Ok(())
    }

    fn start_mover(&mut self) -> io::Result<()> {
        if !self.has_mover {
            // What is written with FUA has to be flushed after the write.
            self.start_flusher()?;
            let (flushes, data) = (Arc::clone(&self.flushes), Arc::clone(&self.data));
            let executor = Executor::new(self.parts.clone());
            let inside = Arc::clone(&self.inside);
            start("ring-data", move || {
                move_data(executor, &data, &flushes);
                drop(inside);
            })?;
            self.has_mover = true;
        }
        Ok(())
    }
}

impl Drop for LateWork {
    fn drop(&mut self) {
        self.flushes.close(QueueEnd::Dropped);
        self.data.close(QueueEnd::Dropped);
    }
}

fn start(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.to_owned()).spawn(work).map(drop)
}

/// Flushes once for everything that waits, again and again.
fn flush_all(parts: &Parts, flushes: &LateQueue<Ticket>) {
    flushes.serve_together(|tickets| {
        let status = parts.flush();
        if status != status::DONE {
            // The failure itself was counted once.
            parts.counters.count_errors(tickets.len() as u64 - 1);
        }
        for ticket in tickets {
            parts.ring.complete_late(ticket, status);
        }
    });
}

/// Does what may have to fetch data, one after the other.
fn move_data(
    mut executor: Executor,
    data: &LateQueue<(Request, Ticket)>,
    flushes: &LateQueue<Ticket>,
) {
    data.serve_each(|(request, ticket)| {
        let status = executor.perform(&ticket, request);
        if status == status::DONE && request.is_fua() && executor.flush_may_wait() {
            flushes.push(ticket);
        } else {
            executor.parts.ring.complete_late(ticket, status);
        }
    });
}
