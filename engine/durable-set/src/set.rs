//! Opening a set: what memory and stable storage have, and which of them is right.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard};

use image::{ChunkNumber, ClaimedStore, ImageId, ImageStore, ImageSummary, OpenImage};
use journal::{Clock, Journal, JournalError, JournalOptions, JournalSpec, Position};
use storage::Folder;
use volumes::{Durability, Engine, PageSource, SetId, Volume, VolumeError};

use crate::changes::{Changes, Concern};
use crate::error::{DurableError, DurableErrorKind};
use crate::healer::StableCopies;
use crate::newest::{AcceptedImage, NewestImage};
use crate::replay::delete_with_snapshots;
use crate::restore::{Gaps, Restored, restore, restore_as};
use crate::status::Speeds;
use crate::stream::Unfetched;

/// What a set is made of.
#[derive(Clone, Debug)]
pub struct DurableSpec {
    /// Holds the journal's files.
    pub journal: Arc<dyn Folder>,
    pub journal_options: JournalOptions,
    pub clock: Arc<dyn Clock>,
    pub images: Arc<dyn ImageStore>,
    /// Drawn at random for each opening.
    pub writer: u128,
    /// The id of a set that is made new; drawn at random.
    pub fresh_id: SetId,
}

/// What opening a set found, for the log.
#[derive(Debug)]
pub struct Opening {
    pub how: Opened,
    /// The newest image that can be read.
    pub newest: Option<ImageSummary>,
    /// Images newer than the one that counts that cannot be read.
    pub skipped: Vec<(u32, String)>,
    /// Memory has volumes of class `journal`, and the journal is gone: their flushes wait for an
    /// image.
    pub journal_was_gone: bool,
    /// Blocks were not fetched yet from an image that cannot be opened: reads of them fail.
    pub source_failure: Option<DurableError>,
    /// What would have kept the set from being opened, had the owner not accepted the loss.
    pub loss: Option<DurableError>,
    /// The newest image has the volumes and snapshots that there are, under their names, and no
    /// others: none was deleted just before a kill.
    pub newest_is_current: bool,
}

/// Which of memory and stable storage is right.
#[derive(Debug)]
pub enum Opened {
    /// There was nothing before.
    New,
    /// Memory was there, and is right.
    Continued,
    /// Memory was gone.
    Restored {
        /// The image that the volumes come from, if there was one.
        image: Option<u32>,
        transactions: u64,
        /// Blocks whose contents are damaged in the journal: reads of them fail.
        damaged_blocks: u64,
        damaged_segments: Vec<String>,
        /// Volumes that could not be guaranteed again, and why: they are thin.
        guarantees_lost: Vec<(String, VolumeError)>,
    },
}

/// A pool, its journal and its images. Shared between threads; every method may be called from any
/// of them.
#[derive(Debug)]
pub struct DurableSet {
    pub(crate) engine: Arc<Engine>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) id: SetId,
    images: Arc<dyn ImageStore>,
    writer: u128,
    /// Held by whoever saves or deletes images.
    claimed: Mutex<Claim>,
    /// The image that absent blocks are in.
    source: Mutex<Option<Arc<OpenImage>>>,
    unfetched: Mutex<Unfetched>,
    pub(crate) speeds: Speeds,
    pub(crate) changes: Changes,
}

impl DurableSet {
    /// Brings a pool and its stable storage together: continues what was there, or restores it when
    /// memory was lost. Volumes may be served when this returns; what [`DurableSet::stream`] brings
    /// in is fetched as it is touched until then.
    ///
    /// When images cannot be read, an older one will do only if nothing is lost by that which was
    /// promised; otherwise this fails and changes nothing.
    pub fn open(engine: &Arc<Engine>, spec: DurableSpec) -> Result<(Self, Opening), DurableError> {
        Self::open_from(engine, spec, None)
    }

    /// The same for a pool whose memory is gone, from the image that is named: what came after it
    /// is lost as far as the journal does not have it. What cannot be read of the journal is set
    /// aside. When memory is there, nothing is given up.
    pub fn open_accepting(
        engine: &Arc<Engine>,
        spec: DurableSpec,
        accepted: AcceptedImage,
    ) -> Result<(Self, Opening), DurableError> {
        Self::open_from(engine, spec, Some(accepted))
    }

