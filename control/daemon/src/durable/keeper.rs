//! Thread that maintains journal and images: it allocates journal files ahead, saves images when
//! the journal is long or on schedule, fetches absent blocks, and reports failing disks.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;
use durable_set::LastKnown;
use image::ImageId;
use service_manager::MoreTime;
use volumes::Volume;

use crate::config::OnJournalFailure;
use crate::durable::shipping::ship;
use crate::durable::state::{Durable, Newest};
use crate::tasks::Tasks;
use crate::ticker::Ticker;

/// Interval between checks for due work, with and without volumes of class `journal`.
const INTERVAL: Duration = Duration::from_millis(100);
const INTERVAL_WITHOUT_JOURNAL: Duration = Duration::from_millis(500);

/// Interval of journal maintenance when the journal does not request it.
const TEND_INTERVAL: Duration = Duration::from_secs(1);

/// Delay before a failed operation is retried.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// Minimum and maximum delay before a failed fetch is retried. The delay doubles with each failure.
const FETCH_WAIT_MIN: Duration = Duration::from_secs(1);
const FETCH_WAIT_MAX: Duration = Duration::from_secs(60);

/// The running thread. Dropping it ends the thread after the current step.
pub(crate) struct Keeper {
    _ticker: Ticker,
    _shipping: Option<Ticker>,
}

impl Keeper {
    pub(crate) fn start(durable: Arc<Durable>, tasks: Arc<Tasks>) -> anyhow::Result<Self> {
        let shipping = ship(&durable).context("cannot start the thread that ships the journal")?;
        let mut maintained = DurabilityLoop {
            durable,
            tasks,
            tended: Instant::now(),
            save_tried: None,
            look_tried: Some(Instant::now()),
            looking: None,
            record_tried: None,
            recording: None,
            fetch_tried: None,
            fetch_wait: FETCH_WAIT_MIN,
            failure: None,
            mirror: api::MirrorState::InSync,
        };
        let ticker = Ticker::start("durability", maintained.interval(), move || maintained.step())
            .context("cannot start the thread that maintains journal and images")?;
        Ok(Self { _ticker: ticker, _shipping: shipping })
    }
}

/// State of the maintenance of journal and images.
struct DurabilityLoop {
    durable: Arc<Durable>,
    tasks: Arc<Tasks>,
    tended: Instant,
    save_tried: Option<Instant>,
    look_tried: Option<Instant>,
    looking: Option<JoinHandle<()>>,
    record_tried: Option<(LastKnown, Instant)>,
    recording: Option<JoinHandle<()>>,
    fetch_tried: Option<Instant>,
    fetch_wait: Duration,
    /// Cause of the journal's failure at the last check.
    failure: Option<String>,
    /// State of mirrored flushes at the last check.
    mirror: api::MirrorState,
}

impl DurabilityLoop {
    fn interval(&self) -> Duration {
        match self.durable.set.has_journaled_volumes() {
            true => INTERVAL,
            false => INTERVAL_WITHOUT_JOURNAL,
        }
    }

    /// Does the work that is due, and returns the delay until the next step.
    fn step(&mut self) -> Duration {
        self.tend_journal();
        self.tell_of_journal();
        self.tell_of_mirror();
        self.look_if_due();
        self.record_set();
        let has_failed = self.durable.known().failure.is_some();
        if self.wants_image() && (!has_failed || is_over(self.save_tried)) {
            self.save_tried = Some(Instant::now());
            // If a save is already running, that is sufficient.
            let _begun = self.durable.begin_save(&self.tasks, Vec::new(), String::new());
        }
        self.fetch_if_due();
        self.interval()
    }

