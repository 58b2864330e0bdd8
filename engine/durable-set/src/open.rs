//! Opening of a set: compares memory and stable storage, and determines which is authoritative.

use std::sync::{Arc, Mutex, OnceLock};

use image::{ImageStore, ImageSummary, Mirroring, OpenImage, SealedStore, StoreWriter, claims_of};
use journal::{Clock, Journal, JournalOptions, JournalSpec};
use sealing::SetKey;
use storage::Folder;
use sync::atomic::Ordering::Relaxed;
use sync::atomic::{AtomicBool, AtomicU64};
use volumes::{Engine, SetId, VolumeError};

use crate::error::{DurableError, DurableErrorKind, name_of};
use crate::healer::StableCopies;
use crate::keys::{check_journal_key, check_store_key};
use crate::mirror::{Mirror, MirrorOptions, MirroredJournal};
use crate::newest::{AcceptedImage, NewestImage, has_contents_after};
use crate::own_claim::OwnClaim;
use crate::reliance::{Missing, compare};
use crate::replay::delete_with_snapshots;
use crate::restore::{Gaps, Restored, Stored, restore};
use crate::set::{Claim, DurableSet};
use crate::shipped::{ShippedJournal, Verified};

/// Parameters for opening a set.
#[derive(Clone, Debug)]
pub struct DurableSpec {
    /// Folder of the journal's files.
    pub journal: Arc<dyn Folder>,
    pub journal_options: JournalOptions,
    pub clock: Arc<dyn Clock>,
    pub images: Arc<dyn ImageStore>,
    /// Encryption key of journal and images, if any: see [`open_key`](crate::open_key).
    pub key: Option<Arc<SetKey>>,
    /// Writer of the store, with a new random id for each opening.
    pub writer: StoreWriter,
    pub mirror: MirrorOptions,
    /// Random id for a new set.
    pub fresh_id: SetId,
    /// Stable storage that this host had before, if known.
    pub last_known: Option<LastKnown>,
}

/// Stable storage of a set that had a journal. If it is gone when a pool is restored, its file
/// system may not be mounted yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastKnown {
    pub set_id: SetId,
    /// There were volumes of class `journal`. Without them the images are enough.
    pub has_flushes: bool,
    /// Number of the newest image, or 0.
    pub newest_image: u32,
}

const OPEN: &str = "open the durable set";

/// Findings while opening a set, for the log.
#[derive(Debug)]
pub struct Opening {
    pub how: Opened,
    /// The newest readable image.
    pub newest: Option<ImageSummary>,
    /// Unreadable images newer than the one in use.
    pub skipped: Vec<(u32, String)>,
    /// Contents that memory depends on and stable storage lacks. An image must be saved, and
    /// flushes of class `journal` wait for it.
    pub missing: Missing,
    /// Error of an image store that could not be listed. Memory is authoritative, and
    /// [`DurableSet::look_at_images`] must be called until it succeeds.
    pub store_failure: Option<DurableError>,
    /// Error of an image that cannot be opened although some blocks are only in it. Reads of them
    /// fail.
    pub source_failure: Option<DurableError>,
    /// Loss accepted by the owner. Without acceptance the set would not have been opened.
    pub loss: Option<DurableError>,
    /// True if the newest image has exactly the current volumes and snapshots under their names.
    /// Then none was deleted just before a kill.
    pub newest_is_current: bool,
}

impl Opening {
    /// Returns whether an image should be saved at once: stable storage lacks contents of memory, a
    /// newer image is unreadable, or a shipped journal was replayed.
    pub fn wants_image(&self) -> bool {
        let is_replayed = matches!(
            self.how,
            Opened::Restored { shipped_transactions, .. } if shipped_transactions > 0
        );
        is_replayed || !self.skipped.is_empty() || self.loss.is_some() || !self.missing.is_empty()
    }
}

/// Result of [`DurableSet::look_at_images`], once the store is readable.
#[derive(Debug)]
pub struct Looked {
    /// Newest image, as in [`Opening::newest`].
    pub newest: Option<ImageSummary>,
    /// Currency of the newest image, as in [`Opening::newest_is_current`].
    pub newest_is_current: bool,
    pub missing: Missing,
}

