//! Following a store in steps. Each step ends with the newest image, or with the reason why the
//! pool lacks it.
//!
//! Lock order: `work`, then `known`. The latter is held only briefly.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use durable_set::{Gap, Verified, causes};
use image::{
    ChangedParts, Claims, EngineTarget, ImageStore, Mirroring, OpenImage, Restored, Watch,
    claims_of,
};
use sealing::WrappingKey;
use volumes::{BlockView, Engine, PageSource, Volume};

use crate::adoption::{Bases, adopt};
use crate::choice::{Chosen, choose};
use crate::continuation::find_shipped;
use crate::error::{StandbyError, StandbyErrorKind};
use crate::generation::Generation;
use crate::key::{Opened, open_store};

const BLOCK_BYTES: u64 = 4096;

/// Parameters of a follower.
#[derive(Clone, Debug)]
pub struct FollowerSpec {
    /// A new pool, one that followed the store before, or one without volumes of another set.
    pub engine: Arc<Engine>,
    pub store: Arc<dyn ImageStore>,
    /// Wrapping keys, one of which opens the store's key if it is encrypted.
    pub keys: Vec<WrappingKey>,
}

/// A pool that follows a store. Threads share it and may call any method concurrently.
#[derive(Debug)]
pub struct Follower {
    pub(crate) engine: Arc<Engine>,
    store: Arc<dyn ImageStore>,
    keys: Vec<WrappingKey>,
    work: Mutex<Work>,
    known: Mutex<Known>,
}

/// State locked during a whole step.
#[derive(Debug, Default)]
pub(crate) struct Work {
    /// Image to which the volumes were updated.
    pub(crate) image: Option<Arc<OpenImage>>,
    pub(crate) bases: Bases,
    /// Parts that may have absent blocks. `None` means all, as after a start.
    changed: Option<ChangedParts>,
    /// Highest number taken when the store was last listed.
    top_number: Option<u32>,
    /// Verified extracts of the journal.
    pub(crate) verified: Verified,
    /// Claims on the store when they were last read.
    pub(crate) claims: Option<Claims>,
    /// Set after promotion, when the pool has another owner.
    pub(crate) is_promoted: bool,
}

#[derive(Clone, Debug, Default)]
struct Known {
    generation: Option<Arc<Generation>>,
    progress: Progress,
}

/// Progress of the pool relative to the store, as last reported by it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Highest number taken in the store, by an image or a writer's claim.
    pub top_number: u32,
    /// Image to which the volumes are updated: the newest complete one.
    pub image_number: Option<u32>,
    /// Time at which that image was saved, by the clock of its writer's host.
    pub saved_unix_seconds: Option<u64>,
    /// All flushes of class `journal` before this time are in the journal shipped after the image.
    /// In microseconds since 1970, by the clock of the host that shipped it.
    pub shipped_unix_micros: Option<u64>,
    /// Guarantee of the writer about acknowledged flushes.
    pub mirroring: Mirroring,
    /// Point beyond which the shipped journal cannot be replayed, with the reason.
    pub gap: Option<Gap>,
    /// Bytes of the image that are not in memory yet.
    pub to_fetch_bytes: u64,
    /// Newer images that were skipped, newest first, with reasons.
    pub skipped: Vec<(u32, String)>,
}

/// Outcome of a step.
#[derive(Debug)]
pub enum Step {
    /// The store has no image yet.
    Waiting,
    /// There is no newer image, and the newest one is completely in memory.
    Unchanged,
    /// A new image is completely in memory and visible to readers.
    Complete { image_number: u32, fetched_bytes: u64 },
    /// The newest image could not be fetched completely. Readers keep their current generation. The
    /// next step continues, or starts with a newer image.
    Incomplete { image_number: u32, fetched_bytes: u64, left_bytes: u64, cause: String },
}

impl Follower {
    /// Opens a pool to follow a store. Rejects a pool that has volumes of its own, and one without
    /// volumes to whose set the images in the store belong: its writer deleted them.
    pub fn open(spec: FollowerSpec) -> Result<Self, StandbyError> {
        if !spec.engine.is_restoring() {
            check_unused(&spec)?;
            spec.engine.begin_restoring();
        }
        let FollowerSpec { engine, store, keys } = spec;
        if engine.volumes().is_empty() {
            // It may have been a writer's. The set of the store is joined with the first image.
            engine.leave_set();
        }
        let known = Known {
            progress: Progress { to_fetch_bytes: absent_bytes(&engine), ..Progress::default() },
            ..Known::default()
        };
        Ok(Self { engine, store, keys, work: Mutex::default(), known: Mutex::new(known) })
    }

    /// Returns the volumes of the last complete image, for reading.
    pub fn generation(&self) -> Option<Arc<Generation>> {
        self.known().generation.clone()
    }

    pub fn progress(&self) -> Progress {
        let progress = self.known().progress.clone();
        Progress { to_fetch_bytes: absent_bytes(&self.engine), ..progress }
    }

    /// Looks for a new image and fetches the contents that the pool lacks. After a failure readers
    /// keep their current generation, and the next call continues.
    pub fn follow(&self, watch: &dyn Watch) -> Result<Step, StandbyError> {
        let mut work = self.lock_work();
        let step = self.step(&mut work, watch)?;
        self.look_at_shipped(&mut work, watch)?;
        Ok(step)
    }

