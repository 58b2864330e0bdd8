//! Opening a set: compares memory and stable storage, and decides which of them is right.

use std::sync::{Arc, Mutex};

use image::{ImageStore, ImageSummary, OpenImage, SealedStore, StoreWriter};
use journal::{Clock, Journal, JournalOptions, JournalSpec};
use sealing::SetKey;
use storage::Folder;
use sync::atomic::Ordering::Relaxed;
use sync::atomic::{AtomicBool, AtomicU64};
use volumes::{Engine, SetId, VolumeError};

use crate::error::{DurableError, DurableErrorKind, name_of};
use crate::healer::StableCopies;
use crate::keys::check_store_key;
use crate::newest::{AcceptedImage, NewestImage, has_contents_after};
use crate::reliance::{Missing, compare};
use crate::replay::delete_with_snapshots;
use crate::restore::{Gaps, Restored, Stored, restore};
use crate::set::{Claim, DurableSet};
use crate::shipped::{ShippedJournal, Verified};

/// Parts of which a set is made.
#[derive(Clone, Debug)]
pub struct DurableSpec {
    /// Holds the journal's files.
    pub journal: Arc<dyn Folder>,
    pub journal_options: JournalOptions,
    pub clock: Arc<dyn Clock>,
    pub images: Arc<dyn ImageStore>,
    /// Encrypts journal and images, if given: see [`open_key`](crate::open_key).
    pub key: Option<Arc<SetKey>>,
    /// Writer of the store; its id is drawn at random for each opening.
    pub writer: StoreWriter,
    /// Id for a new set, drawn at random.
    pub fresh_id: SetId,
}

const OPEN: &str = "open the durable set";

/// Findings of opening a set, for the log.
#[derive(Debug)]
pub struct Opening {
    pub how: Opened,
    /// The newest readable image.
    pub newest: Option<ImageSummary>,
    /// Images that are newer than the one in use and cannot be read.
    pub skipped: Vec<(u32, String)>,
    /// Contents that memory relies on and stable storage lacks: an image is to be saved, and
    /// flushes of class `journal` wait for it.
    pub missing: Missing,
    /// Error of a store of images that could not be listed: memory is authoritative, and
    /// [`DurableSet::look_at_images`] is to be called until it succeeds.
    pub store_failure: Option<DurableError>,
    /// Error of an image that cannot be opened and from which blocks were not fetched yet: reads of
    /// them fail.
    pub source_failure: Option<DurableError>,
    /// Loss that the owner accepted, and without which the set would not have been opened.
    pub loss: Option<DurableError>,
    /// True if the newest image has exactly the current volumes and snapshots, under their names,
    /// so that none was deleted just before a kill.
    pub newest_is_current: bool,
}

impl Opening {
    /// Returns whether an image is to be saved at once: stable storage lacks contents of memory, a
    /// newer image cannot be read, or a shipped journal was replayed.
    pub fn wants_image(&self) -> bool {
        let is_replayed = matches!(
            self.how,
            Opened::Restored { shipped_transactions, .. } if shipped_transactions > 0
        );
        is_replayed || !self.skipped.is_empty() || self.loss.is_some() || !self.missing.is_empty()
    }
}

/// Result of [`DurableSet::look_at_images`], once a store that failed at the start can be read.
#[derive(Debug)]
pub struct Looked {
    /// Newest image, as in [`Opening::newest`].
    pub newest: Option<ImageSummary>,
    /// Currency of the newest image, as in [`Opening::newest_is_current`].
    pub newest_is_current: bool,
    pub missing: Missing,
}

/// When the store of images is asked, if memory is intact.
#[derive(Clone, Copy, Debug)]
enum FirstLook {
    AtOnce,
    Later,
}

