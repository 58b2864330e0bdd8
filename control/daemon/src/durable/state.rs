//! State of the durable set. It is opened or restored at the start.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use api::counted;
use durable_set::{
    AcceptedImage, DurableError, DurableErrorKind, DurableSet, DurableSpec, Lag, Missing, Opened,
    Opening,
};
use image::{FolderStore, ImageStore, ImageSummary, PackName, StoreWriter};
use journal::{
    FailurePolicy, Journal, JournalErrorKind, JournalOptions, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN,
    SystemClock,
};
use object_images::Access;
use sealing::KeyId;
use storage::{FileLock, LinuxFolder};
use store_server::StoreClient;
use volumes::Engine;

use crate::config::{EncryptionConfig, ImagesConfig, JournalConfig, OnJournalFailure, StorePlace};
use crate::durable::encryption::Encryption;
use crate::durable::last_known::SetRecord;
use crate::events::{EventLog, unix_seconds};
use crate::store_serving::StoreServing;

/// Time that a start with intact memory waits for the image store to respond.
const STORE_WAIT_MAX: Duration = Duration::from_secs(5);

/// Approximate number of journal files.
const SEGMENT_COUNT: u64 = 16;

/// Maximum size of a journal file, unless configured.
const SEGMENT_BYTES_LIKED_MAX: u64 = 64 << 20;

/// Dependencies of [`Durable::start`].
pub(crate) struct Parts<'config> {
    pub(crate) engine: Arc<Engine>,
    pub(crate) events: Arc<EventLog>,
    pub(crate) journal: &'config JournalConfig,
    pub(crate) images: &'config ImagesConfig,
    /// Store that this daemon serves.
    pub(crate) serving: Option<&'config StoreServing>,
    pub(crate) encryption: Option<&'config EncryptionConfig>,
    pub(crate) state_dir: &'config Path,
    /// Path of the pool, for messages.
    pub(crate) pool_path: &'config Path,
    /// Image to start from, accepting the loss of newer data.
    pub(crate) accept_loss: Option<u32>,
    /// Receives the current step of the start.
    pub(crate) say: &'config dyn Fn(String),
}

/// Journal and images of one pool.
#[derive(Debug)]
pub(crate) struct Durable {
    pub(super) engine: Arc<Engine>,
    pub(super) events: Arc<EventLog>,
    pub(super) set: Arc<DurableSet>,
    pub(super) journal_config: JournalConfig,
    pub(super) images_config: ImagesConfig,
    pub(super) encryption: Option<Encryption>,
    pub(super) record: SetRecord,
    pub(super) known: Mutex<Known>,
    pub(super) shipping: Mutex<Shipping>,
    /// End of the thread that mirrors flushes, once it was started.
    pub(super) mirroring: Mutex<Option<mpsc::Receiver<()>>>,
    /// Excludes other processes from the journal.
    _journal_lock: FileLock,
}

/// Cached knowledge of images, so that reports need not access the store.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    pub(super) newest: Option<Newest>,
    /// Key that wraps the newest copy of the data key in the store.
    pub(super) store_key: Option<KeyId>,
    /// Time at which the throughput was measured.
    pub(super) measured_unix_seconds: u64,
    /// Cause of the last save's failure.
    pub(super) failure: Option<String>,
    /// Cause of the last fetch's failure.
    pub(super) fetch_failure: Option<String>,
    /// Cause for which the store could not be listed since the start.
    pub(super) look_failure: Option<String>,
    /// Packs that the last fetch could not read.
    pub(super) missing_packs: Vec<PackName>,
    /// An image is needed soon. Restored contents are in no image of this pool yet.
    pub(super) is_wanted: bool,
    /// [`Engine::table_version`] before the newest image was saved. `None`: the newest image has
    /// other volumes than the pool.
    pub(super) table_version: Option<u64>,
}

/// State of journal shipping.
#[derive(Clone, Debug, Default)]
pub(super) struct Shipping {
    /// `None`: nothing has been shipped yet.
    pub(super) lag: Option<Lag>,
    /// Age of the last flush that is certain to be shipped, and the time at which it had this age.
    age: Option<(Duration, Instant)>,
    /// Cause of the last turn's failure.
    pub(super) failure: Option<String>,
}

