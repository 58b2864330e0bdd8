//! Follower of an image store on its own thread, and its promotion.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use api::{ByteSize, Problem, ProblemKind, Promotion, StandbyPromote, counted};
use durable_set::OwnClaim;
use image::{
    Claims, FolderStore, ImageError, ImageErrorKind, ImageStore, StoreWriter, VisitedFolder, Watch,
};
use sealing::WrappingKey;
use standby::{Follower, FollowerSpec, LossPolicy, Promoted, StandbyError, StandbyErrorKind, Step};
use volumes::Engine;

use crate::config::{EncryptionConfig, ImagesConfig, StorePlace};
use crate::durable::{causes, open_elsewhere, open_journal_folder, place_of, store_writer};
use crate::events::EventLog;
use crate::standby::lag::{Changes, journal_lag_seconds, lag_seconds};
use crate::standby::rejoining::{FormerWriter, Places, open_pool};
use crate::standby::role::{note_pending, note_promoted};
use crate::store_serving::StoreServing;
use crate::ticker::Ticker;
use crate::wanted::Restart;

/// Maximum delay before a failed store is retried. The delay starts at the interval and doubles.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// A writer that saved an image or shipped its journal within this time is considered alive.
const WRITER_QUIET_SECONDS_MIN: f64 = 10.0;

/// Dependencies of a standby.
pub(crate) struct StandbyParts<'config> {
    pub(crate) engine: Arc<Engine>,
    pub(crate) events: Arc<EventLog>,
    pub(crate) images: &'config ImagesConfig,
    /// Store that this daemon serves.
    pub(crate) serving: Option<&'config StoreServing>,
    pub(crate) encryption: Option<&'config EncryptionConfig>,
    pub(crate) state_dir: PathBuf,
    /// Folder of the journal, which is used from the promotion on.
    pub(crate) journal_dir: PathBuf,
    pub(crate) interval: Duration,
    /// The pool of a former writer may be used.
    pub(crate) may_rejoin: bool,
    pub(crate) restart: Restart,
}

/// A pool that follows an image store.
#[derive(Debug)]
pub(crate) struct Standby {
    pub(super) follower: Arc<Follower>,
    engine: Arc<Engine>,
    pub(super) place: String,
    pub(super) known: Mutex<Known>,
    store: StorePlace,
    /// This daemon serves the store, and so is the only one of its host that writes to it.
    is_served: bool,
    events: Arc<EventLog>,
    state_dir: PathBuf,
    journal_dir: PathBuf,
    interval: Duration,
    restart: Restart,
    /// Cancels the current step.
    is_ending: AtomicBool,
    /// Locked during a promotion; afterwards its result.
    promotion: Mutex<Option<Promotion>>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// Error of the last step, or the work that it left undone.
    pub(super) failure: Option<String>,
    /// The store was read at least once.
    pub(super) has_looked: bool,
    /// Skipped images that were already reported.
    skipped: Vec<u32>,
    /// Gap in the shipped journal at the last step, and whether it was reported.
    journal_gap: Option<String>,
    is_gap_told: bool,
    changes: Changes,
    wait: Duration,
}

/// The running thread. Dropping it cancels the current step.
pub(crate) struct StandbyKeeper {
    standby: Arc<Standby>,
    _ticker: Ticker,
}

impl StandbyKeeper {
    pub(crate) fn start(standby: Arc<Standby>) -> anyhow::Result<Self> {
        let turning = Arc::clone(&standby);
        let ticker = Ticker::start("standby", Duration::ZERO, move || turning.turn())?;
        Ok(Self { standby, _ticker: ticker })
    }
}

impl Drop for StandbyKeeper {
    fn drop(&mut self) {
        self.standby.is_ending.store(true, Ordering::Relaxed);
    }
}