/// Source of the volumes of a set that was opened.
#[derive(Debug)]
pub enum Opened {
    /// Neither memory nor stable storage had anything.
    New,
    /// Memory was intact.
    Continued,
    /// Memory was gone, and the volumes were restored from stable storage.
    Restored {
        /// Image from which the volumes were restored, if there was one.
        image: Option<u32>,
        transactions: u64,
        /// Number of transactions replayed from the journal in the store of images, which is used
        /// if the journal on the disk is not that of the image's writer. Only memory has them until
        /// an image is saved.
        shipped_transactions: u64,
        /// End of those transactions, if more were shipped that cannot be used.
        shipped_gap: Option<String>,
        /// Blocks whose contents are damaged in the journal: reads of them fail.
        damaged_blocks: u64,
        damaged_segments: Vec<String>,
        /// Volumes that lost class `guaranteed` because they did not fit, and why: they are thin.
        guarantees_lost: Vec<(String, VolumeError)>,
        /// Volumes that the journal lists, but that were in no image and whose beginning the
        /// journal lacks: they are not restored.
        left_out: Vec<String>,
    },
}

impl DurableSet {
    /// Opens a pool and its stable storage: continues with intact memory, or restores the pool when
    /// memory was lost. Volumes may be served when this returns; until [`DurableSet::stream`] has
    /// fetched their contents, those are fetched when they are first read.
    ///
    /// When images cannot be read, an older one will do only if nothing is lost by that which was
    /// promised; otherwise this fails and changes nothing.
    pub fn open(engine: &Arc<Engine>, spec: DurableSpec) -> Result<(Self, Opening), DurableError> {
        Self::open_from(engine, spec, None, FirstLook::AtOnce)
    }

    /// Opens the set while the store of images is known not to answer. Where memory is intact, the
    /// store is not asked: see [`Opening::store_failure`].
    pub fn open_without_images(
        engine: &Arc<Engine>,
        spec: DurableSpec,
    ) -> Result<(Self, Opening), DurableError> {
        Self::open_from(engine, spec, None, FirstLook::Later)
    }

    /// Opens the set from the named image when memory is gone, and accepts that everything later is
    /// lost that the journal does not have. Unreadable parts of the journal are set aside. Intact
    /// memory is never given up.
    pub fn open_accepting(
        engine: &Arc<Engine>,
        spec: DurableSpec,
        accepted: AcceptedImage,
    ) -> Result<(Self, Opening), DurableError> {
        Self::open_from(engine, spec, Some(accepted), FirstLook::AtOnce)
    }

    fn open_from(
        engine: &Arc<Engine>,
        spec: DurableSpec,
        accepted: Option<AcceptedImage>,
        first_look: FirstLook,
    ) -> Result<(Self, Opening), DurableError> {
        let spec = with_key(spec, first_look)?;
        if engine.is_restoring() {
            // A kill came in between: what is there was only a part of what is to be.
            clear(engine)?;
        }
        let kept_set = engine.set_id().filter(|_| !engine.is_restoring());
        // Intact memory has all that is in the store.
        let mut newest = match (kept_set, first_look) {
            (Some(_), FirstLook::Later) => NewestImage::unasked(),
            (Some(_), FirstLook::AtOnce) => NewestImage::find_if_told(&spec.images),
            (None, _) => NewestImage::find(&spec.images)?,
        };
        let journal_set = journal::set_in(&*spec.journal);
        let journal_set = journal_set.map_err(DurableError::journal("look at the journal"))?;
        let found_set = set_of(journal_set, &newest)?;
        if kept_set.is_none() && found_set.is_some() && !engine.volumes().is_empty() {
            return Err(DurableError::new(DurableErrorKind::NotEmpty, OPEN));
        }
        let mut loss = match kept_set {
            Some(_) => None,
            None => check_loss(&newest, &spec, found_set, accepted)?,
        };
        let (id, how) = match (kept_set, found_set) {
            (Some(id), Some(other)) if id != other => {
                return Err(DurableError::other_set(id, other));
            }
            (Some(id), _) => (id, Opened::Continued),
            (None, None) => {
                engine.join_set(spec.fresh_id);
                engine.end_restoring();
                (spec.fresh_id, Opened::New)
            }
            (None, Some(set_id)) => {
                let gaps = accepted.map_or(Gaps::Refused, |_| Gaps::Accepted);
                let image = newest.image.as_ref();
                let (journal, key) = (&*spec.journal, spec.key.as_deref());
                let shipped = find_shipped(&spec, image)?;
                let shipped = shipped.as_ref();
                let stored = Stored { set_id, image, journal, key, shipped, gaps };
                let mut restored = restore(engine, &stored)?;
                if let Some(error) = restored.journal_failure.take() {
                    loss.get_or_insert(DurableError::journal("read the journal")(error));
                }
                (set_id, opened_as(restored, image.map(|image| image.id().number())))
            }
        };
        let set = Self::serve(engine, spec, id, &newest)?;
        let (missing, store_failure) = set.compare_at_open(kept_set, &mut newest);
        let opening = Opening {
            how,
            missing,
            store_failure,
            source_failure: match set.is_compared() {
                true => set.connect_source().err(),
                // Fetching connects it when the store answers.
                false => None,
            },
            loss,
            newest_is_current: newest.lists_all_of(engine),
            newest: newest.image.map(|image| image.summary()),
            skipped: newest.skipped,
        };
        Ok((set, opening))
    }

