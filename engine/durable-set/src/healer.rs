//! Copies of damaged pages, from the images that volumes were saved in.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use codec::Block;
use image::{BlockRef, ImageId, ImageStore, LEAF_BLOCKS, OpenImage, PageNumber};
use volume::{Healer, Volume};

/// Looks damaged blocks up in the image that is their volume's base.
#[derive(Debug)]
pub(crate) struct ImageHealer {
    store: Arc<dyn ImageStore>,
    /// The image that was looked at last.
    last: Mutex<Option<Arc<OpenImage>>>,
}

impl ImageHealer {
    pub(crate) fn new(store: Arc<dyn ImageStore>) -> Self {
        Self { store, last: Mutex::new(None) }
    }

    fn image(&self, id: ImageId) -> Option<Arc<OpenImage>> {
        let mut last = self.last.lock().expect("nobody panics with the image locked");
        if let Some(image) = last.as_ref().filter(|image| image.id() == id) {
            return Some(Arc::clone(image));
        }
        let opened = OpenImage::open(Arc::clone(&self.store), id.number()).ok()?;
        let image = Arc::new(opened);
        *last = Some(Arc::clone(&image));
        Some(image)
    }
}

impl Healer for ImageHealer {
    fn copy_of(&self, volume: &Volume, block: u64, into: &mut Block) -> bool {
        let Some(base) = volume.image_base() else { return false };
        let Some(image) = ImageId::from_word(base.image).and_then(|id| self.image(id)) else {
            return false;
        };
        let is_of_volume = |record: &image::ImageVolume| record.id == base.volume_id;
        let Some(index) = image.volumes().iter().position(is_of_volume) else { return false };
        page_of(&image, index, block).is_some_and(|page| image.fetch(page, into).is_ok())
    }
}

/// What an image has of a block.
fn page_of(image: &OpenImage, index: usize, block: u64) -> Option<PageNumber> {
    let leaf_blocks = LEAF_BLOCKS as u64;
    let mut found = None;
    let looked = image.leaves(index, &mut |leaf, refs| {
        if leaf < block / leaf_blocks {
            return ControlFlow::Continue(());
        }
        let place = usize::try_from(block % leaf_blocks).expect("a leaf is short");
        if leaf == block / leaf_blocks
            && let BlockRef::Page(page) = refs[place]
        {
            found = Some(page);
        }
        ControlFlow::Break(())
    });
    found.filter(|_| looked.is_ok())
}