impl Standby {
    pub(crate) fn start(parts: StandbyParts<'_>) -> anyhow::Result<Arc<Self>> {
        let served = served_store(&parts);
        let is_served = served.is_some();
        let store = served.map_or_else(|| open_store(&parts), Ok)?;
        let files = parts.encryption.map(|it| [Some(&it.key_file), it.previous.as_ref()]);
        let files = files.into_iter().flatten().flatten();
        let keys = files.map(|path| WrappingKey::read(path)).collect::<Result<_, _>>()?;
        let spec = FollowerSpec { engine: parts.engine, store, keys };
        let allowed = match parts.may_rejoin {
            true => FormerWriter::TakenOver,
            false => FormerWriter::Empty,
        };
        let places = Places { state_dir: &parts.state_dir, journal_dir: &parts.journal_dir };
        let engine = Arc::clone(&spec.engine);
        let follower = open_pool(spec, allowed, &places, &parts.events)?;
        let place = place_of(&parts.images.store);
        tracing::info!(store = place, "following the image store as a standby");
        Ok(Arc::new(Self {
            follower: Arc::new(follower),
            engine,
            place,
            known: Mutex::new(Known { wait: parts.interval, ..Known::default() }),
            store: parts.images.store.clone(),
            is_served,
            events: parts.events,
            state_dir: parts.state_dir,
            journal_dir: parts.journal_dir,
            interval: parts.interval,
            restart: parts.restart,
            is_ending: AtomicBool::new(false),
            promotion: Mutex::default(),
        }))
    }

    pub(crate) fn follower(&self) -> &Arc<Follower> {
        &self.follower
    }

    /// Follows once. Returns the delay until the next turn.
    fn turn(&self) -> Duration {
        let begun = Instant::now();
        let step = self.follower.follow(self);
        let is_over =
            |kind| matches!(kind, StandbyErrorKind::Cancelled | StandbyErrorKind::Promoted);
        if step.as_ref().is_err_and(|error| is_over(error.kind)) {
            return self.interval;
        }
        self.tell_skipped();
        self.tell_journal_gap();
        let failure = match &step {
            Err(error) => Some(causes(error)),
            Ok(Step::Incomplete { image_number, left_bytes, cause, .. }) => {
                let left = ByteSize(*left_bytes).rounded();
                Some(format!("cannot fetch {left} of image {image_number}: {cause}"))
            }
            Ok(Step::Complete { image_number, fetched_bytes }) => {
                tracing::debug!(image_number, fetched_bytes, "image followed");
                self.journal_failure()
            }
            Ok(Step::Waiting | Step::Unchanged) => {
                let was_failing = self.known().failure.is_some();
                was_failing.then(|| self.journal_failure()).flatten()
            }
        };
        let progress = self.follower.progress();
        let mut known = self.known();
        known.has_looked = true;
        if step.is_ok() {
            known.changes.note(progress.image_number, progress.shipped_unix_micros, begun);
        }
        known.wait = match &failure {
            Some(_) => (known.wait * 2).clamp(self.interval, WAIT_MAX),
            None => self.interval,
        };
        let wait = known.wait;
        let before = std::mem::replace(&mut known.failure, failure.clone());
        drop(known);
        self.tell(before.as_deref(), failure.as_deref());
        wait
    }

    /// Cause for which the promoted daemon could not use the directory of the journal, if any.
    fn journal_failure(&self) -> Option<String> {
        self.check_journal().err().map(|error| format!("{error:#}"))
    }

    /// Fails if the directory of the journal has the journal of other volumes. The promoted daemon
    /// could not start with it.
    fn check_journal(&self) -> anyhow::Result<()> {
        let found = journal::set_in(&open_journal_folder(&self.journal_dir)?)?;
        match (found, self.engine.set_id()) {
            (Some(found), Some(own)) if found != own => bail!(
                "{} has the journal of other volumes than those in the image store, so this \
                 standby cannot be promoted; delete the files in it if those volumes are not \
                 needed, or configure another dir in [journal]",
                self.journal_dir.display()
            ),
            _ => Ok(()),
        }
    }

