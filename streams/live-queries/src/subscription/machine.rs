//! One subscription as a state machine.
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

/// A live query for one client. It never reads a clock: times are handed in.
///
/// The owner fills it from a snapshot at some positions, then hands it every change behind these,
/// in the order of each partition; a change that it has had already is passed over. Rows wait in a
/// bounded queue; what happens when that is full is the client's choice ([`Backpressure`]).
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
    /// The next offset of each partition.
    positions: Vec<(i32, i64)>,
    time_ms: i64,
    /// When waiting changes are sent next, with EVERY.
    due_ms: Option<i64>,
    /// Changes wait because the queue was full.
    is_behind: bool,
    progress_due: bool,
    group_limits: GroupLimits,
    /// Records whose filter failed.
    unfiltered_count: u64,
}

#[derive(Debug, PartialEq)]
enum Phase {
    New,
    Filling,
    Live,
    /// A top-n waits to be filled anew.
    Rereading,
    Ended(Result<(), SqlError>),
}

/// Outcome for a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Applied,
    /// It was applied before, or is behind UP TO.
    Passed,
    /// The queue is full and the client wants all: hand it in again when rows have been taken.
    Full,
    /// It was applied, but a top-n lacks rows: fill it again from a snapshot at this position.
    RereadNeeded,
    /// The subscription has ended, see [`Subscription::end`].
    Ended,
}

impl Subscription {
    /// Fails if the statement asks for what its query does not give.
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

    /// The columns that the client sees.
    pub fn columns(&self) -> Vec<OutputColumn> {
        self.layout.columns()
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns whether the rows that are there are needed: the client wants them, or the result is
    /// made from them. Otherwise a snapshot may be begun and ended without rows.
    pub fn wants_snapshot(&self) -> bool {
        self.options.snapshot || self.query.is_grouped() || self.query.is_top()
    }

    /// Records on which the query failed and that are therefore not in its result.
    pub fn failed_count(&self) -> u64 {
        self.view.failures().0 + self.unfiltered_count
    }

    /// Changes that took the place of others that waited.
    pub fn conflated_count(&self) -> u64 {
        self.pending.conflated_count
    }

    pub fn options(&self) -> &SubscribeOptions {
        &self.options
    }

    /// Returns whether it waits for a snapshot to begin again with: see [`Step::RereadNeeded`].
    pub fn needs_reread(&self) -> bool {
        self.phase == Phase::Rereading
    }

    /// Where it ends.
    pub fn up_to(&self) -> Option<&Point> {
        self.up_to.as_ref()
    }

    /// The next offset of each partition: where a subscription that goes on from here begins.
    pub fn positions(&self) -> &[(i32, i64)] {
        &self.positions
    }

    /// Begins a snapshot whose records are all those before `positions`, the next offset of each
    /// partition. To be called again when a reread is needed.
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
            // What was shown is taken back here and shown again below, if it is still there: only
            // the difference is sent.
            for (key, row) in shown {
                let change = ResultChange { key, before: Some(row), after: None };
                self.pending.merge(change, Vec::new());
            }
            let first = self.view.start();
            self.follow(first.into_iter().collect(), &[]);
        }
    }

    /// Adds a row of the snapshot that passes the filter. `Step::Full`: again later.
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

    /// Ends the snapshot: what follows are changes.
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

    /// Follows one change.
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

    /// A record on which the filter failed, and which is therefore not in the result.
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

    /// All changes of a partition before `next_offset` that pass the filter were handed in. Ends
    /// the subscription where that is what UP TO asks for.
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

    /// Tells a client that asked for PROGRESS how far it has come, once all before is sent.
    pub fn progress(&mut self, now_ms: i64) {
        if self.phase == Phase::Live {
            self.set_time(now_ms);
            self.progress_due = self.options.progress;
            self.send_progress();
        }
    }

    /// Sends what waits if it is due at `now_ms`, and ends at the time of UP TO.
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

    /// When [`Self::tick`] has something to send that waits now.
    pub fn due_ms(&self) -> Option<i64> {
        self.due_ms
    }

    /// The next rows for the client: all that wait.
    pub fn take(&mut self) -> OutputRows {
        if self.queue.is_empty() && self.is_behind && self.due_ms.is_none() {
            self.is_behind = false;
            self.flush();
            self.send_progress();
        }
        self.queue.take()
    }

    /// Rows that wait for the client.
    pub fn queued_count(&self) -> usize {
        self.queue.len()
    }

    /// End of it, once all rows have been taken.
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

    /// Whether rows of records go to the client as they come.
    fn is_shown_at_once(&self) -> bool {
        let is_shown = match self.phase {
            Phase::Filling => self.options.snapshot,
            Phase::Live => self.options.every_ms.is_none() && !self.is_behind,
            _ => false,
        };
        is_shown && self.top.is_none() && !self.query.is_grouped()
    }

    /// Shows the row of a record that passes.
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

    /// Rows of a log are conflated by the key of their record.
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

    /// Has changes of the result go their way to the client.
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
        // A top-n is shown as a whole at the end; what no client asked for is not shown at all.
        if is_filling && (self.top.is_some() || !self.options.snapshot) {
            return Step::Applied;
        }
        let is_kept_back = self.phase == Phase::Rereading
            || (is_filling && self.query.is_grouped())
            // Several changes of one row, such as one that moves within a top-n, become one.
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

    /// What becomes of a client that is behind.
    fn limit(&mut self) -> Step {
        if self.phase != Phase::Live {
            return Step::Applied;
        }
        // What waits has a bound: where the client keeps up, it is sent before it is due.
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
            "the client does not keep up with its subscription",
        );
        self.end_with(
            Err(error.with_hint("read faster, or choose BACKPRESSURE = conflate or wait")),
        )
    }

    /// Sends all that waits.
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

    /// A row of progress is sent when nothing before it waits.
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

    /// Whether `offset` is new in its partition, which is then behind it.
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

    /// A change behind UP TO: the end, once every partition has come there.
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

    /// Whether every partition has come to UP TO.
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
