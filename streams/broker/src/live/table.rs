//! One table in a worker: its positions, and the live queries on it.

mod members;

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use live_queries::{SubscriptionStep as Step, TableKind};
use sql::{SqlError, SqlState};
use tokio::time::Instant;

use self::members::{Members, With};
use super::counters::Counters;
use super::cursor::LogCursor;
use super::subscriber::{Command, Place, SharedTable, Subscriber, Task};
use crate::clock;
use crate::topics::{Broken, ChangeFeed, FeedItem, OpenPartition};

const NO_PANIC: &str = "no thread panics with this lock";

/// Maximum reads of a partition per round, of 1 MiB each.
const READS_MAX: usize = 4;

/// Maximum reads of a log for a joining subscription. One that lags further continues reading on
/// its connection.
const JOIN_READS_MAX: usize = 4;

/// Interval of checks for deadlines of subscriptions.
const TICK: Duration = Duration::from_millis(5);

/// Interval of progress reports to clients that use PROGRESS.
const PROGRESS: Duration = Duration::from_secs(1);

pub(super) struct Table {
    pub(super) shared_table: Arc<SharedTable>,
    parts: Parts,
    members: Members,
    /// Subscribers that wait for snapshots.
    waiting: Vec<Arc<Subscriber>>,
    next_tick: Instant,
    next_progress: Instant,
}

enum Parts {
    Log(Vec<LogPart>),
    Values(Vec<ValuesPart>),
}

struct LogPart {
    partition: Arc<OpenPartition>,
    cursor: LogCursor,
}

struct ValuesPart {
    partition: Arc<OpenPartition>,
    feed: Arc<ChangeFeed>,
    applied: i64,
}