    /// Determines how far the journal was shipped after the volumes' image.
    fn look_at_shipped(&self, work: &mut Work, watch: &dyn Watch) -> Result<(), StandbyError> {
        let Some(image) = work.image.clone() else { return Ok(()) };
        let Some((store, _)) = self.open_store()? else { return Ok(()) };
        let found = find_shipped(&store, &image, &mut work.verified)?;
        let claims_at = work.claims.as_ref().map(|claims| claims.top_number);
        if claims_at != Some(known_top(&store)?) {
            let claims = claims_of(&*store).map_err(StandbyError::image(LOOK))?;
            self.known().progress.mirroring = claims.mirroring;
            // Read too late for a promotion that has begun meanwhile.
            if !watch.is_cancelled() {
                work.claims = Some(claims);
            }
        }
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

    /// Returns the time at which the store's newest complete image was saved, by the clock of its
    /// writer's host.
    pub fn newest_saved_unix_seconds(&self) -> Result<Option<u64>, StandbyError> {
        let Some((store, _)) = self.open_store()? else { return Ok(None) };
        Ok(choose(&store)?.image.map(|image| image.summary().created_seconds))
    }

    /// Returns the claims on the store when they were last read, or reads them. Returns `None` if
    /// nothing is in the store. A promotion fails if another daemon claims the store later. Waits
    /// for the step in progress.
    pub fn known_claims(&self) -> Result<Option<Claims>, StandbyError> {
        let mut work = self.lock_work();
        if work.claims.is_none()
            && let Some((store, _)) = self.open_store()?
        {
            work.claims = Some(claims_of(&*store).map_err(StandbyError::image(LOOK))?);
        }
        Ok(work.claims.clone())
    }

    /// Returns whether the image is complete in memory and visible to readers.
    fn is_complete(&self, work: &Work) -> bool {
        let is_served = self.known().generation.as_ref().is_some_and(|it| it.is_whole());
        work.image.is_some() && self.engine.absent_image().is_none() && is_served
    }

    /// Result for a store without images. It is waited for, unless it had images before: then it
    /// may have been unmounted.
    fn without_image(&self) -> Result<Step, StandbyError> {
        if self.engine.set_id().is_none() {
            return Ok(Step::Waiting);
        }
        let error = StandbyError::new(StandbyErrorKind::NoImage, "follow the images of a store");
        Err(error.with_source(
            "it had images before; check store in [images], and that its file system is mounted",
        ))
    }

    /// Updates the volumes to the newest image, with missing contents absent. Returns false if
    /// there is no image.
    pub(crate) fn bring_to_newest(
        &self,
        store: &Arc<dyn ImageStore>,
        work: &mut Work,
    ) -> Result<bool, StandbyError> {
        let Chosen { top_number, image, skipped, is_one_unfinished } = choose(store)?;
        let summary = image.as_ref().map(|image| image.summary());
        let attempt = "follow the images of a store";
        if let Some(found) = summary.as_ref().map(|summary| summary.set_id)
            && self.engine.set_id().is_some_and(|own| own != found)
        {
            return Err(StandbyError::new(StandbyErrorKind::OtherSet, attempt));
        }
        let may_change = is_one_unfinished || !skipped.is_empty();
        {
            let mut known = self.known();
            known.progress.top_number = top_number;
            known.progress.skipped = skipped;
            // If the images are gone, the old values are kept: a promotion would presumably have
            // started from that image.
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
        // Skipped and unfinished images may become complete.
        work.top_number = Some(top_number).filter(|_| !may_change);
        Ok(true)
    }

    /// Updates the volumes to an image. If memory is short, readers lose their generation.
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

    /// Fetches absent blocks, and gives the volumes to readers when none is left.
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
        // Dropped after the lock is released.
        let _before = self.known().generation.replace(Arc::new(generation));
        Ok(Step::Complete { image_number, fetched_bytes })
    }

    /// Stops fetching if no block is absent any more. Returns whether that is so.
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

    /// Forgets the volumes' base images, so that the next step fetches everything.
    pub(crate) fn forget_image(&self, work: &mut Work) {
        for volume in self.engine.volumes() {
            volume.map().set_image_base(None);
        }
        *work = Work { is_promoted: work.is_promoted, ..Work::default() };
    }

    /// Withdraws the current generation from new readers.
    pub(crate) fn end_generation(&self) {
        // Dropped after the lock is released.
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
    /// Fails if the pool was promoted.
    pub(crate) fn check_follows(&self, attempt: &str) -> Result<(), StandbyError> {
        match self.is_promoted {
            true => Err(StandbyError::new(StandbyErrorKind::Promoted, attempt)),
            false => Ok(()),
        }
    }
}

const LOOK: &str = "look at the claims on the image store";

/// Checks that nothing is lost with the contents of a pool that is not a standby's.
fn check_unused(spec: &FollowerSpec) -> Result<(), StandbyError> {
    let attempt = "follow an image store";
    let volumes = spec.engine.volumes();
    if let Some(one) = volumes.first() {
        let error = StandbyError::new(StandbyErrorKind::NotEmpty, attempt);
        let count = volumes.len();
        return Err(
            error.with_source(format!("volumes in the pool: {count}, such as {}", one.name()))
        );
    }
    let Some(own) = spec.engine.set_id() else { return Ok(()) };
    let image = match open_store(&spec.store, &spec.keys)? {
        Some((store, _)) => choose(&store)?.image,
        None => None,
    };
    match image.is_some_and(|image| image.summary().set_id == own) {
        true => Err(StandbyError::new(StandbyErrorKind::OwnSet, attempt)),
        false => Ok(()),
    }
}

fn known_top(store: &Arc<dyn ImageStore>) -> Result<u32, StandbyError> {
    let images = store.images().map_err(StandbyError::image(LOOK))?;
    Ok(images.last().map_or(0, |&(number, _)| number))
}

/// Returns the volumes and snapshots that receive the image's contents, by index in the image.
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

/// Returns whether any block is absent in the parts that may have some.
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
