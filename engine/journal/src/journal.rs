//! The journal of a pool, as seen by the engine and its owner.

use std::fmt::Debug;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, Weak};
use std::time::Duration;

use codec::Block;
use sealing::SetKey;
use storage::Folder;
use sync::atomic::{AtomicBool, AtomicU64, Ordering};
use volumes::{Durability, Engine, FlushTarget, HookError, VolumeMap};

use crate::chain::Chain;
use crate::error::{JournalError, JournalErrorKind};
use crate::format::SetId;
use crate::group_commit::{self, GroupCommit, Leader, Role};
use crate::known::KnownPages;
use crate::log::{Identity, Log};
use crate::meter::{Failure, JournalStatus, Meter, Outcome};
use crate::options::{Clock, FailurePolicy, JournalOptions};
use crate::page_copy::{read_known, read_latest};
use crate::replay::Position;
use crate::segment_file::cannot_read;
use crate::segment_set::{SegmentSet, Written};
use crate::writer::Writer;

/// Parameters for opening a journal.
#[derive(Clone, Debug)]
pub struct JournalSpec {
    /// Folder of the journal's files. It may contain other files.
    pub folder: Arc<dyn Folder>,
    /// Encryption key, if the journal is encrypted.
    pub key: Option<Arc<SetKey>>,
    /// Durable set of the pool.
    pub set_id: SetId,
    /// Position up to which the newest image covers everything, or [`Position::START`] if there is
    /// no image. New transactions begin there at the earliest. It is required even if the pool's
    /// memory is intact, because a checkpoint may lie after the last transaction that reached the
    /// disk. If it is unknown (`None`), the journal skips enough sequence numbers that no image can
    /// cover a new transaction.
    pub covered: Option<Position>,
    pub options: JournalOptions,
    pub clock: Arc<dyn Clock>,
}

/// The journal of a pool, which makes flushes durable. Threads share it and may call any method
/// concurrently.
#[derive(Debug)]
pub struct Journal {
    options: JournalOptions,
    clock: Arc<dyn Clock>,
    engine: Arc<OnceLock<Weak<Engine>>>,
    segments: Arc<SegmentSet>,
    key: Option<Arc<SetKey>>,
    known: Arc<Mutex<KnownPages>>,
    /// Held during a search for a block.
    search: Mutex<()>,
    meter: Arc<Meter>,
    noted_version: Arc<AtomicU64>,
    commits: GroupCommit<Writer, Outcome>,
    checkpoints: Mutex<Checkpoints>,
    /// Signals the end of a checkpoint, or that the journal was stopped.
    checkpoint_ended: Condvar,
    is_stopped: AtomicBool,
}

const NEVER_POISONED: &str = "no thread panics with the checkpoints locked";

/// Start sequence for a program that only appends and reads no transaction.
const NOWHERE: u64 = u64::MAX;

#[derive(Debug, Default)]
struct Checkpoints {
    begun: Option<Position>,
    /// Number of flushes that wait until an image covers their volume's contents from before it was
    /// journaled.
    unanchored_flushes: usize,
    /// Earliest time of the next checkpoint requested because of a full disk.
    relief: Relief,
}

/// Rate limit of checkpoints that free space on a full disk. The first is requested at once. The
/// pause doubles for as long as they do not help.
#[derive(Debug)]
struct Relief {
    not_before: Duration,
    pause: Duration,
}

/// Minimum and maximum pause between such checkpoints.
const RELIEF_PAUSE_MIN: Duration = Duration::from_secs(2);
const RELIEF_PAUSE_MAX: Duration = Duration::from_secs(600);

impl Default for Relief {
    fn default() -> Self {
        Self { not_before: Duration::ZERO, pause: RELIEF_PAUSE_MIN }
    }
}

impl Relief {
    fn note_begun(&mut self, now: Duration) {
        self.not_before = now + self.pause;
        self.pause = (self.pause * 2).min(RELIEF_PAUSE_MAX);
    }
}

