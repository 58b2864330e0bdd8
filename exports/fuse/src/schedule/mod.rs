//! Assignment of requests to workers, in place and time: the one object that the workers of a pool
//! ask.
//!
//! - **One leader.** One worker leads: it alone waits for requests, and serves what comes. The
//!   others are parked. A leader that is busy for long calls one of them to help, which goes back
//!   to sleep when there is little to do ([`Leadership`]).
//! - **What may wait is not for the leader.** Before a flush that waits for a disk,
//!   data that are away, or a discard that takes long, the leader hands on the leadership and takes
//!   one of the places for slow work. There is one place fewer than workers, so that a worker is
//!   always left for reads and writes. A flush that finds no place waits; each worker that leaves
//!   a place first does the flushes of one file that wait, all with one flush ([`WaitingFlushes`]).
//!   What takes long is learnt from the last requests of the kind ([`Pace`]).
//! - **One request at a time** is cheaper: while the only client waits for its flush, no other
//!   worker is woken. The leader steps aside, and a thread that ticks each millisecond has it
//!   replaced should the disk take longer. Whether requests come one at a time is learnt from what
//!   came during earlier flushes ([`Watch`]).
//! - **A flush that is expected** is begun early: where so many writes and then a flush came again
//!   and again, what the flush will wait for is begun after the last of the writes
//!   ([`FlushPredictor`]).
//!
//! A request goes through three questions: [`Schedule::assign`] when it was read; what may be slow
//! is announced by [`Assignment::will_wait`], [`Assignment::begin_flush`] or
//! [`Assignment::begin_write_back`]; and [`Assignment::end`] says whether the worker still leads.
//!
//! The lock of the waiting flushes is held for some instructions, and nothing else is taken.

use std::cell::Cell;
use std::thread;

use export_kit::{Counters, Traffic};

use crate::in_flight::{Flush, FlushTable};
use crate::request::Operation;

mod flush_predictor;
mod leadership;
mod pace;
mod waiting;
mod watch;

use flush_predictor::FlushPredictor;
use leadership::Leadership;
use pace::Pace;
use waiting::{Place, WaitingFlushes};
use watch::Watch;

pub(crate) use leadership::WORKER_COUNT_MAX;
pub(crate) use pace::FilePace;
pub(crate) use waiting::BATCH_MAX;

/// Where a little is known of each file, but not for any number of them, they are told apart by
/// their class alone.
const FILE_CLASSES: usize = 64;

/// The class of the file with this node number, below [`FILE_CLASSES`].
fn file_class(node: u64) -> usize {
    const COUNT: u64 = FILE_CLASSES as u64;
    usize::try_from(node % COUNT).expect("less than a small constant")
}

pub(crate) struct Schedule {
    leadership: Leadership,
    watch: Watch,
    waiting: WaitingFlushes,
    pace: Pace,
    predictor: FlushPredictor,
    /// One for each worker: what others have begun is seen there.
    counters: Vec<Counters>,
    core_count: usize,
}

/// Why a worker serves a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Leader,
    Called,
}

/// Work that a leader may do without having another one called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlowWork {
    Flush,
    /// What a flush will wait for, begun before it came.
    WriteBack,
}

/// Result of serving a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AssignmentEnd {
    /// True if the worker still leads, or need not.
    pub(crate) still_leads: bool,
    /// Work for which it has been aside, if it leads again.
    pub(crate) was_aside: Option<SlowWork>,
}

impl Schedule {
    /// For so many workers, none of which has begun. `unanswered`: flushes of a former process.
    pub(crate) fn new(worker_count: usize, kept: FlushTable, unanswered: Vec<Flush>) -> Self {
        Self {
            leadership: Leadership::new(worker_count),
            watch: Watch::new(),
            waiting: WaitingFlushes::new(worker_count, kept, unanswered),
            pace: Pace::new(),
            predictor: FlushPredictor::new(),
            counters: (0..worker_count).map(|_| Counters::default()).collect(),
            core_count: thread::available_parallelism().map_or(1, usize::from),
        }
    }

    pub(crate) fn counters(&self, worker: usize) -> &Counters {
        &self.counters[worker]
    }

    pub(crate) fn traffic(&self) -> Traffic {
        self.counters.iter().map(Counters::traffic).sum()
    }

    /// Makes the calling thread known as `worker`, once and before it asks anything else.
    pub(crate) fn register(&self, worker: usize) {
        self.leadership.register(worker);
    }

    /// Returns whether the calling worker leads from now on, because no other does.
    pub(crate) fn try_lead(&self, worker: usize) -> bool {
        self.leadership.try_lead(worker)
    }

    pub(crate) fn has_leader(&self) -> bool {
        self.leadership.has_leader()
    }

    /// Sleeps until called, unless there is no leader or `is_over` says that there is no point.
    pub(crate) fn park(&self, worker: usize, is_over: impl Fn() -> bool) {
        self.leadership.park(worker, is_over);
    }

    /// Gives up the leadership and calls a parked worker to take it.
    pub(crate) fn resign(&self) {
        self.leadership.resign();
    }

    /// The leader is about to sleep: a worker that is awake may relieve it.
    pub(crate) fn fall_asleep(&self, worker: usize) {
        self.leadership.fall_asleep(worker);
    }

    /// Returns whether the worker that slept as the leader still leads.
    pub(crate) fn wake_up(&self, worker: usize) -> bool {
        self.leadership.wake_up(worker)
    }

    /// Returns whether a worker that was called leads instead of one that sleeps, which it has to
    /// wake: each request wakes that one otherwise, which finds it gone.
    pub(crate) fn try_relieve(&self, worker: usize) -> bool {
        self.watch.is_alone() && self.leadership.try_relieve(worker)
    }