impl Shipping {
    /// Describes the state after a turn that ended at these times of the two clocks.
    pub(super) fn after_turn(
        &self,
        lag: Lag,
        failure: Option<String>,
        (unix_micros, now): (u64, Instant),
    ) -> Self {
        let before = self.lag.and_then(|lag| lag.shipped_unix_micros);
        let age = match lag.shipped_unix_micros {
            None => None,
            // Changes of the system's clock since then have no effect.
            Some(shipped) if before == Some(shipped) => self.age,
            Some(shipped) => {
                Some((Duration::from_micros(unix_micros.saturating_sub(shipped)), now))
            }
        };
        Self { lag: Some(lag), age, failure }
    }

    /// Time since the last flush that is certain to be shipped.
    pub(super) fn age_at(&self, now: Instant) -> Option<Duration> {
        self.age.map(|(age, noted)| age + now.saturating_duration_since(noted))
    }
}

/// Summary of the newest image.
#[derive(Clone, Copy, Debug)]
pub(super) struct Newest {
    pub(super) number: u32,
    pub(super) saved_unix_seconds: u64,
    noted: Instant,
    /// `None`: the image is dated in the future, because the clock was set back.
    age_when_noted: Option<Duration>,
}

impl Newest {
    pub(super) fn of(image: &ImageSummary) -> Self {
        Self::as_of(image.id.number(), image.created_seconds, unix_seconds())
    }

    /// Describes an image that was saved at one time, at a later time.
    pub(super) fn as_of(number: u32, saved_unix_seconds: u64, now_unix_seconds: u64) -> Self {
        let age = now_unix_seconds.checked_sub(saved_unix_seconds).map(Duration::from_secs);
        Self { number, saved_unix_seconds, noted: Instant::now(), age_when_noted: age }
    }

    /// Age of the image. [`Duration::MAX`] if the clock was set back to before the save. Later
    /// changes of the clock have no effect.
    pub(super) fn age(&self) -> Duration {
        let age = self.age_when_noted.unwrap_or(Duration::MAX);
        age.saturating_add(self.noted.elapsed())
    }

    /// Returns whether the next image is due, at an interval of `every`.
    pub(super) fn is_next_due(newest: Option<&Self>, every: Duration) -> bool {
        newest.is_none_or(|newest| newest.age() >= every)
    }
}

impl Durable {
    /// Opens the journal and the store, and restores the pool if its memory was lost. Returns
    /// before anything is served.
    pub(crate) fn start(parts: Parts<'_>) -> anyhow::Result<Arc<Self>> {
        let (dir, place) = (&parts.journal.dir, place_of(&parts.images.store));
        (parts.say)(format!("opening the store of images {place}"));
        let store = open_store(parts.images, parts.serving)?;
        (parts.say)(format!("opening the journal in {}", dir.display()));
        let attempt = || format!("cannot open the journal in {}", dir.display());
        let folder = open_journal_folder(dir)?;
        let lock = folder.lock().with_context(attempt)?;
        let open_key = |files| Encryption::open(&folder, &store, files);
        let encryption = parts.encryption.map(open_key).transpose()?;
        let record = SetRecord::read(parts.state_dir);
        let spec = DurableSpec {
            journal: Arc::new(folder),
            journal_options: journal_options(parts.journal),
            clock: Arc::new(SystemClock::new()),
            images: Arc::clone(&store),
            key: encryption.as_ref().map(|encryption| Arc::clone(&encryption.key)),
            writer: store_writer()?,
            mirror: parts.images.mirror,
            fresh_id: random_id()?,
            last_known: record.known(),
        };
        (parts.say)(format!(
            "reading the journal in {} and the images in {place}, and restoring volumes if memory \
             was lost",
            dir.display()
        ));
        let accepted = parts.accept_loss.map(AcceptedImage);
        let is_silent = accepted.is_none()
            && is_memory_intact(&parts.engine)
            && !answers_in_time(Arc::clone(&store))?;
        let opened = if is_silent {
            DurableSet::open_without_images(&parts.engine, spec)
        } else {
            let report = |how: &Opened, loss: Option<&DurableError>| {
                tell_loss(&parts.events, loss);
                tell_restored(&parts, how);
            };
            DurableSet::open_reporting(&parts.engine, spec, accepted, &report)
        };
        let (set, opening) = opened.map_err(|error| refused_start(&error, &parts))?;
        let attempt = || format!("cannot remove {}", record.path().display());
        record.forget_other(set.id()).with_context(attempt)?;
        tell_opening(&parts, &opening);
        let answers = opening.store_failure.is_none();
        let asked = encryption.as_ref().filter(|_| answers);
        let known = Known {
            store_key: asked.and_then(Encryption::find_in_store),
            is_wanted: opening.wants_image() || set.mirror().needs_image(),
            look_failure: opening.store_failure.as_ref().map(|error| causes(error)),
            newest: opening.newest.as_ref().map(Newest::of),
            table_version: opening.newest_is_current.then(|| parts.engine.table_version()),
            ..Known::default()
        };
        Ok(Arc::new(Self {
            engine: parts.engine,
            events: parts.events,
            set: Arc::new(set),
            journal_config: parts.journal.clone(),
            images_config: parts.images.clone(),
            encryption,
            record,
            known: Mutex::new(known),
            shipping: Mutex::default(),
            mirroring: Mutex::default(),
            _journal_lock: lock,
        }))
    }