impl Journal {
    /// Opens the journal in the folder, or creates one. Does not restore volumes: either the pool's
    /// memory is intact, or the caller has already called [`crate::recover`]. Checks only the end
    /// of the journal.
    pub fn open(spec: JournalSpec) -> Result<Self, JournalError> {
        let JournalSpec { folder, key, set_id, covered, options, clock } = spec;
        let chain = &Chain::find(&*folder, key.as_deref(), set_id, NOWHERE)?;
        options.check()?;
        chain.secure_end(&*folder, key.as_deref())?;
        let segments = Arc::new(SegmentSet::new(folder, chain, &options));
        let identity = Identity { set_id, key: key.clone() };
        let log = Log::new(Arc::clone(&segments), identity, chain, covered, &options);
        let (engine, meter) = (Arc::new(OnceLock::new()), Arc::new(Meter::default()));
        meter.note_position(log.position());
        let known = log.share_known();
        let writer = Writer::new(log, Arc::clone(&engine), Arc::clone(&meter), Arc::clone(&clock));
        let noted_version = writer.share_noted_version();
        Ok(Self {
            options,
            clock,
            engine,
            segments,
            key,
            known,
            search: Mutex::new(()),
            meter,
            noted_version,
            commits: GroupCommit::new(writer),
            checkpoints: Mutex::default(),
            checkpoint_ended: Condvar::new(),
            is_stopped: AtomicBool::new(false),
        })
    }

    /// Directs flushes of the engine's volumes to this journal. Called once, before volumes are
    /// served.
    pub fn serve(self: &Arc<Self>, engine: &Arc<Engine>) {
        self.serve_through(engine, Arc::clone(self) as Arc<dyn FlushTarget>);
    }

    /// Directs flushes to `target`, which calls this journal.
    pub fn serve_through(&self, engine: &Arc<Engine>, target: Arc<dyn FlushTarget>) {
        let was_set = self.engine.set(Arc::downgrade(engine));
        assert!(was_set.is_ok(), "a journal serves one pool");
        engine.set_flush_target(target);
    }

    /// Blocks until all writes to the volume that were acknowledged before the call are on stable
    /// storage.
    pub fn flush(&self, volume: &VolumeMap) -> Result<(), FlushError> {
        self.meter.note_flush();
        loop {
            self.wait_until_anchored(volume).map_err(|error| FlushError(Arc::new(error)))?;
            self.commit(volume.id())?;
            // The volume may have become unanchored during the commit, which then skipped its
            // blocks.
            if needs_no_image(volume) || !self.has(volume) {
                return Ok(());
            }
        }
    }

    /// Blocks until the journal has the current table of volumes of class `journal` and `image` and
    /// their snapshots. Operations that create, change or delete one call this. Unlike a flush it
    /// waits neither for space nor for a failing disk, regardless of the policy. After a failure it
    /// tries one other segment.
    pub fn commit_table(&self) -> Result<(), JournalError> {
        self.try_at_once(|writer| writer.commit(&[]))
    }

    /// Writes the table like [`Journal::commit_table`], and also reserves space for the next table.
    /// Operations that must not begin unless they can be made durable call this first. While the
    /// journal is failing, a test write to the disk must succeed first.
    pub fn prepare_table(&self) -> Result<(), JournalError> {
        self.try_at_once(Writer::prepare_table)
    }

