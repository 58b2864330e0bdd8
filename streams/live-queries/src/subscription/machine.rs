//! A subscription as a state machine.
//!
//! ```text
//!             begin_snapshot         end_snapshot
//! new ─────────────────────▶ Filling ────────────▶ Live ──▶ Ended (UP TO, an error)
//!                              ▲                     │
//!                              └─────────────────────┘ RereadNeeded: a top-n ran out of rows
//! ```

use std::sync::Arc;

use crate::error::{RowError, SqlError, SqlState};
use crate::query::{OutputColumn, Query};
use crate::result::{Change, GroupLimits, ResultChange, TopRows, Topped, View};
use crate::row::Row;
use crate::statement::{Backpressure, OnError, Point, Subscribe, SubscribeOptions};
use crate::subscription::layout::Layout;
use crate::subscription::pending::Pending;
use crate::subscription::queue::{Queue, QueueLimits};
use crate::subscription::rows::{Head, OutputRows};
use crate::table::TableKind;

/// A live query of one client. Never reads a clock: the caller passes the time.
///
/// The owner fills it from a snapshot at some positions, then applies every later change, in the
/// order of each partition. Changes that were already applied are ignored. Rows wait in a bounded
/// queue. The client chooses what happens if it is full ([`Backpressure`]).
#[derive(Debug)]
pub struct Subscription {
    query: Arc<Query>,
    layout: Layout,
    options: SubscribeOptions,
    up_to: Option<Point>,
    view: View,
    top: Option<TopRows>,
    pending: Pending,
    queue: Queue,
    phase: Phase,
    /// Next offset of each partition.
    positions: Vec<(i32, i64)>,
    time_ms: i64,
    /// Time at which pending changes are sent, with EVERY.
    due_ms: Option<i64>,
    /// Changes are pending because the queue was full.
    is_behind: bool,
    progress_due: bool,
    group_limits: GroupLimits,
    /// Number of records on which the filter failed.
    unfiltered_count: u64,
}

#[derive(Debug, PartialEq)]
enum Phase {
    New,
    Filling,
    Live,
    /// A top-n is waiting to be refilled.
    Rereading,
    Ended(Result<(), SqlError>),
}

/// Result of applying a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Applied,
    /// The change was applied before, or is after UP TO.
    Passed,
    /// The queue is full and the client wants all rows: repeat after rows have been taken.
    Full,
    /// The change was applied, but a top-n lacks rows: refill it from a snapshot at this position.
    RereadNeeded,
    /// The subscription has ended, see [`Subscription::end`].
    Ended,
}

impl Subscription {
    /// Fails if the statement has options that its query does not support.
    pub fn new(
        query: Arc<Query>,
        subscribe: &Subscribe,
        limits: QueueLimits,
        group_limits: GroupLimits,
    ) -> Result<Self, SqlError> {
        let layout = Layout::new(&query, &subscribe.envelope, &subscribe.options)?;
        let top = query.limit.map(|limit| TopRows::new(&query.order, limit));
        Ok(Self {
            layout,
            options: subscribe.options.clone(),
            up_to: subscribe.up_to.clone(),
            view: View::new(query.clone(), group_limits),
            top,
            pending: Pending::new(limits),
            queue: Queue::new(limits),
            phase: Phase::New,
            positions: Vec::new(),
            time_ms: i64::MIN,
            due_ms: None,
            is_behind: false,
            progress_due: false,
            group_limits,
            unfiltered_count: 0,
            query,
        })
    }

    pub fn query(&self) -> &Arc<Query> {
        &self.query
    }

