//! One subscription of a live query, between the worker that delivers changes and the connection
//! that takes rows.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

use live_queries::{
    AsOf, Change, Fields, FilterId, OutputRows, Paths, Query, Row, Subscription,
    SubscriptionStep as Step, TableKind,
};
use sql::{SqlError, SqlState};
use tokio::sync::Notify;
use values::Snapshot;

use super::rows::with_kept;
use crate::topics::{OpenTopic, ValueChange};

const NO_PANIC: &str = "no thread panics with this lock";

/// Maximum bytes of changes of current values that wait for a slow client, besides its queue.
const BACKLOG_BYTES_MAX: usize = 16 << 20;

#[derive(Debug)]
pub(super) struct Subscriber {
    pub(super) shared_table: Arc<SharedTable>,
    pub(super) query: Arc<Query>,
    /// Start of the subscription, if it is in the past.
    pub(super) as_of: Option<AsOf>,
    machine: Mutex<Machine>,
    /// Wakes the connection.
    pub(super) ready: Notify,
}

#[derive(Debug)]
pub(super) struct Machine {
    pub(super) subscription: Subscription,
    pub(super) place: Place,
    /// Number in the worker's filter index.
    pub(super) filter: Option<FilterId>,
    pub(super) failure: Option<SqlError>,
    /// The client has disconnected.
    pub(super) is_left: bool,
    /// For current values: initial snapshots by partition. Changes of a partition are delivered
    /// once its snapshot is present.
    pub(super) snapshots: Vec<Option<Arc<Snapshot>>>,
    backlog: VecDeque<Held>,
    backlog_bytes: usize,
}

/// Task that delivers changes to a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Its connection reads them.
    Filling(Task),
    /// It waits for a worker.
    Joining,
    /// A worker delivers them.
    Joined,
}

/// Reads that a connection must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// The log, from the positions on.
    Log,
    /// The log again, up to the positions and then from there on.
    LogAgain,
    /// The available snapshots.
    Values,
}

/// A change whose old record, new record or both pass the filter.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) partition: i32,
    pub(super) change: Arc<ValueChange>,
    pub(super) has_old: bool,
    pub(super) has_new: bool,
    pub(super) time_ms: i64,
}

/// State of a subscription for its connection.
pub(super) enum Found {
    Rows(OutputRows),
    Ended(Result<(), SqlError>),
    /// The connection must read.
    Task(Task),
    Nothing,
}

impl Subscriber {
    pub(super) fn new(
        shared_table: Arc<SharedTable>,
        subscription: Subscription,
        as_of: Option<AsOf>,
        place: Place,
    ) -> Self {
        let query = Arc::clone(subscription.query());
        let machine = Machine {
            subscription,
            place,
            filter: None,
            failure: None,
            is_left: false,
            snapshots: Vec::new(),
            backlog: VecDeque::new(),
            backlog_bytes: 0,
        };
        Self { shared_table, query, as_of, machine: Mutex::new(machine), ready: Notify::new() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock().expect(NO_PANIC)
    }

    /// Ends the subscription. Pending rows are delivered before the error.
    pub(super) fn fail(&self, error: SqlError) {
        self.lock().failure.get_or_insert(error);
        self.ready.notify_one();
    }

    /// Returns the next work of the connection.
    pub(super) fn look(self: &Arc<Self>) -> Found {
        let mut machine = self.lock();
        if machine.has_backlog() {
            drop(machine);
            let paths = self.shared_table.paths.read().expect(NO_PANIC);
            machine = self.lock();
            if machine.place == Place::Joined && machine.drain(&paths) == Step::RereadNeeded {
                self.shared_table.inbox.put(Command::Reread(Arc::clone(self)));
            }
        }
        let rows = machine.subscription.take();
        if !rows.is_empty() {
            return Found::Rows(rows);
        }
        match (machine.subscription.end(), &machine.failure, machine.place) {
            (Some(Ok(())), ..) => Found::Ended(Ok(())),
            (Some(Err(error)), ..) => Found::Ended(Err(error.clone().into())),
            (None, Some(error), _) => Found::Ended(Err(error.clone())),
            (None, None, Place::Filling(task)) => Found::Task(task),
            _ => Found::Nothing,
        }
    }
}

impl Machine {
    /// Makes it wait for initial snapshots of all partitions, also to start again.
    pub(super) fn await_snapshots(&mut self, partition_count: usize) {
        self.place = Place::Joining;
        self.snapshots = vec![None; partition_count];
        self.backlog.clear();
        self.backlog_bytes = 0;
    }

