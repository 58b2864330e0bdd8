//! Reads a log for one subscription: the rows of the snapshot, then changes.

use std::ops::ControlFlow;
use std::sync::Arc;

use live_queries::{Change, Fields, Point, Replay, SubscriptionStep as Step};
use record_batch::Record;
use record_log::LogError;
use sql::SqlError;

use super::super::cursor::LogCursor;
use super::super::points::Start;
use super::super::rows::with_row;
use super::super::subscriber::{Command, Place, Subscriber, Task};
use super::Filled;
use crate::clock;

const NO_PANIC: &str = "no thread panics with this lock";

#[derive(Debug)]
pub(in super::super) struct LogFill {
    /// Cursors of the snapshot, with their end offsets.
    rows: Vec<(LogCursor, i64)>,
    changes: Vec<Reading>,
    is_live: bool,
    replay: Option<Replay>,
    fields: Fields,
}

#[derive(Debug)]
struct Reading {
    cursor: LogCursor,
    /// True once the time of UP TO is reached.
    is_over: bool,
}

/// Reason why a read stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// The client must take rows first.
    Full,
    Later(u64),
    Over,
    Ended,
    Reread,
}

impl LogFill {
    /// Starts the subscription.
    pub(in super::super) fn new(subscriber: &Arc<Subscriber>, start: &Start) -> Self {
        let mut machine = subscriber.lock();
        machine.subscription.begin_snapshot(start.time_ms, &start.positions);
        let speed = machine.subscription.options().speed;
        let wants_rows = machine.subscription.wants_snapshot() && speed.is_none()
            || machine.subscription.query().is_grouped()
            || machine.subscription.query().is_top();
        drop(machine);
        let replay = speed.map(|speed| {
            let mut replay = Replay::new(speed);
            // The first record of all partitions is due immediately.
            replay.wait_ms(start.time_ms, clock::unix_ms());
            replay
        });
        Self { replay, ..Self::of(subscriber, &start.positions, wants_rows) }
    }

    /// Continues where it stopped.
    pub(in super::super) fn onward(subscriber: &Arc<Subscriber>) -> Self {
        let positions = subscriber.lock().subscription.positions().to_vec();
        Self { is_live: true, ..Self::of(subscriber, &positions, false) }
    }

    /// Reads the records before the positions again.
    pub(in super::super) fn again(subscriber: &Arc<Subscriber>) -> Self {
        let mut machine = subscriber.lock();
        let positions = machine.subscription.positions().to_vec();
        machine.subscription.begin_snapshot(clock::unix_ms(), &positions);
        drop(machine);
        Self::of(subscriber, &positions, true)
    }

    fn of(subscriber: &Arc<Subscriber>, positions: &[(i32, i64)], wants_rows: bool) -> Self {
        let partitions = Arc::clone(&subscriber.shared_table.topic.partitions());
        let (mut rows, mut changes) = (Vec::new(), Vec::new());
        for partition in partitions.iter() {
            let log = &partition.log;
            let start = log.start_offset();
            let mut cursor = LogCursor::new(Arc::clone(log), start);
            let position = positions.iter().find(|it| it.0 == cursor.number());
            let position = position.map_or(start, |it| it.1);
            if wants_rows && start < position {
                rows.push((LogCursor::new(Arc::clone(log), start), position));
            }
            cursor.set_next(position);
            changes.push(Reading { cursor, is_over: false });
        }
        rows.reverse();
        Self { rows, changes, is_live: false, replay: None, fields: Fields::default() }
    }

    pub(in super::super) fn step(
        &mut self,
        subscriber: &Arc<Subscriber>,
    ) -> Result<Filled, SqlError> {
        let topic = &subscriber.shared_table.topic;
        if let Some((cursor, end)) = self.rows.last_mut() {
            let end = *end;
            let is_ended = read_rows(subscriber, cursor, end, &mut self.fields)
                .map_err(|error| cursor.explain(&topic.name, error))?;
            if is_ended {
                return Ok(Filled::Done);
            }
            if cursor.next() >= end {
                self.rows.pop();
            }
            return Ok(Filled::More);
        }
        if !self.is_live {
            self.is_live = true;
            subscriber.lock().subscription.end_snapshot();
        }
        self.follow(subscriber)
    }

    /// Applies new records, with one read of each partition.
    fn follow(&mut self, subscriber: &Arc<Subscriber>) -> Result<Filled, SqlError> {
        let (mut is_behind, mut later) = (false, None::<u64>);
        for reading in &mut self.changes {
            let end = reading.cursor.partition().last_stable_offset();
            if reading.is_over || reading.cursor.next() >= end {
                continue;
            }
            let stop = follow_one(subscriber, reading, end, (&mut self.replay, &mut self.fields))
                .map_err(|error| {
                reading.cursor.explain(&subscriber.shared_table.topic.name, error)
            })?;
            let mut machine = subscriber.lock();
            let (number, next) = (reading.cursor.number(), reading.cursor.next());
            if machine.subscription.reach(number, next) == Step::Ended {
                return Ok(Filled::Done);
            }
            match stop {
                Some(Stop::Full) => return Ok(Filled::More),
                Some(Stop::Ended) => return Ok(Filled::Done),
                Some(Stop::Reread) => {
                    machine.place = Place::Filling(Task::LogAgain);
                    return Ok(Filled::Done);
                }
                Some(Stop::Later(wait_ms)) => {
                    later = Some(later.map_or(wait_ms, |it| it.min(wait_ms)));
                }
                Some(Stop::Over) => reading.is_over = true,
                None => is_behind |= next < end,
            }
        }
        match (is_behind, later) {
            (true, _) => Ok(Filled::More),
            (false, Some(wait_ms)) => Ok(Filled::Later(wait_ms)),
            (false, None) => Ok(self.end(subscriber)),
        }
    }

