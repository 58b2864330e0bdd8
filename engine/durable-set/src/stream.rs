//! Bringing the contents of absent blocks into memory, while everything is served.

use std::sync::Arc;

use image::{DamagedChunk, EngineTarget, LEAF_BLOCKS, OpenImage, Watch};
use volume::{BlockView, Volume};

use crate::error::DurableError;
use crate::set::DurableSet;

/// Looks at all maps in one call, at most: copies of what is absent may be made meanwhile.
const PASSES_MAX: usize = 4;

/// What a piece of the streaming did.
#[derive(Debug, Default)]
pub struct Streamed {
    /// Blocks that came into memory.
    pub present_blocks: u64,
    /// From the store of images.
    pub bytes_read: u64,
    /// Blocks whose contents the image has damaged: reads of them fail until they are overwritten.
    pub lost_blocks: u64,
    /// Which parts of the image are damaged, as far as the walk in its order met them.
    pub damaged: Vec<DamagedChunk>,
    /// Nothing is absent any more.
    pub is_done: bool,
}

impl DurableSet {
    /// Blocks that are in an image and not in memory yet.
    pub fn absent_blocks(&self) -> u64 {
        self.engine.volumes().iter().map(|volume| volume.absent_blocks()).sum()
    }

    /// Brings absent blocks into memory, in the order in which they lie in the image, until all
    /// are there or `watch` cancels. What the store does not give now is left for the next call.
    pub fn stream(&self, watch: &dyn Watch) -> Result<Streamed, DurableError> {
        let mut streamed = Streamed::default();
        let Some(image) = self.source()? else {
            return Ok(Streamed { is_done: true, ..streamed });
        };
        let attempt = format!("fetch what is in {} only", image.id());
        let takers = takers(&self.all_volumes(), &image);
        let mut target = EngineTarget::new(&takers);
        let restored = image.restore(&mut target, watch).map_err(DurableError::images(&attempt))?;
        streamed.present_blocks = restored.pages_placed;
        streamed.bytes_read = restored.bytes_read;
        streamed.damaged = target.take_damage();
        for _ in 0..PASSES_MAX {
            let table_version = self.engine.table_version();
            let is_over = self.stream_rest(&attempt, watch, &mut streamed)?;
            if is_over && self.end_source(table_version) {
                streamed.is_done = true;
                break;
            }
        }
        Ok(streamed)
    }

    /// Brings in what is absent still: in copies that were made of volumes meanwhile, and what the
    /// image has damaged. Returns whether nothing was.
    fn stream_rest(
        &self,
        attempt: &str,
        watch: &dyn Watch,
        streamed: &mut Streamed,
    ) -> Result<bool, DurableError> {
        let mut is_done = true;
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
                    streamed.lost_blocks += done.damaged;
                }
                from = leaf + 1;
            }
        }
        Ok(is_done)
    }
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
