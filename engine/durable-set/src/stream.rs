//! Bringing the contents of absent blocks into memory, while everything is served.

use std::collections::BTreeMap;
use std::sync::Arc;

use image::{DamagedChunk, EngineTarget, LEAF_BLOCKS, OpenImage, PackName, PageNumber, Watch};
use volumes::{BlockView, GivenUp, LeftBlock, SourceErrorKind, Volume};

use crate::error::DurableError;
use crate::set::DurableSet;

/// Looks at all maps in one call, at most: copies of what is absent may be made meanwhile.
const PASSES_MAX: usize = 4;

/// Objects of the store that are named when blocks in them cannot be had.
const OBJECTS_NAMED_MAX: usize = 64;

/// What a piece of the streaming did.
#[derive(Debug, Default)]
pub struct Streamed {
    /// Blocks that came into memory.
    pub present_blocks: u64,
    /// From the store of images.
    pub bytes_read: u64,
    /// What could not be had: reads of it fail until it can be.
    pub unfetched: Unfetched,
    /// Chunks of the image that could not be had, as far as the walk in its order met them.
    pub chunks_left: Vec<DamagedChunk>,
    /// Nothing is absent any more.
    pub is_done: bool,
}

/// Absent blocks that could not be had when they were last asked for. They are asked for again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unfetched {
    /// Blocks of all volumes and snapshots together.
    pub blocks: u64,
    /// Where they are; of very many the first.
    pub objects: Vec<UnfetchedObject>,
}

/// An object of the store of images that blocks cannot be had from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfetchedObject {
    pub pack: PackName,
    /// Why it cannot be read.
    pub cause: String,
    /// Volumes and snapshots by name, and how many blocks of each.
    pub volumes: BTreeMap<String, u64>,
}

impl DurableSet {
    /// Blocks that are in an image and not in memory yet.
    pub fn absent_blocks(&self) -> u64 {
        self.engine.volumes().iter().map(|volume| volume.absent_blocks()).sum()
    }

    /// What could not be had when it was last streamed.
    pub fn unfetched(&self) -> Unfetched {
        self.lock_unfetched().clone()
    }

    /// Brings absent blocks into memory, in the order in which they lie in the image, until all
    /// are there or `watch` cancels. What cannot be had now stays absent, for the next call. Fails
    /// when the store gives nothing at all, or the pool is full.
    pub fn stream(&self, watch: &dyn Watch) -> Result<Streamed, DurableError> {
        let mut streamed = Streamed::default();
        let Some(image) = self.source()? else {
            *self.lock_unfetched() = Unfetched::default();
            return Ok(Streamed { is_done: true, ..streamed });
        };
        let attempt = format!("fetch what is in {} only", image.id());
        let takers = takers(&self.all_volumes(), &image);
        let mut target = EngineTarget::new(&takers);
        let restored = image.restore(&mut target, watch).map_err(DurableError::images(&attempt))?;
        streamed.present_blocks = restored.pages_placed;
        streamed.bytes_read = restored.bytes_read;
        streamed.chunks_left = target.take_left();
        for _ in 0..PASSES_MAX {
            let table_version = self.engine.table_version();
            let is_over = self.stream_rest((&attempt, &image), watch, &mut streamed)?;
            self.lock_unfetched().clone_from(&streamed.unfetched);
            if is_over && self.end_source(table_version) {
                streamed.is_done = true;
            }
            if streamed.is_done || streamed.unfetched.blocks > 0 {
                break;
            }
        }
        Ok(streamed)
    }

