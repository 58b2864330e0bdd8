//! Deferred requests: those that may block on a disk run on separate threads.
//!
//! A client has at most two such threads, each started by the first request for it. One flushes:
//! one flush completes all requests that wait for it. The other executes requests whose data are
//! not in memory. A deferred request keeps its slot, so the client's slots bound the queues. A
//! flush that never returns holds its thread, the device and the client's memory, and nothing else.

use std::io;
use std::sync::Arc;
use std::thread;

use export_kit::{Inside, LateQueue, QueueEnd};
use shared_ring::Ticket;

use crate::executor::{Executor, Parts, Request, Use};
use crate::status;

/// Handle of the thread that takes entries. Dropping it tells the threads for deferred work that
/// the client has disconnected.
pub(crate) struct LateWork {
    parts: Parts,
    /// Registration with the device, held by the thread that executes data requests and until the
    /// client has disconnected.
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

    /// Defers the completion of `ticket` until a flush that starts after this call has ended.
    pub(crate) fn flush(&mut self, ticket: Ticket) {
        self.parts.ring.keep_for_later(&ticket);
        match self.start_flusher() {
            Ok(()) => self.flushes.push(ticket),
            Err(error) => self.refuse(ticket, &error),
        }
    }

    /// Defers a request, including its flush if it asks for FUA.
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
            // Writes with FUA are passed on to the flushing thread.
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

/// Runs one flush for all queued tickets, repeatedly.
fn flush_all(parts: &Parts, flushes: &LateQueue<Ticket>) {
    flushes.serve_together(|tickets| {
        let status = parts.flush();
        if status != status::DONE {
            // `Parts::flush` has counted one error already.
            parts.counters.count_errors(tickets.len() as u64 - 1);
        }
        for ticket in tickets {
            parts.ring.complete_late(ticket, status);
        }
    });
}

/// Executes requests that may fetch data, one at a time.
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