/// Time of the first access to the image store if memory is intact.
#[derive(Clone, Copy, Debug)]
enum FirstLook {
    AtOnce,
    Later,
}

/// Reports a restore and the loss that the owner accepted, before the pool counts as restored.
pub type ReportRestore<'it> = dyn Fn(&Opened, Option<&DurableError>) + 'it;

/// Origin of the volumes of an opened set.
#[derive(Debug)]
pub enum Opened {
    /// Both memory and stable storage were empty.
    New,
    /// Memory was intact.
    Continued,
    /// Memory was lost. The volumes were restored from stable storage.
    Restored {
        /// Image from which the volumes were restored, if any.
        image: Option<u32>,
        transactions: u64,
        /// Number of transactions replayed from the journal in the image store. It is used if the
        /// journal on disk is not that of the image's writer. The transactions are only in memory
        /// until an image is saved.
        shipped_transactions: u64,
        /// Point at which these transactions end, if later ones were shipped that cannot be used.
        shipped_gap: Option<String>,
        /// Number of blocks whose contents are damaged in the journal. Reads of them fail.
        damaged_blocks: u64,
        damaged_segments: Vec<String>,
        /// Volumes that lost class `guaranteed` because they did not fit, with the error. They are
        /// thin now.
        guarantees_lost: Vec<(String, VolumeError)>,
        /// Volumes that the journal lists but that are not restored, because they are in no image
        /// and the journal lacks their beginning.
        left_out: Vec<String>,
    },
}

impl DurableSet {
    /// Opens a pool and its stable storage. Continues with intact memory, or restores the pool if
    /// memory was lost. Volumes may be served on return. Absent contents are fetched on first read
    /// until [`DurableSet::stream`] has fetched them all.
    ///
    /// If images are unreadable, an older one is used only if no acknowledged durable data is lost.
    /// Otherwise this fails without changes.
    pub fn open(engine: &Arc<Engine>, spec: DurableSpec) -> Result<(Self, Opening), DurableError> {
        Self::open_from(engine, spec, None, (FirstLook::AtOnce, &|_, _| {}))
    }

    /// Same as [`DurableSet::open`], with a report of a restore. After a kill before `report` has
    /// returned, the next opening restores the pool again, and reports it again.
    ///
    /// With an accepted image, the set is opened from that image if memory was lost, accepting the
    /// loss of everything later that the journal lacks. Unreadable parts of the journal are set
    /// aside. Intact memory is never discarded.
    pub fn open_reporting(
        engine: &Arc<Engine>,
        spec: DurableSpec,
        accepted: Option<AcceptedImage>,
        report: &ReportRestore<'_>,
    ) -> Result<(Self, Opening), DurableError> {
        Self::open_from(engine, spec, accepted, (FirstLook::AtOnce, report))
    }

    /// Opens the set while the image store is known not to answer. If memory is intact, the store
    /// is not accessed: see [`Opening::store_failure`].
    pub fn open_without_images(
        engine: &Arc<Engine>,
        spec: DurableSpec,
    ) -> Result<(Self, Opening), DurableError> {
        Self::open_from(engine, spec, None, (FirstLook::Later, &|_, _| {}))
    }