impl Table {
    pub(super) fn new(shared_table: Arc<SharedTable>) -> Self {
        let now = Instant::now();
        let parts = match shared_table.kind {
            TableKind::Log => Parts::Log(Vec::new()),
            TableKind::Values => Parts::Values(Vec::new()),
        };
        let members = Members::default();
        let mut table = Self {
            shared_table,
            parts,
            members,
            waiting: Vec::new(),
            next_tick: now,
            next_progress: now,
        };
        table.find_partitions();
        table
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Adds new partitions of the topic.
    fn find_partitions(&mut self) {
        let partitions = Arc::clone(&self.shared_table.topic.partitions());
        match &mut self.parts {
            Parts::Log(parts) => {
                for partition in partitions.iter().skip(parts.len()) {
                    let start = partition.log.start_offset();
                    let cursor = LogCursor::new(Arc::clone(&partition.log), start);
                    parts.push(LogPart { partition: Arc::clone(partition), cursor });
                }
            }
            Parts::Values(parts) => {
                let is_grown = !parts.is_empty() && parts.len() < partitions.len();
                for partition in partitions.iter().skip(parts.len()) {
                    let feed = partition.feeds.add(Arc::clone(&self.shared_table.inbox.notify));
                    partition.watchers.wake();
                    parts.push(ValuesPart { partition: Arc::clone(partition), feed, applied: 0 });
                }
                if is_grown {
                    self.fail_all(&self.lost("has more partitions now"));
                }
            }
        }
    }

    fn lost(&self, why: &str) -> SqlError {
        let what = format!("the topic {:?} {why}", self.shared_table.topic.name);
        SqlError::new(SqlState::SERIALIZATION, what).with_hint("Subscribe again.")
    }

    /// Ends all subscriptions with an error.
    pub(super) fn fail_all(&mut self, error: &SqlError) {
        self.members.all().for_each(|it| it.fail(error.clone()));
    }

    pub(super) fn obey(&mut self, command: Command) {
        match command {
            Command::Join(subscriber) if subscriber.lock().is_left => {}
            Command::Join(subscriber) => match self.shared_table.kind {
                TableKind::Log => self.join_log(subscriber),
                TableKind::Values => self.join_values(subscriber),
            },
            Command::Reread(subscriber) => {
                if subscriber.lock().subscription.needs_reread() {
                    self.ask_for_snapshots(subscriber);
                }
            }
            Command::Leave(subscriber) => {
                self.waiting.retain(|it| !Arc::ptr_eq(it, &subscriber));
                self.members.remove(&subscriber);
            }
        }
    }

    /// Reads up to the table's positions for a subscription, and then delivers later records to it.
    fn join_log(&mut self, subscriber: Arc<Subscriber>) {
        let Parts::Log(parts) = &mut self.parts else { return };
        let positions = subscriber.lock().subscription.positions().to_vec();
        for part in parts.iter_mut() {
            let number = part.cursor.number();
            let position = positions.iter().find(|it| it.0 == number).map(|it| it.1);
            let position = position.unwrap_or_else(|| part.cursor.partition().start_offset());
            if self.members.is_empty() {
                part.cursor.set_next(position);
            }
            let end = part.cursor.next();
            let mut own = LogCursor::new(Arc::clone(&part.partition.log), position);
            for _ in 0..JOIN_READS_MAX {
                if own.next() >= end || !self.members.catch_up(&subscriber, &mut own, end) {
                    break;
                }
            }
            let mut machine = subscriber.lock();
            // The subscription has passed these records, even if it is ahead of the table.
            machine.subscription.reach(number, own.next());
            if own.next() < end {
                // Its connection continues reading.
                machine.place = Place::Filling(Task::Log);
                drop(machine);
                subscriber.ready.notify_one();
                return;
            }
        }
        self.members.add(&subscriber, Place::Joined);
    }

    fn join_values(&mut self, subscriber: Arc<Subscriber>) {
        if self.members.add(&subscriber, Place::Joining) {
            self.ask_for_snapshots(subscriber);
        }
    }

    fn ask_for_snapshots(&mut self, subscriber: Arc<Subscriber>) {
        let Parts::Values(parts) = &self.parts else { return };
        subscriber.lock().await_snapshots(parts.len());
        for part in parts {
            part.feed.ask_for_snapshot();
            part.partition.watchers.wake();
        }
        self.waiting.push(subscriber);
    }

    /// Delivers new records or changes, up to a limit. Returns whether there are more.
    pub(super) fn go_on(&mut self, counters: &Counters) -> bool {
        let (is_behind, count) = match self.shared_table.kind {
            TableKind::Log => self.follow_log(),
            TableKind::Values => self.follow_values(),
        };
        Counters::add(&counters.records, count);
        self.members.wake();
        is_behind
    }

    fn follow_log(&mut self) -> (bool, u64) {
        let Parts::Log(parts) = &mut self.parts else { return (false, 0) };
        let now_ms = clock::unix_ms();
        let (mut is_behind, mut count) = (false, 0);
        for index in 0..parts.len() {
            let part = &mut parts[index];
            // First: later records notify again.
            part.partition.watchers.add(&self.shared_table.inbox.notify);
            let end = part.partition.log.last_stable_offset();
            for _ in 0..READS_MAX {
                let part = &mut parts[index];
                if part.cursor.next() >= end {
                    break;
                }
                let paths = self.shared_table.paths.read().expect(NO_PANIC);
                let (number, with) = (part.cursor.number(), With { paths: &paths, now_ms });
                let members = RefCell::new(&mut self.members);
                let is_wanted = |bytes: &[u8]| members.borrow().may_want(bytes);
                let stepped = part.cursor.step(end, &is_wanted, &mut |record| {
                    members.borrow_mut().hand_record((number, record), &with);
                    ControlFlow::Continue(())
                });
                drop(paths);
                match stepped {
                    Ok(read) => count += read as u64,
                    Err(error) => {
                        let error = part.cursor.explain(&self.shared_table.topic.name, error);
                        // Later subscribers start from the end.
                        part.cursor.set_next(end);
                        self.members.all().for_each(|it| it.fail(error.clone()));
                    }
                }
                let nexts: Vec<_> =
                    parts.iter().map(|it| (it.cursor.number(), it.cursor.next())).collect();
                self.members.let_go(&nexts);
            }
            is_behind |= parts[index].cursor.next() < end;
        }
        let nexts: Vec<_> = parts.iter().map(|it| (it.cursor.number(), it.cursor.next())).collect();
        self.members.reach(&nexts);
        (is_behind, count)
    }

    fn follow_values(&mut self) -> (bool, u64) {
        let Parts::Values(parts) = &mut self.parts else { return (false, 0) };
        let now_ms = clock::unix_ms();
        let (mut count, mut broken, mut items) = (0, None, Vec::new());
        for (index, part) in parts.iter_mut().enumerate() {
            match part.feed.take(&mut items) {
                Ok(applied) => part.applied = applied,
                Err(why) => {
                    broken = Some(why);
                    part.feed =
                        part.partition.feeds.add(Arc::clone(&self.shared_table.inbox.notify));
                    part.partition.watchers.wake();
                    continue;
                }
            }
            let paths = self.shared_table.paths.read().expect(NO_PANIC);
            for item in items.drain(..) {
                match item {
                    FeedItem::Snapshot(snapshot) => {
                        for subscriber in &self.waiting {
                            let mut machine = subscriber.lock();
                            if let Some(place) = machine.snapshots.get_mut(index) {
                                place.get_or_insert_with(|| Arc::clone(&snapshot));
                            }
                        }
                        self.waiting.retain(|it| !is_filled(it));
                    }
                    FeedItem::Change(change) => {
                        count += 1;
                        self.members.hand_change((index, &change), &With { paths: &paths, now_ms });
                    }
                }
            }
        }
        if let Some(why) = broken {
            let why = match why {
                Broken::Behind => "changes faster than its live queries can follow",
                Broken::Unfollowed => "was deleted, or its current values are being rebuilt",
            };
            self.fail_all(&self.lost(why));
        }
        for subscriber in self.members.take_rereading() {
            self.ask_for_snapshots(subscriber);
        }
        let Parts::Values(parts) = &self.parts else { return (false, 0) };
        let nexts = parts.iter().enumerate().map(|(index, it)| {
            (i32::try_from(index).expect("partitions have a limit"), it.applied)
        });
        let nexts: Vec<_> = nexts.collect();
        self.members.let_go(&nexts);
        self.members.reach(&nexts);
        (false, count)
    }

    /// Handles deadlines. Returns when it must be called again.
    pub(super) fn tick(&mut self) -> Option<Instant> {
        let now = Instant::now();
        if !self.members.has_timed() {
            return None;
        }
        if now >= self.next_tick {
            self.next_tick = now + TICK;
            let is_progress = now >= self.next_progress;
            if is_progress {
                self.next_progress = now + PROGRESS;
            }
            let nexts: Vec<_> = match &self.parts {
                Parts::Log(parts) => {
                    parts.iter().map(|it| (it.cursor.number(), it.cursor.next())).collect()
                }
                Parts::Values(parts) => parts
                    .iter()
                    .enumerate()
                    .map(|(at, it)| {
                        (i32::try_from(at).expect("partitions have a limit"), it.applied)
                    })
                    .collect(),
            };
            self.members.tick(clock::unix_ms(), is_progress.then_some(nexts.as_slice()));
            self.members.let_go(&nexts);
            self.members.wake();
        }
        Some(if self.members.has_due() { self.next_tick } else { self.next_progress })
    }

    /// Checks the topic periodically.
    pub(super) fn look(&mut self, is_there: bool) {
        if !is_there {
            let what = format!("the topic {:?} was deleted", self.shared_table.topic.name);
            return self.fail_all(&SqlError::new(SqlState::UNDEFINED_TABLE, what));
        }
        let keeps_values = self.shared_table.topic.settings().keeps_values;
        if self.shared_table.kind == TableKind::Values && !keeps_values {
            return self.fail_all(&self.lost("no longer has current values"));
        }
        self.find_partitions();
    }
}

/// Returns whether all snapshots are present, in which case the connection reads them.
fn is_filled(subscriber: &Subscriber) -> bool {
    let mut machine = subscriber.lock();
    let is_filled = machine.snapshots.iter().all(Option::is_some);
    if is_filled {
        machine.place = Place::Filling(Task::Values);
        drop(machine);
        subscriber.ready.notify_one();
    }
    is_filled
}

/// Returns whether a subscription continues normally after a step.
fn goes_on(step: Step) -> bool {
    matches!(step, Step::Applied | Step::Passed)
}