    pub(crate) fn set(&self) -> &DurableSet {
        &self.set
    }

    pub(super) fn journal(&self) -> &Journal {
        self.set.journal()
    }

    /// Cause for which the journal accepts no writes at the moment.
    pub(crate) fn journal_failure(&self) -> Option<String> {
        let failure = self.journal().failure()?;
        Some(match failure.kind {
            JournalErrorKind::NoSpace => format!("{}; {}", failure.cause, self.way_to_room()),
            _ => failure.cause,
        })
    }

    /// Advice for a journal that accepts no writes, if its disk is full.
    pub(crate) fn way_on(&self) -> Option<String> {
        let failure = self.journal().failure()?;
        (failure.kind == JournalErrorKind::NoSpace).then(|| self.way_to_room())
    }

    /// Advice on freeing space on the journal's full disk.
    pub(super) fn way_to_room(&self) -> String {
        let dir = self.journal_config.dir.display();
        let store = place_of(&self.images_config.store);
        let failure = self.known().failure.clone();
        match failure {
            _ if self.journal().is_out_of_room() => {
                format!("the journal cannot be truncated: free space on the file system of {dir}")
            }
            Some(failure) => format!(
                "the journal can be truncated once an image is saved, which fails ({failure}): \
                 free space on the file system of {dir}, or for images in {store}"
            ),
            None => "an image is being saved so that the journal can be truncated".to_owned(),
        }
    }

    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect("no thread panics with this lock")
    }
}

fn is_memory_intact(engine: &Engine) -> bool {
    engine.set_id().is_some() && !engine.is_restoring()
}

/// Returns whether the store lists its objects in time. A failure in time also counts. Devices are
/// unavailable until the start is complete.
fn answers_in_time(store: Arc<dyn ImageStore>) -> anyhow::Result<bool> {
    let (answer, answered) = mpsc::channel();
    let ask = move || {
        let told = store.images().and_then(|_| store.packs()).is_ok();
        // The receiver may have stopped waiting.
        let _late = answer.send(told);
    };
    let thread = std::thread::Builder::new().name("image-store".to_owned()).spawn(ask);
    thread.context("cannot start a thread for the image store")?;
    Ok(answered.recv_timeout(STORE_WAIT_MAX).unwrap_or(false))
}

/// Error of a start whose pool, journal and images cannot be used: the cause, where the parts are,
/// and what to do.
fn refused_start(error: &DurableError, parts: &Parts<'_>) -> anyhow::Error {
    use DurableErrorKind::{ImageGone, Journal, JournalGone, NewestUnreadable, NotNewest};
    let advice = match error.kind {
        ImageGone | JournalGone => {
            "; if it is lost for good, start once with --accept-loss NUMBER, the newest image that \
             is left (0: none)"
        }
        Journal | NewestUnreadable | NotNewest => {
            "; if the unreadable part is lost for good, start once with --accept-loss NUMBER, the \
             newest image that can be read (0: none)"
        }
        _ => "",
    };
    anyhow!(
        "{}; the pool is {}, the journal {}, the image store {}{advice}",
        causes(error),
        parts.pool_path.display(),
        parts.journal.dir.display(),
        place_of(&parts.images.store)
    )
}

