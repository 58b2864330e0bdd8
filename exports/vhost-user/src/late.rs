//! Requests that may wait for a disk or for an image, and the two threads that do them.
//!
//! One thread takes all flushes that wait and flushes once for them. The other one serves reads and
//! writes of data that are away, and long discards, one after the other. Both live as long as the
//! export: a flush that does not end keeps its thread, and nothing else.
//!
//! What waits is bounded by the rings: a request waits here while its place in one is taken.

use std::sync::Arc;

use export_kit::{LateQueue, QueueEnd};

use crate::memory::Ram;
use crate::request::Request;
use crate::ring_set::{Done, RingSet, Ticket};
use crate::server::Server;

/// A request that another thread does.
pub(crate) struct LateRequest {
    /// Where the answer goes.
    pub(crate) rings: Arc<RingSet>,
    pub(crate) ticket: Ticket,
    pub(crate) request: Request,
    pub(crate) ram: Arc<Ram>,
}

#[derive(Default)]
pub(crate) struct LateWork {
    flushes: LateQueue<LateRequest>,
    others: LateQueue<LateRequest>,
}

impl LateWork {
    /// Has a request answered after a flush that begins from now on.
    pub(crate) fn flush(&self, late: LateRequest) {
        self.flushes.push(late);
    }

    /// Has a request served and answered.
    pub(crate) fn serve(&self, late: LateRequest) {
        self.others.push(late);
    }

    /// Forgets what the front end wanted, and waits until nothing is being done for it any more
    /// that could change data: the one that comes next may do it again.
    pub(crate) fn forget(&self) {
        self.flushes.clear();
        self.others.clear();
        self.others.wait_until_idle();
    }

    /// Ends both threads, after what they are at.
    pub(crate) fn end(&self) {
        self.flushes.close(QueueEnd::Dropped);
        self.others.close(QueueEnd::Dropped);
    }

    /// Flushes until the end.
    pub(crate) fn run_flushes(&self, server: &Server) {
        self.flushes.serve_together(|all| {
            let outcome = server.flush(all.len() as u64);
            for LateRequest { rings, ticket, .. } in all {
                rings.hand_in(Done { ticket, outcome });
            }
        });
    }

    /// Serves requests until the end.
    pub(crate) fn run_others(&self, server: &mut Server) {
        self.others.serve_each(|LateRequest { rings, ticket, request, ram }| {
            let outcome = server.serve(&ram, &request);
            rings.hand_in(Done { ticket, outcome });
        });
    }
}
