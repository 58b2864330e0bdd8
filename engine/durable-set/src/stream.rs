//! Background fetching of absent blocks, while volumes are served.

use std::sync::Arc;

use image::{DamagedChunk, EngineTarget, LEAF_BLOCKS, OpenImage, Watch};
use volumes::{BlockView, GivenUp, SourceErrorKind, Volume};

use crate::error::DurableError;
use crate::set::DurableSet;
use crate::unfetched::Unfetched;

/// Maximum number of passes over all maps per call. New copies with absent blocks may appear
/// meanwhile.
const PASSES_MAX: usize = 4;

/// Result of a call of [`DurableSet::stream`].
#[derive(Debug, Default)]
pub struct Streamed {
    /// Number of fetched blocks.
    pub present_blocks: u64,
    /// Bytes read from the image store.
    pub bytes_read: u64,
    /// Contents that could not be fetched. Reads of them fail until they can be.
    pub unfetched: Unfetched,
    /// Chunks of the image that could not be read.
    pub chunks_left: Vec<DamagedChunk>,
    /// True if no block is absent.
    pub is_done: bool,
}

impl DurableSet {
    /// Returns the number of blocks that are in an image but not in memory yet.
    pub fn absent_blocks(&self) -> u64 {
        self.engine.volumes().iter().map(|volume| volume.map().absent_blocks()).sum()
    }

    /// Returns the contents that the last call of [`DurableSet::stream`] could not fetch.
    pub fn unfetched(&self) -> Unfetched {
        self.lock_unfetched().clone()
    }

    /// Fetches absent blocks into memory, in their order in the image, until none is absent or
    /// `watch` cancels. Blocks that cannot be fetched now stay absent for the next call. Fails if
    /// the store returns nothing at all, or the pool is full.
    pub fn stream(&self, watch: &dyn Watch) -> Result<Streamed, DurableError> {
        let mut streamed = Streamed::default();
        let Some(image) = self.source()? else {
            *self.lock_unfetched() = Unfetched::default();
            return Ok(Streamed { is_done: true, ..streamed });
        };
        let takers = takers(&self.all_volumes(), &image);
        let mut target = EngineTarget::new(&takers);
        let restored = image.restore(&mut target, watch);
        let restored = restored.map_err(DurableError::images(&fetching(&image)))?;
        streamed.present_blocks = restored.pages_placed;
        streamed.bytes_read = restored.bytes_read;
        streamed.chunks_left = target.take_left();
        for _ in 0..PASSES_MAX {
            let table_version = self.engine.table_version();
            let is_over = self.stream_rest(&image, watch, &mut streamed)?;
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

    /// Fetches blocks that are still absent: in copies of volumes made meanwhile, and after
    /// failures. Returns whether none was absent.
    fn stream_rest(
        &self,
        image: &OpenImage,
        watch: &dyn Watch,
        streamed: &mut Streamed,
    ) -> Result<bool, DurableError> {
        let mut is_done = true;
        streamed.unfetched = Unfetched::default();
        for volume in self.all_volumes() {
            let mut from = 0;
            while let Some(leaf) = volume.map().next_leaf(from) {
                if watch.is_cancelled() {
                    return Ok(false);
                }
                if has_absent(&volume, leaf) {
                    is_done = false;
                    let done = volume.bring_in_leaf(leaf);
                    let done = done.map_err(DurableError::volume(&fetching(image)))?;
                    streamed.present_blocks += done.present;
                    streamed.unfetched.add(&volume, &done.left, image);
                }
                from = leaf + 1;
            }
        }
        Ok(is_done)
    }

    /// Gives up absent blocks of a volume or snapshot whose object is missing or damaged. Reads of
    /// them fail until they are overwritten, even if the object reappears. The pool's owner decides
    /// this.
    pub fn accept_loss(&self, name: &str) -> Result<GivenUp, DurableError> {
        let attempt = format!("accept the loss of blocks of {name:?}");
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
        let given_up = volume.give_up_absent(is_reason).map_err(DurableError::volume(&attempt))?;
        self.lock_unfetched().forget(name);
        let table_version = self.engine.table_version();
        if !self.all_volumes().iter().any(|volume| has_any_absent(volume)) {
            self.end_source(table_version);
        }
        Ok(given_up)
    }
}

fn fetching(image: &OpenImage) -> String {
    format!("fetch the blocks that only {} has", image.id())
}

fn has_any_absent(volume: &Volume) -> bool {
    let mut leaves =
        std::iter::successors(volume.map().next_leaf(0), |leaf| volume.map().next_leaf(leaf + 1));
    leaves.any(|leaf| has_absent(volume, leaf))
}

fn has_absent(volume: &Volume, leaf: u64) -> bool {
    let mut views = [BlockView::Hole; LEAF_BLOCKS];
    volume.map().view_leaf(leaf, &mut views);
    views.iter().any(|view| matches!(view, BlockView::Absent(_)))
}

/// Returns the volumes that receive the image's contents, by index in the image.
fn takers(volumes: &[Arc<Volume>], image: &OpenImage) -> Vec<Option<Arc<Volume>>> {
    let is_of = |volume: &Volume, id: u64| {
        volume.map().image_base().is_some_and(|base| base.volume_id == id) || volume.id() == id
    };
    let taker = |id| volumes.iter().find(|volume| is_of(volume, id)).cloned();
    image.volumes().iter().map(|record| taker(record.id)).collect()
}