    /// Applies a change of current values, or queues it behind pending ones.
    pub(super) fn follow(&mut self, held: Held, paths: &Paths) -> Step {
        if self.place == Place::Joined && self.backlog.is_empty() {
            match self.apply(&held, paths) {
                Step::Full => {}
                other => return other,
            }
        }
        self.backlog_bytes += held.change.size_bytes();
        self.backlog.push_back(held);
        if self.backlog_bytes > BACKLOG_BYTES_MAX {
            let what = format!(
                "the client is too slow: more than {BACKLOG_BYTES_MAX} bytes of changes are \
                 waiting"
            );
            let hint = "Read faster, or use BACKPRESSURE = conflate.";
            let error = SqlError::new(SqlState::TOO_LARGE, what).with_hint(hint);
            self.failure.get_or_insert(error);
            return Step::Ended;
        }
        Step::Full
    }

    /// Applies pending changes while the output has room.
    fn drain(&mut self, paths: &Paths) -> Step {
        while let Some(held) = self.backlog.pop_front() {
            match self.apply(&held, paths) {
                Step::Full => {
                    self.backlog.push_front(held);
                    return Step::Full;
                }
                Step::Applied | Step::Passed => self.backlog_bytes -= held.change.size_bytes(),
                other => return other,
            }
        }
        Step::Applied
    }

    pub(super) fn apply(&mut self, held: &Held, paths: &Paths) -> Step {
        let (mut old_fields, mut new_fields) = (Fields::default(), Fields::default());
        let old = held.change.old.as_ref().filter(|_| held.has_old);
        let new = held.change.new.as_ref().filter(|_| held.has_new);
        let mut apply = |old: Option<&Row<'_>>, new: Option<&Row<'_>>| {
            self.subscription.apply(&Change {
                partition: held.partition,
                offset: held.change.offset,
                time_ms: held.time_ms,
                key: held.change.key(),
                old,
                new,
            })
        };
        let number = held.partition;
        match (old, new) {
            (None, None) => Step::Passed,
            (Some(old), None) => {
                with_kept((number, old), (paths, &mut old_fields), |old| apply(Some(old), None))
            }
            (None, Some(new)) => {
                with_kept((number, new), (paths, &mut new_fields), |new| apply(None, Some(new)))
            }
            (Some(old), Some(new)) => with_kept((number, old), (paths, &mut old_fields), |old| {
                with_kept((number, new), (paths, &mut new_fields), |new| {
                    apply(Some(old), Some(new))
                })
            }),
        }
    }

    /// Returns whether changes of a partition of current values are delivered to it.
    pub(super) fn is_told(&self, partition: usize) -> bool {
        self.snapshots.get(partition).is_none_or(Option::is_some)
    }

    /// Returns whether changes are pending.
    pub(super) fn has_backlog(&self) -> bool {
        !self.backlog.is_empty()
    }
}

/// The log of a topic, or its current values, shared by the live queries on it.
#[derive(Debug)]
pub(super) struct SharedTable {
    /// Unique number.
    pub(super) number: u64,
    pub(super) topic: Arc<OpenTopic>,
    pub(super) kind: TableKind,
    /// Paths with which its queries are compiled.
    pub(super) paths: RwLock<Paths>,
    /// Inbox of its worker.
    pub(super) inbox: Arc<Inbox>,
}

/// Command for a worker.
#[derive(Debug)]
pub(super) enum Command {
    /// Deliver all changes to the subscriber, from its positions or from the next snapshot on.
    Join(Arc<Subscriber>),
    /// Restart from a snapshot, because rows were lost.
    Reread(Arc<Subscriber>),
    /// Remove the subscriber, whose client has disconnected.
    Leave(Arc<Subscriber>),
}

impl Command {
    pub(super) fn subscriber(&self) -> &Arc<Subscriber> {
        match self {
            Self::Join(it) | Self::Reread(it) | Self::Leave(it) => it,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Inbox {
    commands: Mutex<Vec<Command>>,
    /// Wakes the worker, for commands and for new records in its partitions.
    pub(super) notify: Arc<Notify>,
}

impl Inbox {
    pub(super) fn put(&self, command: Command) {
        self.commands.lock().expect(NO_PANIC).push(command);
        self.notify.notify_one();
    }

    pub(super) fn take(&self) -> Vec<Command> {
        std::mem::take(&mut self.commands.lock().expect(NO_PANIC))
    }
}