    /// The leader has more to do than it can: calls a parked worker, if there is a core for it.
    pub(crate) fn call_help(&self) {
        // More busy workers than cores would only stand in each other's way.
        if self.leadership.awake_count() < self.core_count {
            self.leadership.call_one();
        }
    }

    /// Wakes every thread, because the worker pool is over.
    pub(crate) fn end(&self) {
        self.leadership.call_all();
        self.watch.wake();
    }

    /// The work of the thread that watches leaders which are aside, until `is_over`.
    pub(crate) fn watch(&self, is_over: impl Fn() -> bool) {
        self.watch.run(|| self.leadership.replace_aside(), is_over);
    }

    /// Takes note of whether a request had to wait for a leader that was aside.
    pub(crate) fn saw_company(&self, was_there: bool) {
        self.watch.saw_company(was_there);
    }

    /// Takes note of a flush that may have waited for a disk, before it is answered.
    pub(crate) fn flushed(&self, node: u64, has_succeeded: bool) {
        self.predictor.flushed(node, has_succeeded);
    }

    /// Assigns a request that was read to a worker.
    pub(crate) fn assign(&self, worker: usize, role: Role) -> Assignment<'_> {
        let (has_place, aside, begun_before) = Default::default();
        Assignment { schedule: self, worker, role, has_place, aside, begun_before }
    }

    /// How many requests all workers but one have begun to answer.
    fn begun_by_others(&self, than: usize) -> u64 {
        let others = self.counters.iter().enumerate().filter(|&(index, _)| index != than);
        others.map(|(_, counters)| counters.request_count()).sum()
    }
}

/// One request of one worker, from when it was read to when it was answered.
pub(crate) struct Assignment<'schedule> {
    schedule: &'schedule Schedule,
    worker: usize,
    role: Role,
    /// Whether the worker has one of the places for slow work.
    has_place: Cell<bool>,
    aside: Cell<Option<SlowWork>>,
    /// What others had begun before a flush during which another worker leads.
    begun_before: Cell<Option<u64>>,
}

impl Assignment<'_> {
    /// The request may take long: another worker leads from now on, if there is a place.
    pub(crate) fn will_wait(&self) {
        if !self.has_place.get() && self.schedule.waiting.try_take_place() {
            self.has_place.set(true);
            self.resign();
        }
    }

    /// Time that such requests take for this file, where no device says whether it is long. If it
    /// is, another worker leads from now on.
    pub(crate) fn pace_of(&self, node: u64, operation: &Operation<'_>) -> Option<FilePace<'_>> {
        let pace = self.schedule.pace.of(node, operation)?;
        if pace.is_slow() {
            self.will_wait();
        }
        Some(pace)
    }

    /// Returns whether this worker does a flush that may wait for a disk, and then calls
    /// [`Assignment::end_flush`]. Otherwise another one will do it.
    pub(crate) fn begin_flush(&self, flush: Flush) -> bool {
        let schedule = self.schedule;
        if !self.has_place.get() {
            match schedule.waiting.begin(flush) {
                Place::Taken => self.take_place_for(SlowWork::Flush),
                Place::NoRoom => {}
                Place::Waits => return false,
            }
        }
        let watches_others = self.has_place.get() && self.aside.get().is_none();
        self.begun_before.set(watches_others.then(|| schedule.begun_by_others(self.worker)));
        true
    }

    pub(crate) fn end_flush(&self) {
        if let Some(before) = self.begun_before.take() {
            let after = self.schedule.begun_by_others(self.worker);
            self.schedule.watch.saw_company(before != after);
        }
    }

    /// After a write: whether what the next flush will wait for is to be done now, because a flush
    /// is expected and there is no other request that would have to wait.
    pub(crate) fn begin_write_back(&self, node: u64) -> bool {
        let Schedule { predictor, watch, waiting, .. } = self.schedule;
        let is_time = predictor.wrote(node) && watch.is_alone() && !self.has_place.get();
        let begins = is_time && self.role == Role::Leader && waiting.try_take_place();
        if begins {
            self.take_place_for(SlowWork::WriteBack);
        }
        begins
    }

    /// Collects the flushes to be done before this worker leaves its place: flushes of one file in
    /// `batch`, or nothing, and then it has left.
    pub(crate) fn next_flushes(&self, batch: &mut Vec<Flush>) {
        batch.clear();
        if self.has_place.get() {
            self.schedule.waiting.next(batch);
        }
    }

    /// The flushes of a batch have been answered.
    pub(crate) fn answered(&self, batch: &[Flush]) {
        self.schedule.waiting.answered(batch);
    }

    /// The request was answered, and [`Assignment::next_flushes`] found nothing.
    pub(crate) fn end(self) -> AssignmentEnd {
        let Schedule { watch, leadership, .. } = self.schedule;
        let Some(work) = self.aside.get() else {
            let still_leads = self.role != Role::Leader || !self.has_place.get();
            return AssignmentEnd { still_leads, was_aside: None };
        };
        watch.come_back();
        let still_leads = leadership.come_back(self.worker);
        AssignmentEnd { still_leads, was_aside: still_leads.then_some(work) }
    }

    fn take_place_for(&self, work: SlowWork) {
        self.has_place.set(true);
        let Schedule { watch, leadership, .. } = self.schedule;
        if self.role == Role::Leader && watch.is_alone() && watch.step_aside() {
            self.aside.set(Some(work));
            leadership.step_aside(self.worker);
        } else {
            self.resign();
        }
    }

    fn resign(&self) {
        if self.role == Role::Leader {
            self.schedule.leadership.resign();
        }
    }
}