    /// Compares the pool with a store that has not listed its objects since the start. Runs on its
    /// own thread, because the store may be slow.
    fn look_if_due(&mut self) {
        if self.durable.set.is_compared() || is_running(&self.looking) || !is_over(self.look_tried)
        {
            return;
        }
        self.look_tried = Some(Instant::now());
        let durable = Arc::clone(&self.durable);
        let look = move || durable.look_at_images();
        // If no thread can be started now, the next attempt may succeed.
        self.looking = std::thread::Builder::new().name("image-store".to_owned()).spawn(look).ok();
    }

    /// Records in the state directory that this host has a journal, and its newest image. Runs on
    /// its own thread, because the disk of that directory may hang.
    fn record_set(&mut self) {
        let (set, record) = (&self.durable.set, &self.durable.record);
        let has_flushes = set.has_journaled_volumes();
        let known = record.known().filter(|known| known.set_id == set.id());
        let newest_image = match set.is_compared() {
            true => self.durable.known().newest.map_or(0, |newest| newest.number),
            // The store was not listed yet.
            false => known.map_or(0, |known| known.newest_image),
        };
        let current = LastKnown { set_id: set.id(), has_flushes, newest_image };
        let is_current = known == Some(current) || set.journal().length_bytes() == 0;
        let tried = self.record_tried.filter(|(tried, _)| *tried == current);
        if is_current || is_running(&self.recording) || !is_over(tried.map(|(_, at)| at)) {
            return;
        }
        self.record_tried = Some((current, Instant::now()));
        let durable = Arc::clone(&self.durable);
        let write = move || match durable.record.write(current) {
            Ok(()) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot record the state of the durable set")
            }
        };
        // If no thread can be started now, the next attempt may succeed.
        self.recording = std::thread::Builder::new().name("state".to_owned()).spawn(write).ok();
    }

    fn fetch_if_due(&mut self) {
        if self.durable.engine.absent_image().is_none() {
            (self.fetch_tried, self.fetch_wait) = (None, FETCH_WAIT_MIN);
            return;
        }
        let is_due = |tried: Instant| tried.elapsed() >= self.fetch_wait;
        let begin = || self.durable.begin_fetch(&self.tasks, "restored volumes", None).is_ok();
        // `begin` fails while a fetch is running.
        if self.fetch_tried.is_none_or(is_due) && begin() {
            if self.fetch_tried.is_some() {
                self.fetch_wait = (self.fetch_wait * 2).min(FETCH_WAIT_MAX);
            }
            self.fetch_tried = Some(Instant::now());
        }
    }

    fn tend_journal(&mut self) {
        let set = &self.durable.set;
        if set.wants_maintenance() || self.tended.elapsed() >= TEND_INTERVAL {
            self.tended = Instant::now();
            if let Err(error) = set.maintain() {
                let error = format!("{:#}", anyhow::Error::from(error));
                tracing::debug!(error, "journal maintenance failed; retrying");
            }
        }
    }

    /// Reports events when the journal's disk begins and stops failing.
    fn tell_of_journal(&mut self) {
        let takes_writes = self.durable.journal().takes_writes();
        self.durable.engine.take_journaled_changes(takes_writes);
        let failure = self.durable.journal_failure();
        if failure.is_some() == self.failure.is_some() {
            return;
        }
        let events = &self.durable.events;
        match &failure {
            Some(cause) => {
                let what = match self.durable.journal_config.on_failure {
                    OnJournalFailure::Wait => {
                        "flushes of class journal wait until it can be written again"
                    }
                    OnJournalFailure::ReadOnly => {
                        "flushes fail, and volumes of class journal are read-only, until it can \
                         be written again"
                    }
                };
                events.error(
                    "journal_failing",
                    None,
                    format!("cannot write the journal: {cause}; {what}"),
                );
            }
            None => {
                events.info("journal_resumed", None, "the journal can be written again".to_owned())
            }
        }
        self.failure = failure;
    }

    /// Reports events when the state of mirrored flushes changes.
    fn tell_of_mirror(&mut self) {
        let Some(status) = self.durable.mirror_status() else { return };
        let before = std::mem::replace(&mut self.mirror, status.state);
        if before == status.state {
            return;
        }
        let cause = status.cause.unwrap_or_default();
        let events = &self.durable.events;
        match status.state {
            api::MirrorState::InSync => {
                let message = "the image store has all flushes of class journal again";
                events.info("mirror_resumed", None, message.to_owned());
            }
            api::MirrorState::CatchingUp => {
                let message = "the image store answers; flushes of class journal wait for it again";
                events.info("mirror_catching_up", None, message.to_owned());
            }
            api::MirrorState::Waiting => {
                let then = match status.policy {
                    api::MirrorPolicy::Wait => "they wait until it answers",
                    api::MirrorPolicy::Fail => "they fail after mirror-timeout",
                    api::MirrorPolicy::Alone => {
                        "after mirror-timeout they are acknowledged without it"
                    }
                };
                let message =
                    format!("flushes of class journal wait for the image store: {cause}; {then}");
                events.error("mirror_waiting", None, message);
            }
            api::MirrorState::Alone => {
                let message = format!(
                    "the image store does not answer: {cause}; flushes of class journal are \
                     acknowledged without it, and are lost with this host"
                );
                events.error("mirror_alone", None, message);
            }
            api::MirrorState::TakenOver => {
                let message = format!("flushes of class journal fail: {cause}");
                events.error("mirror_taken_over", None, message);
            }
        }
    }

    fn wants_image(&self) -> bool {
        let durable = &self.durable;
        if durable.known().is_wanted || durable.journal().needs_checkpoint() {
            return true;
        }
        let Some(every) = durable.images_config.every else { return false };
        Newest::is_next_due(durable.known().newest.as_ref(), every) && durable.has_unsaved()
    }
}

