//! Scheduler of requests: it decides which worker serves a request, and when.
//!
//! - **One leader.** Only the leader waits for requests, and serves them. The other workers are
//!   parked. A leader that is busy for long unparks a helper, which parks again when there is
//!   little to do ([`Leadership`]).
//! - **The leader does no slow work.** Before a flush that waits for a disk, an access to absent
//!   data, or a long discard, the leader resigns and takes a slot for slow work. There is one slot
//!   fewer than workers, so one worker always remains for reads and writes. Without a free slot, a
//!   flush is queued. A worker that leaves a slot first serves the queued flushes of one file, all
//!   with one flush of the device ([`WaitingFlushes`]). Durations are predicted from recent
//!   requests of the same kind ([`Pace`]).
//! - **Serial requests** need no second worker: while the only client waits for its flush, no other
//!   worker is woken. The leader steps aside, and a thread that ticks every millisecond replaces it
//!   if the disk takes longer. Serial requests are recognized by the absence of other requests
//!   during earlier flushes ([`Watch`]).
//! - **Predicted flushes** start early: if a fixed number of writes was repeatedly followed by a
//!   flush, writeback starts after the last of the writes ([`FlushPredictor`]).
//!
//! The calls for each request are: [`Schedule::assign`] after it was read;
//! [`Assignment::will_wait`], [`Assignment::begin_flush`] or [`Assignment::begin_write_back`]
//! before slow work; and [`Assignment::end`], which tells whether the worker still leads.
//!
//! The lock of the queued flushes is held for a few instructions, and no other lock is taken
//! meanwhile.

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

/// Number of file classes. Statistics about files are kept by class, so that their memory is
/// bounded.
const FILE_CLASSES: usize = 64;

/// Class of the file with this node number, below [`FILE_CLASSES`].
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
    /// Counters of each worker. They also show the number of requests that other workers have
    /// started.
    counters: Vec<Counters>,
    core_count: usize,
}

/// Role in which a worker serves a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Leader,
    Called,
}

/// Slow work that a leader may do without unparking another worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlowWork {
    Flush,
    /// Writeback for an expected flush.
    WriteBack,
}

/// Result of serving a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AssignmentEnd {
    /// True if the worker still leads, or was not the leader.
    pub(crate) still_leads: bool,
    /// Work for which the worker was aside, if it leads again.
    pub(crate) was_aside: Option<SlowWork>,
}

impl Schedule {
    /// Creates a schedule for this number of workers. `unanswered`: flushes of an earlier process.
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

    /// Registers the calling thread as `worker`. Must be called once, before any other call.
    pub(crate) fn register(&self, worker: usize) {
        self.leadership.register(worker);
    }

    /// Tries to become the leader. Returns whether the calling worker leads.
    pub(crate) fn try_lead(&self, worker: usize) -> bool {
        self.leadership.try_lead(worker)
    }

    pub(crate) fn has_leader(&self) -> bool {
        self.leadership.has_leader()
    }

    /// Parks the worker until it is called. Returns immediately if there is no leader or `is_over`
    /// returns true.
    pub(crate) fn park(&self, worker: usize, is_over: impl Fn() -> bool) {
        self.leadership.park(worker, is_over);
    }

    /// Gives up the leadership and unparks a worker to take it.
    pub(crate) fn resign(&self) {
        self.leadership.resign();
    }

    /// Marks the leader as sleeping. An awake worker may then relieve it.
    pub(crate) fn fall_asleep(&self, worker: usize) {
        self.leadership.fall_asleep(worker);
    }

    /// Marks the sleeping leader as awake. Returns whether it still leads.
    pub(crate) fn wake_up(&self, worker: usize) -> bool {
        self.leadership.wake_up(worker)
    }

    /// Tries to replace a sleeping leader by a called worker, if requests are serial. If this
    /// returns true, the caller must wake the former leader, which each request would otherwise
    /// wake for nothing.
    pub(crate) fn try_relieve(&self, worker: usize) -> bool {
        self.watch.is_alone() && self.leadership.try_relieve(worker)
    }