    fn tell(&self, before: Option<&str>, failure: Option<&str>) {
        match (before, failure) {
            (None, Some(failure)) => {
                let message = format!(
                    "the standby cannot follow {}: {failure}; clients read the last complete image \
                     until it succeeds, and the standby retries",
                    self.place
                );
                self.events.error("standby_failing", None, message);
            }
            (Some(_), None) => {
                let message = format!("the standby follows {} again", self.place);
                self.events.info("standby_following", None, message);
            }
            _ => {}
        }
    }

    /// Reports each skipped image once.
    fn tell_skipped(&self) {
        let skipped = self.follower.progress().skipped;
        let numbers = skipped.iter().map(|(number, _)| *number).collect();
        let before = std::mem::replace(&mut self.known().skipped, numbers);
        for (number, cause) in skipped.iter().filter(|(number, _)| !before.contains(number)) {
            let message = format!("skipping image {number}, which cannot be followed: {cause}");
            self.events.error("image_unreadable", None, message);
        }
    }

    /// Reports a gap in the shipped journal once, after two consecutive steps have found it. An
    /// image that is saved between two reads removes extracts, which looks like a gap.
    fn tell_journal_gap(&self) {
        let gap = self.follower.progress().gap.map(|gap| gap.what);
        let mut known = self.known();
        let stays = known.journal_gap == gap;
        let was_told = std::mem::replace(&mut known.is_gap_told, stays);
        known.journal_gap.clone_from(&gap);
        drop(known);
        if let Some(gap) = gap.filter(|_| stays && !was_told) {
            let message = format!(
                "a promotion would replay only a part of the journal in {}: {gap}",
                self.place
            );
            self.events.error("journal_gap", None, message);
        }
    }

    /// Promotes this standby and restarts the daemon as a writer. A repeated call returns the same
    /// result.
    pub(crate) fn promote(&self, request: &StandbyPromote) -> Result<Promotion, Problem> {
        let mut known = self.promotion.lock().expect("no promotion panics");
        if let Some(promotion) = &*known {
            return Ok(Promotion { is_repeated: true, ..promotion.clone() });
        }
        self.is_ending.store(true, Ordering::Relaxed);
        let promoted = self.try_to_promote(request);
        match &promoted {
            Ok(promotion) => *known = Some(promotion.clone()),
            Err(_) => self.is_ending.store(false, Ordering::Relaxed),
        }
        promoted
    }

    fn try_to_promote(&self, request: &StandbyPromote) -> Result<Promotion, Problem> {
        self.check_alone()?;
        let failed = |error: anyhow::Error| host_failed(format!("{error:#}"));
        let folder = open_journal_folder(&self.journal_dir).map_err(failed)?;
        let writer = store_writer().map_err(failed)?;
        let own = OwnClaim::read_or_begin(&folder, writer.id);
        let mut own = own.map_err(|error| host_failed(causes(&error)))?;
        if !request.force {
            self.check_unclaimed(&own)?;
            self.check_quiet()?;
        }
        let writer = StoreWriter { daemon_id: own.daemon_id(), ..writer };
        let mut approve = |claims: &Claims| {
            self.check_journal().map_err(|error| {
                let attempt = "claim the store for a new writer";
                ImageError::new(ImageErrorKind::Denied, attempt).with_source(error)
            })?;
            own.take_over(claims, &folder).map_err(|error| {
                let attempt = "record the claim in the directory of the journal";
                ImageError::new(ImageErrorKind::Denied, attempt).with_source(error)
            })
        };
        let loss = match request.accept_loss {
            true => LossPolicy::Accept,
            false => LossPolicy::Refuse,
        };
        let mut pending = None;
        let mut note = |promoted: &Promoted| {
            let promotion = pending.insert(promotion_of(promoted));
            Ok(note_pending(&self.state_dir, promotion)?)
        };
        let promoted = self.follower.promote_after(writer, loss, &mut approve, &mut note);
        let promoted = promoted.map_err(refused)?;
        let promotion = pending.expect("it is noted before the last step");
        // The next start completes a pending promotion from the state of the pool.
        if let Err(error) = note_promoted(&self.state_dir, &promotion) {
            tracing::error!(error = %format!("{error:#}"), "cannot record the promotion");
        }
        self.tell_promoted(&promoted, &promotion);
        self.restart.ask();
        Ok(promotion)
    }

