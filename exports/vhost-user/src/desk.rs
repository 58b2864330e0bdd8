//! Requests that may wait for a disk or for an image, and the two threads that do them.
//!
//! One thread takes all flushes that wait and flushes once for them. The other one serves reads and
//! writes of data that are away, and long discards, one after the other. Both live as long as the
//! export: a flush that does not end keeps its thread, and nothing else.
//!
//! What waits is bounded by the rings: a request waits here while its place in one is taken.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use crate::bench::{Done, SharedBench, Ticket};
use crate::memory::Ram;
use crate::request::Request;
use crate::server::Server;

const NOT_POISONED: &str = "nothing panics while it holds this lock";

/// A request that somebody else does.
pub(crate) struct Errand {
    /// Where the answer goes.
    pub(crate) bench: SharedBench,
    pub(crate) ticket: Ticket,
    pub(crate) connection: u64,
    pub(crate) request: Request,
    pub(crate) ram: Arc<Ram>,
}

#[derive(Default)]
pub(crate) struct Desk {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    flushes: Vec<Errand>,
    others: VecDeque<Errand>,
    /// The connection whose request is being served, apart from flushes.
    served: Option<u64>,
    is_over: bool,
}

impl Desk {
    /// Has an errand answered after a flush that begins from now on.
    pub(crate) fn flush(&self, errand: Errand) {
        self.lock().flushes.push(errand);
        self.changed.notify_all();
    }

    /// Has an errand served and answered.
    pub(crate) fn serve(&self, errand: Errand) {
        self.lock().others.push_back(errand);
        self.changed.notify_all();
    }

    /// Forgets what a connection wanted, and waits until nothing is being done for it any more that
    /// could change data: whoever comes next may do it again.
    pub(crate) fn forget(&self, connection: u64) {
        let mut state = self.lock();
        state.flushes.retain(|errand| errand.connection != connection);
        state.others.retain(|errand| errand.connection != connection);
        let is_served = |state: &mut State| state.served == Some(connection);
        drop(self.changed.wait_while(state, is_served).expect(NOT_POISONED));
    }

    /// Ends both threads, after what they are at.
    pub(crate) fn end(&self) {
        self.lock().is_over = true;
        self.changed.notify_all();
    }

    /// Flushes for others, until the end.
    pub(crate) fn run_flushes(&self, server: &Server) {
        while let Some(errands) = self.take_flushes() {
            let outcome = server.flush(errands.len() as u64);
            for errand in errands {
                errand.bench.hand_in(Done { ticket: errand.ticket, outcome });
            }
        }
    }

    /// Serves requests for others, until the end.
    pub(crate) fn run_others(&self, server: &mut Server) {
        while let Some(errand) = self.take_other() {
            let outcome = server.serve(&errand.ram, &errand.request);
            errand.bench.hand_in(Done { ticket: errand.ticket, outcome });
            self.lock().served = None;
            self.changed.notify_all();
        }
    }

    fn take_flushes(&self) -> Option<Vec<Errand>> {
        let must_wait = |state: &mut State| state.flushes.is_empty() && !state.is_over;
        let mut state = self.changed.wait_while(self.lock(), must_wait).expect(NOT_POISONED);
        (!state.is_over).then(|| std::mem::take(&mut state.flushes))
    }

    fn take_other(&self) -> Option<Errand> {
        let must_wait = |state: &mut State| state.others.is_empty() && !state.is_over;
        let mut state = self.changed.wait_while(self.lock(), must_wait).expect(NOT_POISONED);
        if state.is_over {
            return None;
        }
        let errand = state.others.pop_front();
        state.served = errand.as_ref().map(|errand| errand.connection);
        errand
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect(NOT_POISONED)
    }
}
