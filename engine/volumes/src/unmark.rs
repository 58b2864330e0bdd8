//! Taking marks off entries once stable storage has what they name.

use page_store::{DirtyBits, Lane, PageRef};
use sync::Pinned;

use crate::leaf_marks::LeafSet;
use crate::map::{LEAF_BLOCKS, index_in_leaf};
use crate::volume::Volume;

/// What stable storage has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    /// The marks that say that it lacks it.
    pub(crate) marks: DirtyBits,
    /// [`Volume::lineage`] of what was looked at.
    pub(crate) lineage: u64,
}

impl Volume {
    /// Takes marks off the blocks of one leaf that still hold what they did, unless the volume has
    /// become another since. Something keeps the pages that the entries name: the same name means
    /// the same contents.
    pub(crate) fn unmark_blocks(
        &self,
        leaf: u64,
        blocks: impl Iterator<Item = (u64, PageRef)>,
        known: Known,
    ) {
        let store = &self.shared.store;
        let mut lane = store.lane();
        let mut has_empty = false;
        {
            let pinned = store.pin();
            for (block, entry) in blocks {
                has_empty |= self.unmark_block(&mut lane, &pinned, (block, entry), known);
            }
        }
        drop(lane);
        if has_empty {
            self.drop_leaf_if_empty(leaf);
        }
    }

    /// Returns whether the block holds nothing any more.
    fn unmark_block(
        &self,
        lane: &mut Lane<'_>,
        pinned: &Pinned<'_>,
        (block, entry): (u64, PageRef),
        Known { marks, lineage }: Known,
    ) -> bool {
        let store = &self.shared.store;
        if self.is_gone() {
            return false;
        }
        let leaf = block / LEAF_BLOCKS;
        let Ok(_held) = self.hold_own_block(lane, pinned, block) else {
            // Without memory for a copy of a leaf that others share, the next walk finds it.
            if marks == DirtyBits::JOURNAL {
                self.unjournaled_leaves.mark(leaf);
            }
            return false;
        };
        // Who gives the volume the map of a snapshot holds every block, and marks every leaf.
        if self.lineage() != lineage {
            return false;
        }
        let Some(node) = self.find_leaf(pinned, leaf) else { return false };
        let now = store.entry(pinned, node, index_in_leaf(block));
        if !now.is_dirty(marks) {
            return now == PageRef::HOLE;
        }
        if now.name() != entry.name() {
            // Overwritten, and so marked anew, or the same contents in another page.
            if marks == DirtyBits::JOURNAL {
                self.unjournaled_leaves.mark(leaf);
            }
            return false;
        }
        self.shared.leak_check.before_change(self, pinned, leaf, node);
        let (old, new) = lane.clear_dirty(node, index_in_leaf(block), marks);
        self.note_change(lane, old, new);
        new == PageRef::HOLE
    }

    /// The next leaf that is there and in a set.
    pub(crate) fn next_marked_leaf(&self, set: &LeafSet, from: u64) -> Option<u64> {
        let store = &self.shared.store;
        let pinned = store.pin();
        let mut from = from;
        loop {
            let wanted = set.next_from(from)?;
            let (leaf, _) = self.map.next_leaf(store, &pinned, wanted)?;
            if self.is_gone() || leaf == wanted {
                return (!self.is_gone()).then_some(leaf);
            }
            from = leaf;
        }
    }
}
