//! The seat that a worker takes for slow work, and who leads meanwhile.

use std::cell::Cell;

use super::shared::{Role, Shared, report};
use crate::flush_desk::{Flush, Turn};
use crate::server::Server;

/// Work that a leader may do without having another one called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlowWork {
    Flush,
    /// What a flush will wait for, begun before it came.
    WriteBack,
}

/// A worker's seat for slow work, which it takes when it comes to such.
pub(super) struct Seat<'shared> {
    shared: &'shared Shared,
    worker: usize,
    role: Role,
    is_taken: Cell<bool>,
    aside: Cell<Option<SlowWork>>,
}

impl<'shared> Seat<'shared> {
    pub(super) fn new(shared: &'shared Shared, worker: usize, role: Role) -> Self {
        Self { shared, worker, role, is_taken: Cell::new(false), aside: Cell::new(None) }
    }

    pub(super) fn is_taken(&self) -> bool {
        self.is_taken.get()
    }

    /// Takes the seat, if one is free: somebody else leads from now on.
    pub(super) fn take(&self) {
        if !self.is_taken.get() && self.shared.desk.try_sit() {
            self.is_taken.set(true);
            self.resign();
        }
    }

    /// Does a flush, or leaves it to others.
    pub(super) fn serve_flush(&self, server: &Server<'_>, flush: Flush) {
        if !self.is_taken.get() {
            match self.shared.desk.begin(flush) {
                Turn::Seated => self.sit_for(SlowWork::Flush),
                Turn::NoRoom => {}
                Turn::Waits => return,
            }
        }
        let watches_others = self.is_taken.get() && self.aside.get().is_none();
        let before = watches_others.then(|| self.shared.begun_by_others(self.worker));
        report(server.serve_flushes(&[flush], &self.shared.habits));
        if let Some(before) = before {
            let after = self.shared.begun_by_others(self.worker);
            self.shared.watch.saw_company(before != after);
        }
    }

    /// After a write: has what the next flush will wait for done before that comes, if a flush is
    /// expected and there is nobody else who would have to wait.
    pub(super) fn write_back_early(&self, server: &Server<'_>, node: u64) {
        let Shared { habits, watch, desk, .. } = self.shared;
        let is_time = habits.wrote(node) && watch.is_alone() && !self.is_taken.get();
        if is_time && self.role == Role::Leader && desk.try_sit() {
            self.sit_for(SlowWork::WriteBack);
            server.write_back(node);
        }
    }

    fn sit_for(&self, work: SlowWork) {
        self.is_taken.set(true);
        let Shared { watch, roster, .. } = self.shared;
        if self.role == Role::Leader && watch.is_alone() && watch.step_aside() {
            self.aside.set(Some(work));
            roster.step_aside(self.worker);
        } else {
            self.resign();
        }
    }

    fn resign(&self) {
        if self.role == Role::Leader {
            self.shared.roster.resign();
        }
    }

    /// The work is done. Says whether this worker leads, or need not, and what it was aside for.
    pub(super) fn leave(self) -> (bool, Option<SlowWork>) {
        let Shared { watch, roster, .. } = self.shared;
        let aside = self.aside.get();
        if aside.is_some() {
            watch.come_back();
            let leads = roster.come_back(self.worker);
            return (leads, aside.filter(|_| leads));
        }
        (self.role != Role::Leader || !self.is_taken.get(), None)
    }
}