    fn open_from(
        engine: &Arc<Engine>,
        spec: DurableSpec,
        accepted: Option<AcceptedImage>,
    ) -> Result<(Self, Opening), DurableError> {
        if engine.is_restoring() {
            // A kill came in between: what is there was only a part of what is to be.
            clear(engine)?;
        }
        let newest = NewestImage::find(&spec.images)?;
        let journal_set = journal::set_in(&*spec.journal);
        let journal_set = journal_set.map_err(DurableError::journal("look at the journal"))?;
        let found = Found { newest, journal_set };
        let found_set = found.set_id()?;
        let is_kept = engine.set_id().is_some() && !engine.is_restoring();
        let mut loss = None;
        let (id, restored) = match (engine.set_id().filter(|_| is_kept), found_set) {
            (Some(id), Some(other)) if id != other => return Err(other_set(id, other)),
            (Some(id), _) => (id, None),
            (None, found_set) => {
                if found_set.is_some() && !engine.volumes().is_empty() {
                    let kind = DurableErrorKind::NotEmpty;
                    return Err(DurableError::new(kind, "open the durable set"));
                }
                let gaps = found.check(&spec, found_set, accepted, &mut loss)?;
                begin(engine, &spec, found_set, (found.newest.image.as_ref(), gaps))?
            }
        };
        let (opened, journal_failure) = match restored {
            None if found_set.is_none() => (Opened::New, None),
            None => (Opened::Continued, None),
            Some(restored) => opened_as(restored, found.newest.image.as_deref()),
        };
        if let Some(error) = journal_failure {
            loss.get_or_insert(DurableError::journal("read the journal")(error));
        }
        let set = Self::serve(engine, spec, id, found.newest.covered())?;
        let is_gone = found.journal_set.is_none() && matches!(opened, Opened::Continued);
        let journal_was_gone = is_gone && lose_anchors(engine);
        let source_failure = set.connect_source().err();
        let newest_is_current = found.newest.lists_all_of(engine);
        let newest = found.newest.image.map(|image| image.summary());
        let opening = Opening {
            how: opened,
            newest,
            skipped: found.newest.skipped,
            journal_was_gone,
            source_failure,
            loss,
            newest_is_current,
        };
        Ok((set, opening))
    }

    /// Opens the journal, and has the engine use it.
    fn serve(
        engine: &Arc<Engine>,
        spec: DurableSpec,
        id: SetId,
        covered: Position,
    ) -> Result<Self, DurableError> {
        let journal = Journal::open(JournalSpec {
            folder: spec.journal,
            set_id: id,
            covered,
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
            writer: spec.writer,
            claimed: Mutex::default(),
            source: Mutex::new(None),
            unfetched: Mutex::default(),
            speeds: Speeds::default(),
            changes: Changes::new(spec.clock, spec.journal_options.patience),
        })
    }

    pub fn journal(&self) -> &Arc<Journal> {
        &self.journal
    }

    /// Notes changes that could not be noted before, and does for the journal what can be done
    /// before somebody waits for it: about once a second, and soon after
    /// [`DurableSet::wants_tending`]. For volumes of class `image` alone the journal is short, and
    /// without those too it takes no room on the disk.
    pub fn tend(&self) -> Result<(), DurableError> {
        if !self.journal.knows_table() || self.journal.failure().is_some() {
            self.note_volumes()?;
        }
        match self.has_journaled_volumes() {
            true => self.journal.tend().map_err(DurableError::journal("tend the journal")),
            false => Ok(()),
        }
    }

    pub fn wants_tending(&self) -> bool {
        self.has_journaled_volumes() && self.journal.wants_tending()
    }

    /// Whether there is a journal on the disk, or a volume that needs one.
    pub fn has_journal(&self) -> bool {
        self.has_journaled_volumes() || self.journal.length_bytes() > 0
    }

    /// Whether stable storage is to know what volumes there are.
    pub(crate) fn keeps_table(&self) -> bool {
        let is_durable = |volume: &Arc<Volume>| volume.durability() != Durability::Ram;
        self.journal.length_bytes() > 0 || self.engine.volumes().iter().any(is_durable)
    }

    pub fn has_journaled_volumes(&self) -> bool {
        self.engine.volumes().iter().any(|volume| volume.durability() == Durability::Journal)
    }

    pub fn id(&self) -> SetId {
        self.id
    }

    /// Volumes and snapshots.
    pub(crate) fn all_volumes(&self) -> Vec<Arc<Volume>> {
        let mut all = self.engine.volumes();
        all.extend(self.engine.snapshots());
        all
    }

