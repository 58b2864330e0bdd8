//! Healing of damaged pages with copies from the journal and images.

use std::sync::{Arc, Mutex};

use codec::Block;
use image::{BlockRef, ImageId, ImageStore, OpenImage};
use journal::Journal;
use volumes::{CopyPlace, DamagedBlock, Healer};

/// Source of copies: pages in the journal, and blocks in the image that is their volume's base.
#[derive(Debug)]
pub(crate) struct StableCopies {
    journal: Arc<Journal>,
    store: Arc<dyn ImageStore>,
    /// The image used last.
    last: Mutex<Option<Arc<OpenImage>>>,
}

impl StableCopies {
    pub(crate) fn new(journal: Arc<Journal>, store: Arc<dyn ImageStore>) -> Self {
        Self { journal, store, last: Mutex::new(None) }
    }

    /// The journal tracks pages by page number as long as they are not moved in memory. The search
    /// by block also finds pages that were compressed or moved later, or written by an earlier run.
    fn copy_in_journal(&self, damaged: &DamagedBlock, into: &mut Block) -> bool {
        if damaged.journaled_page.is_some_and(|number| self.journal.copy_page(number, into)) {
            return true;
        }
        self.journal.copy_block(damaged.volume_id, damaged.block, into)
    }

    fn copy_in_image(&self, damaged: &DamagedBlock, into: &mut Block) -> bool {
        let Some(base) = damaged.image_base else { return false };
        let Some(image) = ImageId::from_word(base.image).and_then(|id| self.image(id)) else {
            return false;
        };
        let is_of_volume = |record: &image::ImageVolume| record.id == base.volume_id;
        let Some(index) = image.volumes().iter().position(is_of_volume) else { return false };
        match image.block(index, damaged.block) {
            Ok(BlockRef::Page(page)) => image.fetch(page, into).is_ok(),
            _ => false,
        }
    }

    fn image(&self, id: ImageId) -> Option<Arc<OpenImage>> {
        let mut last = self.last.lock().expect("no thread panics with the image locked");
        if let Some(image) = last.as_ref().filter(|image| image.id() == id) {
            return Some(Arc::clone(image));
        }
        let opened = OpenImage::open(Arc::clone(&self.store), id.number()).ok()?;
        let image = Arc::new(opened);
        *last = Some(Arc::clone(&image));
        Some(image)
    }
}

impl Healer for StableCopies {
    fn copy_of(&self, damaged: &DamagedBlock, place: CopyPlace, into: &mut Block) -> bool {
        match place {
            CopyPlace::Journal => self.copy_in_journal(damaged, into),
            CopyPlace::Image => self.copy_in_image(damaged, into),
        }
    }
}
