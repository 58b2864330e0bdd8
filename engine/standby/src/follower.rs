//! Following a store: one step after the other, each of which ends with the newest image, or with
//! what keeps the pool from it.
//!
//! Lock order: the work in hand, then what is known. The latter is held for instants only.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use durable_set::{Gap, Verified, causes};
use image::{ChangedParts, EngineTarget, ImageStore, OpenImage, Restored, Watch};
use sealing::WrappingKey;
use volumes::{BlockView, Engine, PageSource, Volume};

use crate::adoption::{Bases, adopt};
use crate::choice::{Chosen, choose};
use crate::continuation::find_shipped;
use crate::error::{StandbyError, StandbyErrorKind};
use crate::generation::Generation;
use crate::key::{Opened, open_store};

const BLOCK_BYTES: u64 = 4096;

/// Parts of which a follower is made.
#[derive(Debug)]
pub struct FollowerSpec {
    /// A new pool, or one that followed the store before.
    pub engine: Arc<Engine>,
    pub store: Arc<dyn ImageStore>,
    /// Those of which one wraps the key of the store, if that is encrypted.
    pub keys: Vec<WrappingKey>,
}

/// A pool that follows a store. Shared between threads; every method may be called from any of
/// them.
#[derive(Debug)]
pub struct Follower {
    pub(crate) engine: Arc<Engine>,
    store: Arc<dyn ImageStore>,
    keys: Vec<WrappingKey>,
    work: Mutex<Work>,
    known: Mutex<Known>,
}

/// Held for the whole of a step.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// The image that the volumes were brought to.
    pub(crate) image: Option<Arc<OpenImage>>,
    bases: Bases,
    /// Parts in which blocks may be absent. `None`: any, as after a start.
    changed: Option<ChangedParts>,
    /// The highest number that was taken when the store was last asked.
    top_number: Option<u32>,
    /// Extracts of the journal that were looked at.
    verified: Verified,
    /// The pool is another's matter from now on.
    pub(crate) is_promoted: bool,
}

#[derive(Clone, Debug, Default)]
struct Known {
    generation: Option<Arc<Generation>>,
    progress: Progress,
}

/// Distance of the pool from the store, as far as the store has told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The highest number that is taken in the store, by an image or by a claim of a writer.
    pub top_number: u32,
    /// The image that the volumes are brought to, which is the newest whole one.
    pub image_number: Option<u32>,
    /// Time at which that was saved, by the clock of the host that saved it.
    pub saved_unix_seconds: Option<u64>,
    /// Time before which all flushes of class `journal` are in what was shipped after the image, in
    /// microseconds since 1970, by the clock of the host that shipped it.
    pub shipped_unix_micros: Option<u64>,
    /// Where what was shipped cannot be replayed past, and why.
    pub gap: Option<Gap>,
    /// Bytes of it that are not in memory yet.
    pub to_fetch_bytes: u64,
    /// Newer images that were skipped, the newest first, and why.
    pub skipped: Vec<(u32, String)>,
}

/// Outcome of a step.
#[derive(Debug)]
pub enum Step {
    /// The store has no image yet.
    Waiting,
    /// There is no newer image, and all of the newest is there.
    Unchanged,
    /// All of a new image is in memory, and read from now on.
    Complete { image_number: u32, fetched_bytes: u64 },
    /// The newest image could not be fetched as a whole; readers have what they had. The next step
    /// goes on with it, or with a newer one.
    Incomplete { image_number: u32, fetched_bytes: u64, left_bytes: u64, cause: String },
}

impl Follower {
    /// Opens a pool to follow a store. Refuses one that has volumes of its own.
    pub fn open(spec: FollowerSpec) -> Result<Self, StandbyError> {
        let FollowerSpec { engine, store, keys } = spec;
        if !engine.is_restoring() {
            if engine.set_id().is_some() || !engine.volumes().is_empty() {
                let attempt = "follow an image store";
                return Err(StandbyError::new(StandbyErrorKind::NotEmpty, attempt));
            }
            engine.begin_restoring();
        }
        let known = Known {
            progress: Progress { to_fetch_bytes: absent_bytes(&engine), ..Progress::default() },
            ..Known::default()
        };
        Ok(Self { engine, store, keys, work: Mutex::default(), known: Mutex::new(known) })
    }

    /// Volumes to read, as the last complete image has them.
    pub fn generation(&self) -> Option<Arc<Generation>> {
        self.known().generation.clone()
    }

    pub fn progress(&self) -> Progress {
        let progress = self.known().progress.clone();
        Progress { to_fetch_bytes: absent_bytes(&self.engine), ..progress }
    }

    /// Looks for a new image and fetches what it has and the pool has not. A failure leaves readers
    /// what they have; the next call goes on.
    pub fn follow(&self, watch: &dyn Watch) -> Result<Step, StandbyError> {
        let mut work = self.lock_work();
        let step = self.step(&mut work, watch)?;
        self.look_at_shipped(&mut work)?;
        Ok(step)
    }

