//! A pool with its journal and images, and the state shared by all operations on them.
//!
//! Lock order: the claim on the image store, changes, then any one of the others.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use image::{ClaimedStore, Claims, ImageId, ImageStore, OpenImage, OwnNumber, StoreWriter};
use journal::{Clock, Journal, Position};
use storage::Folder;
use sync::atomic::Ordering::Relaxed;
use sync::atomic::{AtomicBool, AtomicU64};
use volumes::{Engine, PageSource, SetId, Volume};

use crate::error::{DurableError, causes};
use crate::mirror::Mirror;
use crate::newest::NewestImage;
use crate::own_claim::OwnClaim;
use crate::unfetched::Unfetched;

/// A pool with its journal and images. Threads share it and may call any method concurrently.
#[derive(Debug)]
pub struct DurableSet {
    pub(crate) engine: Arc<Engine>,
    pub(crate) journal: Arc<Journal>,
    /// Folder of the journal, which also has the file of [`OwnClaim`].
    pub(crate) folder: Arc<dyn Folder>,
    pub(crate) id: SetId,
    pub(crate) images: Arc<dyn ImageStore>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Maximum time that a change waits for a checkpoint to free space, before it and after it.
    pub(crate) patience: Duration,
    pub(crate) claimed: Mutex<Claim>,
    /// Set with the claim, and read without its lock.
    pub(crate) own_number: OnceLock<OwnNumber>,
    /// Beginning of the journal when it was opened, if there was one.
    pub(crate) journal_begins: Option<Position>,
    /// Set once memory's dependencies were compared with the image store.
    pub(crate) is_compared: AtomicBool,
    /// Lock that protects the set of images in use. Order: after the claim, before `changes`. Never
    /// held while an image is saved.
    pub(crate) image_use: Mutex<()>,
    /// Image that contains absent blocks.
    pub(crate) source: Mutex<Option<Arc<OpenImage>>>,
    pub(crate) unfetched: Mutex<Unfetched>,
    /// Write throughput of the image store in bytes per second. 0 if unknown.
    pub(crate) save_speed: AtomicU64,
    /// Serializes changes with each other and with the start of a save. Never held while waiting
    /// for journal space.
    pub(crate) changes: Mutex<()>,
    /// Set once an image was saved under this claim. The journal continues it and may be shipped.
    pub(crate) has_own_image: AtomicBool,
    /// Set if the store may have extracts of the journal, from an earlier writer or this one.
    pub(crate) may_have_extracts: AtomicBool,
    pub(crate) mirror: Arc<Mirror>,
    /// Version of the table of volumes that the journal has at a position. Once the image store has
    /// it too, flushes of volumes that are not to be mirrored no longer are.
    pub(crate) table_at: Mutex<Option<(u64, Position)>>,
    /// Id of the writer, as in the claim.
    pub(crate) writer_id: u128,
}

/// Write claim on the image store, taken when first needed. Earlier owners can no longer save.
/// Locked by threads that save or delete images.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) writer: StoreWriter,
    pub(crate) store: Option<ClaimedStore>,
}

impl DurableSet {
    pub fn id(&self) -> SetId {
        self.id
    }

    pub fn journal(&self) -> &Arc<Journal> {
        &self.journal
    }

    /// Returns the state of mirrored flushes.
    pub fn mirror(&self) -> &Arc<Mirror> {
        &self.mirror
    }

    /// Passes an error on. If another daemon has claimed the store, mirrored flushes fail from now
    /// on.
    pub(crate) fn note_if_fenced(&self, error: DurableError) -> DurableError {
        if error.is_fenced() {
            self.mirror.note_taken_over(causes(&error));
        }
        error
    }

    /// Returns whether memory has been compared with the store of images since the start.
    pub fn is_compared(&self) -> bool {
        self.is_compared.load(Relaxed)
    }

    /// Fails if the images in the store belong to another set.
    fn check_images_are_own(&self) -> Result<(), DurableError> {
        match self.is_compared() {
            true => Ok(()),
            false => NewestImage::find(&self.images)?.check_set(self.id),
        }
    }

    /// Returns the image store.
    pub fn images(&self) -> &Arc<dyn ImageStore> {
        &self.images
    }

