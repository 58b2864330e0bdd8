//! Taking marks off entries once stable storage has what they name.

use page_store::{Entry, Lane, Marks, NodeRef};
use sync::Pinned;

use crate::leaf_marks::LeafSet;
use crate::map::{LEAF_BLOCKS, index_in_leaf};
use crate::volume::Volume;

impl Volume {
    /// Takes marks off the blocks of one leaf that still hold what they did. Something keeps the
    /// pages that the entries name: the same name means the same contents.
    pub(crate) fn unmark_blocks(
        &self,
        leaf: u64,
        blocks: impl Iterator<Item = (u64, Entry)>,
        marks: Marks,
    ) {
        let store = &self.shared.store;
        let mut lane = store.lane();
        let mut has_empty = false;
        {
            let pinned = store.pin();
            for (block, entry) in blocks {
                has_empty |= self.unmark_block(&mut lane, &pinned, (block, entry), marks);
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
        (block, entry): (u64, Entry),
        marks: Marks,
    ) -> bool {
        let store = &self.shared.store;
        if self.is_gone() {
            return false;
        }
        let _held = self.shared.locks.lock_block(self.id(), block);
        let Some(node) = self.find_leaf(pinned, block / LEAF_BLOCKS) else { return false };
        let now = store.entry(pinned, node, index_in_leaf(block));
        if !now.has(marks) {
            return now == Entry::HOLE;
        }
        if now.name() != entry.name() {
            // Overwritten, and so marked anew, or the same contents in another page.
            if marks == Marks::UNJOURNALED {
                self.unjournaled_leaves.mark(block / LEAF_BLOCKS);
            }
            return false;
        }
        self.unmark_entry(lane, pinned, (node, index_in_leaf(block)), marks) == Entry::HOLE
    }

    fn unmark_entry(
        &self,
        lane: &mut Lane<'_>,
        pinned: &Pinned<'_>,
        (node, index): (NodeRef, usize),
        marks: Marks,
    ) -> Entry {
        self.shared.sweep.before_change(&self.shared.store, &self.counts, pinned, node);
        let (old, new) = lane.unmark(node, index, marks);
        self.counts.change(lane.index(), old, new);
        new
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
