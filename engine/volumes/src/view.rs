//! Looking at the blocks of a leaf together: for saving them.

use codec::BLOCK_BYTES;
use page_store::{DirtyBits, NODE_ENTRY_COUNT, PageBytes, PageRef, PageRefKind};

use crate::capture::StoredBytes;
use crate::map::LEAF_BLOCKS;
use crate::table::Kind;
use crate::unmark::Known;
use crate::volume::Volume;

/// What a block holds, without the contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockView {
    Hole,
    Fill(u32),
    Page {
        /// The image that [`Volume::image_base`] names does not have it at this place.
        is_unsaved: bool,
        /// Other blocks, of any volume, have the same page.
        is_shared: bool,
    },
    /// In the image that [`crate::Engine::absent_image`] names, under this number.
    Absent(u64),
    Damaged,
}

impl Volume {
    /// What the 512 blocks of a leaf hold. For a volume that does not change. One that is gone
    /// ([`Volume::is_gone`], asked afterwards) may seem to hold anything.
    pub fn view_leaf(&self, leaf: u64, into: &mut [BlockView; NODE_ENTRY_COUNT]) {
        let store = &self.shared.store;
        if self.kind == Kind::Frozen {
            self.shared.frozen.note_look();
        }
        let pinned = store.pin();
        let node = self.map.find_leaf(store, &pinned, leaf);
        for (index, view) in into.iter_mut().enumerate() {
            let entry = node.map_or(PageRef::HOLE, |node| store.entry(&pinned, node, index));
            *view = match entry.kind() {
                PageRefKind::Hole => BlockView::Hole,
                PageRefKind::Fill(pattern) => BlockView::Fill(pattern),
                PageRefKind::Absent(number) => BlockView::Absent(number),
                PageRefKind::Damaged => BlockView::Damaged,
                PageRefKind::Page => BlockView::Page {
                    is_unsaved: entry.is_dirty(DirtyBits::IMAGE),
                    is_shared: store.is_shared(entry),
                },
            };
        }
    }

    /// Shows the pages of some blocks of a leaf (ascending places in it), in that order, each with
    /// its place. They are verified: returns the places of those that are damaged. Blocks without a
    /// page are left out. `give` must not take long: what is deleted meanwhile waits for it.
    pub fn show_leaf(
        &self,
        leaf: u64,
        wanted: &[u16],
        give: &mut dyn FnMut(u16, StoredBytes<'_>),
    ) -> Vec<u16> {
        let store = &self.shared.store;
        let mut damaged = Vec::new();
        let mut scratch = [0; BLOCK_BYTES];
        let pinned = store.pin();
        let Some(node) = self.map.find_leaf(store, &pinned, leaf) else { return damaged };
        let entry = |index: u16| store.entry(&pinned, node, usize::from(index));
        if let Some(&first) = wanted.first() {
            store.prefetch_page(entry(first));
        }
        for (place, &index) in wanted.iter().enumerate() {
            if let Some(&next) = wanted.get(place + 1) {
                store.prefetch_page(entry(next));
            }
            match store.verified_page(&pinned, entry(index), &mut scratch) {
                Ok(PageBytes::Raw(bytes)) => give(index, StoredBytes::Raw(bytes)),
                Ok(PageBytes::Encoded(bytes)) => give(index, StoredBytes::Encoded(bytes)),
                Ok(PageBytes::Fill(_)) => {}
                Err(_) => damaged.push(index),
            }
        }
        damaged
    }

    /// The image that [`Volume::image_base`] names now has what `saved`, a copy of the volume,
    /// holds: blocks that still hold the same are not marked as unsaved any more.
    pub fn note_saved(&self, saved: &Self) {
        self.note_stored(saved, DirtyBits::IMAGE);
    }

    /// The same, and none of it need go into the journal. Only for a volume without any transaction
    /// in the journal that the image does not make superfluous.
    pub fn note_saved_and_journaled(&self, saved: &Self) {
        self.note_stored(saved, DirtyBits::ALL);
    }

    fn note_stored(&self, saved: &Self, marks: DirtyBits) {
        let store = &self.shared.store;
        let known = Known { marks, lineage: saved.lineage() };
        let mut from = 0;
        loop {
            // Who has the copy gives it up only between two leaves: the same name means the same
            // contents.
            let _kept = self.shared.frozen.keep();
            let (leaf, entries): (u64, Vec<(u64, PageRef)>) = {
                let pinned = store.pin();
                let next = saved.map.next_leaf(store, &pinned, from);
                let Some((leaf, node)) = next.filter(|_| !saved.is_gone()) else { return };
                let entries = (0..NODE_ENTRY_COUNT).map(|index| store.entry(&pinned, node, index));
                let blocks = (leaf * LEAF_BLOCKS..).zip(entries);
                (leaf, blocks.filter(|(_, entry)| entry.is_dirty(marks)).collect())
            };
            self.unmark_blocks(leaf, entries.into_iter(), known);
            from = leaf + 1;
        }
    }

    /// Blocks whose contents are not in the image that [`Volume::image_base`] names.
    pub fn unsaved_blocks(&self) -> u64 {
        self.counts.unsaved.sum()
    }
}