    /// Compares memory again with a store of images that could not be read completely at the start.
    pub fn look_at_images(&self) -> Result<Looked, DurableError> {
        let mut newest = NewestImage::find(&self.images)?;
        newest.check_set(self.id)?;
        if let Some(failure) = newest.failure.take() {
            return Err(failure);
        }
        let missing = self.compare(&newest)?;
        self.is_compared.store(true, Relaxed);
        Ok(Looked {
            missing,
            newest_is_current: newest.lists_all_of(&self.engine),
            newest: newest.image.map(|image| image.summary()),
        })
    }

    fn compare(&self, newest: &NewestImage) -> Result<Missing, DurableError> {
        compare(&self.engine, &self.images, newest, self.journal_begins)
    }

    /// Compares at a start, as far as the store tells.
    fn compare_at_open(
        &self,
        kept_set: Option<SetId>,
        newest: &mut NewestImage,
    ) -> (Missing, Option<DurableError>) {
        let compared = match (kept_set, newest.failure.take()) {
            (None, _) => Ok(Missing::default()),
            (Some(_), Some(failure)) => Err(failure),
            (Some(_), None) => self.compare(newest),
        };
        self.is_compared.store(compared.is_ok(), Relaxed);
        match compared {
            Ok(missing) => (missing, None),
            Err(failure) => (self.without_journal(), Some(failure)),
        }
    }

    /// What is missing whatever images there are.
    fn without_journal(&self) -> Missing {
        match self.journal_begins {
            Some(_) => Missing::default(),
            None => Missing::of_journal(&self.engine),
        }
    }

    /// Opens the journal, and has the engine use it.
    fn serve(
        engine: &Arc<Engine>,
        spec: DurableSpec,
        id: SetId,
        newest: &NewestImage,
    ) -> Result<Self, DurableError> {
        let begins = journal::begins_at(&*spec.journal, spec.key.as_deref());
        let begins = begins.map_err(DurableError::journal("look where the journal begins"))?;
        let is_known = newest.failure.is_none() && newest.skipped.is_empty();
        let journal = Journal::open(JournalSpec {
            folder: spec.journal,
            key: spec.key,
            set_id: id,
            covered: is_known.then(|| newest.covered()),
            options: spec.journal_options,
            clock: Arc::clone(&spec.clock),
        });
        let journal = Arc::new(journal.map_err(DurableError::journal("open the journal"))?);
        journal.serve(engine);
        let copies = StableCopies::new(Arc::clone(&journal), Arc::clone(&spec.images));
        engine.set_healer(Arc::new(copies));
        Ok(Self {
            engine: Arc::clone(engine),
            journal,
            id,
            images: spec.images,
            clock: spec.clock,
            patience: spec.journal_options.patience,
            has_own_image: AtomicBool::new(false),
            may_have_extracts: AtomicBool::new(true),
            writer_id: spec.writer.id,
            claimed: Mutex::new(Claim { writer: spec.writer, store: None }),
            journal_begins: begins,
            image_use: Mutex::default(),
            is_compared: AtomicBool::new(false),
            source: Mutex::default(),
            unfetched: Mutex::default(),
            save_speed: AtomicU64::new(0),
            changes: Mutex::default(),
        })
    }
}

