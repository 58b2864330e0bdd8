//! The only functions that change map entries.
//!
//! Each of them lets the leak check visit the leaf first, exchanges one word, counts the change,
//! and sets the leaf's bits for compression and for the journal.

use std::ops::Range;
use std::sync::Arc;

use page_store::{
    DirtyBits, Lane, LinkError, NODE_ENTRY_COUNT, NoSpace, NodeRef, OwnedPageRef, PageRef, Parent,
    Purpose, Writer,
};
use sync::Pinned;

use crate::blocks::{LEAF_BLOCKS, index_in_leaf, leaf_of};
use crate::map::claims::is_page;
use crate::map::volume_map::VolumeMap;

/// New state of an entry that is still unchanged.
#[derive(Debug)]
pub(crate) enum Update {
    /// The entry refers to another page with the same contents, in any form. Its dirty bits stay.
    Page(OwnedPageRef),
    /// The entry keeps its page, because compression does not make it smaller.
    Tried,
    /// The contents of the block are lost. The dirty bits stay, because the copies on stable
    /// storage are older.
    Lost,
    /// Stable storage has the contents of the block: these dirty bits are cleared.
    Clean(DirtyBits),
}

/// Position of an entry.
#[derive(Clone, Copy)]
struct Place {
    leaf: u64,
    node: NodeRef,
    index: usize,
}

impl VolumeMap {
    /// Sets the page of a block. The caller holds the block lock, taken by
    /// [`VolumeMap::hold_own_block`].
    pub(crate) fn publish(
        &self,
        writer: &mut Writer<'_>,
        block: u64,
        page: OwnedPageRef,
    ) -> Result<(), LinkError> {
        let leaf = leaf_of(block);
        let node = match self.make_leaf(writer, leaf) {
            Ok(node) => node,
            Err(error) => {
                writer.lane.give_back(page);
                return Err(error);
            }
        };
        self.before_change(&writer.pinned, leaf, node);
        let new = page.page_ref().with(DirtyBits::ALL);
        let old = writer.lane.replace(node, index_in_leaf(block), page, DirtyBits::ALL);
        self.note_change(&writer.lane, old, new);
        if new.is_untried() {
            self.note_untried(leaf);
        }
        if self.is_journaled() {
            self.dirty_leaves.set(leaf);
        }
        Ok(())
    }

