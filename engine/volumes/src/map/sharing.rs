//! Copy-on-write of map nodes that several maps share.
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
//! A node is shared if it, or a node above it, has more than one parent. The contents of shared
//! nodes do not change: a writer of a block copies the leaf and all nodes above it first, so that
//! they are its own. Only a copy of the whole map shares nodes again. It is made with all block
//! locks of the pool held, so own nodes stay unshared while a block lock is held.
//!
//! Contents may also move to other pages in shared leaves, which does not change them. One thread
//! at a time does that (`Pool::hold_moves`).

use std::sync::MutexGuard;

use page_store::{LinkError, NodeRef, Parent, Purpose, Writer};
use sync::Pinned;

use crate::blocks::leaf_of;
use crate::map::tree::{INNER_LEVELS, index_at};
use crate::map::volume_map::VolumeMap;
use crate::pool::locks::BlockGuard;

/// State of a leaf in a map.
enum Leaf {
    Missing,
    Own(NodeRef),
    Shared,
}

/// Treatment of missing nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missing {
    /// They are created, for new data.
    Make,
    Leave,
}

impl VolumeMap {
    /// Locks a block, and makes its leaf, if it exists, unshared. The caller holds no block lock.
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
                // The copy needs the locks of the whole leaf. Another copy of the map may be made
                // before the block is locked again.
                Leaf::Shared => drop(held),
            }
            {
                let _held = self.pool.locks.lock_leaf(self.id(), leaf);
                self.own_leaf(writer, leaf, self.purpose(Purpose::Overwrite))?;
            }
            held = self.pool.locks.lock_block(self.id(), block);
        }
    }

    /// Returns the node of a leaf, and creates it if it is missing. The caller holds the block
    /// lock, taken by [`VolumeMap::hold_own_block`].
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

    /// Returns the parent word of a leaf, if the nodes above it exist, and makes these unshared.
    /// The caller holds the locks of the whole leaf.
    pub(crate) fn own_leaf_parent(
        &self,
        writer: &mut Writer<'_>,
        leaf: u64,
    ) -> Result<Option<Parent>, LinkError> {
        let purpose = self.purpose(Purpose::Removal);
        self.own_parent(writer, leaf, Missing::Leave, purpose)
    }

    /// Makes an existing leaf unshared. The caller holds the locks of the whole leaf.
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

    /// Returns whether a node below unshared nodes is shared.
    pub(crate) fn is_shared(&self, pinned: &Pinned<'_>, node: NodeRef) -> bool {
        self.may_share() && self.pool.store.parent_count(pinned, node) > 1
    }

    /// Makes the nodes above a leaf unshared. Returns the parent word of the leaf. The caller holds
    /// the lock of a block of the leaf.
    fn own_parent(
        &self,
        writer: &mut Writer<'_>,
        leaf: u64,
        missing: Missing,
        purpose: Purpose,
    ) -> Result<Option<Parent>, LinkError> {
        let store = &self.pool.store;
        // Without sharing, nodes are only added, each by one exchange of a word.
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

    /// Determines the state of a leaf. The caller holds the lock of a block of the leaf.
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

    /// Locks moves of contents to other pages, if other volumes may move the same leaf.
    pub(super) fn hold_moves(&self) -> Option<MutexGuard<'_, ()>> {
        self.may_share().then(|| self.pool.hold_moves())
    }

    /// Returns whether no copy of the map shares the leaf. The caller holds the lock of a block of
    /// it.
    pub(crate) fn has_leaf_alone(&self, pinned: &Pinned<'_>, leaf: u64) -> bool {
        !self.may_share() || matches!(self.look_at_leaf(pinned, leaf), Leaf::Own(_))
    }
}