    /// Looks at how far the journal was shipped after the image that the volumes hold.
    fn look_at_shipped(&self, work: &mut Work) -> Result<(), StandbyError> {
        let Some(image) = work.image.clone() else { return Ok(()) };
        let Some((store, _)) = self.open_store()? else { return Ok(()) };
        let found = find_shipped(&store, &image, &mut work.verified)?;
        let mut known = self.known();
        let taken = found.as_ref().map(|found| found.taken_unix_micros).filter(|&it| it > 0);
        known.progress.shipped_unix_micros = taken;
        known.progress.gap = found.and_then(|found| found.gap);
        Ok(())
    }

    fn step(&self, work: &mut Work, watch: &dyn Watch) -> Result<Step, StandbyError> {
        work.check_follows("follow the images of a store")?;
        let Some((store, _)) = self.open_store()? else { return self.without_image() };
        let fail = StandbyError::image("look for a new image");
        let top_number = store.images().map_err(fail)?.last().map_or(0, |&(number, _)| number);
        if work.top_number == Some(top_number) && self.is_complete(work) {
            return Ok(Step::Unchanged);
        }
        let before = work.image.clone();
        if !self.bring_to_newest(&store, work)? {
            return self.without_image();
        }
        let is_same = work.image.as_ref().map(|it| it.id()) == before.map(|it| it.id());
        if is_same && self.is_complete(work) {
            return Ok(Step::Unchanged);
        }
        self.fetch(work, watch)
    }

    /// Asks the store when its newest whole image was saved, by the clock of the host that did.
    pub fn newest_saved_unix_seconds(&self) -> Result<Option<u64>, StandbyError> {
        let Some((store, _)) = self.open_store()? else { return Ok(None) };
        Ok(choose(&store)?.image.map(|image| image.summary().created_seconds))
    }

    /// Returns whether all of the image is there and read.
    fn is_complete(&self, work: &Work) -> bool {
        let is_served = self.known().generation.as_ref().is_some_and(|it| it.is_whole());
        work.image.is_some() && self.engine.absent_image().is_none() && is_served
    }

    /// A store without an image is waited for, unless it had one: what was mounted there may be
    /// gone.
    fn without_image(&self) -> Result<Step, StandbyError> {
        if self.engine.set_id().is_none() {
            return Ok(Step::Waiting);
        }
        let error = StandbyError::new(StandbyErrorKind::NoImage, "follow the images of a store");
        Err(error.with_source("it had images before; make sure that it is the right one, mounted"))
    }

    /// Brings the volumes to the newest image, all of which is absent that was not there. Returns
    /// false if there is no image.
    pub(crate) fn bring_to_newest(
        &self,
        store: &Arc<dyn ImageStore>,
        work: &mut Work,
    ) -> Result<bool, StandbyError> {
        let Chosen { top_number, image, skipped } = choose(store)?;
        let summary = image.as_ref().map(|image| image.summary());
        let attempt = "follow the images of a store";
        if let Some(found) = summary.as_ref().map(|summary| summary.set_id)
            && self.engine.set_id().is_some_and(|own| own != found)
        {
            return Err(StandbyError::new(StandbyErrorKind::OtherSet, attempt));
        }
        let has_skipped = !skipped.is_empty();
        {
            let mut known = self.known();
            known.progress.top_number = top_number;
            known.progress.skipped = skipped;
            // One that is gone from the store is what a promotion would have begun from all the
            // same, as far as is known: its age is told on.
            if let Some(summary) = &summary {
                known.progress.image_number = Some(summary.id.number());
                known.progress.saved_unix_seconds = Some(summary.created_seconds);
            }
        }
        let (Some(image), Some(summary)) = (image, summary) else { return Ok(false) };
        if work.image.as_ref().is_none_or(|now| now.id() != image.id()) {
            self.engine.join_set(summary.set_id);
            self.adopt(store, &Arc::new(image), work)?;
        }
        // Images that were skipped may become whole.
        work.top_number = Some(top_number).filter(|_| !has_skipped);
        Ok(true)
    }

    /// Brings the volumes to an image. Where memory is short readers lose what they have.
    fn adopt(
        &self,
        store: &Arc<dyn ImageStore>,
        image: &Arc<OpenImage>,
        work: &mut Work,
    ) -> Result<(), StandbyError> {
        let pages: Arc<dyn PageSource> = Arc::<OpenImage>::clone(image);
        self.engine.set_page_source(Some((image.id().word(), pages)));
        work.image = None;
        let mut changed = work.changed.take();
        let mut unlisted = ChangedParts::default();
        let parts = changed.as_mut().unwrap_or(&mut unlisted);
        let adopted = match adopt(&self.engine, store, image, (&mut work.bases, parts)) {
            Err(error) if error.kind == StandbyErrorKind::PoolFull => {
                self.known().generation = None;
                adopt(&self.engine, store, image, (&mut work.bases, parts))
            }
            adopted => adopted,
        };
        work.changed = changed;
        adopted?;
        work.image = Some(Arc::clone(image));
        Ok(())
    }