    /// Waits until no flush is being written, for at most `patience` of the options, and keeps new
    /// ones from beginning until the turn is dropped. Fails if the disk does not finish a write in
    /// that time.
    pub fn turn(&self) -> Result<Turn<'_>, JournalError> {
        let turn = self.commits.turn(Some(self.options.patience)).map(Turn);
        turn.ok_or_else(|| {
            JournalError::new(JournalErrorKind::Hanging, "cannot write to the journal")
        })
    }

    /// Same as [`Journal::turn`], but waits as long as the disk takes.
    pub fn turn_at_last(&self) -> Turn<'_> {
        Turn(self.commits.turn(None).expect("it waits without a limit"))
    }

    /// Returns whether the journal has the current volume table. Cheap.
    pub fn knows_table(&self) -> bool {
        let noted = self.noted_version.load(Ordering::Relaxed);
        self.engine().is_none_or(|engine| noted == engine.table_version())
    }

    fn try_at_once(
        &self,
        work: impl Fn(&mut Writer) -> Result<(), JournalError>,
    ) -> Result<(), JournalError> {
        let mut failures = 0;
        loop {
            if self.is_stopped() {
                let what = "cannot write a volume change to the journal";
                return Err(JournalError::new(JournalErrorKind::Stopped, what));
            }
            let Err(error) = self.commits.borrow(&work) else { return Ok(()) };
            self.meter.note_failure(&error, self.clock.now());
            if failures == FAILURES_SURVIVED {
                return Err(error);
            }
            failures += 1;
        }
    }

    /// Returns whether a checkpoint may resolve this failure.
    pub fn may_get_room(&self, error: &JournalError) -> bool {
        match error.kind {
            JournalErrorKind::Limit => true,
            JournalErrorKind::NoSpace => !self.is_out_of_room(),
            _ => false,
        }
    }

    /// Blocks until a checkpoint ends, for at most `time_max`.
    pub fn wait_for_checkpoint(&self, time_max: Duration) {
        let checkpoints = self.lock_checkpoints();
        let woken = self.checkpoint_ended.wait_timeout(checkpoints, time_max);
        drop(woken.expect(NEVER_POISONED));
    }

    /// Does work ahead of flushes: prepares a segment, removes obsolete ones, and retries a failed
    /// disk. The owner calls this about once a second, and soon after
    /// [`Journal::wants_maintenance`] returns true. Blocks on the disk.
    pub fn maintain(&self) -> Result<(), JournalError> {
        if self.is_stopped() {
            return Ok(());
        }
        if self.meter.is_failing() && self.options.policy == FailurePolicy::ReadOnly {
            let prepared = self.commits.borrow(|writer| writer.log.prepare(0));
            match prepared {
                Ok(()) => self.meter.note_resumed(),
                Err(error) => {
                    self.meter.note_failure(&error, self.clock.now());
                    return Err(error);
                }
            }
        }
        self.segments.remove_unused()?;
        if self.segments.lacks_spare() {
            return self.segments.make_ready();
        }
        Ok(())
    }

    /// Returns whether calling [`Journal::maintain`] would avoid a delay of a flush.
    pub fn wants_maintenance(&self) -> bool {
        self.segments.wants_spare()
    }

    /// Returns whether the owner should save an image now, between [`Journal::begin_checkpoint`]
    /// and [`Journal::end_checkpoint`]: the journal has reached half of its limit, a flush waits
    /// until an image has its volume, or the disk is full and a checkpoint would free space. The
    /// last reason is reported once, then again after pauses of 2 s to 10 min.
    pub fn needs_checkpoint(&self) -> bool {
        let mut checkpoints = self.lock_checkpoints();
        let is_long = self.length_bytes() >= self.options.length_bytes_max / 2;
        let would_relieve = self.segments.is_disk_full() && self.segments.can_shrink();
        if !would_relieve {
            checkpoints.relief.pause = RELIEF_PAUSE_MIN;
        }
        let is_relief_due = would_relieve && self.clock.now() >= checkpoints.relief.not_before;
        let is_wanted = is_long || is_relief_due || checkpoints.unanchored_flushes > 0;
        checkpoints.begun.is_none() && is_wanted
    }

    /// Returns whether the disk has no space for the journal's next file and a checkpoint cannot
    /// help, because other files use the space.
    pub fn is_out_of_room(&self) -> bool {
        self.segments.is_disk_full() && !self.segments.can_shrink()
    }

    /// Begins a checkpoint and returns its position. Everything that was durable before lies before
    /// this position. An image of the volumes' contents at or after the return therefore makes that
    /// part of the journal obsolete. Waits for the commit in progress. Writes nothing itself.
    pub fn begin_checkpoint(&self) -> Position {
        let position = self.commits.borrow(Writer::begin_checkpoint);
        let mut checkpoints = self.lock_checkpoints();
        checkpoints.begun = Some(position);
        if self.segments.is_disk_full() {
            checkpoints.relief.note_begun(self.clock.now());
        }
        position
    }

    /// Ends a checkpoint whose image is on stable storage with `position`, and removes the journal
    /// before it. After a failure the journal is correct but longer than necessary, and
    /// [`Journal::maintain`] retries.
    pub fn end_checkpoint(&self, position: Position) -> Result<(), JournalError> {
        self.cancel_checkpoint(position);
        let dropped = self.segments.drop_before(position.0);
        self.commits.nudge();
        dropped
    }

    /// Cancels a checkpoint whose image could not be saved. Nothing is removed.
    pub fn cancel_checkpoint(&self, position: Position) {
        let mut checkpoints = self.lock_checkpoints();
        checkpoints.begun = checkpoints.begun.filter(|&begun| begun != position);
        drop(checkpoints);
        self.checkpoint_ended.notify_all();
    }

    /// Copies a page from the journal by its page number in memory, with one disk read. Returns
    /// `false` if its location is unknown (only [`JournalOptions::known_pages_max`] pages written
    /// since the journal was opened are tracked), if it lies before the last checkpoint, or if it
    /// is damaged.
    pub fn copy_page(&self, number: u64, into: &mut Block) -> bool {
        let known = self.known.lock().expect("no thread panics with the pages locked");
        let found = known.find_anywhere(number);
        drop(known);
        found.is_some_and(|known| read_known(&self.segments, self.key.as_deref(), known, into))
    }

    /// Copies the newest contents of a block in the journal. Searches backwards from the end
    /// through at most 512 MiB, one search at a time. Returns `false` if the journal has no
    /// contents of the block or they are damaged.
    pub fn copy_block(&self, volume_id: u64, block: u64, into: &mut Block) -> bool {
        let _turn = self.search.lock().expect("no thread panics in a search");
        read_latest(&self.segments, self.key.as_deref(), volume_id, block, into)
    }

    /// Returns whether volumes of class `journal` accept writes. They do not while the journal is
    /// failing under the read-only policy.
    pub fn takes_writes(&self) -> bool {
        self.options.policy == FailurePolicy::Wait || !self.meter.is_failing()
    }

    /// Returns the number of flushes that wait for the transaction in progress, to share the next
    /// one.
    pub fn waiting_flushes(&self) -> usize {
        self.commits.gathered_count()
    }

    /// Returns the position after the last durable transaction. Does not block.
    pub fn position(&self) -> Position {
        self.meter.position()
    }

    /// Returns the durable parts of the journal's segments in reading order. Does not block.
    pub fn written(&self) -> Vec<Written> {
        self.segments.written()
    }

    /// Keeps a copy of what is written from now on, as far as it is recent and not encrypted, so
    /// that [`Journal::read_written`] need not read it from the disk.
    pub fn keep_last_written(&self) {
        self.segments.last_written().want();
    }

    /// Reads raw bytes of a segment, encrypted if the journal is. Returns `false` if the segment is
    /// no longer part of the journal, because an image covers it. May block on the disk.
    pub fn read_written(
        &self,
        segment: u32,
        offset: u32,
        into: &mut [u8],
    ) -> Result<bool, JournalError> {
        if self.segments.keeps(segment) && self.segments.last_written().copy(segment, offset, into)
        {
            return Ok(true);
        }
        let file = match self.segments.open(segment) {
            Ok(Some(file)) => file,
            Ok(None) => return Ok(false),
            Err(error) => return Err(cannot_read(segment, error)),
        };
        let read = file.read(u64::from(offset), into);
        read.map_err(|error| cannot_read(segment, error))?;
        Ok(true)
    }

    /// Returns the total size of the journal's segments in bytes.
    pub fn length_bytes(&self) -> u64 {
        self.segments.length_bytes()
    }

    /// Returns the failure that currently prevents flushes from becoming durable, if any.
    pub fn failure(&self) -> Option<Failure> {
        self.meter.failure()
    }

    /// Returns the journal's status. Takes time proportional to the number of volumes.
    pub fn status(&self) -> JournalStatus {
        JournalStatus {
            length_bytes: self.segments.length_bytes(),
            file_bytes: self.segments.file_bytes(),
            length_bytes_max: self.options.length_bytes_max,
            checkpoint_begun: self.lock_checkpoints().begun,
            unjournaled_blocks: self.unjournaled_blocks(),
            ..self.meter.status(self.clock.now())
        }
    }

    fn unjournaled_blocks(&self) -> u64 {
        let volumes = self.engine().map(|engine| engine.durable_volumes()).unwrap_or_default();
        let journaled = volumes.iter().filter(|it| it.durability() == Durability::Journal);
        journaled.map(|volume| volume.map().unjournaled_blocks()).sum()
    }

    /// Ends all waiting. Flushes that cannot be made durable now, and all later ones, fail. Their
    /// blocks stay dirty in the pool's memory.
    pub fn stop(&self) {
        // PAIRS-WITH: Journal::is_stopped, "the journal is stopped".
        self.is_stopped.store(true, Ordering::Release);
        self.commits.nudge();
        drop(self.lock_checkpoints());
        self.checkpoint_ended.notify_all();
    }

    fn is_stopped(&self) -> bool {
        // PAIRS-WITH: Journal::stop, "the journal is stopped".
        self.is_stopped.load(Ordering::Acquire)
    }

    fn commit(&self, volume_id: u64) -> Result<(), FlushError> {
        let outcome = match self.commits.join(volume_id) {
            Role::Follower(outcome) => outcome,
            Role::Leader(leader) => self.lead(leader),
        };
        outcome.map_err(FlushError)
    }

    /// Leads a group until it is durable or the policy gives up.
    fn lead(&self, mut leader: Leader<Writer, Outcome>) -> Outcome {
        let mut attempts = Attempts::new(&self.options, self.clock.now());
        loop {
            let committed = match self.is_stopped() {
                true => Err(JournalError::new(JournalErrorKind::Stopped, "cannot flush")),
                false => leader.tool.commit(&leader.volume_ids),
            };
            let Err(error) = committed else { return self.commits.end(leader, Ok(())) };
            let now = self.clock.now();
            if error.kind != JournalErrorKind::Stopped {
                self.meter.note_failure(&error, now);
            }
            match attempts.next(&error, now) {
                Some(rest) => leader = self.commits.rest(leader, rest),
                None => return self.commits.end(leader, Err(Arc::new(error))),
            }
        }
    }

    /// Blocks until an image covers the volume's contents from before it was of class `journal`.
    fn wait_until_anchored(&self, volume: &VolumeMap) -> Result<(), JournalError> {
        if needs_no_image(volume) {
            return Ok(());
        }
        let start = self.clock.now();
        let mut checkpoints = self.lock_checkpoints();
        checkpoints.unanchored_flushes += 1;
        let answer = loop {
            if needs_no_image(volume) || !self.has(volume) {
                break Ok(());
            }
            let waited = self.clock.now().saturating_sub(start);
            let is_patient =
                self.options.policy == FailurePolicy::Wait || waited < self.options.patience;
            if self.is_stopped() || !is_patient {
                break Err(unanchored(volume, self.is_stopped()));
            }
            // The end of a checkpoint wakes this thread. Other ways of anchoring a volume are
            // polled for.
            let time = self.options.retry_after_max;
            let (woken, _) =
                self.checkpoint_ended.wait_timeout(checkpoints, time).expect(NEVER_POISONED);
            checkpoints = woken;
        };
        checkpoints.unanchored_flushes -= 1;
        answer
    }

    /// Returns whether the volume still belongs to the pool.
    fn has(&self, volume: &VolumeMap) -> bool {
        let is_listed = |it: Arc<Engine>| it.volumes().iter().any(|it| it.id() == volume.id());
        self.engine().is_some_and(is_listed)
    }

    fn engine(&self) -> Option<Arc<Engine>> {
        self.engine.get().and_then(Weak::upgrade)
    }

    fn lock_checkpoints(&self) -> MutexGuard<'_, Checkpoints> {
        self.checkpoints.lock().expect(NEVER_POISONED)
    }
}

