//! Reads current values for one subscription: snapshots, also of the past, and later changes.

use std::collections::VecDeque;
use std::sync::Arc;

use live_queries::{AsOf as AsOfPoint, Fields, Paths, Reach, SubscriptionStep as Step};
use sql::{SqlError, SqlState};
use values::{AsOf, AsOfStep, Change, Replay, ScanStep, Snapshot, ValuesError};

use super::super::points::place_of;
use super::super::rows::{with_kept, with_row};
use super::super::subscriber::{Command, Held, Place, Subscriber};
use super::Filled;
use crate::clock;
use crate::topics::{KeptRecord, ValueChange, read_change};

const NO_PANIC: &str = "no thread panics with this lock";

/// Maximum reads of one step.
const READS_MAX: usize = 16;

/// Maximum memory of the keys of a partition that changed since a point in the past.
const PAST_BYTES_MAX: usize = 256 << 20;

#[derive(Debug)]
pub(in super::super) struct ValuesFill {
    /// Snapshots by partition: first those at which the worker takes over, later those with which
    /// the subscription starts.
    snapshots: Vec<Arc<Snapshot>>,
    /// Point in the past at which the subscription starts, and the number of partitions found.
    past: Option<(AsOfPoint, usize)>,
    replays: VecDeque<(i32, Box<Replay>)>,
    /// Changes since then that were read and not applied yet.
    held: VecDeque<Held>,
    partition: usize,
    /// Values before this offset were delivered.
    next: i64,
    is_begun: bool,
    is_live: bool,
    fields: Fields,
}

impl ValuesFill {
    /// Starts or restarts the subscription.
    pub(in super::super) fn new(subscriber: &Arc<Subscriber>) -> Self {
        let mut machine = subscriber.lock();
        let snapshots = std::mem::take(&mut machine.snapshots).into_iter().flatten().collect();
        let is_first = machine.subscription.positions().is_empty();
        Self {
            snapshots,
            past: subscriber.as_of.clone().filter(|_| is_first).map(|it| (it, 0)),
            replays: VecDeque::new(),
            held: VecDeque::new(),
            partition: 0,
            next: 0,
            is_begun: false,
            is_live: false,
            fields: Fields::default(),
        }
    }

    pub(in super::super) fn step(
        &mut self,
        subscriber: &Arc<Subscriber>,
    ) -> Result<Filled, SqlError> {
        if let Some((as_of, found)) = self.past.take() {
            self.find_past(subscriber, &as_of, found)?;
            self.past = (found + 1 < self.snapshots.len()).then_some((as_of, found + 1));
            return Ok(Filled::More);
        }
        if !self.is_begun {
            self.begin(subscriber);
        }
        for _ in 0..READS_MAX {
            let step = match self.snapshots.get(self.partition).cloned() {
                Some(snapshot) => self.read(subscriber, &snapshot)?,
                None => match self.replay(subscriber)? {
                    Some(step) => step,
                    None => {
                        subscriber.lock().place = Place::Joined;
                        return Ok(Filled::Done);
                    }
                },
            };
            match step {
                Step::Ended => return Ok(Filled::Done),
                Step::Full => return Ok(Filled::More),
                Step::RereadNeeded => {
                    subscriber.shared_table.inbox.put(Command::Reread(Arc::clone(subscriber)));
                    subscriber.lock().place = Place::Joining;
                    return Ok(Filled::Done);
                }
                Step::Applied | Step::Passed => {}
            }
        }
        Ok(Filled::More)
    }

    fn begin(&mut self, subscriber: &Subscriber) {
        self.is_begun = true;
        let positions = self.snapshots.iter().enumerate().map(|(number, it)| {
            (i32::try_from(number).expect("partitions have a limit"), it.applied())
        });
        let positions: Vec<_> = positions.collect();
        let mut machine = subscriber.lock();
        machine.subscription.begin_snapshot(clock::unix_ms(), &positions);
        if !machine.subscription.wants_snapshot() {
            self.partition = self.snapshots.len();
        }
    }

    /// Looks up the values of one partition at a point in the past.
    fn find_past(
        &mut self,
        subscriber: &Subscriber,
        as_of: &AsOfPoint,
        index: usize,
    ) -> Result<(), SqlError> {
        let topic = &subscriber.shared_table.topic;
        let partition = Arc::clone(&topic.partitions()[index]);
        let number = i32::try_from(index).expect("partitions have a limit");
        let offset = place_of(&partition.log, number, as_of)?;
        let refused = |why: &str| {
            let name = &topic.name;
            let what = format!("changes of {name:?} since AS OF are no longer available: {why}");
            let error = SqlError::new(SqlState::INVALID_PARAMETER, what);
            error.with_hint("Start with a snapshot, or use AS OF AT LEAST.")
        };
        let why = if topic.settings().values_ttl_ms.is_some() {
            Some("its values expire")
        } else if partition.log.start_offset() > 0 {
            Some("the start of its log was deleted")
        } else {
            None
        };
        match (why, as_of.reach) {
            (Some(why), Reach::Exactly) => return Err(refused(why)),
            // Use the current values.
            (Some(_), Reach::AtLeast) => return Ok(()),
            (None, _) => {}
        }
        let Some(values) = partition.values() else { return Err(refused("it is being rebuilt")) };
        let found = find(&values, &self.snapshots[index], offset);
        match (found, as_of.reach) {
            (Ok(mut found), _) => {
                let replay = found.take_replay();
                self.replays.extend(replay.map(|it| (number, it)));
                self.snapshots[index] = Arc::new(found);
                Ok(())
            }
            (Err(ValuesError::OutOfReach { .. }), Reach::AtLeast) => Ok(()),
            (Err(error), _) => Err(refused(&error.to_string())),
        }
    }

