//! Mirrored flushes, which are acknowledged once the image store has the journal (synchronous
//! replication).
//!
//! ```text
//!  flush ─▶ journal on disk ─▶ waits for its position ─────────────────────▶ acknowledged
//!                                  │ wakes                       ▲ wakes
//!                                  ▼                             │
//!                              shipper: put the extracts, then check that nobody else has
//!                              claimed the store since
//! ```
//!
//! The order matters: a promotion claims the store first and then lists the extracts. If the check
//! after an upload finds no other claim, a later promotion therefore lists the uploaded extracts.
//!
//! Flushes that arrive during an upload share the next upload and check. No lock is held while
//! waiting for the store.
//!
//! A flush without a time limit ships itself if nobody else does, which saves waking the shipper
//! and being woken by it.
//!
//! Flushes of volumes that are not to be mirrored ([`VolumeMirror::No`]) do not wait, once the
//! store has that setting of the volume: see [`DurableSet::set_mirror`].
//!
//! [`DurableSet::set_mirror`]: crate::DurableSet::set_mirror
//! [`VolumeMirror::No`]: volumes::VolumeMirror::No
//!
//! A claim records the guarantee of the policy ([`Mirroring`]). A writer with a weaker policy than
//! recorded must claim the store before it acknowledges anything.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use image::Mirroring;
use journal::{Clock, Journal, Position};
use volumes::{Durability, FlushTarget, HookError, VolumeMap};

/// Behaviour of flushes while the image store does not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MirrorPolicy {
    /// Flushes never wait for the store.
    #[default]
    Off,
    /// Flushes wait until the store answers.
    Wait,
    /// Flushes fail after a time limit.
    Fail,
    /// After a time limit, flushes are acknowledged without the store until it answers.
    Alone,
}

/// Settings of mirrored flushes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MirrorOptions {
    pub policy: MirrorPolicy,
    /// Time limit of a flush, and of a change of a volume with any policy.
    pub patience: Duration,
}

impl MirrorPolicy {
    /// Returns the guarantee that a claim records under this policy.
    pub(crate) fn promise(self) -> Mirroring {
        match self {
            Self::Off => Mirroring::Off,
            Self::Alone => Mirroring::MayStop,
            Self::Wait | Self::Fail => Mirroring::Always,
        }
    }
}

/// Reason why a flush or change was not acknowledged, although the journal on this host has it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MirrorError {
    #[error("the image store has not answered for {} s", .0.as_secs())]
    Late(Duration),
    #[error("the image store belongs to another daemon: {0}")]
    TakenOver(String),
    #[error("the daemon is stopping, and the image store has not answered")]
    Stopped,
}

/// State of mirrored flushes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MirrorState {
    /// The store has everything that was acknowledged.
    InSync,
    /// Flushes are acknowledged without the store.
    Alone,
    /// Flushes wait for the store again, but it still lacks some data that was acknowledged without
    /// it.
    CatchingUp,
    /// Another daemon has claimed the store. All flushes fail.
    TakenOver(String),
}

/// Status of mirrored flushes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MirrorStatus {
    pub policy: MirrorPolicy,
    pub state: MirrorState,
    /// Number of flushes and changes that wait now.
    pub waiting: usize,
    /// Time since the last progress of the store while something waited.
    pub waited: Option<Duration>,
    /// Number of flushes and changes that failed so far.
    pub failed: u64,
    /// Number of those acknowledged without the store so far.
    pub alone: u64,
}

/// Synchronization between flushes and the shipper.
#[derive(Debug)]
pub struct Mirror {
    options: MirrorOptions,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// Signals waiting flushes.
    advanced: Condvar,
    /// Signals the shipper.
    wanted: Condvar,
    /// Locked while it runs. `None` while there is no shipper.
    shipping: Mutex<Option<Rounds>>,
}

/// Rounds of shipping, which any thread may run, one at a time.
struct Rounds {
    run: Box<dyn FnMut() -> Option<Duration> + Send>,
    /// True if the last one shipped everything.
    is_well: bool,
}

impl std::fmt::Debug for Rounds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rounds").field("is_well", &self.is_well).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct State {
    /// True if the guarantee recorded in the store is not stronger than the policy.
    is_published: bool,
    /// Position in the journal up to which the store has everything.
    shipped: Position,
    /// Highest position for which a flush waited.
    wanted: Position,
    is_alone: bool,
    /// Highest position acknowledged without the store.
    alone_end: Position,
    taken_over: Option<String>,
    is_stopped: bool,
    /// Time of a stop request, and the time limit from then on.
    ending: Option<(Duration, Duration)>,
    waiting: usize,
    waiting_since: Option<Duration>,
    failed: u64,
    alone: u64,
}

/// Time limit of a wait: that of the policy, or always [`MirrorOptions::patience`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    Policy,
    Patience,
}

const NOWHERE: Position = Position(0);