/// Reports the result of opening the set.
fn tell_opening(parts: &Parts<'_>, opening: &Opening) {
    let events = &parts.events;
    for (number, error) in &opening.skipped {
        let message = format!("skipping image {number}, which cannot be read: {error}");
        events.error("image_unreadable", None, message);
    }
    let place = place_of(&parts.images.store);
    tell_missing(events, &opening.missing, &parts.journal.dir, &place);
    if let Some(error) = &opening.store_failure {
        let message = format!(
            "cannot list the images in {place}: {}; all volumes are in memory, and the daemon \
             retries",
            causes(error)
        );
        events.warning("image_unreachable", None, message);
    }
    if let Some(error) = &opening.source_failure {
        let message =
            format!("cannot read blocks that are not fetched from the image yet: {error}");
        events.error("image_unreachable", None, message);
    }
}

/// Reports that the owner accepted the loss of data, and its cause.
fn tell_loss(events: &EventLog, loss: Option<&DurableError>) {
    if let Some(error) = loss {
        let message = format!("started with --accept-loss, so data may be lost: {}", causes(error));
        events.error("loss_accepted", None, message);
    }
}

/// Reports a pool whose memory was lost.
fn tell_restored(parts: &Parts<'_>, how: &Opened) {
    let events = &parts.events;
    let Opened::Restored {
        image,
        transactions,
        shipped_transactions,
        shipped_gap,
        damaged_blocks,
        damaged_segments,
        guarantees_lost: thin,
        left_out,
    } = how
    else {
        return;
    };
    for (name, error) in thin {
        let message = format!(
            "the restored volume is thin: there is too little memory to guarantee its capacity: \
             {}; free space in the pool, then set capacity=guaranteed again",
            causes(error)
        );
        events.error("guarantee_lost", Some(name), message);
    }
    for name in left_out {
        let message = "cannot restore the volume: the image does not contain it, and the journal \
                       has only part of its changes; create it again";
        events.error("volume_lost", Some(name), message.to_owned());
    }
    if let Some(gap) = shipped_gap {
        let message = format!(
            "the journal in the image store was replayed only up to a gap: {gap}; later flushes \
             are lost"
        );
        events.error("journal_damaged", None, message);
    }
    if *damaged_blocks > 0 {
        let message = format!(
            "found {} in the journal segments {}; reads of the damaged data fail until it is \
             overwritten",
            counted(*damaged_blocks, "damaged block"),
            match damaged_segments.is_empty() {
                true => "in the image store".to_owned(),
                false => damaged_segments.join(", "),
            }
        );
        events.error("journal_damaged", None, message);
    }
    let image = image.map_or_else(|| "no image".to_owned(), |number| format!("image {number}"));
    if parts.engine.volumes().is_empty() && left_out.is_empty() && parts.accept_loss.is_none() {
        let message = "the pool is new: the journal and the images have no volume to restore";
        return events.info("restored", None, message.to_owned());
    }
    let message = format!(
        "the pool's memory was lost: restored {} from {image} and {}",
        counted(parts.engine.volumes().len() as u64, "volume"),
        counted(transactions + shipped_transactions, "journal transaction")
    );
    events.warning("restored", None, message);
}

/// Reports contents that the pool relies on and stable storage lacks.
pub(super) fn tell_missing(events: &EventLog, missing: &Missing, dir: &Path, place: &str) {
    let rest = "no data is lost: an image is being saved from memory, and flushes of class journal \
         wait for it";
    if let Some(lack) = &missing.journal {
        let message = format!("the journal in {} is missing: {lack}; {rest}", dir.display());
        events.warning("journal_gone", None, message);
    }
    for (number, lack) in &missing.images {
        let message = format!(
            "image {number}, which holds saved volumes, is missing in {place}: {lack}; {rest}"
        );
        events.warning("image_gone", None, message);
    }
}

/// Formats an error and its chain of causes in one line.
pub(crate) fn causes(error: &dyn std::error::Error) -> String {
    let rest = std::iter::successors(error.source(), |error| error.source());
    rest.fold(error.to_string(), |text, error| format!("{text}: {error}"))
}