    /// Makes volumes from those of an image: pairs of a name there, which may be a snapshot's, and
    /// a new name. All or none. Their contents are fetched as they are touched.
    pub fn restore(
        &self,
        image: u32,
        names: &[(String, String)],
    ) -> Result<Vec<Arc<Volume>>, DurableError> {
        let attempt = format!("restore from image {image}");
        // No image is deleted meanwhile, and no other source of absent blocks given up.
        let _claim = self.claim();
        let source = match self.source()? {
            Some(source) if source.id().number() == image => source,
            Some(_) => return Err(DurableError::new(DurableErrorKind::Restoring, attempt)),
            None => {
                let opened = OpenImage::open(Arc::clone(&self.images), image);
                Arc::new(opened.map_err(DurableError::images(&attempt))?)
            }
        };
        let mut indexes = Vec::new();
        for (name, _) in names {
            let index = source.volumes().iter().position(|volume| volume.name == *name);
            let attempt = || format!("{attempt}: {name:?}");
            let missing = || DurableError::new(DurableErrorKind::NotInImage, attempt());
            indexes.push(index.ok_or_else(missing)?);
        }
        let of_class = |&index: &usize| Concern::of(source.volumes()[index].durability);
        let concern = indexes.iter().map(of_class).fold(Concern::MemoryAlone, Concern::or);
        let begun = self.begin_change(&attempt, || concern)?;
        self.set_source(Some(Arc::clone(&source)));
        let mut made = Vec::new();
        for (&index, (_, new_name)) in indexes.iter().zip(names) {
            match restore_as(&self.engine, &source, index, new_name) {
                Ok(volume) => made.push(volume),
                Err(error) => {
                    made.iter().for_each(|volume| self.engine.abandon_filling(volume));
                    return Err(error);
                }
            }
        }
        match self.end_change(begun, &attempt) {
            Ok(()) => Ok(made),
            Err(error) => Err(self.take_back(&made, error)),
        }
    }

    /// The image that absent blocks are in, opened now if it could not be before.
    pub(crate) fn source(&self) -> Result<Option<Arc<OpenImage>>, DurableError> {
        if self.lock_source().is_none() {
            self.connect_source()?;
        }
        Ok(self.lock_source().clone())
    }

    pub(crate) fn lock_unfetched(&self) -> MutexGuard<'_, Unfetched> {
        self.unfetched.lock().expect("nobody panics with the list locked")
    }

    /// Chunks of the image that absent blocks are in that were found damaged.
    pub(crate) fn damaged_chunks(&self) -> HashSet<ChunkNumber> {
        self.lock_source().as_ref().map(|image| image.damaged_chunks()).unwrap_or_default()
    }

    fn lock_source(&self) -> MutexGuard<'_, Option<Arc<OpenImage>>> {
        self.source.lock().expect("nobody panics with the source locked")
    }

    /// Nothing is absent any more in what there was when the engine's table had this version.
    /// Returns whether that is all there is.
    pub(crate) fn end_source(&self, table_version: u64) -> bool {
        // Nobody restores or saves what is absent meanwhile.
        let _claim = self.claim();
        let is_all = self.engine.end_page_source(table_version);
        if is_all {
            *self.lock_source() = None;
        }
        is_all
    }

    fn set_source(&self, image: Option<Arc<OpenImage>>) {
        let pages = image.clone().map(|image| {
            let word = image.id().word();
            let pages: Arc<dyn PageSource> = image;
            (word, pages)
        });
        self.engine.set_page_source(pages);
        *self.lock_source() = image;
    }

    /// Where images are.
    pub fn images(&self) -> &Arc<dyn ImageStore> {
        &self.images
    }

    pub(crate) fn claim(&self) -> MutexGuard<'_, Claim> {
        self.claimed.lock().expect("a panic in a save ends the process")
    }

    pub(crate) fn writer(&self) -> u128 {
        self.writer
    }

    /// Connects the image that absent blocks are in, after any kind of start.
    fn connect_source(&self) -> Result<(), DurableError> {
        let Some(id) = self.engine.absent_image().and_then(ImageId::from_word) else {
            return Ok(());
        };
        let store = Arc::clone(&self.images);
        let attempt = format!("open {id}, which blocks were not fetched from yet");
        let image = OpenImage::open(store, id.number()).map_err(DurableError::images(&attempt))?;
        self.set_source(Some(Arc::new(image)));
        Ok(())
    }
}

