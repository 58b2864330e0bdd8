//! Requests that may wait for a disk: done by threads of their own, so that nothing else waits.
//!
//! There are two, started with the first request for them: one flushes, once for all requests that
//! have come meanwhile; the other one moves data that are not in memory. Whoever waits keeps its
//! slot, so no more can wait than the client has slots. A flush that never ends keeps its thread,
//! the device and the client's memory, and nothing else.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;

use block_device::BlockDevice;
use shared_ring::{ServerRing, Ticket};

use crate::desk::{Desk, Request, flushes};
use crate::status;
use crate::traffic::Meter;

/// What may take long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LateWork {
    /// A flush, or the one behind a write that was done.
    Flush,
    /// Data that may be away.
    Data(Request),
}

/// What the threads of a client work with.
#[derive(Clone)]
pub(crate) struct LateParts {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) ring: Arc<ServerRing>,
    pub(crate) meter: Arc<Meter>,
}

/// The end of the thread that takes entries. Dropping it tells the other threads that the client
/// has gone.
pub(crate) struct LateQueue {
    parts: LateParts,
    flushes: Arc<Pile>,
    data: Arc<Pile>,
    has_flusher: bool,
    has_mover: bool,
}

impl LateQueue {
    pub(crate) fn new(parts: LateParts) -> Self {
        Self {
            parts,
            flushes: Arc::default(),
            data: Arc::default(),
            has_flusher: false,
            has_mover: false,
        }
    }

    /// Leaves work to another thread, which ends the ticket with `complete_late`. Gives it back if
    /// the system has no thread.
    pub(crate) fn push(&mut self, work: LateWork, ticket: Ticket) -> Result<(), Ticket> {
        let started = match work {
            LateWork::Flush => self.start_flusher(),
            LateWork::Data(_) => self.start_mover(),
        };
        if let Err(error) = started {
            tracing::warn!(%error, "no thread for a request of the ring that may wait");
            return Err(ticket);
        }
        match work {
            LateWork::Flush => self.flushes.push(work, ticket),
            LateWork::Data(_) => self.data.push(work, ticket),
        }
        Ok(())
    }

    fn start_flusher(&mut self) -> io::Result<()> {
        if self.has_flusher {
            return Ok(());
        }
        let (parts, pile) = (self.parts.clone(), Arc::clone(&self.flushes));
        let body = move || flush_all(parts, &pile);
        thread::Builder::new().name("ring-flush".to_owned()).spawn(body)?;
        self.has_flusher = true;
        Ok(())
    }

    fn start_mover(&mut self) -> io::Result<()> {
        if self.has_mover {
            return Ok(());
        }
        // What is written by force has to be flushed behind the write.
        self.start_flusher()?;
        let (parts, pile) = (self.parts.clone(), Arc::clone(&self.data));
        let flushes = Arc::clone(&self.flushes);
        let body = move || move_data(parts, &pile, &flushes);
        thread::Builder::new().name("ring-data".to_owned()).spawn(body)?;
        self.has_mover = true;
        Ok(())
    }
}

impl Drop for LateQueue {
    fn drop(&mut self) {
        self.flushes.close();
        self.data.close();
    }
}

/// Flushes once for everything that waits, again and again.
fn flush_all(parts: LateParts, pile: &Pile) {
    let desk = Desk::new(parts.device, parts.ring, parts.meter);
    while let Some(waiting) = pile.take_all() {
        let status = desk.flush();
        if status != status::DONE {
            // The failure itself was counted once.
            (1..waiting.len()).for_each(|_| desk.meter.count_error());
        }
        for (_, ticket) in waiting {
            desk.ring.complete_late(ticket, status);
        }
    }
}

/// Does what may have to fetch data, one after the other.
fn move_data(parts: LateParts, pile: &Pile, flushing: &Pile) {
    let mut desk = Desk::new(parts.device, parts.ring, parts.meter);
    while let Some((work, ticket)) = pile.take_one() {
        let LateWork::Data(request) = work else { continue };
        let status = desk.perform(&ticket, request);
        if status == status::DONE && flushes(request) && desk.flush_may_wait() {
            flushing.push(LateWork::Flush, ticket);
        } else {
            desk.ring.complete_late(ticket, status);
        }
    }
}

/// What waits for one of the threads.
#[derive(Default)]
struct Pile {
    state: Mutex<PileState>,
    changed: Condvar,
}

#[derive(Default)]
struct PileState {
    waiting: VecDeque<(LateWork, Ticket)>,
    is_closed: bool,
}

impl Pile {
    fn push(&self, work: LateWork, ticket: Ticket) {
        self.lock().waiting.push_back((work, ticket));
        self.changed.notify_one();
    }

    /// Lets the thread end after what it is at.
    fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_one();
    }

    /// Everything that waits, once there is something; `None` when the client has gone.
    fn take_all(&self) -> Option<VecDeque<(LateWork, Ticket)>> {
        Some(std::mem::take(&mut self.wait()?.waiting))
    }

    fn take_one(&self) -> Option<(LateWork, Ticket)> {
        self.wait()?.waiting.pop_front()
    }

    fn wait(&self) -> Option<MutexGuard<'_, PileState>> {
        let is_idle = |state: &mut PileState| state.waiting.is_empty() && !state.is_closed;
        let state = self.changed.wait_while(self.lock(), is_idle).expect(NOT_POISONED);
        (!state.is_closed).then_some(state)
    }

    fn lock(&self) -> MutexGuard<'_, PileState> {
        self.state.lock().expect(NOT_POISONED)
    }
}

const NOT_POISONED: &str = "nothing panics while it holds this lock";
