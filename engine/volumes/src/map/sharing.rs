//! Parts of a map that belong to one volume alone, and making them so before they are changed.
//!
//! ```text
//!  before                      after a write to one block of "volume"
//!
//!  volume ──▶ root ◀── copy    volume ──▶ root'        root ◀── copy
//!            ╱    ╲                      ╱    ╲       ╱    ╲
//!         leaf    leaf                leaf'    ╲   leaf   ╱
//!                                               ╲───▶ leaf
//! ```
//!
//! A node is shared if it, or one above it, has more than one parent. Shared nodes keep their
//! meaning: a writer of a block owns the leaf first, and all nodes above it, by copies. Only a copy
//! of the whole map shares nodes again: it is made with every block of the pool held, so what is
//! own stays own while a block is held.
//!
//! Contents may move to other pages in shared leaves too, which changes no meaning; one thread at a
//! time does that (`Pool::hold_moves`).

use std::sync::MutexGuard;

use page_store::{LinkError, NodeRef, Parent, Purpose, Writer};
use sync::Pinned;

use crate::blocks::leaf_of;
use crate::map::tree::{INNER_LEVELS, index_at};
use crate::map::volume_map::VolumeMap;
use crate::pool::locks::BlockGuard;

/// A leaf as a volume has it.
enum Leaf {
    Missing,
    Own(NodeRef),
    Shared,
}

/// What becomes of nodes that are not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missing {
    /// They are made, for new data.
    Make,
    Leave,
}

