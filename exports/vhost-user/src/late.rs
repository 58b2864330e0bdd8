//! Late work: requests that may block on a disk or an image, and the two threads that serve them.
//!
//! One thread flushes: each flush completes all requests that wait for one. The other serves, in
//! sequence, reads and writes of data that are not in memory, and long discards. Both run as long
//! as the export. A flush that never returns blocks only its thread.
//!
//! The rings bound the queues: a request keeps its ring entry while it waits here.

use std::sync::Arc;

use export_kit::{LateQueue, QueueEnd};

use crate::memory::Ram;
use crate::request::Request;
use crate::ring_set::{Done, RingSet, Ticket};
use crate::server::Server;

/// A request that is served on another thread.
pub(crate) struct LateRequest {
    /// Destination of the answer.
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
    /// Queues a request to be answered after a flush that starts after this call.
    pub(crate) fn flush(&self, late: LateRequest) {
        self.flushes.push(late);
    }

    /// Queues a request to be served and answered.
    pub(crate) fn serve(&self, late: LateRequest) {
        self.others.push(late);
    }

    /// Drops queued requests and waits until none is running that could change data, because the
    /// next front end may repeat them.
    pub(crate) fn forget(&self) {
        self.flushes.clear();
        self.others.clear();
        self.others.wait_until_idle();
    }

    /// Ends both threads after their current work.
    pub(crate) fn end(&self) {
        self.flushes.close(QueueEnd::Dropped);
        self.others.close(QueueEnd::Dropped);
    }

    /// Serves flushes until [`LateWork::end`].
    pub(crate) fn run_flushes(&self, server: &Server) {
        self.flushes.serve_together(|all| {
            let outcome = server.flush(all.len() as u64);
            for LateRequest { rings, ticket, .. } in all {
                rings.hand_in(Done { ticket, outcome });
            }
        });
    }

    /// Serves requests until [`LateWork::end`].
    pub(crate) fn run_others(&self, server: &mut Server) {
        self.others.serve_each(|LateRequest { rings, ticket, request, ram }| {
            let outcome = server.serve(&ram, &request);
            rings.hand_in(Done { ticket, outcome });
        });
    }
}