    fn open_from(
        engine: &Arc<Engine>,
        spec: DurableSpec,
        accepted: Option<AcceptedImage>,
        (first_look, report): (FirstLook, &ReportRestore<'_>),
    ) -> Result<(Self, Opening), DurableError> {
        let spec = with_key(spec, first_look)?;
        if engine.is_restoring() {
            // A restore was interrupted by a kill. The pool is incomplete.
            clear(engine)?;
        }
        let kept_set = engine.set_id().filter(|_| !engine.is_restoring());
        // Intact memory contains everything in the store.
        let newest = match (kept_set, first_look) {
            (Some(_), FirstLook::Later) => NewestImage::unasked(),
            (Some(_), FirstLook::AtOnce) => NewestImage::find_if_told(&spec.images),
            (None, _) => NewestImage::find(&spec.images)?,
        };
        let journal_set = journal::set_in(&*spec.journal);
        let journal_set = journal_set.map_err(DurableError::journal("inspect the journal"))?;
        let found_set = set_of(journal_set, &newest)?;
        if kept_set.is_none() && found_set.is_some() && !engine.volumes().is_empty() {
            return Err(DurableError::new(DurableErrorKind::NotEmpty, OPEN));
        }
        let mut loss = match kept_set {
            Some(_) => None,
            None => check_loss(&newest, &spec, (journal_set, found_set), accepted)?,
        };
        let (id, how) = match (kept_set, found_set) {
            (Some(id), Some(other)) if id != other => {
                return Err(DurableError::other_set(id, other));
            }
            (Some(id), _) => (id, Opened::Continued),
            (None, None) => {
                if loss.is_some() {
                    report(&Opened::New, loss.as_ref());
                }
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
                let how = opened_as(restored, image.map(|image| image.id().number()));
                report(&how, loss.as_ref());
                engine.end_restoring();
                (set_id, how)
            }
        };
        let set = Self::serve(engine, spec, (id, kept_set), &newest)?;
        let opening = set.opening((how, loss), kept_set, newest);
        Ok((set, opening))
    }

    /// Compares memory with the images, and summarizes how the set was opened.
    fn opening(
        &self,
        (how, loss): (Opened, Option<DurableError>),
        kept_set: Option<SetId>,
        mut newest: NewestImage,
    ) -> Opening {
        let (missing, store_failure) = self.compare_at_open(kept_set, &mut newest);
        Opening {
            how,
            missing,
            store_failure,
            source_failure: match self.is_compared() {
                true => self.connect_source().err(),
                // The first fetch connects it once the store answers.
                false => None,
            },
            loss,
            newest_is_current: newest.lists_all_of(&self.engine),
            newest: newest.image.map(|image| image.summary()),
            skipped: newest.skipped,
        }
    }

    /// Repeats the comparison of memory with an image store that could not be read completely at
    /// the start.
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

    /// Compares at startup, if the store answers.
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

    /// Returns the missing contents that are independent of images.
    fn without_journal(&self) -> Missing {
        match self.journal_begins {
            Some(_) => Missing::default(),
            None => Missing::of_journal(&self.engine),
        }
    }

    /// Opens the journal and connects it to the engine.
    fn serve(
        engine: &Arc<Engine>,
        spec: DurableSpec,
        (id, kept_set): (SetId, Option<SetId>),
        newest: &NewestImage,
    ) -> Result<Self, DurableError> {
        let in_force = mirroring_in_force(&spec, kept_set);
        let begins = journal::begins_at(&*spec.journal, spec.key.as_deref());
        let begins = begins.map_err(DurableError::journal("find the beginning of the journal"))?;
        let is_known = newest.failure.is_none() && newest.skipped.is_empty();
        let folder = Arc::clone(&spec.journal);
        let journal = Journal::open(JournalSpec {
            folder: spec.journal,
            key: spec.key,
            set_id: id,
            covered: is_known.then(|| newest.covered()),
            options: spec.journal_options,
            clock: Arc::clone(&spec.clock),
        });
        let journal = Arc::new(journal.map_err(DurableError::journal("open the journal"))?);
        let mirror = Arc::new(Mirror::new(spec.mirror, Arc::clone(&spec.clock), in_force));
        let mirrored =
            MirroredJournal { journal: Arc::clone(&journal), mirror: Arc::clone(&mirror) };
        journal.serve_through(engine, Arc::new(mirrored));
        let copies = StableCopies::new(Arc::clone(&journal), Arc::clone(&spec.images));
        engine.set_healer(Arc::new(copies));
        Ok(Self {
            engine: Arc::clone(engine),
            journal,
            folder,
            id,
            images: spec.images,
            clock: spec.clock,
            patience: spec.journal_options.patience,
            has_own_image: AtomicBool::new(false),
            may_have_extracts: AtomicBool::new(true),
            mirror,
            table_at: Mutex::default(),
            writer_id: spec.writer.id,
            claimed: Mutex::new(Claim { writer: spec.writer, store: None }),
            own_number: OnceLock::new(),
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

/// Returns the strongest guarantee that the store may have recorded for this daemon's flushes.
fn mirroring_in_force(spec: &DurableSpec, kept_set: Option<SetId>) -> Mirroring {
    match OwnClaim::read(&*spec.journal) {
        Ok(Some(own)) => own.mirroring,
        // There was no guarantee, or the administrator has deleted the record.
        Ok(None) if kept_set.is_some() => Mirroring::Off,
        Ok(None) => claims_of(&*spec.images).map_or(Mirroring::Always, |claims| claims.mirroring),
        // Claiming the store fails too, and reports the error.
        Err(_) => Mirroring::Always,
    }
}

/// Fails if another daemon has taken over the store, because this journal does not continue the
/// other daemon's images. If the store cannot be read, the check is repeated when it is claimed.
fn check_not_taken_over(spec: &DurableSpec) -> Result<(), DurableError> {
    let Some(own) = OwnClaim::read(&*spec.journal)? else { return Ok(()) };
    let Ok(claims) = claims_of(&*spec.images) else { return Ok(()) };
    own.check(&claims).map_err(DurableError::images("restore the pool"))
}

/// Finds the journal that the image's writer shipped after it, if it must be restored. The writer's
/// own journal contains everything shipped from it. The journal of a host that took over contains
/// none of it, and no contents of the image's volumes until that host has saved an image. Fails if
/// another daemon has taken over the store.
fn find_shipped(
    spec: &DurableSpec,
    image: Option<&Arc<OpenImage>>,
) -> Result<Option<ShippedJournal>, DurableError> {
    check_not_taken_over(spec)?;
    let Some(image) = image else { return Ok(None) };
    if has_contents_after(image, &*spec.journal, spec.key.as_deref()) {
        return Ok(None);
    }
    let found = ShippedJournal::after(image, &spec.images, &mut Verified::default());
    found.map_err(DurableError::images("find the journal in the image store"))
}

/// Adds encryption of the images, if there is a key. Fails before anything is used or changed if
/// the encryption of journal and images does not match the key. A store that does not answer is
/// checked on the first write.
fn with_key(mut spec: DurableSpec, first_look: FirstLook) -> Result<DurableSpec, DurableError> {
    let key = spec.key.as_deref();
    check_journal_key(&*spec.journal, key)?;
    if let FirstLook::AtOnce = first_look {
        check_store_key(&*spec.images, key)?;
    }
    if let Some(key) = &spec.key {
        spec.images = Arc::new(SealedStore::new(spec.images, Arc::clone(key)));
    }
    Ok(spec)
}

/// Returns the set of stable storage, or `None` if it is empty.
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

/// Returns the loss implied by restoring from this image. Fails unless it was accepted.
fn check_loss(
    newest: &NewestImage,
    spec: &DurableSpec,
    (journal_set, set_id): (Option<SetId>, Option<SetId>),
    accepted: Option<AcceptedImage>,
) -> Result<Option<DurableError>, DurableError> {
    let checked = newest.check_nothing_is_missing(&*spec.journal, spec.key.as_deref(), set_id);
    let checked = checked.and_then(|()| check_last_known(newest, spec, (journal_set, set_id)));
    match accepted {
        None => checked.map(|()| None),
        Some(accepted) => newest.check_accepted(accepted).map(|()| checked.err()),
    }
}

/// Fails if this host had a journal or images that are gone, and nothing else has their contents.
fn check_last_known(
    newest: &NewestImage,
    spec: &DurableSpec,
    (journal_set, found_set): (Option<SetId>, Option<SetId>),
) -> Result<(), DurableError> {
    let Some(last) = spec.last_known else { return Ok(()) };
    let Some(found) = found_set else { return Err(DurableError::journal_gone(last.set_id)) };
    if found != last.set_id {
        return Ok(());
    }
    if newest.number_max() < last.newest_image {
        return Err(DurableError::image_gone(last.newest_image));
    }
    if journal_set.is_none()
        && last.has_flushes
        && find_shipped(spec, newest.image.as_ref())?.is_none()
    {
        return Err(DurableError::journal_gone(last.set_id));
    }
    Ok(())
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

/// Deletes all volumes of a partially restored pool.
fn clear(engine: &Engine) -> Result<(), DurableError> {
    engine.set_page_source(None);
    for volume in engine.volumes() {
        delete_with_snapshots(engine, &volume)
            .map_err(DurableError::volume("restart the restore after a kill"))?;
    }
    Ok(())
}