    /// Unparks a worker to help a busy leader, if there is an idle core.
    pub(crate) fn call_help(&self) {
        // More awake workers than cores would only compete for CPU time.
        if self.leadership.awake_count() < self.core_count {
            self.leadership.call_one();
        }
    }

    /// Wakes all threads at the end of the worker pool.
    pub(crate) fn end(&self) {
        self.leadership.call_all();
        self.watch.wake();
    }

    /// Runs the thread that monitors leaders which are aside, until `is_over`.
    pub(crate) fn watch(&self, is_over: impl Fn() -> bool) {
        self.watch.run(|| self.leadership.replace_aside(), is_over);
    }

    /// Records whether a request had to wait for a leader that was aside.
    pub(crate) fn saw_company(&self, was_there: bool) {
        self.watch.saw_company(was_there);
    }

    /// Records a flush that may have waited for a disk, before it is answered.
    pub(crate) fn flushed(&self, node: u64, has_succeeded: bool) {
        self.predictor.flushed(node, has_succeeded);
    }

    /// Assigns a request that was read to a worker.
    pub(crate) fn assign(&self, worker: usize, role: Role) -> Assignment<'_> {
        let (has_place, aside, begun_before) = Default::default();
        Assignment { schedule: self, worker, role, has_place, aside, begun_before }
    }

    /// Number of requests that all other workers have started.
    fn begun_by_others(&self, than: usize) -> u64 {
        let others = self.counters.iter().enumerate().filter(|&(index, _)| index != than);
        others.map(|(_, counters)| counters.request_count()).sum()
    }
}

/// Assignment of one request to one worker, from reading it to answering it.
pub(crate) struct Assignment<'schedule> {
    schedule: &'schedule Schedule,
    worker: usize,
    role: Role,
    /// True if the worker has a slot for slow work.
    has_place: Cell<bool>,
    aside: Cell<Option<SlowWork>>,
    /// Number of requests that others had started before a flush during which another worker leads.
    begun_before: Cell<Option<u64>>,
}

impl Assignment<'_> {
    /// Announces that the request may take long. Another worker leads from now on, if there is a
    /// free slot.
    pub(crate) fn will_wait(&self) {
        if !self.has_place.get() && self.schedule.waiting.try_take_place() {
            self.has_place.set(true);
            self.resign();
        }
    }

    /// Typical duration of such requests for this file, for operations of which the device does not
    /// report whether they are slow. If it is long, another worker leads from now on.
    pub(crate) fn pace_of(&self, node: u64, operation: &Operation<'_>) -> Option<FilePace<'_>> {
        let pace = self.schedule.pace.of(node, operation)?;
        if pace.is_slow() {
            self.will_wait();
        }
        Some(pace)
    }

    /// Returns whether this worker does a flush that may wait for a disk; it must then call
    /// [`Assignment::end_flush`]. Otherwise another worker does the flush.
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

    /// Returns whether this worker should start writeback after a write, because a flush is
    /// expected and no other request would be delayed.
    pub(crate) fn begin_write_back(&self, node: u64) -> bool {
        let Schedule { predictor, watch, waiting, .. } = self.schedule;
        let is_time = predictor.wrote(node) && watch.is_alone() && !self.has_place.get();
        let begins = is_time && self.role == Role::Leader && waiting.try_take_place();
        if begins {
            self.take_place_for(SlowWork::WriteBack);
        }
        begins
    }

    /// Fills `batch` with queued flushes of one file, which must be done before this worker leaves
    /// its slot. If `batch` is empty, the worker has left the slot.
    pub(crate) fn next_flushes(&self, batch: &mut Vec<Flush>) {
        batch.clear();
        if self.has_place.get() {
            self.schedule.waiting.next(batch);
        }
    }

    /// Reports that the flushes of a batch were answered.
    pub(crate) fn answered(&self, batch: &[Flush]) {
        self.schedule.waiting.answered(batch);
    }

    /// Ends the assignment, after the request was answered and [`Assignment::next_flushes`]
    /// returned nothing.
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
