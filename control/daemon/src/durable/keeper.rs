//! The thread that looks after journal and images: it makes files ready ahead, saves images when
//! the journal is long or the schedule says so, fetches what is still absent, and tells of disks
//! that fail.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;
use image::ImageId;
use volumes::{Durability, Volume};

use crate::config::OnJournalFailure;
use crate::durable::shipping::ship;
use crate::durable::state::{Durable, Newest};
use crate::more_time::MoreTime;
use crate::tasks::Tasks;
use crate::ticker::Ticker;

/// How often it looks whether there is something to do: with volumes of class `journal`, and
/// without.
const INTERVAL: Duration = Duration::from_millis(100);
const INTERVAL_WITHOUT_JOURNAL: Duration = Duration::from_millis(500);

/// How often the journal is tended when it does not ask for it.
const TEND_INTERVAL: Duration = Duration::from_secs(1);

/// How long it waits after something failed before it tries that again.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// The same for contents that cannot be fetched: at first, and at most. It doubles with each
/// failure.
const FETCH_WAIT_MIN: Duration = Duration::from_secs(1);
const FETCH_WAIT_MAX: Duration = Duration::from_secs(60);

/// The running thread. Dropped, it ends after the step in hand.
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
            fetch_tried: None,
            fetch_wait: FETCH_WAIT_MIN,
            failure: None,
        };
        let ticker = Ticker::start("durability", maintained.interval(), move || maintained.step())
            .context("cannot start the thread that maintains journal and images")?;
        Ok(Self { _ticker: ticker, _shipping: shipping })
    }
}

/// Upkeep of the journal and the images, a step at a time.
struct DurabilityLoop {
    durable: Arc<Durable>,
    tasks: Arc<Tasks>,
    tended: Instant,
    save_tried: Option<Instant>,
    look_tried: Option<Instant>,
    looking: Option<JoinHandle<()>>,
    fetch_tried: Option<Instant>,
    fetch_wait: Duration,
    /// Why the journal failed when it was last looked at.
    failure: Option<String>,
}

impl DurabilityLoop {
    fn interval(&self) -> Duration {
        match self.durable.set.has_journaled_volumes() {
            true => INTERVAL,
            false => INTERVAL_WITHOUT_JOURNAL,
        }
    }

    /// Does what is due, and returns the time until the next step.
    fn step(&mut self) -> Duration {
        self.tend_journal();
        self.tell_of_journal();
        self.look_if_due();
        let has_failed = self.durable.known().failure.is_some();
        if self.wants_image() && (!has_failed || is_over(self.save_tried)) {
            self.save_tried = Some(Instant::now());
            // A save that runs already does as well.
            let _begun = self.durable.begin_save(&self.tasks, Vec::new(), String::new());
        }
        self.fetch_if_due();
        self.interval()
    }

    /// Asks a store again that has not told yet what it has, on a thread of its own: it may take
    /// long.
    fn look_if_due(&mut self) {
        let is_running = self.looking.as_ref().is_some_and(|thread| !thread.is_finished());
        if self.durable.set.is_compared() || is_running || !is_over(self.look_tried) {
            return;
        }
        self.look_tried = Some(Instant::now());
        let durable = Arc::clone(&self.durable);
        let look = move || durable.look_at_images();
        // If there can be no thread now, there may be one the next time.
        self.looking = std::thread::Builder::new().name("image-store".to_owned()).spawn(look).ok();
    }

    fn fetch_if_due(&mut self) {
        if self.durable.engine.absent_image().is_none() {
            (self.fetch_tried, self.fetch_wait) = (None, FETCH_WAIT_MIN);
            return;
        }
        let is_due = |tried: Instant| tried.elapsed() >= self.fetch_wait;
        let begin = || self.durable.begin_fetch(&self.tasks, "restored volumes", None).is_ok();
        // Not while a fetch runs.
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
                tracing::debug!(error, "journal maintenance failed; it is retried");
            }
        }
    }

    /// Events when the journal's disk begins and ends to fail.
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
    /// Returns whether an image would have something that the last one has not.
    pub(crate) fn has_unsaved(&self) -> bool {
        let volumes = self.engine.volumes();
        let is_durable = |volume: &&Arc<Volume>| volume.durability() != Durability::Ram;
        let is_unsaved = |volume: &Arc<Volume>| {
            volume.map().unsaved_blocks() > 0 || volume.map().image_base().is_none()
        };
        if volumes.iter().filter(is_durable).any(is_unsaved) {
            return true;
        }
        // What was deleted or renamed is in the last image as it was.
        let known = self.known();
        known.newest.is_some() && known.table_version != Some(self.engine.table_version())
    }

    /// The number of the image that contents are still fetched from.
    pub(crate) fn fetching(&self) -> Option<u32> {
        self.engine.absent_image().and_then(ImageId::from_word).map(ImageId::number)
    }
}

impl Durable {
    /// Called before exports are asked to end: flushes that wait for a disk that fails would keep
    /// them from it.
    pub(crate) fn before_exports_stop(&self) {
        if self.journal_failure().is_some() {
            self.journal().stop();
        }
    }

    /// Saves a last image, if it is to be and there is something to save. `more_time` hears of its
    /// progress. Exports have ended, or were left alone.
    pub(crate) fn stop(&self, more_time: &MoreTime) {
        if self.images_config.saves_at_stop && self.has_unsaved() {
            // A failure was logged. All is still in memory, and in the journal what was flushed.
            let _saved = self.save(&[], "", more_time);
        }
        self.journal().stop();
    }
}

impl image::Watch for MoreTime {
    fn on_progress(&self, _progress: image::Progress) {
        self.progress();
    }

    fn is_cancelled(&self) -> bool {
        false
    }
}

fn is_over(tried: Option<Instant>) -> bool {
    tried.is_none_or(|tried| tried.elapsed() >= RETRY_INTERVAL)
}