    /// Updates the entry of a block to the result of `update`, which receives the current entry.
    /// The contents do not change, only their location or state. The leaf may be shared: updates of
    /// shared leaves are serialized. Returns whether the entry was changed.
    pub(crate) fn update_if(
        &self,
        writer: &mut Writer<'_>,
        block: u64,
        update: impl FnOnce(&mut Writer<'_>, PageRef) -> Result<Option<Update>, NoSpace>,
    ) -> Result<bool, NoSpace> {
        let _held = self.pool.locks.lock_block(self.id(), block);
        let _moves = self.hold_moves();
        self.update_held(writer, block, update)
    }

    /// Updates an entry like [`VolumeMap::update_if`], but copies a shared leaf first.
    pub(crate) fn update_own(
        &self,
        writer: &mut Writer<'_>,
        block: u64,
        update: impl FnOnce(&mut Writer<'_>, PageRef) -> Result<Option<Update>, NoSpace>,
    ) -> Result<bool, LinkError> {
        if self.is_gone() {
            return Ok(false);
        }
        let _held = self.hold_own_block(writer, block)?;
        Ok(self.update_held(writer, block, update)?)
    }

    /// Updates an entry like [`VolumeMap::update_if`], unless the leaf is shared.
    pub(crate) fn update_alone(
        &self,
        writer: &mut Writer<'_>,
        block: u64,
        update: impl FnOnce(&mut Writer<'_>, PageRef) -> Result<Option<Update>, NoSpace>,
    ) -> Result<bool, LinkError> {
        let _held = self.pool.locks.lock_block(self.id(), block);
        if !self.has_leaf_alone(&writer.pinned, leaf_of(block)) {
            return Ok(false);
        }
        Ok(self.update_held(writer, block, update)?)
    }

    /// Marks a block as lost for all maps that share its leaf, if its entry is still the expected
    /// one. Returns whether it was.
    pub(crate) fn lose_if(&self, block: u64, is_expected: impl FnOnce(PageRef) -> bool) -> bool {
        let store = &self.pool.store;
        let mut writer = store.writer();
        let lose = |_: &mut Writer<'_>, now| Ok(is_expected(now).then_some(Update::Lost));
        let lost = self.update_if(&mut writer, block, lose);
        lost.expect("that something is lost takes no memory")
    }

    /// Marks a block as lost for this volume only, if its entry is still the expected one. May need
    /// memory for a copy of the leaf.
    pub(crate) fn lose_own_if(
        &self,
        block: u64,
        is_expected: impl FnOnce(PageRef) -> bool,
    ) -> Result<bool, LinkError> {
        let mut writer = self.pool.store.writer();
        self.update_own(&mut writer, block, |_, now| Ok(is_expected(now).then_some(Update::Lost)))
    }

    fn update_held(
        &self,
        writer: &mut Writer<'_>,
        block: u64,
        update: impl FnOnce(&mut Writer<'_>, PageRef) -> Result<Option<Update>, NoSpace>,
    ) -> Result<bool, NoSpace> {
        let (leaf, index) = (leaf_of(block), index_in_leaf(block));
        let found = self.look_up_leaf(&writer.pinned, leaf);
        let Some(node) = found.filter(|_| !self.is_gone()) else {
            return Ok(false);
        };
        let now = self.pool.store.entry(&writer.pinned, node, index);
        let Some(update) = update(writer, now)? else { return Ok(false) };
        self.before_change(&writer.pinned, leaf, node);
        self.apply(writer, Place { leaf, node, index }, update);
        Ok(true)
    }

    fn apply(&self, writer: &mut Writer<'_>, at: Place, update: Update) {
        let Place { leaf, node, index } = at;
        let bits = writer.lane.dirty_bits(node, index);
        let (old, new) = match update {
            Update::Page(page) => {
                let new = page.page_ref().with(bits);
                (writer.lane.replace(node, index, page, bits), new)
            }
            Update::Tried => writer.lane.settle_tried(node, index),
            Update::Lost => {
                let lost = PageRef::DAMAGED.with(bits);
                if lost.is_dirty(DirtyBits::JOURNAL) {
                    self.dirty_leaves.set(leaf);
                }
                (writer.lane.clear(node, index, lost), lost)
            }
            Update::Clean(bits) => writer.lane.clear_dirty(node, index, bits),
        };
        self.note_change(&writer.lane, old, new);
        if is_page(new) && !is_page(old) && !self.has_leaf_alone(&writer.pinned, leaf) {
            self.note_shared_page(&writer.lane);
        }
        if new.is_untried() && old.name() != new.name() {
            self.note_untried(leaf);
        }
    }

    /// Sets an entry of an unshared leaf to a value that refers to no page in memory.
    fn set_entry(&self, lane: &mut Lane<'_>, node: NodeRef, index: usize, to: PageRef) {
        let old = lane.clear(node, index, to);
        self.note_change(lane, old, to);
    }

    /// Sets the entries of a leaf. `becomes` returns the new entry for an index and the current
    /// entry: either the current one, or one that refers to no page in memory.
    pub(super) fn fill(
        &self,
        writer: &mut Writer<'_>,
        leaf: u64,
        becomes: impl Fn(usize, PageRef) -> PageRef,
    ) -> Result<(), LinkError> {
        let store = &self.pool.store;
        let _held = self.pool.locks.lock_leaf(self.id(), leaf);
        // A leaf that already has the right entries stays shared.
        let found = self.tree.find_leaf(store, &writer.pinned, leaf);
        let is_filled = |node: &NodeRef| {
            let now = |index| store.entry(&writer.pinned, *node, index);
            (0..NODE_ENTRY_COUNT).all(|index| becomes(index, now(index)) == now(index))
        };
        if found.as_ref().is_some_and(is_filled) {
            return Ok(());
        }
        let owned = self.own_leaf(writer, leaf, self.purpose(Purpose::NewData))?;
        let node = match owned {
            Some(node) => node,
            None => self.make_leaf(writer, leaf)?,
        };
        self.before_change(&writer.pinned, leaf, node);
        for index in 0..NODE_ENTRY_COUNT {
            let now = store.entry(&writer.pinned, node, index);
            let entry = becomes(index, now);
            if entry != now {
                self.set_entry(&mut writer.lane, node, index, entry);
            }
        }
        Ok(())
    }

    /// Makes holes of blocks of one leaf.
    pub(crate) fn clear(
        &self,
        writer: &mut Writer<'_>,
        blocks: Range<u64>,
        hole: PageRef,
    ) -> Result<(), LinkError> {
        let store = &self.pool.store;
        let leaf = leaf_of(blocks.start);
        let _held = self.pool.locks.lock_leaf(self.id(), leaf);
        // Looked up again, because another thread may have unlinked the leaf before it was locked.
        let Some(node) = self.tree.find_leaf(store, &writer.pinned, leaf) else { return Ok(()) };
        let is_cleared = |pinned: &Pinned<'_>, node, index| {
            is_cleared_by(store.entry(pinned, node, index), hole)
        };
        if blocks.clone().any(|block| is_cleared(&writer.pinned, node, index_in_leaf(block))) {
            self.before_change(&writer.pinned, leaf, node);
            if blocks.end - blocks.start == LEAF_BLOCKS
                && hole == PageRef::HOLE
                && !self.keeps_leaf(leaf)
                && self.leave_leaf(writer, leaf, node)?
            {
                return Ok(());
            }
            let owned = self.own_leaf(writer, leaf, self.purpose(Purpose::Removal))?;
            let node = owned.expect("the leaf is held");
            for index in blocks.map(index_in_leaf) {
                if is_cleared(&writer.pinned, node, index) {
                    self.set_entry(&mut writer.lane, node, index, hole);
                }
            }
            if hole.is_dirty(DirtyBits::JOURNAL) {
                self.dirty_leaves.set(leaf);
            }
        }
        self.unlink_if_empty(writer, leaf)
    }

    /// Unlinks a shared leaf with all its entries from the map. The caller holds the locks of the
    /// whole leaf.
    fn leave_leaf(
        &self,
        writer: &mut Writer<'_>,
        leaf: u64,
        node: NodeRef,
    ) -> Result<bool, LinkError> {
        let parent = self.own_leaf_parent(writer, leaf)?;
        let Some(parent) = parent.filter(|_| self.is_shared(&writer.pinned, node)) else {
            return Ok(false);
        };
        for index in 0..NODE_ENTRY_COUNT {
            let entry = self.pool.store.entry(&writer.pinned, node, index);
            self.note_change(&writer.lane, entry, PageRef::HOLE);
        }
        self.unlink_leaf(writer, leaf, parent);
        Ok(true)
    }

    /// Unlinks a leaf from the map if all its entries are holes without dirty bits.
    pub(super) fn drop_leaf_if_empty(&self, leaf: u64) {
        let store = &self.pool.store;
        let mut writer = store.writer();
        if self.is_gone() {
            return;
        }
        let _held = self.pool.locks.lock_leaf(self.id(), leaf);
        // Without memory for copies of the nodes above, the leaf stays, which is harmless.
        let _stays = self.unlink_if_empty(&mut writer, leaf);
    }

    /// Unlinks an empty leaf. The caller holds the locks of the whole leaf.
    fn unlink_if_empty(&self, writer: &mut Writer<'_>, leaf: u64) -> Result<(), LinkError> {
        let store = &self.pool.store;
        let is_hole = |node, index| store.entry(&writer.pinned, node, index) == PageRef::HOLE;
        let node = self.tree.find_leaf(store, &writer.pinned, leaf);
        let empty = node.filter(|&node| (0..NODE_ENTRY_COUNT).all(|index| is_hole(node, index)));
        let Some(node) = empty.filter(|_| !self.keeps_leaf(leaf)) else { return Ok(()) };
        self.before_change(&writer.pinned, leaf, node);
        if let Some(parent) = self.own_leaf_parent(writer, leaf)? {
            self.unlink_leaf(writer, leaf, parent);
        }
        Ok(())
    }

    /// Unlinks a leaf below unshared nodes. The caller holds the locks of the whole leaf.
    fn unlink_leaf(&self, writer: &mut Writer<'_>, leaf: u64, parent: Parent) {
        self.before_inner_change(&writer.pinned, parent);
        self.leaves.forget(leaf);
        writer.lane.unlink(parent);
    }
}

/// Clears dirty bits of a leaf for all maps that share it, except frozen copies. The caller holds
/// the locks of the leaf in each of them, and the lock of moves.
pub(crate) fn clean_shared(
    writer: &mut Writer<'_>,
    (leaf, node): (u64, NodeRef),
    sharers: &[&Arc<VolumeMap>],
    bits: DirtyBits,
) {
    sharers.iter().for_each(|map| map.before_change(&writer.pinned, leaf, node));
    let Some(map) = sharers.first() else { return };
    for index in 0..NODE_ENTRY_COUNT {
        if map.pool.store.entry(&writer.pinned, node, index).is_dirty(bits) {
            let (old, new) = writer.lane.clear_dirty(node, index, bits);
            sharers.iter().for_each(|map| map.note_change(&writer.lane, old, new));
        }
    }
}

/// Returns whether a discard that leaves this hole changes the entry.
fn is_cleared_by(entry: PageRef, hole: PageRef) -> bool {
    !entry.is_hole() || entry != hole && hole == PageRef::HOLE
}