    /// Brings in what is absent still: in copies that were made of volumes meanwhile, and what
    /// could not be had. Returns whether nothing was.
    fn stream_rest(
        &self,
        (attempt, image): (&str, &OpenImage),
        watch: &dyn Watch,
        streamed: &mut Streamed,
    ) -> Result<bool, DurableError> {
        let mut is_done = true;
        streamed.unfetched = Unfetched::default();
        for volume in self.all_volumes() {
            let mut from = 0;
            while let Some(leaf) = volume.next_leaf(from) {
                if watch.is_cancelled() {
                    return Ok(false);
                }
                if has_absent(&volume, leaf) {
                    is_done = false;
                    let done = volume.bring_in_leaf(leaf).map_err(DurableError::device(attempt))?;
                    streamed.present_blocks += done.present;
                    streamed.unfetched.add(&volume, &done.left, image);
                }
                from = leaf + 1;
            }
        }
        Ok(is_done)
    }

    /// Gives up what is absent in a volume or snapshot and cannot be had because its object is
    /// missing or damaged: reads of it fail until it is overwritten, also when the object comes
    /// back. For the pool's owner to say.
    pub fn accept_loss(&self, name: &str) -> Result<GivenUp, DurableError> {
        let attempt = format!("give up what cannot be fetched of {name:?}");
        let volume = self.engine.volume(name).map_err(DurableError::volume(&attempt))?;
        let is_image_gone = match self.source() {
            Ok(image) => {
                image.iter().for_each(|image| image.forget_failures());
                false
            }
            Err(error) if error.is_of_object() => true,
            Err(error) => return Err(error),
        };
        let is_reason = |kind| is_image_gone || kind == SourceErrorKind::Gone;
        let given_up = volume.give_up_absent(is_reason).map_err(DurableError::device(&attempt))?;
        self.lock_unfetched().forget(name);
        let table_version = self.engine.table_version();
        if !self.all_volumes().iter().any(|volume| has_any_absent(volume)) {
            self.end_source(table_version);
        }
        Ok(given_up)
    }
}

impl Unfetched {
    fn add(&mut self, volume: &Volume, left: &[LeftBlock], image: &OpenImage) {
        self.blocks += left.len() as u64;
        for block in left {
            let page = PageNumber::new(block.number);
            let Some((pack, cause)) = page.and_then(|page| image.whereabouts(page)) else {
                continue;
            };
            let known = self.objects.iter().position(|object| object.pack == pack);
            let place = match known {
                Some(place) => place,
                None if self.objects.len() == OBJECTS_NAMED_MAX => continue,
                None => {
                    let cause = cause.unwrap_or_else(|| "its contents are damaged".to_owned());
                    let volumes = BTreeMap::new();
                    self.objects.push(UnfetchedObject { pack, cause, volumes });
                    self.objects.len() - 1
                }
            };
            *self.objects[place].volumes.entry(volume.name()).or_default() += 1;
        }
    }

    /// Blocks of a volume are absent no more.
    fn forget(&mut self, name: &str) {
        for object in &mut self.objects {
            self.blocks -= object.volumes.remove(name).unwrap_or(0).min(self.blocks);
        }
        self.objects.retain(|object| !object.volumes.is_empty());
    }
}

fn has_any_absent(volume: &Volume) -> bool {
    let mut leaves = std::iter::successors(volume.next_leaf(0), |leaf| volume.next_leaf(leaf + 1));
    leaves.any(|leaf| has_absent(volume, leaf))
}

fn has_absent(volume: &Volume, leaf: u64) -> bool {
    let mut views = [BlockView::Hole; LEAF_BLOCKS];
    volume.view_leaf(leaf, &mut views);
    views.iter().any(|view| matches!(view, BlockView::Absent(_)))
}

/// The volume that takes what the image has of another, by index in the image.
fn takers(volumes: &[Arc<Volume>], image: &OpenImage) -> Vec<Option<Arc<Volume>>> {
    let is_of = |volume: &Volume, id: u64| {
        volume.image_base().is_some_and(|base| base.volume_id == id) || volume.id() == id
    };
    let taker = |id| volumes.iter().find(|volume| is_of(volume, id)).cloned();
    image.volumes().iter().map(|record| taker(record.id)).collect()
}
