//! Subscriptions of a table, and the index of their filters.

use std::ops::ControlFlow;
use std::sync::Arc;

use live_queries::{
    Change, Fields, FilterId, FilterIndex, Found, Paths, Point, Row, SubscriptionStep as Step,
};
use record_batch::Record;

use super::super::cursor::LogCursor;
use super::super::rows::{with_kept, with_row};
use super::super::subscriber::{Held, Machine, Place, Subscriber, Task};
use super::goes_on;
use crate::clock;
use crate::topics::ValueChange;

const NO_PANIC: &str = "no thread panics with this lock";

/// Maximum number of live queries on one table.
const FILTERS_MAX: usize = 50_000;

pub(super) struct Members {
    index: FilterIndex,
    /// Subscribers by the index of their filters.
    all: Vec<Option<Arc<Subscriber>>>,
    /// Subscribers to wake, each at most once.
    touched: Vec<FilterId>,
    is_touched: Vec<bool>,
    leaving: Vec<Leaving>,
    rereading: Vec<FilterId>,
    /// Subscribers with deadlines, and those that end at offsets.
    timed: Vec<FilterId>,
    bounded: Vec<FilterId>,
    fields: Fields,
    found: Found,
    found_old: Found,
}

/// Context for reading records.
pub(super) struct With<'a> {
    pub(super) paths: &'a Paths,
    pub(super) now_ms: i64,
}

/// A subscription that receives no more changes.
struct Leaving {
    filter: FilterId,
    /// Next task of its connection; `None` if it has ended.
    task: Option<Task>,
    /// Partition and offset at which it stopped.
    at: (i32, i64),
}

impl Default for Members {
    fn default() -> Self {
        Self {
            index: FilterIndex::new(FILTERS_MAX),
            all: Vec::new(),
            touched: Vec::new(),
            is_touched: Vec::new(),
            leaving: Vec::new(),
            rereading: Vec::new(),
            timed: Vec::new(),
            bounded: Vec::new(),
            fields: Fields::default(),
            found: Found::default(),
            found_old: Found::default(),
        }
    }
}

impl Members {
    pub(super) fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Subscriber>> {
        self.all.iter().flatten()
    }

    pub(super) fn has_timed(&self) -> bool {
        !self.timed.is_empty()
    }

    /// Returns whether a subscription waits for more than progress.
    pub(super) fn has_due(&self) -> bool {
        self.timed.iter().filter_map(|id| self.all[id.index()].as_ref()).any(|it| {
            let machine = it.lock();
            let is_timed = matches!(machine.subscription.up_to(), Some(Point::TimeMs(_)));
            is_timed || machine.subscription.due_ms().is_some()
        })
    }

    /// Adds a subscription. Returns `false` and ends it if there are too many.
    pub(super) fn add(&mut self, subscriber: &Arc<Subscriber>, place: Place) -> bool {
        let id = match self.index.insert(Arc::clone(subscriber.query.filter())) {
            Ok(id) => id,
            Err(error) => {
                subscriber.fail(error.into());
                return false;
            }
        };
        if self.all.len() <= id.index() {
            self.all.resize(id.index() + 1, None);
            self.is_touched.resize(id.index() + 1, false);
        }
        self.all[id.index()] = Some(Arc::clone(subscriber));
        let mut machine = subscriber.lock();
        (machine.filter, machine.place) = (Some(id), place);
        let options = machine.subscription.options();
        let up_to = machine.subscription.up_to();
        if options.progress || options.every_ms.is_some() || matches!(up_to, Some(Point::TimeMs(_)))
        {
            self.timed.push(id);
        }
        if matches!(up_to, Some(Point::Offset(_) | Point::Positions(_))) {
            self.bounded.push(id);
        }
        drop(machine);
        // It may have ended already, or pending changes may be due.
        self.touch(id);
        true
    }

    /// Removes a subscription whose client has disconnected, if present.
    pub(super) fn remove(&mut self, subscriber: &Subscriber) {
        let filter = subscriber.lock().filter.take();
        if let Some(id) = filter {
            self.forget(id);
        }
    }

    fn forget(&mut self, id: FilterId) {
        self.index.remove(id);
        self.all[id.index()] = None;
        self.timed.retain(|it| *it != id);
        self.bounded.retain(|it| *it != id);
        self.rereading.retain(|it| *it != id);
        self.leaving.retain(|it| it.filter != id);
    }

    fn touch(&mut self, id: FilterId) {
        if !std::mem::replace(&mut self.is_touched[id.index()], true) {
            self.touched.push(id);
        }
    }