    /// Handles the end of the available records.
    fn end(&self, subscriber: &Arc<Subscriber>) -> Filled {
        let mut machine = subscriber.lock();
        for reading in &self.changes {
            let (number, next) = (reading.cursor.number(), reading.cursor.next());
            if machine.subscription.reach(number, next) == Step::Ended {
                return Filled::Done;
            }
        }
        if matches!(machine.subscription.up_to(), Some(Point::TimeMs(_))) {
            machine.subscription.tick(clock::unix_ms());
        }
        if machine.subscription.end().is_none() {
            machine.place = Place::Joining;
            drop(machine);
            subscriber.shared_table.inbox.put(Command::Join(Arc::clone(subscriber)));
        }
        Filled::Done
    }
}

/// Reads rows of a snapshot up to an offset, once. Returns whether the subscription has ended.
fn read_rows(
    subscriber: &Subscriber,
    cursor: &mut LogCursor,
    end: i64,
    fields: &mut Fields,
) -> Result<bool, LogError> {
    let number = cursor.number();
    let paths = subscriber.shared_table.paths.read().expect(NO_PANIC);
    let filter = subscriber.query.filter();
    let mut is_ended = false;
    cursor.step(end, &|bytes| filter.may_pass(Some(bytes)), &mut |record| {
        let step = with_row((number, record), (&paths, fields), |row| match filter.passes(row) {
            Ok(true) => subscriber.lock().subscription.snapshot_row(row),
            Ok(false) => Step::Passed,
            Err(error) => subscriber.lock().subscription.note_failure(number, record.offset, error),
        });
        is_ended |= step == Step::Ended;
        match step {
            Step::Full | Step::Ended => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    })?;
    Ok(is_ended)
}

/// Delivers the changes of one read of a partition.
fn follow_one(
    subscriber: &Subscriber,
    reading: &mut Reading,
    end: i64,
    (replay, fields): (&mut Option<Replay>, &mut Fields),
) -> Result<Option<Stop>, LogError> {
    let number = reading.cursor.number();
    let paths = subscriber.shared_table.paths.read().expect(NO_PANIC);
    let (up_to_ms, has_intervals) = {
        let machine = subscriber.lock();
        let up_to_ms = match machine.subscription.up_to() {
            Some(Point::TimeMs(ms)) => *ms,
            _ => i64::MAX,
        };
        (up_to_ms, machine.subscription.options().every_ms.is_some())
    };
    // If times matter, all records must be decoded.
    let is_timed = has_intervals || replay.is_some() || up_to_ms < i64::MAX;
    let filter = subscriber.query.filter();
    let is_wanted = |bytes: &[u8]| is_timed || filter.may_pass(Some(bytes));
    let (mut stop, mut last_ms) = (None, i64::MIN);
    let now_ms = clock::unix_ms();
    let mut visit = |record: &Record<'_>| {
        if record.timestamp_ms >= up_to_ms {
            stop = Some(Stop::Over);
            return ControlFlow::Break(());
        }
        let wait_ms = replay.as_mut().map_or(0, |it| it.wait_ms(record.timestamp_ms, now_ms));
        if wait_ms > 0 {
            stop = Some(Stop::Later(wait_ms));
            return ControlFlow::Break(());
        }
        last_ms = last_ms.max(record.timestamp_ms);
        stop = hand_in(subscriber, (number, record), (&paths, fields), now_ms);
        match stop {
            None => ControlFlow::Continue(()),
            Some(_) => ControlFlow::Break(()),
        }
    };
    reading.cursor.step(end, &is_wanted, &mut visit)?;
    if last_ms > i64::MIN {
        subscriber.lock().subscription.tick(last_ms.min(now_ms));
    }
    Ok(stop)
}

/// Delivers a record of a log if it passes the filter.
fn hand_in(
    subscriber: &Subscriber,
    (number, record): (i32, &Record<'_>),
    (paths, fields): (&live_queries::Paths, &mut Fields),
    now_ms: i64,
) -> Option<Stop> {
    let step = with_row((number, record), (paths, fields), |row| {
        match subscriber.query.filter().passes(row) {
            Ok(true) => subscriber.lock().subscription.apply(&Change {
                partition: number,
                offset: Some(record.offset),
                time_ms: record.timestamp_ms.min(now_ms),
                key: record.key,
                old: None,
                new: Some(row),
            }),
            Ok(false) => Step::Passed,
            Err(error) => subscriber.lock().subscription.note_failure(number, record.offset, error),
        }
    });
    match step {
        Step::Applied | Step::Passed => None,
        Step::Full => Some(Stop::Full),
        Step::RereadNeeded => Some(Stop::Reread),
        Step::Ended => Some(Stop::Ended),
    }
}