impl Mirror {
    /// `in_force` is the strongest guarantee that the store may have recorded for this daemon.
    pub(crate) fn new(options: MirrorOptions, clock: Arc<dyn Clock>, in_force: Mirroring) -> Self {
        let promise = options.policy.promise();
        let state = State {
            is_published: in_force < Mirroring::Always || promise == Mirroring::Always,
            shipped: NOWHERE,
            wanted: NOWHERE,
            is_alone: false,
            alone_end: NOWHERE,
            taken_over: None,
            is_stopped: false,
            ending: None,
            waiting: 0,
            waiting_since: None,
            failed: 0,
            alone: 0,
        };
        let (advanced, wanted) = (Condvar::new(), Condvar::new());
        let (state, shipping) = (Mutex::new(state), Mutex::default());
        Self { options, clock, state, advanced, wanted, shipping }
    }

    /// Sets the function that ships the journal until [`Mirror::end_rounds`]. It returns `None`
    /// once everything is in the store, and otherwise the delay before the next call.
    pub fn begin_rounds(&self, run: impl FnMut() -> Option<Duration> + Send + 'static) {
        *self.rounds() = Some(Rounds { run: Box::new(run), is_well: true });
    }

    /// Drops the function that ships the journal, and waits until it has returned.
    pub fn end_rounds(&self) {
        *self.rounds() = None;
    }

    /// Runs a round of shipping, after one that runs already.
    pub fn ship(&self) -> Option<Duration> {
        self.rounds().as_mut().and_then(Rounds::run)
    }

