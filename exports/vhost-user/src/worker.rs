//! Worker thread that serves rings: takes requests, executes them, and answers. It waits as
//! `adaptive_polling` decides.
//!
//! Requests that may block on a disk or an image are passed to late work, so that they do not delay
//! the requests after them.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::MutexGuard;
use std::task::Poll;

use adaptive_polling::Waiter;
use block_device::{BlockDevice, WriteCache};

use crate::late::{LateRequest, LateWork};
use crate::request::{Operation, Request};
use crate::ring::{Ring, Take, Taken};
use crate::ring_set::{RingSet, Rings, Ticket};
use crate::server::{Server, Status};

/// Maximum number of requests served from one ring before the next ring has its turn.
const REQUESTS_PER_TURN: u32 = 32;

/// Size above which discards and zeroing are late work.
const LONG_SPAN_BYTES: u64 = 4 << 20;

pub(crate) struct Worker {
    pub(crate) rings: Arc<RingSet>,
    pub(crate) late: Arc<LateWork>,
    pub(crate) server: Server,
    pub(crate) waiter: Waiter,
}

/// Execution path of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    AtOnce,
    /// Executed at once, answered after a flush (write-through).
    Through,
    Flush,
    Long,
}

impl Worker {
    pub(crate) fn run(mut self) {
        let set = Arc::clone(&self.rings);
        let mut rings = set.lock();
        let mut taken = Taken::default();
        while !set.is_over() {
            rings = set.let_in(rings);
            set.give_answers(&mut rings);
            let count = self.serve_turn(&mut rings, &mut taken);
            if count > 0 {
                self.waiter.gather(count);
            }
            self.wait(&set, &mut rings);
        }
    }

    /// Serves some requests of each ring. Returns their number.
    fn serve_turn(&mut self, rings: &mut Rings, taken: &mut Taken) -> u32 {
        let mut count = 0;
        let is_write_through = rings.is_write_through;
        for (index, slot) in rings.slots.iter_mut().enumerate() {
            let run = slot.run;
            let Some(ring) = slot.open_ring() else { continue };
            for _ in 0..REQUESTS_PER_TURN {
                match ring.take(taken) {
                    Take::Nothing => break,
                    Take::Nonsense => self.server.counters().count_error(),
                    Take::Request => {
                        let ticket = Ticket { slot: index, run, head: taken.head };
                        let way = way_of(&taken.request, self.server.device(), is_write_through);
                        self.serve(way, ticket, ring, taken);
                    }
                }
                count += 1;
                if self.rings.has_news() {
                    break;
                }
            }
            ring.signal();
        }
        count
    }

    fn serve(&mut self, way: Way, ticket: Ticket, ring: &mut Ring, taken: &mut Taken) {
        match way {
            Way::AtOnce => {
                let outcome = self.server.serve(ring.ram(), &taken.request);
                ring.answer(ticket.head, outcome);
            }
            Way::Through => {
                let outcome = self.server.serve(ring.ram(), &taken.request);
                if outcome.status == Status::Done {
                    self.late.flush(self.late_request(ticket, ring, taken));
                } else {
                    ring.answer(ticket.head, outcome);
                }
            }
            Way::Flush => self.late.flush(self.late_request(ticket, ring, taken)),
            Way::Long => self.late.serve(self.late_request(ticket, ring, taken)),
        }
    }

    fn late_request(&self, ticket: Ticket, ring: &Ring, taken: &mut Taken) -> LateRequest {
        LateRequest {
            rings: Arc::clone(&self.rings),
            ticket,
            request: std::mem::take(&mut taken.request),
            ram: Arc::clone(ring.ram()),
        }
    }

    /// Waits until there is work.
    fn wait(&mut self, set: &RingSet, rings: &mut MutexGuard<'_, Rings>) {
        // Only one of the closures runs at a time, which the compiler cannot prove.
        let rings = RefCell::new(&mut **rings);
        let poll = || match set.has_news() || rings.borrow().has_work() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        };
        let sleep = || {
            let rings = &mut **rings.borrow_mut();
            let mut has_more = false;
            for slot in &mut rings.slots {
                has_more |= slot.open_ring().is_some_and(Ring::listen);
            }
            if !has_more && !set.has_news() {
                set.sleep(rings);
            }
            for slot in &mut rings.slots {
                slot.open_ring().into_iter().for_each(Ring::stop_listening);
            }
        };
        self.waiter.wait(poll, sleep);
    }
}

fn way_of(request: &Request, device: &dyn BlockDevice, is_write_through: bool) -> Way {
    match &request.operation {
        Operation::Flush if device.write_cache() == WriteCache::Volatile => Way::Flush,
        Operation::Read(_) if device.data_may_be_away() => Way::Long,
        Operation::Write(_) | Operation::Discard(_) | Operation::WriteZeroes(_) => {
            let is_through = is_write_through && device.write_cache() == WriteCache::Volatile;
            let is_long = request.span_bytes() > LONG_SPAN_BYTES || device.data_may_be_away();
            match (is_through, is_long) {
                // Such a driver waits for the disk on each write anyway, so it may block here.
                (true, _) => Way::Through,
                (false, true) => Way::Long,
                (false, false) => Way::AtOnce,
            }
        }
        _ => Way::AtOnce,
    }
}