    /// Returns the columns that the client receives.
    pub fn columns(&self) -> Vec<OutputColumn> {
        self.layout.columns()
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns whether existing rows are needed, because the client wants them or the result
    /// depends on them. Otherwise a snapshot may be begun and ended without rows.
    pub fn wants_snapshot(&self) -> bool {
        self.options.snapshot || self.query.is_grouped() || self.query.is_top()
    }

    /// Returns the number of records on which the query failed, which are excluded from the result.
    pub fn failed_count(&self) -> u64 {
        self.view.failures().0 + self.unfiltered_count
    }

    /// Returns the number of changes that replaced pending ones.
    pub fn conflated_count(&self) -> u64 {
        self.pending.conflated_count
    }

    pub fn options(&self) -> &SubscribeOptions {
        &self.options
    }

    /// Returns whether a new snapshot is needed: see [`Step::RereadNeeded`].
    pub fn needs_reread(&self) -> bool {
        self.phase == Phase::Rereading
    }

    /// Returns the end of the subscription.
    pub fn up_to(&self) -> Option<&Point> {
        self.up_to.as_ref()
    }

    /// Returns the next offset of each partition, at which a resumed subscription continues.
    pub fn positions(&self) -> &[(i32, i64)] {
        &self.positions
    }

    /// Begins a snapshot of all records before `positions`, the next offset of each partition. Must
    /// be called again when a reread is needed.
    pub fn begin_snapshot(&mut self, time_ms: i64, positions: &[(i32, i64)]) {
        self.set_time(time_ms);
        self.positions = positions.to_vec();
        if self.phase == Phase::New {
            let first = self.view.start();
            self.phase = Phase::Filling;
            self.follow(first.into_iter().collect(), &[]);
        } else if matches!(self.phase, Phase::Live | Phase::Rereading) {
            self.view = View::new(self.query.clone(), self.group_limits);
            self.phase = Phase::Rereading;
            let shown = self.top.as_mut().map(TopRows::clear).unwrap_or_default();
            // Shown rows are retracted here and added again below if they still exist, so only the
            // difference is sent.
            for (key, row) in shown {
                let change = ResultChange { key, before: Some(row), after: None };
                self.pending.merge(change, Vec::new());
            }
            let first = self.view.start();
            self.follow(first.into_iter().collect(), &[]);
        }
    }

    /// Adds a snapshot row that passes the filter. On `Step::Full`, repeat it later.
    pub fn snapshot_row(&mut self, row: &Row<'_>) -> Step {
        let record = *row.record();
        let change = Change {
            partition: record.partition,
            offset: Some(record.offset),
            time_ms: self.time_ms,
            key: record.key,
            old: None,
            new: Some(row),
        };
        match self.phase {
            Phase::Ended(_) => return Step::Ended,
            Phase::Filling if self.queue.is_full() => return Step::Full,
            _ => {}
        }
        self.apply_to_view(&change)
    }

    /// Ends the snapshot. Changes follow.
    pub fn end_snapshot(&mut self) {
        match self.phase {
            Phase::Filling => {
                if self.options.snapshot
                    && let Some(top) = &self.top
                {
                    let shown: Vec<_> = top.shown().map(|(_, row)| row.clone()).collect();
                    shown.iter().for_each(|row| self.emit(None, Some(row), &[]));
                }
                if self.options.snapshot && self.query.is_grouped() && self.top.is_none() {
                    self.flush();
                }
                self.phase = Phase::Live;
            }
            Phase::Rereading => {
                self.phase = Phase::Live;
                match self.options.every_ms.is_none() && !self.is_behind {
                    true => self.flush(),
                    false => {
                        self.limit();
                    }
                }
            }
            _ => return,
        }
        self.progress_due = self.options.progress;
        self.send_progress();
    }

    /// Applies a change.
    pub fn apply(&mut self, change: &Change<'_>) -> Step {
        match self.phase {
            Phase::Live => {}
            Phase::Rereading => return Step::RereadNeeded,
            Phase::Ended(_) => return Step::Ended,
            Phase::New | Phase::Filling => panic!("changes come behind the snapshot"),
        }
        if self.options.backpressure == Backpressure::Wait && self.queue.is_full() {
            return Step::Full;
        }
        if self.is_up_to(change) {
            return self.pass_end(change);
        }
        if let Some(offset) = change.offset
            && !self.advance(change.partition, offset)
        {
            return Step::Passed;
        }
        self.set_time(change.time_ms);
        self.apply_to_view(change)
    }

    /// Reports a record on which the filter failed, and which is therefore excluded.
    pub fn note_failure(&mut self, partition: i32, offset: i64, error: RowError) -> Step {
        if matches!(self.phase, Phase::Ended(_)) {
            return Step::Ended;
        }
        let is_behind = |it: &(i32, i64)| it.0 == partition && offset < it.1;
        if self.phase == Phase::Live && self.positions.iter().any(is_behind) {
            return Step::Passed;
        }
        self.unfiltered_count += 1;
        match self.options.on_error {
            OnError::Skip => Step::Applied,
            OnError::Fail => self.fail_at(partition, offset, error),
        }
    }

    /// Reports that all matching changes of a partition before `next_offset` were applied. Ends the
    /// subscription if UP TO is reached.
    pub fn reach(&mut self, partition: i32, next_offset: i64) -> Step {
        if self.phase != Phase::Live {
            return if matches!(self.phase, Phase::Ended(_)) { Step::Ended } else { Step::Passed };
        }
        self.advance(partition, next_offset.saturating_sub(1));
        let is_bounded = matches!(self.up_to, Some(Point::Offset(_) | Point::Positions(_)));
        match is_bounded && self.has_come_to_end() {
            true => self.end_with(Ok(())),
            false => Step::Applied,
        }
    }

    /// Sends a progress row to a client that requested PROGRESS, after all pending changes.
    pub fn progress(&mut self, now_ms: i64) {
        if self.phase == Phase::Live {
            self.set_time(now_ms);
            self.progress_due = self.options.progress;
            self.send_progress();
        }
    }

    /// Sends pending changes that are due at `now_ms`, and ends at the time of UP TO.
    pub fn tick(&mut self, now_ms: i64) {
        if self.phase != Phase::Live {
            return;
        }
        self.set_time(now_ms);
        if matches!(self.up_to, Some(Point::TimeMs(end)) if now_ms >= end) {
            self.end_with(Ok(()));
            return;
        }
        if self.due_ms.is_some_and(|it| now_ms >= it) && !self.queue.is_full() {
            self.flush();
        }
        self.send_progress();
    }

    /// Returns the time at which [`Self::tick`] has pending changes to send.
    pub fn due_ms(&self) -> Option<i64> {
        self.due_ms
    }

    /// Takes all rows that wait for the client.
    pub fn take(&mut self) -> OutputRows {
        if self.queue.is_empty() && self.is_behind && self.due_ms.is_none() {
            self.is_behind = false;
            self.flush();
            self.send_progress();
        }
        self.queue.take()
    }

    /// Returns the number of rows that wait for the client.
    pub fn queued_count(&self) -> usize {
        self.queue.len()
    }

    /// Returns the end of the subscription, once all rows have been taken.
    pub fn end(&self) -> Option<&Result<(), SqlError>> {
        match &self.phase {
            Phase::Ended(result) if self.queue.is_empty() && !self.is_behind => Some(result),
            _ => None,
        }
    }

    fn apply_to_view(&mut self, change: &Change<'_>) -> Step {
        if let (None, Some(row)) = (change.old, change.new)
            && self.is_shown_at_once()
        {
            return self.show(row, change);
        }
        let failed_count = self.view.failures().0;
        let mut changes = Vec::new();
        if let Err(error) = self.view.apply(change, &mut changes) {
            return self.end_with(Err(error));
        }
        if self.options.on_error == OnError::Fail
            && let (count, Some(error)) = self.view.failures()
            && count > failed_count
        {
            return self.fail_at(change.partition, change.offset.unwrap_or_default(), error);
        }
        self.rekey(change, &mut changes);
        let position = change.offset.map(|offset| (change.partition, offset));
        self.follow(changes, position.as_slice())
    }

    /// Returns whether rows of records are sent to the client immediately.
    fn is_shown_at_once(&self) -> bool {
        let is_shown = match self.phase {
            Phase::Filling => self.options.snapshot,
            Phase::Live => self.options.every_ms.is_none() && !self.is_behind,
            _ => false,
        };
        is_shown && self.top.is_none() && !self.query.is_grouped()
    }

    /// Queues the row of a record that passes the filter.
    fn show(&mut self, row: &Row<'_>, change: &Change<'_>) -> Step {
        let Some(columns) = self.query.columns_of(row, self.layout.sources()) else {
            panic!("a query that groups shows no rows of records");
        };
        let position = change.offset.map(|offset| (change.partition, offset));
        let (event, time_ms) = (self.layout.event_of_new(), self.time_ms);
        let head = Head { event, time_ms, positions: position.as_slice() };
        match self.queue.rows().try_push(head, columns) {
            Ok(()) => self.limit(),
            Err(error) => {
                self.view.note_failure(error);
                match self.options.on_error {
                    OnError::Skip => Step::Applied,
                    OnError::Fail => {
                        self.fail_at(change.partition, change.offset.unwrap_or_default(), error)
                    }
                }
            }
        }
    }

    fn fail_at(&mut self, partition: i32, offset: i64, error: RowError) -> Step {
        let mut error = SqlError::from(error);
        error.message =
            format!("{} (record of partition {partition} at offset {offset})", error.message);
        self.end_with(Err(error))
    }

    /// Keys rows of a log by the key of their record, for conflation.
    fn rekey(&self, change: &Change<'_>, changes: &mut [ResultChange]) {
        let is_log = self.query.kind == TableKind::Log;
        if !is_log || self.top.is_some() || self.query.is_grouped() {
            return;
        }
        if let Some(key) = change.key {
            let bytes = [&change.partition.to_be_bytes(), key].concat();
            changes.iter_mut().for_each(|it| it.key = bytes.as_slice().into());
        }
    }

    /// Passes changes of the result on to the client.
    fn follow(&mut self, changes: Vec<ResultChange>, positions: &[(i32, i64)]) -> Step {
        let mut topped = Topped::Kept;
        let changes = match &mut self.top {
            None => changes,
            Some(top) => {
                let mut shown = Vec::new();
                for change in changes {
                    if top.apply(change, &mut shown) == Topped::RereadNeeded {
                        topped = Topped::RereadNeeded;
                    }
                }
                shown
            }
        };
        let is_filling = self.phase == Phase::Filling;
        // A top-n is sent as a whole at the end. Rows that the client did not request are not sent.
        if is_filling && (self.top.is_some() || !self.options.snapshot) {
            return Step::Applied;
        }
        let is_kept_back = self.phase == Phase::Rereading
            || (is_filling && self.query.is_grouped())
            // Several changes of one row, such as a move within a top-n, are merged.
            || self.top.is_some();
        let is_conflated = self.options.every_ms.is_some() || self.is_behind;
        for change in changes {
            match is_kept_back || (is_conflated && !is_filling) {
                true => self.pending.merge(change, positions.to_vec()),
                false => self.emit(change.before.as_deref(), change.after.as_deref(), positions),
            }
        }
        if topped == Topped::RereadNeeded {
            self.phase = Phase::Rereading;
            return Step::RereadNeeded;
        }
        if self.top.is_some() && self.phase == Phase::Live && !is_conflated {
            self.flush();
        }
        self.limit()
    }

    /// Handles a client that is behind.
    fn limit(&mut self) -> Step {
        if self.phase != Phase::Live {
            return Step::Applied;
        }
        // Pending changes are bounded: if the client keeps up, they are sent before they are due.
        if self.pending.is_full() && !self.queue.is_full() {
            self.flush();
            return Step::Applied;
        }
        if let Some(every_ms) = self.options.every_ms
            && !self.pending.is_empty()
        {
            let every_ms = i64::try_from(every_ms).unwrap_or(i64::MAX);
            self.due_ms.get_or_insert(self.time_ms.saturating_add(every_ms));
        }
        match self.options.backpressure {
            Backpressure::Wait => return Step::Applied,
            Backpressure::Conflate => {
                self.is_behind |= self.queue.is_full();
                if !self.pending.is_full() {
                    return Step::Applied;
                }
            }
            Backpressure::Disconnect if self.queue.is_full() => {}
            Backpressure::Disconnect => return Step::Applied,
        }
        let error = SqlError::new(
            SqlState::CONFIGURATION_LIMIT,
            "the client is too slow: the buffer of its subscription is full",
        );
        self.end_with(
            Err(error.with_hint("read faster, or choose BACKPRESSURE = conflate or wait")),
        )
    }

    /// Sends all pending changes.
    fn flush(&mut self) {
        self.due_ms = None;
        for change in self.pending.take() {
            self.emit(change.before.as_deref(), change.after.as_deref(), &change.positions);
        }
    }

    fn emit(
        &mut self,
        before: Option<&crate::result::ResultRow>,
        after: Option<&crate::result::ResultRow>,
        positions: &[(i32, i64)],
    ) {
        self.layout.put((before, after), (self.time_ms, positions), self.queue.rows());
    }

    /// Sends a due progress row if nothing before it is pending.
    fn send_progress(&mut self) {
        let waits = !self.pending.is_empty() || self.queue.is_full();
        if !self.progress_due || waits {
            return;
        }
        self.progress_due = false;
        self.layout.put_progress(self.time_ms, &self.positions, self.queue.rows());
    }

    fn set_time(&mut self, time_ms: i64) {
        self.time_ms = self.time_ms.max(time_ms);
    }

    /// Advances a partition beyond `offset`. Returns whether the offset was new.
    fn advance(&mut self, partition: i32, offset: i64) -> bool {
        let next = offset.saturating_add(1);
        match self.positions.iter_mut().find(|it| it.0 == partition) {
            Some((_, position)) if offset < *position => false,
            Some((_, position)) => {
                *position = next;
                true
            }
            None => {
                self.positions.push((partition, next));
                true
            }
        }
    }

    fn is_up_to(&self, change: &Change<'_>) -> bool {
        match &self.up_to {
            None => false,
            Some(Point::TimeMs(end)) => change.time_ms >= *end,
            Some(Point::Offset(end)) => change.offset.is_some_and(|it| it >= *end),
            Some(Point::Positions(ends)) => {
                let end = ends.iter().find(|it| it.0 == change.partition);
                end.is_some_and(|it| change.offset.is_some_and(|offset| offset >= it.1))
            }
        }
    }

    /// Handles a change after UP TO: ends once every partition has reached it.
    fn pass_end(&mut self, change: &Change<'_>) -> Step {
        let end = match &self.up_to {
            Some(Point::Offset(end)) => Some(*end),
            Some(Point::Positions(ends)) => {
                ends.iter().find(|it| it.0 == change.partition).map(|it| it.1)
            }
            _ => None,
        };
        if let Some(end) = end {
            self.advance(change.partition, end.saturating_sub(1));
        }
        if self.has_come_to_end() { self.end_with(Ok(())) } else { Step::Passed }
    }

    /// Returns whether every partition has reached UP TO.
    fn has_come_to_end(&self) -> bool {
        let has_come = |partition: i32, end: i64| {
            end == 0 || self.positions.iter().any(|it| it.0 == partition && it.1 >= end)
        };
        match &self.up_to {
            Some(Point::Offset(end)) => self.positions.iter().all(|it| it.1 >= *end),
            Some(Point::Positions(ends)) => ends.iter().all(|it| has_come(it.0, it.1)),
            _ => true,
        }
    }

    fn end_with(&mut self, result: Result<(), SqlError>) -> Step {
        if result.is_ok() {
            self.is_behind = false;
            self.flush();
        }
        self.progress_due &= result.is_ok();
        self.is_behind = false;
        self.phase = Phase::Ended(result);
        Step::Ended
    }
}