/// The right to write to the store of images, taken when it is first needed: whoever had it before
/// can save no more.
#[derive(Debug, Default)]
pub(crate) struct Claim {
    store: Option<ClaimedStore>,
}

impl Claim {
    pub(crate) fn store(&mut self, set: &DurableSet) -> Result<&mut ClaimedStore, DurableError> {
        if self.store.is_none() {
            let claimed = ClaimedStore::claim(Arc::clone(set.images()), set.writer());
            self.store = Some(claimed.map_err(DurableError::images("claim the store of images"))?);
        }
        Ok(self.store.as_mut().expect("it was claimed"))
    }
}

/// What stable storage has.
struct Found {
    newest: NewestImage,
    journal_set: Option<SetId>,
}

impl Found {
    /// The set that stable storage belongs to; `None` when it is empty.
    fn set_id(&self) -> Result<Option<SetId>, DurableError> {
        let of_images = self.newest.image.as_ref().map(|image| image.summary().set_id);
        match (self.journal_set, of_images) {
            (Some(one), Some(other)) if one != other => {
                let (one, other) = (name_of(one), name_of(other));
                let attempt =
                    format!("join a journal of the set {one} and images of the set {other}");
                Err(DurableError::new(DurableErrorKind::OtherSet, attempt))
            }
            (one, other) => Ok(one.or(other)),
        }
    }
}

impl Found {
    /// Whether the pool may come back from this. What is lost by it must have been accepted.
    fn check(
        &self,
        spec: &DurableSpec,
        set_id: Option<SetId>,
        accepted: Option<AcceptedImage>,
        loss: &mut Option<DurableError>,
    ) -> Result<Gaps, DurableError> {
        let checked = self.newest.check_nothing_is_missing(&*spec.journal, set_id);
        match accepted {
            None => checked.map(|()| Gaps::Refused),
            Some(accepted) => {
                self.newest.check_accepted(accepted)?;
                *loss = checked.err();
                Ok(Gaps::Accepted)
            }
        }
    }
}

/// Without their journal volumes of class `journal` wait for an image. Returns whether there is
/// one.
pub(crate) fn lose_anchors(engine: &Engine) -> bool {
    let mut volumes = engine.volumes();
    volumes.retain(|volume| volume.durability() == Durability::Journal);
    volumes.iter().for_each(|volume| volume.set_anchored(false));
    !volumes.is_empty()
}

/// Begins a new set in an empty pool, or brings the one back that stable storage has.
fn begin(
    engine: &Arc<Engine>,
    spec: &DurableSpec,
    found_set: Option<SetId>,
    (image, gaps): (Option<&Arc<OpenImage>>, Gaps),
) -> Result<(SetId, Option<Restored>), DurableError> {
    match found_set {
        Some(id) => Ok((id, Some(restore(engine, spec, id, (image, gaps))?))),
        None => {
            engine.join_set(spec.fresh_id);
            engine.end_restoring();
            Ok((spec.fresh_id, None))
        }
    }
}

/// The part of the journal that an image has.
pub(crate) fn covered_by(image: &OpenImage) -> Position {
    Position(image.summary().journal.sequence.max(Position::START.0))
}

/// How a set was opened whose memory was gone, and why the journal could not be read to its end.
fn opened_as(restored: Restored, image: Option<&OpenImage>) -> (Opened, Option<JournalError>) {
    let opened = Opened::Restored {
        image: image.map(|image| image.id().number()),
        transactions: restored.journal.transactions,
        damaged_blocks: restored.journal.damaged_blocks,
        damaged_segments: restored.journal.damaged_segments,
        guarantees_lost: restored.guarantees_lost,
    };
    (opened, restored.journal_failure)
}

fn other_set(pool: SetId, stored: SetId) -> DurableError {
    let (pool, stored) = (name_of(pool), name_of(stored));
    let attempt = format!("join a pool of the set {pool} and what is stored of the set {stored}");
    DurableError::new(DurableErrorKind::OtherSet, attempt)
}

/// A set's id for people.
fn name_of(id: SetId) -> String {
    format!("{:032x}", u128::from_be_bytes(id))
}

/// Deletes all volumes of a pool that was being restored.
fn clear(engine: &Engine) -> Result<(), DurableError> {
    engine.set_page_source(None);
    for volume in engine.volumes() {
        delete_with_snapshots(engine, &volume)
            .map_err(DurableError::volume("begin the restore again after a kill"))?;
    }
    Ok(())
}