impl VolumeMap {
    /// Holds a block whose leaf, if it is there, is the volume's own. The caller holds no block.
    #[inline]
    pub(crate) fn hold_own_block(
        &self,
        writer: &mut Writer<'_>,
        block: u64,
    ) -> Result<BlockGuard<'_>, LinkError> {
        let held = self.pool.locks.lock_block(self.id(), block);
        if !self.may_share() || self.leaves.find_own(leaf_of(block)).is_some() {
            return Ok(held);
        }
        self.own_and_hold(writer, block, held)
    }

    #[cold]
    fn own_and_hold<'held>(
        &'held self,
        writer: &mut Writer<'_>,
        block: u64,
        mut held: BlockGuard<'held>,
    ) -> Result<BlockGuard<'held>, LinkError> {
        let leaf = leaf_of(block);
        loop {
            match self.look_at_leaf(&writer.pinned, leaf) {
                Leaf::Missing => return Ok(held),
                Leaf::Own(node) => {
                    self.leaves.remember_own(leaf, node);
                    return Ok(held);
                }
                // The whole leaf is held for the copy. Another copy of the map may come before
                // the block is held again.
                Leaf::Shared => drop(held),
            }
            {
                let _held = self.pool.locks.lock_leaf(self.id(), leaf);
                self.own_leaf(writer, leaf, self.purpose(Purpose::Overwrite))?;
            }
            held = self.pool.locks.lock_block(self.id(), block);
        }
    }

    /// The node of a leaf, made if it is not there. The caller holds a block of the leaf as
    /// [`VolumeMap::hold_own_block`] does.
    #[inline]
    pub(crate) fn make_leaf(
        &self,
        writer: &mut Writer<'_>,
        leaf: u64,
    ) -> Result<NodeRef, LinkError> {
        match self.leaves.find_own(leaf) {
            Some(node) => Ok(node),
            None => self.make_forgotten_leaf(writer, leaf),
        }
    }

    #[inline(never)]
    fn make_forgotten_leaf(
        &self,
        writer: &mut Writer<'_>,
        leaf: u64,
    ) -> Result<NodeRef, LinkError> {
        let purpose = self.purpose(Purpose::Overwrite);
        let parent = self.own_parent(writer, leaf, Missing::Make, purpose)?;
        let parent = parent.expect("what was missing is made");
        let node = match self.pool.store.child(&writer.pinned, parent) {
            Some(node) => node,
            None => self.link(writer, parent)?,
        };
        self.leaves.remember_own(leaf, node);
        Ok(node)
    }

    /// Where the leaf's name is written, if the nodes above it are there, which then are the
    /// volume's own. The caller holds the whole leaf.
    pub(crate) fn own_leaf_parent(
        &self,
        writer: &mut Writer<'_>,
        leaf: u64,
    ) -> Result<Option<Parent>, LinkError> {
        let purpose = self.purpose(Purpose::Removal);
        self.own_parent(writer, leaf, Missing::Leave, purpose)
    }

    /// Makes a leaf that is there the volume's own. The caller holds the whole leaf.
    pub(crate) fn own_leaf(
        &self,
        writer: &mut Writer<'_>,
        leaf: u64,
        purpose: Purpose,
    ) -> Result<Option<NodeRef>, LinkError> {
        let (store, missing) = (&self.pool.store, Missing::Leave);
        let parent = self.own_parent(writer, leaf, missing, purpose)?;
        let found = parent.and_then(|parent| Some((parent, store.child(&writer.pinned, parent)?)));
        let Some((parent, node)) = found else { return Ok(None) };
        let node = match self.is_shared(&writer.pinned, node) {
            false => node,
            true => {
                self.before_change(&writer.pinned, leaf, node);
                self.before_inner_change(&writer.pinned, parent);
                self.leaves.forget(leaf);
                writer.lane.copy_node(&writer.pinned, parent, node, purpose)?
            }
        };
        self.leaves.remember_own(leaf, node);
        Ok(Some(node))
    }

    /// Returns whether a node below nodes of the volume's own is shared.
    pub(crate) fn is_shared(&self, pinned: &Pinned<'_>, node: NodeRef) -> bool {
        self.may_share() && self.pool.store.parent_count(pinned, node) > 1
    }

    /// Makes the nodes above a leaf the volume's own. Returns where the leaf's name is written. The
    /// caller holds a block of the leaf.
    fn own_parent(
        &self,
        writer: &mut Writer<'_>,
        leaf: u64,
        missing: Missing,
        purpose: Purpose,
    ) -> Result<Option<Parent>, LinkError> {
        let store = &self.pool.store;
        // Without sharing, nodes are only ever added, each by one exchange of a word.
        let _path = self.may_share().then(|| self.hold_path());
        let mut parent = Parent::Root(self.tree.root_word);
        for level in (1..=INNER_LEVELS).rev() {
            let node = match store.child(&writer.pinned, parent) {
                None if missing == Missing::Leave => return Ok(None),
                None => self.link(writer, parent)?,
                Some(node) if self.is_shared(&writer.pinned, node) => {
                    self.before_inner_change(&writer.pinned, parent);
                    self.before_inner_change(&writer.pinned, Parent::Node(node, 0));
                    writer.lane.copy_node(&writer.pinned, parent, node, purpose)?
                }
                Some(node) => node,
            };
            parent = Parent::Node(node, index_at(level, leaf));
        }
        Ok(Some(parent))
    }

    fn link(&self, writer: &mut Writer<'_>, parent: Parent) -> Result<NodeRef, LinkError> {
        self.before_inner_change(&writer.pinned, parent);
        writer.lane.link(parent, self.purpose(Purpose::NewData))
    }

    /// The caller holds a block of the leaf.
    fn look_at_leaf(&self, pinned: &Pinned<'_>, leaf: u64) -> Leaf {
        let store = &self.pool.store;
        let Some(mut node) = self.tree.root(store, pinned) else { return Leaf::Missing };
        let mut is_shared = self.is_shared(pinned, node);
        for level in (1..=INNER_LEVELS).rev() {
            match store.child(pinned, Parent::Node(node, index_at(level, leaf))) {
                Some(child) => node = child,
                None => return Leaf::Missing,
            }
            is_shared |= self.is_shared(pinned, node);
        }
        if is_shared { Leaf::Shared } else { Leaf::Own(node) }
    }

    fn hold_path(&self) -> MutexGuard<'_, ()> {
        self.path.lock().expect("a panic in a request ends the process")
    }

    /// Held while contents move to other pages, if other volumes may do the same in the same leaf.
    pub(super) fn hold_moves(&self) -> Option<MutexGuard<'_, ()>> {
        self.may_share().then(|| self.pool.hold_moves())
    }

    /// Returns whether no copy of the map has the leaf too. The caller holds a block of it.
    pub(crate) fn has_leaf_alone(&self, pinned: &Pinned<'_>, leaf: u64) -> bool {
        !self.may_share() || matches!(self.look_at_leaf(pinned, leaf), Leaf::Own(_))
    }
}