    fn tell_promoted(&self, promoted: &Promoted, promotion: &Promotion) {
        let lost = promotion.lost_seconds.map_or_else(
            || "an unknown time".to_owned(),
            |seconds| format!("at most the last {seconds:.1} s"),
        );
        let message = format!(
            "promoted: this daemon now writes to {}, starting from image {}; {lost} of writes are \
             lost",
            self.place, promoted.image_number
        );
        self.events.warning("standby_promoted", None, message);
        if let Some(ended) = &promotion.replay_ended {
            let message =
                format!("the journal in {} was replayed only in part: {ended}", self.place);
            self.events.error("journal_gap", None, message);
        }
        if promoted.continued.damaged_blocks > 0 {
            let message = format!(
                "found {} in the journal in {}; reads of the damaged data fail until it is \
                 overwritten",
                counted(promoted.continued.damaged_blocks, "damaged block"),
                self.place
            );
            self.events.error("journal_damaged", None, message);
        }
        for name in &promoted.continued.left_out {
            let message = "the volume is lost: the image does not contain it, and the journal in \
                           the store has only part of its changes; create it again";
            self.events.error("volume_lost", Some(name), message.to_owned());
        }
        for (name, error) in &promoted.guarantees_lost {
            let message = format!(
                "the volume is thin: there is too little memory to guarantee its capacity: {}",
                error
            );
            self.events.error("guarantee_lost", Some(name), message);
        }
    }

    /// Refuses while another daemon of this host writes to the store's directory.
    fn check_alone(&self) -> Result<(), Problem> {
        let StorePlace::Directory(path) = &self.store else { return Ok(()) };
        if self.is_served {
            return Ok(());
        }
        match FolderStore::check_free(path) {
            Err(error) if error.kind == ImageErrorKind::Locked => {
                let detail = format!(
                    "a daemon of this host writes to the image store {}; stop it first",
                    self.place
                );
                Err(Problem::new(ProblemKind::InUse, detail))
            }
            Err(error) => Err(host_failed(causes(&error))),
            Ok(()) => Ok(()),
        }
    }

    /// Refuses if the writer seems to be alive, or if the possible loss of data is unknown.
    fn check_quiet(&self) -> Result<(), Problem> {
        let changed = self.known().changes.seconds_since(Instant::now());
        if let Some(seconds) = changed.filter(|&seconds| seconds < WRITER_QUIET_SECONDS_MIN) {
            let detail = format!(
                "the images or the journal in {} have changed {seconds:.1} s ago, so its writer \
                 seems to be running; stop it, or use --force",
                self.place
            );
            return Err(Problem::new(ProblemKind::InUse, detail));
        }
        let newest = self.follower.newest_saved_unix_seconds().map_err(refused)?;
        let shipped = self.follower.progress().shipped_unix_micros.and_then(journal_lag_seconds);
        if let Some(seconds) = shipped.filter(|&seconds| seconds < WRITER_QUIET_SECONDS_MIN) {
            let detail = format!(
                "the writer of {} shipped its journal {seconds:.1} s ago and seems to be running; \
                 stop it, or use --force",
                self.place
            );
            return Err(Problem::new(ProblemKind::InUse, detail));
        }
        match newest.and_then(lag_seconds) {
            Some(seconds) if seconds >= WRITER_QUIET_SECONDS_MIN => Ok(()),
            Some(seconds) => {
                let detail = format!(
                    "the writer of {} saved an image {seconds:.1} s ago and seems to be running; \
                     stop it, or use --force",
                    self.place
                );
                Err(Problem::new(ProblemKind::InUse, detail))
            }
            None => {
                let detail = "the lag is unknown: there is no image, or by this host's clock it \
                              was saved in the future; synchronize the clocks, or use --force";
                Err(Problem::new(ProblemKind::Busy, detail))
            }
        }
    }