fn journal_options(config: &JournalConfig) -> JournalOptions {
    let liked = (config.bytes_max / SEGMENT_COUNT).min(SEGMENT_BYTES_LIKED_MAX) & !4095;
    JournalOptions {
        length_bytes_max: config.bytes_max,
        segment_bytes: u32::try_from(liked)
            .unwrap_or(SEGMENT_BYTES_MAX)
            .clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX),
        policy: match config.on_failure {
            OnJournalFailure::Wait => FailurePolicy::Wait,
            OnJournalFailure::ReadOnly => FailurePolicy::ReadOnly,
        },
        ..JournalOptions::default()
    }
}

pub(crate) fn random_id() -> anyhow::Result<[u8; 16]> {
    let mut id = [0; 16];
    getrandom::fill(&mut id).context("cannot get random bytes for an id")?;
    Ok(id)
}

/// Creates the id under which this process claims a store.
pub(crate) fn store_writer() -> anyhow::Result<StoreWriter> {
    let host = program::host_name().unwrap_or_default();
    Ok(StoreWriter { host, ..u128::from_le_bytes(random_id()?).into() })
}

/// Opens the folder of the journal, and makes it if necessary.
pub(crate) fn open_journal_folder(dir: &Path) -> anyhow::Result<LinuxFolder> {
    let attempt = || format!("cannot open the journal in {}", dir.display());
    LinuxFolder::open_or_make(dir).with_context(attempt)
}

fn open_store(
    images: &ImagesConfig,
    serving: Option<&StoreServing>,
) -> anyhow::Result<Arc<dyn ImageStore>> {
    match &images.store {
        StorePlace::Directory(path) => match serving.and_then(|it| it.store_in(path)) {
            Some(served) => Ok(served),
            None => Ok(Arc::new(FolderStore::open_alone(path)?)),
        },
        elsewhere => open_elsewhere(elsewhere, images),
    }
}

/// Opens a store that is not a directory.
pub(crate) fn open_elsewhere(
    place: &StorePlace,
    images: &ImagesConfig,
) -> anyhow::Result<Arc<dyn ImageStore>> {
    match place {
        StorePlace::Served(address) => Ok(Arc::new(StoreClient::new(address.clone())?)),
        StorePlace::Url(url) => {
            Ok(object_images::open_store(url, Access::Write, images.credentials.as_deref())?)
        }
        StorePlace::Directory(_) => unreachable!("the caller opens directories"),
    }
}

/// Formats the location of the store for messages.
pub(crate) fn place_of(place: &StorePlace) -> String {
    match place {
        StorePlace::Directory(path) => path.display().to_string(),
        StorePlace::Url(url) => url.clone(),
        StorePlace::Served(address) => address.place.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lag_of_shipping_ignores_changes_of_the_clock_while_the_store_fails() {
        let (second, begun) = (1_000_000, Instant::now());
        let lag = |shipped_unix_micros| Lag { bytes: 0, shipped_unix_micros };
        let none = Shipping::default().after_turn(lag(None), None, (9 * second, begun));
        assert_eq!(none.age_at(begun), None);
        let shipped = none.after_turn(lag(Some(7 * second)), None, (9 * second, begun));
        let later = begun + Duration::from_secs(10);
        assert_eq!(shipped.age_at(later), Some(Duration::from_secs(12)));
        for now in [0, 3600 * second] {
            let failing = shipped.after_turn(lag(Some(7 * second)), None, (now, later));
            assert_eq!(failing.age_at(later), Some(Duration::from_secs(12)), "{now}");
        }
    }

    #[test]
    fn a_clock_that_is_set_back_makes_no_image_young() {
        let hour = Duration::from_secs(3600);
        assert!(Newest::as_of(1, 10_000, 13_600).age() >= hour);
        assert!(Newest::as_of(1, 10_000, 10_000).age() < hour);
        for now in [9_999, 0] {
            let newest = Newest::as_of(1, 10_000, now);
            assert_eq!(newest.age(), Duration::MAX, "{now}");
            assert!(Newest::is_next_due(Some(&newest), Duration::MAX), "{now}");
        }
        let newest = Newest::as_of(1, 10_000, 10_000);
        assert!(!Newest::is_next_due(Some(&newest), hour) && Newest::is_next_due(None, hour));
    }
}