    /// Fetches what is absent, and gives the volumes to readers when nothing is.
    fn fetch(&self, work: &mut Work, watch: &dyn Watch) -> Result<Step, StandbyError> {
        let image = work.image.clone().expect("the volumes were brought to an image");
        let attempt = format!("fetch {}", image.id());
        let image_number = image.id().number();
        let takers = takers(&self.engine, &image);
        let mut target = EngineTarget::new(&takers);
        let restored = match &work.changed {
            Some(changed) => image.restore_changed(changed, &mut target, watch),
            None => image.restore(&mut target, watch),
        };
        let restored = restored.map_err(StandbyError::image(&attempt))?;
        let left = target.take_left();
        drop(target);
        let fetched_bytes = restored.bytes_read;
        if !self.end_fetch(&restored, work.changed.as_ref()) {
            let left_bytes = absent_bytes(&self.engine);
            let cause = left.first().map(|chunk| causes(&chunk.error)).unwrap_or_default();
            return Ok(Step::Incomplete { image_number, fetched_bytes, left_bytes, cause });
        }
        work.changed = Some(ChangedParts::default());
        let fail = StandbyError::volume(&attempt);
        let generation = Generation::of(&self.engine, &image).map_err(fail)?;
        // Dropped without the lock.
        let _before = self.known().generation.replace(Arc::new(generation));
        Ok(Step::Complete { image_number, fetched_bytes })
    }

    /// Returns whether nothing is absent any more.
    fn end_fetch(&self, restored: &Restored, changed: Option<&ChangedParts>) -> bool {
        let table_version = self.engine.table_version();
        if restored.chunks_left > 0 || has_absent(&self.engine, changed) {
            return false;
        }
        self.engine.end_page_source(table_version)
    }

    pub(crate) fn open_store(&self) -> Result<Option<Opened>, StandbyError> {
        open_store(&self.store, &self.keys)
    }

    /// Forgets that volumes hold what an image has: the next step fetches all of it.
    pub(crate) fn forget_image(&self, work: &mut Work) {
        for volume in self.engine.volumes() {
            volume.map().set_image_base(None);
        }
        *work = Work { is_promoted: work.is_promoted, ..Work::default() };
    }

    /// Readers get nothing any more from here.
    pub(crate) fn end_generation(&self) {
        // Dropped without the lock.
        let _before = self.known().generation.take();
    }

    pub(crate) fn lock_work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().expect("a panic while following ends the process")
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().expect("no thread panics with this lock")
    }
}

impl Work {
    /// Fails when the pool was promoted.
    pub(crate) fn check_follows(&self, attempt: &str) -> Result<(), StandbyError> {
        match self.is_promoted {
            true => Err(StandbyError::new(StandbyErrorKind::Promoted, attempt)),
            false => Ok(()),
        }
    }
}

/// Volumes and snapshots that take what an image has, by index in the image.
fn takers(engine: &Engine, image: &OpenImage) -> Vec<Option<Arc<Volume>>> {
    let mut all = engine.volumes();
    all.extend(engine.snapshots());
    let by_id: std::collections::HashMap<u64, Arc<Volume>> =
        all.into_iter().map(|volume| (volume.id(), volume)).collect();
    image.volumes().iter().map(|record| by_id.get(&record.id).cloned()).collect()
}

pub(crate) fn absent_bytes(engine: &Engine) -> u64 {
    let volumes = engine.volumes();
    volumes.iter().map(|volume| volume.map().absent_blocks()).sum::<u64>() * BLOCK_BYTES
}

/// Looks for absent blocks where there may be some.
fn has_absent(engine: &Engine, changed: Option<&ChangedParts>) -> bool {
    let everywhere = 0..u64::MAX;
    let mut all = engine.volumes().into_iter().chain(engine.snapshots());
    all.any(|volume| match changed {
        Some(changed) => changed.leaves_of(volume.id()).any(|leaves| is_absent(&volume, leaves)),
        None => is_absent(&volume, everywhere.clone()),
    })
}

fn is_absent(volume: &Volume, leaves: Range<u64>) -> bool {
    let map = volume.map();
    let next = |from| map.next_leaf(from).filter(|leaf| *leaf < leaves.end);
    let mut found = std::iter::successors(next(leaves.start), |leaf| next(leaf + 1));
    found.any(|leaf| {
        let mut views = [BlockView::Hole; image::LEAF_BLOCKS];
        map.view_leaf(leaf, &mut views);
        views.iter().any(|view| matches!(view, BlockView::Absent(_)))
    })
}