    fn rounds(&self) -> MutexGuard<'_, Option<Rounds>> {
        self.shipping.lock().expect("no thread panics while it ships")
    }

    pub fn policy(&self) -> MirrorPolicy {
        self.options.policy
    }

    pub(crate) fn is_on(&self) -> bool {
        self.options.policy != MirrorPolicy::Off
    }

    /// Returns whether a flush may have to wait until the store is claimed.
    pub fn needs_image(&self) -> bool {
        self.is_on() || !self.lock().is_published
    }

    /// Blocks until the store has the journal up to `target`, or the policy ends the wait.
    pub(crate) fn wait(&self, target: Position, limit: Limit) -> Result<(), MirrorError> {
        let mut state = self.lock();
        let is_off = self.options.policy == MirrorPolicy::Off && state.is_published;
        if is_off || self.is_done(&state, target) && state.taken_over.is_none() {
            return Ok(());
        }
        let begun = self.clock.now();
        state.waiting += 1;
        state.waiting_since.get_or_insert(begun);
        state = self.ship_here(state, limit);
        if !self.is_done(&state, target) {
            state.wanted = state.wanted.max(target);
            self.wanted.notify_all();
        }
        let answer = loop {
            if let Some(by) = &state.taken_over {
                break Err(MirrorError::TakenOver(by.clone()));
            }
            if self.is_done(&state, target) {
                break Ok(());
            }
            if state.is_stopped {
                break Err(MirrorError::Stopped);
            }
            if state.is_alone {
                state.alone_end = state.alone_end.max(target);
                state.alone += 1;
                break Ok(());
            }
            let Some(end) = self.end_of_wait(&state, begun, limit) else {
                state = self.advanced.wait(state).expect(NEVER_POISONED);
                continue;
            };
            let now = self.clock.now();
            if now >= end {
                if self.options.policy == MirrorPolicy::Alone && state.is_published {
                    state.is_alone = true;
                    self.advanced.notify_all();
                    continue;
                }
                break Err(MirrorError::Late(now.saturating_sub(begun)));
            }
            let waited = self.advanced.wait_timeout(state, end - now);
            (state, _) = waited.expect(NEVER_POISONED);
        };
        state.failed += u64::from(answer.is_err());
        state.waiting -= 1;
        if state.waiting == 0 {
            state.waiting_since = None;
        }
        answer
    }

    /// Ships on the thread of a flush without a time limit, unless another thread does, or the last
    /// round failed.
    fn ship_here<'it>(
        &'it self,
        state: MutexGuard<'it, State>,
        limit: Limit,
    ) -> MutexGuard<'it, State> {
        let is_limited = (limit, self.options.policy) != (Limit::Policy, MirrorPolicy::Wait);
        if is_limited || state.is_stopped || state.ending.is_some() || state.taken_over.is_some() {
            return state;
        }
        drop(state);
        if let Ok(mut rounds) = self.shipping.try_lock()
            && let Some(rounds) = rounds.as_mut().filter(|rounds| rounds.is_well)
        {
            rounds.run();
        }
        self.lock()
    }

    /// Returns whether the store has the journal up to `position`.
    pub(crate) fn has(&self, position: Position) -> bool {
        self.is_on() && self.lock().shipped >= position
    }

    fn is_done(&self, state: &State, target: Position) -> bool {
        match self.options.policy {
            MirrorPolicy::Off => state.is_published,
            _ => state.shipped >= target,
        }
    }

    /// Returns the deadline of a wait, if it has one.
    fn end_of_wait(&self, state: &State, begun: Duration, limit: Limit) -> Option<Duration> {
        let patience = begun + self.options.patience;
        let by_policy = match (limit, self.options.policy) {
            (Limit::Patience, _) | (_, MirrorPolicy::Fail) => Some(patience),
            (_, MirrorPolicy::Alone) if state.is_published => Some(patience),
            (_, MirrorPolicy::Off | MirrorPolicy::Wait | MirrorPolicy::Alone) => None,
        };
        let by_stop = state.ending.map(|(asked, time)| asked.max(begun) + time);
        match (by_policy, by_stop) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    /// Blocks the shipper until something waits for the store, for at most `time_max`. Returns
    /// false once the mirror is stopped.
    pub fn wait_for_work(&self, time_max: Duration) -> bool {
        let is_idle = |state: &mut State| !state.is_stopped && state.wanted <= state.shipped;
        let waited = self.wanted.wait_timeout_while(self.lock(), time_max, is_idle);
        !waited.expect(NEVER_POISONED).0.is_stopped
    }

    /// Blocks the shipper for `time` after a failure. Returns false once the mirror is stopped.
    pub fn rest(&self, time: Duration) -> bool {
        let is_resting = |state: &mut State| !state.is_stopped;
        let waited = self.wanted.wait_timeout_while(self.lock(), time, is_resting);
        !waited.expect(NEVER_POISONED).0.is_stopped
    }

    /// Limits each wait to `time` from now on, because the daemon stops.
    pub fn limit_waits(&self, time: Duration) {
        let now = self.clock.now();
        self.lock().ending.get_or_insert((now, time));
        self.advanced.notify_all();
    }

    /// Stops the mirror. Flushes that are not in the store fail.
    pub fn stop(&self) {
        self.lock().is_stopped = true;
        self.advanced.notify_all();
        self.wanted.notify_all();
    }

    /// Records that the store was claimed with this daemon's policy.
    pub(crate) fn note_published(&self) {
        self.lock().is_published = true;
        self.advanced.notify_all();
    }

    /// Records that another daemon has claimed the store. This is final.
    pub(crate) fn note_taken_over(&self, cause: String) {
        self.lock().taken_over.get_or_insert(cause);
        self.advanced.notify_all();
    }

    /// Fails if another daemon is known to have claimed the store.
    fn refuse_if_taken_over(&self) -> Result<(), MirrorError> {
        match &self.lock().taken_over {
            Some(by) => Err(MirrorError::TakenOver(by.clone())),
            None => Ok(()),
        }
    }

    /// Records that the store has everything up to `position`, and that no other daemon had claimed
    /// it after the upload. With policy `alone`, flushes wait for the store again.
    pub(crate) fn note_shipped(&self, position: Position) {
        let mut state = self.lock();
        state.shipped = state.shipped.max(position);
        state.is_alone = false;
        if state.waiting > 0 {
            state.waiting_since = Some(self.clock.now());
        }
        drop(state);
        self.advanced.notify_all();
    }

    pub fn status(&self) -> MirrorStatus {
        let state = self.lock();
        let is_behind = state.shipped < state.alone_end;
        MirrorStatus {
            policy: self.options.policy,
            state: match &state.taken_over {
                Some(by) => MirrorState::TakenOver(by.clone()),
                None if state.is_alone => MirrorState::Alone,
                None if is_behind => MirrorState::CatchingUp,
                None => MirrorState::InSync,
            },
            waiting: state.waiting,
            waited: state.waiting_since.map(|since| self.clock.now().saturating_sub(since)),
            failed: state.failed,
            alone: state.alone,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect(NEVER_POISONED)
    }
}

impl Rounds {
    fn run(&mut self) -> Option<Duration> {
        let rest = (self.run)();
        self.is_well = rest.is_none_or(|rest| rest.is_zero());
        rest
    }
}

const NEVER_POISONED: &str = "no thread panics with the mirror locked";

/// Flush target that makes flushes durable in the journal on disk, then in the image store.
#[derive(Debug)]
pub(crate) struct MirroredJournal {
    pub(crate) journal: Arc<Journal>,
    pub(crate) mirror: Arc<Mirror>,
}

impl FlushTarget for MirroredJournal {
    fn flush(&self, volume: &VolumeMap) -> Result<(), HookError> {
        self.journal.flush(volume)?;
        if volume.durability() != Durability::Journal {
            return Ok(());
        }
        if !volume.is_mirrored() {
            return Ok(self.mirror.refuse_if_taken_over()?);
        }
        Ok(self.mirror.wait(self.journal.position(), Limit::Policy)?)
    }

    fn write_back(&self, volume: &VolumeMap) {
        FlushTarget::write_back(&*self.journal, volume);
    }
}
