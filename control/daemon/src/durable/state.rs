//! Everything that stands between the pool and a loss of power, found or made at the start.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use anyhow::{Context, bail};
use image::{FolderStore, ImageId, ImageStore, OpenImage};
use journal::{Journal, Position, recover};
use storage::{FolderLock, LinuxFolder};
use volume::{Durability, Engine, SetId};

use crate::config::{ImagesConfig, JournalConfig, StorePlace};
use crate::durable::healing::ImageHealer;
use crate::durable::journaling::set_in_folder;
use crate::durable::replay::Restoring;
use crate::durable::restore;
use crate::durable::saving::Saver;
use crate::durable::set::{Found, Places, Plan, decide, name_of};
use crate::events::EventLog;
use crate::notify;

/// How long the service manager is told that reading a journal may take.
const RESTORE_TIME_MAX: Duration = Duration::from_secs(3600);

/// What it is made of.
pub(crate) struct Parts<'config> {
    pub(crate) engine: Arc<Engine>,
    pub(crate) events: Arc<EventLog>,
    pub(crate) journal: &'config JournalConfig,
    pub(crate) images: &'config ImagesConfig,
    /// For messages.
    pub(crate) pool_path: &'config Path,
}

/// Journal and images of one pool.
#[derive(Debug)]
pub(crate) struct Durable {
    pub(super) engine: Arc<Engine>,
    pub(super) events: Arc<EventLog>,
    pub(super) set_id: SetId,
    pub(super) journal_config: JournalConfig,
    pub(super) images_config: ImagesConfig,
    pub(super) journal: OnceLock<OpenJournal>,
    /// Held while the journal is made.
    pub(super) opening: Mutex<()>,
    pub(super) store: Arc<dyn ImageStore>,
    /// Held while the store is changed.
    pub(super) saver: Mutex<Saver>,
    pub(super) known: Mutex<Known>,
    /// Held while volumes of an image are made, and while it is decided that all are fetched.
    pub(super) filling: Mutex<()>,
}

#[derive(Debug)]
pub(super) struct OpenJournal {
    pub(super) journal: Arc<Journal>,
    /// Keeps other processes from the same journal.
    pub(super) _lock: FolderLock,
}

/// What is known of images without asking the store.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    pub(super) newest: Option<Newest>,
    /// As the last save or rehearsal found it.
    pub(super) speed: Option<Speed>,
    /// Why the last save failed.
    pub(super) failure: Option<String>,
    /// An image is wanted soon: what was restored is in none of this pool's yet.
    pub(super) is_wanted: bool,
    /// What the newest image knows of which volumes there are: [`Engine::table_version`] before it.
    pub(super) table_version: u64,
}

/// The newest image.
#[derive(Clone, Copy, Debug)]
pub(super) struct Newest {
    pub(super) id: ImageId,
    pub(super) saved_unix_seconds: u64,
    /// What lies before it in the journal is in the image.
    pub(super) position: Position,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Speed {
    pub(super) bytes_per_second: u64,
    pub(super) measured_unix_seconds: u64,
}

impl Durable {
    /// Finds out what there is, restores the pool if it was lost, and opens the journal if volumes
    /// need it. Nothing is served before.
    pub(crate) fn start(parts: Parts<'_>) -> anyhow::Result<Arc<Self>> {
        let store = open_store(&parts.images.store)?;
        let image = newest_image(&store, &parts.events)?;
        let plan = decide_plan(&parts, image.as_deref())?;
        let set_id = match plan {
            Plan::Begin => fresh_set_id()?,
            Plan::GoOn(id) | Plan::Restore(id) => id,
        };
        match plan {
            Plan::Begin => parts.engine.join_set(set_id),
            Plan::GoOn(_) => {}
            Plan::Restore(_) => restore_pool(&parts, set_id, image.as_ref())?,
        }
        let newest = image.as_deref().map(Newest::of);
        let table_version = parts.engine.table_version();
        let durable = Arc::new(Self {
            engine: parts.engine,
            events: parts.events,
            set_id,
            journal_config: parts.journal.clone(),
            images_config: parts.images.clone(),
            journal: OnceLock::new(),
            opening: Mutex::new(()),
            store,
            saver: Mutex::new(Saver::default()),
            known: Mutex::new(Known { newest, table_version, ..Known::default() }),
            filling: Mutex::new(()),
        });
        durable.engine.set_healer(Arc::new(ImageHealer::new(&durable)));
        durable.connect_absent(image)?;
        durable.open_journal_if_needed(plan)?;
        Ok(durable)
    }

    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect("nobody panics with this lock")
    }

    /// After a restart blocks may still be absent: their image is opened again.
    fn connect_absent(&self, newest: Option<Arc<OpenImage>>) -> anyhow::Result<()> {
        let Some(id) = self.engine.absent_image().and_then(ImageId::from_word) else {
            return Ok(());
        };
        if let Some(newest) = newest.filter(|image| image.id() == id) {
            restore::connect(&self.engine, &newest);
            return Ok(());
        }
        match OpenImage::open(Arc::clone(&self.store), id.number()) {
            Ok(image) => restore::connect(&self.engine, &Arc::new(image)),
            Err(error) => {
                let message = format!(
                    "{id} cannot be opened, and blocks that were not fetched from it yet fail: \
                     {:#}",
                    anyhow::Error::from(error)
                );
                self.events.error("image_unreachable", None, message);
            }
        }
        Ok(())
    }