/// The journal that the writer of the image has shipped after it, if that is to be restored. The
/// writer's own journal has all that was shipped of it. That of a host which took over has none of
/// it, and nothing of the image's volumes either before there is an image of its own.
fn find_shipped(
    spec: &DurableSpec,
    image: Option<&Arc<OpenImage>>,
) -> Result<Option<ShippedJournal>, DurableError> {
    let Some(image) = image else { return Ok(None) };
    if has_contents_after(image, &*spec.journal, spec.key.as_deref()) {
        return Ok(None);
    }
    let found = ShippedJournal::after(image, &spec.images, &mut Verified::default());
    found.map_err(DurableError::images("look for the journal in the image store"))
}

/// Reads and writes images with the key, if there is one. Fails, before anything is believed or
/// changed, unless journal and images are encrypted by it, or by none without one. A store that
/// does not tell is compared when it is written to.
fn with_key(mut spec: DurableSpec, first_look: FirstLook) -> Result<DurableSpec, DurableError> {
    let key = spec.key.as_deref();
    journal::check_key(&*spec.journal, key).map_err(DurableError::key(OPEN))?;
    if let FirstLook::AtOnce = first_look {
        check_store_key(&*spec.images, key)?;
    }
    if let Some(key) = &spec.key {
        spec.images = Arc::new(SealedStore::new(spec.images, Arc::clone(key)));
    }
    Ok(spec)
}

/// The set that stable storage belongs to; `None` when it is empty.
fn set_of(journal_set: Option<SetId>, newest: &NewestImage) -> Result<Option<SetId>, DurableError> {
    match (journal_set, newest.set_id()) {
        (Some(one), Some(other)) if one != other => {
            let (one, other) = (name_of(one), name_of(other));
            let attempt = format!(
                "combine a journal of durable set {one} with images of durable set {other}"
            );
            Err(DurableError::new(DurableErrorKind::OtherSet, attempt))
        }
        (one, other) => Ok(one.or(other)),
    }
}

/// What is lost when the pool comes back from this image: it must have been accepted.
fn check_loss(
    newest: &NewestImage,
    spec: &DurableSpec,
    set_id: Option<SetId>,
    accepted: Option<AcceptedImage>,
) -> Result<Option<DurableError>, DurableError> {
    let checked = newest.check_nothing_is_missing(&*spec.journal, spec.key.as_deref(), set_id);
    match accepted {
        None => checked.map(|()| None),
        Some(accepted) => newest.check_accepted(accepted).map(|()| checked.err()),
    }
}

fn opened_as(restored: Restored, image: Option<u32>) -> Opened {
    Opened::Restored {
        image,
        transactions: restored.journal.transactions,
        shipped_transactions: restored.shipped_transactions,
        shipped_gap: restored.shipped_gap,
        damaged_blocks: restored.journal.damaged_blocks,
        damaged_segments: restored.journal.damaged_segments,
        guarantees_lost: restored.guarantees_lost,
        left_out: restored.left_out,
    }
}

/// Deletes all volumes of a pool that was being restored.
fn clear(engine: &Engine) -> Result<(), DurableError> {
    engine.set_page_source(None);
    for volume in engine.volumes() {
        delete_with_snapshots(engine, &volume)
            .map_err(DurableError::volume("restart the restore after a kill"))?;
    }
    Ok(())
}