impl Durable {
    /// Returns whether a new image would differ from the last one.
    pub(crate) fn has_unsaved(&self) -> bool {
        let is_unsaved = |volume: &Arc<Volume>| {
            volume.map().unsaved_blocks() > 0 || volume.map().image_base().is_none()
        };
        if self.engine.durable_volumes().iter().any(is_unsaved) {
            return true;
        }
        // After a deletion or renaming, the last image is out of date.
        let known = self.known();
        known.newest.is_some() && known.table_version != Some(self.engine.table_version())
    }

    /// Number of the image from which absent blocks are still fetched.
    pub(crate) fn fetching(&self) -> Option<u32> {
        self.engine.absent_image().and_then(ImageId::from_word).map(ImageId::number)
    }
}

impl Durable {
    /// Stops a failing journal. Called before the exports are stopped: flushes that wait for the
    /// disk would block them.
    pub(crate) fn before_exports_stop(&self) {
        self.limit_mirroring();
        if self.journal_failure().is_some() {
            self.journal().stop();
        }
    }

    /// Saves a last image, if this is configured and there are changes to save. Reports progress to
    /// `more_time`. All exports have ended or were abandoned.
    pub(crate) fn stop(&self, more_time: &MoreTime) {
        if self.images_config.saves_at_stop && self.has_unsaved() {
            // The failure was logged. All data is still in memory, and flushed data is in the
            // journal.
            let _saved = self.save(&[], "", &LastSave(more_time));
        }
        self.end_mirroring();
        self.journal().stop();
    }
}

/// Save during a stop, whose progress gets it more time.
struct LastSave<'it>(&'it MoreTime);

impl image::Watch for LastSave<'_> {
    fn on_progress(&self, _progress: image::Progress) {
        self.0.progress();
    }

    fn is_cancelled(&self) -> bool {
        false
    }
}

fn is_running(thread: &Option<JoinHandle<()>>) -> bool {
    thread.as_ref().is_some_and(|thread| !thread.is_finished())
}

fn is_over(tried: Option<Instant>) -> bool {
    tried.is_none_or(|tried| tried.elapsed() >= RETRY_INTERVAL)
}