/// Time between two flushes. While it lasts, [`Journal::prepare_table`] and
/// [`Journal::begin_checkpoint`] wait for no flush.
pub struct Turn<'journal>(#[expect(dead_code, reason = "dropped only")] CommitTurn<'journal>);

type CommitTurn<'journal> = group_commit::Turn<'journal, Writer, Outcome>;

impl Debug for Turn<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Turn")
    }
}

impl FlushTarget for Journal {
    fn flush(&self, volume: &VolumeMap) -> Result<(), HookError> {
        Ok(Journal::flush(self, volume)?)
    }

    /// While the journal is failing, only flushes retry.
    fn write_back(&self, volume: &VolumeMap) {
        if needs_no_image(volume) && !self.meter.is_failing() {
            // The blocks stay dirty, and the next flush reports the failure.
            let _ = self.commit(volume.id());
        }
    }
}

/// A flush that was not made durable. All threads that shared its commit receive the same error.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the flush is not on stable storage")]
pub struct FlushError(#[source] pub Arc<JournalError>);

/// Retry state of a group's leader.
struct Attempts {
    options: JournalOptions,
    start: Duration,
    rest: Duration,
    failures: u32,
}

/// Number of disk failures that a flush survives if the policy is not to wait. The first failure
/// may be specific to a segment, and the second attempt uses another one.
const FAILURES_SURVIVED: u32 = 1;

impl Attempts {
    fn new(options: &JournalOptions, start: Duration) -> Self {
        Self { options: *options, start, rest: options.retry_after, failures: 0 }
    }

    /// Returns the delay before the next attempt, or `None` to give up.
    fn next(&mut self, error: &JournalError, now: Duration) -> Option<Duration> {
        let is_patient = now.saturating_sub(self.start) < self.options.patience;
        let tries_again = match (error.kind, self.options.policy) {
            (JournalErrorKind::Stopped | JournalErrorKind::Invalid, _) => false,
            (_, FailurePolicy::Wait) => true,
            (JournalErrorKind::Limit, FailurePolicy::ReadOnly) => is_patient,
            (_, FailurePolicy::ReadOnly) => self.failures < FAILURES_SURVIVED,
        };
        self.failures += 1;
        let rest = self.rest;
        self.rest = (rest * 2).min(self.options.retry_after_max);
        tries_again.then_some(rest)
    }
}

/// Returns whether a flush of the volume can be fulfilled now: the journal has everything since an
/// image, or the volume no longer is of class `journal`.
fn needs_no_image(volume: &VolumeMap) -> bool {
    volume.is_anchored() || volume.durability() != Durability::Journal
}

fn unanchored(volume: &VolumeMap, is_stopped: bool) -> JournalError {
    let what = format!(
        "cannot flush volume {:?}: its older contents are not in an image yet",
        volume.name()
    );
    let kind = if is_stopped { JournalErrorKind::Stopped } else { JournalErrorKind::Unanchored };
    JournalError::new(kind, what)
}