    /// Wakes the connections with work.
    pub(super) fn wake(&mut self) {
        for id in self.touched.drain(..) {
            self.is_touched[id.index()] = false;
            if let Some(subscriber) = &self.all[id.index()] {
                subscriber.ready.notify_one();
            }
        }
    }

    /// Reads once for a single subscription. Returns whether it accepted all records.
    pub(super) fn catch_up(
        &mut self,
        subscriber: &Subscriber,
        cursor: &mut LogCursor,
        end: i64,
    ) -> bool {
        let (number, now_ms) = (cursor.number(), clock::unix_ms());
        let paths = subscriber.shared_table.paths.read().expect(NO_PANIC);
        let filter = subscriber.query.filter();
        let is_wanted = |bytes: &[u8]| filter.may_pass(Some(bytes));
        let mut is_taken = true;
        let stepped = cursor.step(end, &is_wanted, &mut |record| {
            let step = with_row((number, record), (&paths, &mut self.fields), |row| {
                let mut machine = subscriber.lock();
                match filter.passes(row) {
                    Ok(true) => machine.subscription.apply(&change_of((number, row), now_ms)),
                    Ok(false) => Step::Passed,
                    Err(error) => machine.subscription.note_failure(number, record.offset, error),
                }
            });
            is_taken = goes_on(step);
            if is_taken { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        // Its connection gets the same error when it continues reading.
        is_taken && stepped.is_ok()
    }

    /// Returns whether a record in these bytes may match any subscription.
    pub(super) fn may_want(&self, bytes: &[u8]) -> bool {
        self.index.may_find(Some(bytes))
    }

    /// Delivers a record of a log to the matching subscriptions.
    pub(super) fn hand_record(&mut self, (number, record): (i32, &Record<'_>), with: &With<'_>) {
        let mut found = std::mem::take(&mut self.found);
        let mut fields = std::mem::take(&mut self.fields);
        with_row((number, record), (with.paths, &mut fields), |row| {
            self.index.find(row, &mut found);
            for id in &found.passed {
                self.hand(*id, (number, record.offset), |machine| {
                    machine.subscription.apply(&change_of((number, row), with.now_ms))
                });
            }
        });
        for (id, error) in &found.failed {
            self.hand(*id, (number, record.offset), |machine| {
                machine.subscription.note_failure(number, record.offset, *error)
            });
        }
        (self.found, self.fields) = (found, fields);
    }

    /// Delivers a record of a log to one subscription.
    fn hand(&mut self, id: FilterId, at: (i32, i64), take: impl FnOnce(&mut Machine) -> Step) {
        let Some(subscriber) = &self.all[id.index()] else { return };
        let mut machine = subscriber.lock();
        if machine.place != Place::Joined {
            return;
        }
        let task = match take(&mut machine) {
            Step::Applied => {
                drop(machine);
                return self.touch(id);
            }
            Step::Passed => return,
            Step::Full => Some(Task::Log),
            Step::RereadNeeded => Some(Task::LogAgain),
            Step::Ended => None,
        };
        // It receives no more records, but remains in the index until the end of this read.
        machine.place = Place::Joining;
        drop(machine);
        self.leaving.push(Leaving { filter: id, task, at });
    }

    /// Delivers a change of current values to the matching subscriptions.
    pub(super) fn hand_change(
        &mut self,
        (index, change): (usize, &Arc<ValueChange>),
        with: &With<'_>,
    ) {
        let number = i32::try_from(index).expect("partitions have a limit");
        let (mut new, mut old) =
            (std::mem::take(&mut self.found), std::mem::take(&mut self.found_old));
        let mut fields = std::mem::take(&mut self.fields);
        for (record, found) in [(&change.new, &mut new), (&change.old, &mut old)] {
            found.passed.clear();
            found.failed.clear();
            if let Some(record) = record
                && self.index.may_find(record.value.as_deref())
            {
                with_kept((number, record), (with.paths, &mut fields), |row| {
                    self.index.find(row, found);
                });
            }
            found.passed.sort_unstable();
        }
        for (id, error) in &new.failed {
            let Some(subscriber) = &self.all[id.index()] else { continue };
            let mut machine = subscriber.lock();
            let offset = change.offset.unwrap_or_default();
            if machine.is_told(index)
                && machine.subscription.note_failure(number, offset, *error) == Step::Ended
            {
                drop(machine);
                self.leaving.push(Leaving { filter: *id, task: None, at: (number, offset) });
            }
        }
        for (id, has_old, has_new) in merged(&old.passed, &new.passed) {
            let change = Arc::clone(change);
            let held = Held { partition: number, change, has_old, has_new, time_ms: with.now_ms };
            self.hand_held(id, index, held, with.paths);
        }
        (self.found, self.found_old, self.fields) = (new, old, fields);
    }

    fn hand_held(&mut self, id: FilterId, index: usize, held: Held, paths: &Paths) {
        let Some(subscriber) = &self.all[id.index()] else { return };
        let mut machine = subscriber.lock();
        // A requested snapshot will include this change.
        let is_reread = machine.place == Place::Joined && machine.subscription.needs_reread();
        if !machine.is_told(index) || is_reread {
            return;
        }
        let at = (held.partition, held.change.offset.unwrap_or_default());
        let step = machine.follow(held, paths);
        drop(machine);
        match step {
            Step::Applied | Step::Full => self.touch(id),
            Step::Passed => {}
            Step::RereadNeeded => {
                self.touch(id);
                self.rereading.push(id);
            }
            Step::Ended => self.leaving.push(Leaving { filter: id, task: None, at }),
        }
    }

    /// Takes the subscriptions that need snapshots again.
    pub(super) fn take_rereading(&mut self) -> Vec<Arc<Subscriber>> {
        let ids = std::mem::take(&mut self.rereading);
        ids.iter().filter_map(|id| self.all[id.index()].clone()).collect()
    }

    /// Removes subscriptions that receive no more changes. `nexts` are the positions of the table.
    pub(super) fn let_go(&mut self, nexts: &[(i32, i64)]) {
        for leaving in std::mem::take(&mut self.leaving) {
            let Some(subscriber) = self.all[leaving.filter.index()].clone() else { continue };
            let mut machine = subscriber.lock();
            machine.filter = None;
            if let Some(task) = leaving.task {
                for (number, next) in nexts {
                    let is_there = *number == leaving.at.0;
                    let next = if is_there { leaving.at.1 } else { *next };
                    machine.subscription.reach(*number, next);
                }
                machine.place = Place::Filling(task);
            }
            drop(machine);
            self.forget(leaving.filter);
            subscriber.ready.notify_one();
        }
    }

    /// Reports the positions of the table to subscriptions that end at offsets.
    pub(super) fn reach(&mut self, nexts: &[(i32, i64)]) {
        for id in self.bounded.clone() {
            let Some(subscriber) = &self.all[id.index()] else { continue };
            let mut machine = subscriber.lock();
            if machine.place != Place::Joined || machine.has_backlog() {
                continue;
            }
            let steps =
                nexts.iter().map(|(number, next)| machine.subscription.reach(*number, *next));
            let is_ended = steps.fold(false, |is_ended, step| is_ended | (step == Step::Ended));
            drop(machine);
            if is_ended {
                self.leaving.push(Leaving { filter: id, task: None, at: (0, 0) });
            }
        }
        self.let_go(nexts);
    }

    /// Handles deadlines. `progress` are the positions of the table, if progress must be reported.
    pub(super) fn tick(&mut self, now_ms: i64, progress: Option<&[(i32, i64)]>) {
        for id in self.timed.clone() {
            let Some(subscriber) = &self.all[id.index()] else { continue };
            let mut machine = subscriber.lock();
            if machine.place != Place::Joined || machine.has_backlog() {
                continue;
            }
            if let Some(nexts) = progress.filter(|_| machine.subscription.options().progress) {
                for (number, next) in nexts {
                    machine.subscription.reach(*number, *next);
                }
                machine.subscription.progress(now_ms);
            }
            machine.subscription.tick(now_ms);
            let is_ended = machine.subscription.end().is_some();
            let has_rows = machine.subscription.queued_count() > 0;
            drop(machine);
            if is_ended {
                self.leaving.push(Leaving { filter: id, task: None, at: (0, 0) });
            } else if has_rows {
                self.touch(id);
            }
        }
    }
}

/// Returns the change for a record appended to a log.
fn change_of<'a>((partition, row): (i32, &'a Row<'a>), now_ms: i64) -> Change<'a> {
    let record = row.record();
    Change {
        partition,
        offset: Some(record.offset),
        time_ms: record.timestamp_ms.min(now_ms),
        key: record.key,
        old: None,
        new: Some(row),
    }
}

/// Merges two sorted lists. Returns for each element in which of them it is.
fn merged(old: &[FilterId], new: &[FilterId]) -> Vec<(FilterId, bool, bool)> {
    let mut all: Vec<FilterId> = old.iter().chain(new).copied().collect();
    all.sort_unstable();
    all.dedup();
    let is_in = |list: &[FilterId], id: &FilterId| list.binary_search(id).is_ok();
    all.into_iter().map(|id| (id, is_in(old, &id), is_in(new, &id))).collect()
}