    /// Returns whether a journal exists on disk or a volume needs one.
    pub fn has_journal(&self) -> bool {
        self.has_journaled_volumes() || self.journal.length_bytes() > 0
    }

    pub fn has_journaled_volumes(&self) -> bool {
        self.engine.has_journaled_volumes()
    }

    /// Returns volumes and snapshots.
    pub(crate) fn all_volumes(&self) -> Vec<Arc<Volume>> {
        let mut all = self.engine.volumes();
        all.extend(self.engine.snapshots());
        all
    }

    pub(crate) fn claim(&self) -> MutexGuard<'_, Claim> {
        self.claimed.lock().expect("a panic in a save ends the process")
    }

    pub(crate) fn hold_image_use(&self) -> MutexGuard<'_, ()> {
        self.image_use.lock().expect("a panic in a restore ends the process")
    }

    pub(crate) fn lock_unfetched(&self) -> MutexGuard<'_, Unfetched> {
        self.unfetched.lock().expect("no thread panics with the list locked")
    }

    /// Returns the image with absent blocks, opening it if it could not be opened before.
    pub(crate) fn source(&self) -> Result<Option<Arc<OpenImage>>, DurableError> {
        if self.lock_source().is_none() {
            self.connect_source()?;
        }
        Ok(self.lock_source().clone())
    }

    /// Opens the image with absent blocks and connects it to the engine.
    pub(crate) fn connect_source(&self) -> Result<(), DurableError> {
        let Some(id) = self.engine.absent_image().and_then(ImageId::from_word) else {
            return Ok(());
        };
        let store = Arc::clone(&self.images);
        let attempt = format!("open {id}, which has blocks that are not fetched yet");
        let image = OpenImage::open(store, id.number()).map_err(DurableError::images(&attempt))?;
        self.set_source(Some(Arc::new(image)));
        Ok(())
    }

    pub(crate) fn set_source(&self, image: Option<Arc<OpenImage>>) {
        let pages = image.clone().map(|image| {
            let word = image.id().word();
            let pages: Arc<dyn PageSource> = image;
            (word, pages)
        });
        self.engine.set_page_source(pages);
        *self.lock_source() = image;
    }

    /// Stops using the image with absent blocks, because no block was absent at this version of the
    /// engine's table. Returns whether the table is unchanged.
    pub(crate) fn end_source(&self, table_version: u64) -> bool {
        // Excludes saving and restoring absent blocks meanwhile.
        let _claim = self.claim();
        let _in_use = self.hold_image_use();
        let is_all = self.engine.end_page_source(table_version);
        if is_all {
            *self.lock_source() = None;
        }
        is_all
    }

    /// Returns the image with absent blocks, if open.
    pub(crate) fn open_source(&self) -> Option<Arc<OpenImage>> {
        self.lock_source().clone()
    }

    fn lock_source(&self) -> MutexGuard<'_, Option<Arc<OpenImage>>> {
        self.source.lock().expect("no thread panics with the source locked")
    }
}

impl Claim {
    pub(crate) fn store(&mut self, set: &DurableSet) -> Result<&mut ClaimedStore, DurableError> {
        if self.store.is_none() {
            set.check_images_are_own()?;
            let claimed = self.claim(set).map_err(|error| set.note_if_fenced(error))?;
            set.own_number.get_or_init(|| claimed.own_number());
            self.store = Some(claimed);
            set.mirror.note_published();
        }
        Ok(self.store.as_mut().expect("it was claimed"))
    }

    fn claim(&self, set: &DurableSet) -> Result<ClaimedStore, DurableError> {
        let (folder, mirroring) = (&*set.folder, set.mirror.policy().promise());
        let mut own = OwnClaim::read_or_begin(folder, self.writer.id)?;
        let writer = StoreWriter { daemon_id: own.daemon_id, mirroring, ..self.writer.clone() };
        let mut approve = |claims: &Claims| own.approve(claims, mirroring, folder);
        let claimed = ClaimedStore::claim_after(Arc::clone(&set.images), writer, &mut approve);
        let claimed = claimed.and_then(|claimed| {
            own.note_claimed(mirroring, folder)?;
            Ok(claimed)
        });
        claimed.map_err(DurableError::images("claim the store of images"))
    }
}