    /// Reads once from a snapshot.
    fn read(&mut self, subscriber: &Subscriber, snapshot: &Snapshot) -> Result<Step, SqlError> {
        let number = i32::try_from(self.partition).expect("partitions have a limit");
        let paths = subscriber.shared_table.paths.read().expect(NO_PANIC);
        let filter = subscriber.query.filter();
        let mut stopped = None;
        let mut scan = snapshot.scan(self.next..snapshot.applied());
        let fields = &mut self.fields;
        // Expired values are included, because their expiry is delivered as a change.
        let scanned = scan.step(i64::MIN, &mut |record| {
            if stopped.is_some() || !filter.may_pass(record.value) {
                return;
            }
            let step =
                with_row((number, record), (&paths, fields), |row| match filter.passes(row) {
                    Ok(true) => subscriber.lock().subscription.snapshot_row(row),
                    Ok(false) => Step::Passed,
                    Err(error) => {
                        subscriber.lock().subscription.note_failure(number, record.offset, error)
                    }
                });
            if matches!(step, Step::Full | Step::Ended) {
                stopped = Some((step, record.offset));
            }
        });
        let scanned = scanned.map_err(|error| unread(subscriber, &error))?;
        self.next = scan.position();
        if let Some((step, offset)) = stopped {
            self.next = offset;
            return Ok(step);
        }
        if scanned == ScanStep::Done {
            (self.partition, self.next) = (self.partition + 1, 0);
        }
        Ok(Step::Applied)
    }

    /// Applies changes since the point in the past, with one read. Returns `None` if there are no
    /// more.
    fn replay(&mut self, subscriber: &Arc<Subscriber>) -> Result<Option<Step>, SqlError> {
        if !self.is_live {
            self.is_live = true;
            subscriber.lock().subscription.end_snapshot();
        }
        let paths = subscriber.shared_table.paths.read().expect(NO_PANIC);
        while let Some(held) = self.held.front() {
            let step = subscriber.lock().apply(held, &paths);
            if !matches!(step, Step::Applied | Step::Passed) {
                return Ok(Some(step));
            }
            self.held.pop_front();
        }
        let Some((number, replay)) = self.replays.front_mut() else { return Ok(None) };
        let (mut failed, mut buffer) = (None, Vec::new());
        let (number, held) = (*number, &mut self.held);
        let mut on_change = |change: Change<'_>, log: &record_log::PinnedLog| match read_change(
            &change,
            log,
            &mut buffer,
        ) {
            Ok(change) => held.extend(pick(subscriber, (number, change), &paths)),
            Err(error) => failed = Some(error),
        };
        let is_more = replay.step(&mut on_change).map_err(|error| unread(subscriber, &error))?;
        if let Some(error) = failed {
            return Err(unread(subscriber, &error));
        }
        if !is_more {
            self.replays.pop_front();
        }
        Ok(Some(Step::Applied))
    }
}

fn find(
    values: &Arc<values::Values>,
    before: &Snapshot,
    offset: i64,
) -> Result<Snapshot, ValuesError> {
    let mut search = AsOf::begin_before(values, before.clone(), offset, PAST_BYTES_MAX)?;
    loop {
        match search.step()? {
            AsOfStep::More(more) => search = more,
            AsOfStep::Found(snapshot) => return Ok(snapshot),
        }
    }
}

/// Applies the filter to a change. Returns `None` if neither the old nor the new record passes.
fn pick(
    subscriber: &Subscriber,
    (partition, change): (i32, ValueChange),
    paths: &Paths,
) -> Option<Held> {
    let mut fields = Fields::default();
    let mut passes = |record: &Option<KeptRecord>| {
        record.as_ref().map_or(Ok(false), |record| {
            with_kept((partition, record), (paths, &mut fields), |row| {
                subscriber.query.filter().passes(row)
            })
        })
    };
    // The failure of the filter on the old record was already counted.
    let has_old = passes(&change.old).unwrap_or(false);
    let has_new = passes(&change.new).unwrap_or_else(|error| {
        let offset = change.offset.unwrap_or_default();
        subscriber.lock().subscription.note_failure(partition, offset, error);
        false
    });
    let time_ms = change.new.as_ref().map_or(0, |it| it.timestamp_ms).min(clock::unix_ms());
    let change = Arc::new(change);
    (has_old || has_new).then_some(Held { partition, change, has_old, has_new, time_ms })
}

fn unread(subscriber: &Subscriber, error: &ValuesError) -> SqlError {
    let what =
        format!("cannot read current values of {:?}: {error}", subscriber.shared_table.topic.name);
    SqlError::new(SqlState::IO, what)
}
