//! Contents that memory has damaged, had again from the image that has them.

use std::ops::ControlFlow;
use std::sync::{Arc, Weak};

use image::{BlockRef, ImageId, LEAF_BLOCKS, OpenImage};
use volume::{Healer, Volume};

use crate::durable::state::Durable;

/// Looks in a volume's base image. What the journal alone has is not looked for.
#[derive(Debug)]
pub(super) struct ImageHealer {
    durable: Weak<Durable>,
}

impl ImageHealer {
    pub(super) fn new(durable: &Arc<Durable>) -> Self {
        Self { durable: Arc::downgrade(durable) }
    }

    fn find(&self, volume: &Volume, block: u64, into: &mut [u8; 4096]) -> Option<()> {
        let durable = self.durable.upgrade()?;
        let base = volume.image_base()?;
        let number = ImageId::from_word(base.image)?.number();
        let image = OpenImage::open(Arc::clone(&durable.store), number).ok()?;
        let index = image.volumes().iter().position(|record| record.id == base.volume_id)?;
        let (leaf, place) = (block / LEAF_BLOCKS as u64, block % LEAF_BLOCKS as u64);
        let mut found = None;
        let mut look = |at: u64, refs: &image::LeafRefs| {
            if at == leaf {
                found = refs.get(usize::try_from(place).expect("a leaf is short")).copied();
            }
            if at < leaf { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        image.leaves(index, &mut look).ok()?;
        let BlockRef::Page(page) = found? else { return None };
        image.fetch(page, into).ok()
    }
}

impl Healer for ImageHealer {
    fn copy_of(&self, volume: &Volume, block: u64, into: &mut [u8; 4096]) -> bool {
        self.find(volume, block, into).is_some()
    }
}
