//! The only functions that change what a block holds.
//!
//! Each of them has the leak check visit the leaf first, exchanges one word, counts what that
//! changes, and sets the leaf's bits for compression and for the journal.

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

/// New state of an entry that still is what it was.
#[derive(Debug)]
pub(crate) enum Update {
    /// It names another page of the same contents, in whatever form. What stable storage lacks it
    /// lacks still.
    Page(OwnedPageRef),
    /// It keeps its page: compression does not make it smaller.
    Tried,
    /// What the block holds is lost. What stable storage lacks of the block it lacks still: it has
    /// to know that what it has is older.
    Lost,
    /// Stable storage has what the block holds: these dirty bits go.
    Clean(DirtyBits),
}

/// An entry in its place.
#[derive(Clone, Copy)]
struct Place {
    leaf: u64,
    node: NodeRef,
    index: usize,
}

impl VolumeMap {
    /// Makes a page what the block holds. The caller holds the block as
    /// [`VolumeMap::hold_own_block`] does.
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
            self.untried_leaves.set(leaf);
        }
        if self.is_journaled() {
            self.dirty_leaves.set(leaf);
        }
        Ok(())
    }

    /// Updates the entry of a block as `update` decides from the present one: its contents are
    /// stored elsewhere, or more is known of them. The leaf may be shared with others; updates of
    /// shared leaves take turns. Returns whether the entry was changed.
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

    /// Updates an entry like [`VolumeMap::update_if`], in a leaf of the volume's own: a shared leaf
    /// is copied first.
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

    /// Updates an entry like [`VolumeMap::update_if`], unless others share the leaf.
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

    /// Marks a block as lost for all that share its leaf, if its entry is still the expected one.
    /// Returns whether it was.
    pub(crate) fn lose_if(&self, block: u64, is_expected: impl FnOnce(PageRef) -> bool) -> bool {
        let store = &self.pool.store;
        let mut writer = store.writer();
        let lose = |_: &mut Writer<'_>, now| Ok(is_expected(now).then_some(Update::Lost));
        let lost = self.update_if(&mut writer, block, lose);
        lost.expect("that something is lost takes no memory")
    }

    /// Marks a block as lost for this volume only, if its entry is still the expected one. May take
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
            self.untried_leaves.set(leaf);
        }
    }

    /// Says what a block of a leaf of the volume's own holds that names no page in memory.
    fn set_entry(&self, lane: &mut Lane<'_>, node: NodeRef, index: usize, to: PageRef) {
        let old = lane.clear(node, index, to);
        self.note_change(lane, old, to);
    }

    /// Says what the blocks of a leaf hold: `becomes` gives the entry by its index and what is
    /// there now, either that or none that names a page in memory.
    pub(super) fn fill(
        &self,
        writer: &mut Writer<'_>,
        leaf: u64,
        becomes: impl Fn(usize, PageRef) -> PageRef,
    ) -> Result<(), LinkError> {
        let store = &self.pool.store;
        let _held = self.pool.locks.lock_leaf(self.id(), leaf);
        // What is as it is to be stays shared.
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
        // Looked up again: others may have taken the leaf out before it was ours.
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

    /// Takes a leaf out of the map with all that it names, if others share it. The caller holds the
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

    /// Takes a leaf out of the map in which nothing is left to say.
    pub(super) fn drop_leaf_if_empty(&self, leaf: u64) {
        let store = &self.pool.store;
        let mut writer = store.writer();
        if self.is_gone() {
            return;
        }
        let _held = self.pool.locks.lock_leaf(self.id(), leaf);
        // Without memory for copies of the nodes above it stays, and does no harm.
        let _stays = self.unlink_if_empty(&mut writer, leaf);
    }

    /// The caller holds the whole leaf.
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

    /// The caller holds the whole leaf, below nodes of the volume's own.
    fn unlink_leaf(&self, writer: &mut Writer<'_>, leaf: u64, parent: Parent) {
        self.before_inner_change(&writer.pinned, parent);
        self.leaves.forget(leaf);
        writer.lane.unlink(parent);
    }
}

/// Takes dirty bits off a leaf for all maps but frozen copies that have it. The caller holds the
/// leaf in each of them, and moves.
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

/// Whether an entry is to become this hole.
fn is_cleared_by(entry: PageRef, hole: PageRef) -> bool {
    !entry.is_hole() || entry != hole && hole == PageRef::HOLE
}