    /// Refuses if another daemon has taken over from the writer, and has saved no image yet.
    fn check_unclaimed(&self, own: &OwnClaim) -> Result<(), Problem> {
        let claims = self.follower.known_claims().map_err(refused)?;
        let other = claims.as_ref().and_then(Claims::unsaved_takeover);
        match other.filter(|(_, other)| other.daemon_id != own.daemon_id()) {
            None => Ok(()),
            Some((number, other)) => {
                let host = match other.host.as_str() {
                    "" => String::new(),
                    host => format!(" on the host {host}"),
                };
                let detail = format!(
                    "another daemon{host} has claimed {} with number {number} and has saved no \
                     image since, so it may have been promoted; to discard what it has written, \
                     stop it, and use --force",
                    self.place
                );
                Err(Problem::new(ProblemKind::InUse, detail))
            }
        }
    }

    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect("no thread panics with this lock")
    }
}

impl Watch for Standby {
    fn on_progress(&self, _progress: image::Progress) {}

    fn is_cancelled(&self) -> bool {
        self.is_ending.load(Ordering::Relaxed)
    }
}

/// Returns the store that this daemon serves, if it is the one to follow.
fn served_store(parts: &StandbyParts<'_>) -> Option<Arc<dyn ImageStore>> {
    match &parts.images.store {
        StorePlace::Directory(path) => Some(parts.serving?.store_in(path)?),
        _ => None,
    }
}

fn open_store(parts: &StandbyParts<'_>) -> anyhow::Result<Arc<dyn ImageStore>> {
    let StorePlace::Directory(path) = &parts.images.store else {
        return open_elsewhere(&parts.images.store, parts.images);
    };
    let folder = VisitedFolder::new(path);
    // A store that was followed before may be temporarily unavailable.
    if parts.engine.set_id().is_none() || !parts.engine.is_restoring() {
        folder.check_exists().context(
            "the image store does not exist, and a standby does not create it; check store in \
             [images], and that it is mounted",
        )?;
    }
    Ok(Arc::new(folder))
}

fn promotion_of(promoted: &Promoted) -> Promotion {
    let names = promoted.guarantees_lost.iter().map(|(name, _)| name.clone());
    Promotion {
        image: u64::from(promoted.image_number),
        saved_unix_seconds: promoted.saved_unix_seconds,
        lost_seconds: lag_seconds(promoted.saved_unix_seconds),
        journal_lost_seconds: promoted.continued.taken_unix_micros.and_then(journal_lag_seconds),
        is_complete: promoted.is_complete,
        unmirrored: promoted.unmirrored.clone(),
        replayed_transactions: promoted.continued.transactions,
        replay_ended: promoted.continued.gap.as_ref().map(|gap| {
            let left_out = ByteSize(gap.left_out_bytes).rounded();
            format!("{}; {left_out} after it are lost", gap.what)
        }),
        to_fetch_bytes: promoted.to_fetch_bytes,
        guarantees_lost: names.collect(),
        is_repeated: false,
    }
}

fn host_failed(detail: String) -> Problem {
    Problem::new(ProblemKind::HostFailed, detail)
}

fn refused(error: StandbyError) -> Problem {
    let detail = match error.kind {
        StandbyErrorKind::Loss => format!("{}; use --accept-loss", causes(&error)),
        _ => causes(&error),
    };
    let kind = match error.kind {
        StandbyErrorKind::Loss => ProblemKind::Loss,
        StandbyErrorKind::NoImage => ProblemKind::NotFound,
        StandbyErrorKind::PoolFull => ProblemKind::NoSpace,
        StandbyErrorKind::ClaimedMeanwhile => ProblemKind::InUse,
        _ => ProblemKind::HostFailed,
    };
    Problem::new(kind, detail)
}