    fn open_journal_if_needed(&self, plan: Plan) -> anyhow::Result<()> {
        let volumes = self.engine.volumes();
        let needs = volumes.iter().any(|it| it.durability() == Durability::Journal);
        let was_lost = needs && set_in_folder(&self.journal_config.dir)?.is_none();
        if was_lost && matches!(plan, Plan::GoOn(_)) {
            let message = format!(
                "the journal in {} is gone; flushes wait until an image has all volumes of class \
                 journal",
                self.journal_config.dir.display()
            );
            self.events.warning("journal_gone", None, message);
            volumes.iter().for_each(|volume| volume.set_anchored(false));
        }
        if needs {
            self.ready_journal()?;
        }
        Ok(())
    }
}

impl Newest {
    pub(super) fn of(image: &OpenImage) -> Self {
        let summary = image.summary();
        Self {
            id: summary.id,
            saved_unix_seconds: summary.created_seconds,
            position: Position(summary.journal.sequence.max(Position::START.0)),
        }
    }
}

/// Brings back what a loss of power took. A restore that is interrupted begins anew.
fn restore_pool(
    parts: &Parts<'_>,
    set_id: SetId,
    image: Option<&Arc<OpenImage>>,
) -> anyhow::Result<()> {
    let engine = &parts.engine;
    notify::extend_timeout(RESTORE_TIME_MAX);
    engine.begin_restoring();
    for volume in engine.volumes() {
        engine.delete_volume(&volume.name())?;
    }
    if let Some(image) = image {
        restore::fill_all(engine, image)?;
    }
    let from = image.map_or(Position::START, |image| Newest::of(image).position);
    let mut restoring = Restoring::new(engine);
    let dir = &parts.journal.dir;
    let mut transaction_count = 0;
    if set_in_folder(dir)?.is_some() {
        let folder = LinuxFolder::open(dir)?;
        let recovered = recover(&folder, set_id, from, &mut restoring).with_context(|| {
            format!("cannot restore volumes from the journal in {}", dir.display())
        })?;
        transaction_count = recovered.transactions;
        if restoring.lost_count > 0 {
            let message = format!(
                "{} blocks are damaged in the journal, in {}; reads of them fail until they are \
                 overwritten",
                restoring.lost_count,
                recovered.damaged_segments.join(", ")
            );
            parts.events.error("journal_damaged", None, message);
        }
    }
    engine.join_set(set_id);
    engine.end_restoring();
    let image = image.map_or_else(|| "no image".to_owned(), |image| image.id().to_string());
    let message = format!(
        "the pool's memory was gone: {} volumes are back, from {image} and {transaction_count} \
         transactions of the journal",
        engine.volumes().len()
    );
    parts.events.warning("restored", None, message);
    Ok(())
}

/// What an interrupted restore has made counts as nothing.
fn decide_plan(parts: &Parts<'_>, image: Option<&OpenImage>) -> anyhow::Result<Plan> {
    let engine = &parts.engine;
    let (pool, journal) = (parts.pool_path.display().to_string(), &parts.journal.dir);
    decide(&Found {
        pool: engine.set_id().filter(|_| !engine.is_restoring()),
        pool_is_used: !engine.volumes().is_empty() && !engine.is_restoring(),
        journal: set_in_folder(journal)?,
        images: image.map(|image| image.summary().set_id),
        places: Places {
            pool: &pool,
            journal: &journal.display().to_string(),
            images: &place_of(&parts.images.store),
        },
    })
}

fn fresh_set_id() -> anyhow::Result<SetId> {
    let mut id = [0; 16];
    getrandom::fill(&mut id).context("cannot draw the id of a durable set")?;
    tracing::info!(set = name_of(id), "a durable set begins");
    Ok(id)
}

fn newest_image(
    store: &Arc<dyn ImageStore>,
    events: &EventLog,
) -> anyhow::Result<Option<Arc<OpenImage>>> {
    let image = OpenImage::open_newest(Arc::clone(store), &mut |number, error| {
        events.error("image_unreadable", None, format!("image {number} is passed over: {error}"));
    });
    Ok(image.context("cannot look for the newest image")?.map(Arc::new))
}

fn open_store(place: &StorePlace) -> anyhow::Result<Arc<dyn ImageStore>> {
    match place {
        StorePlace::Directory(path) => Ok(Arc::new(FolderStore::open_alone(path)?)),
        StorePlace::Url(url) => {
            bail!("store = {url:?} in [images]: object stores are not available in this version")
        }
    }
}

/// The store for people.
pub(super) fn place_of(place: &StorePlace) -> String {
    match place {
        StorePlace::Directory(path) => path.display().to_string(),
        StorePlace::Url(url) => url.clone(),
    }
}
