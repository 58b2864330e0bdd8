//! Moves map nodes out of slabs that leave the pool.
//!
//! A node moves as a copy that replaces it below one parent. For a map without shared nodes, the
//! mover excludes writers by locking the leaf for a leaf, and every block of the pool for an inner
//! node, so that no child is linked or unlinked meanwhile. For maps that share nodes it locks every
//! block in both cases, and remembers the copy, so that all parents of a node get the same copy.
//!
//! A reader that still uses the old node found it under a pin, and sees the contents of the time
//! when it began.

use std::collections::HashMap;
use std::sync::Arc;

use page_store::{NodeRef, Parent, Purpose, Writer};

use crate::map::volume_map::VolumeMap;
use crate::pool::shared::Pool;

/// Maximum number of shared nodes whose copy is remembered in one walk. Others wait for the next.
const MOVED_MAX: usize = 64 << 10;

/// Returns all maps, including those created since the walk began.
pub(crate) type AllMaps<'engine> = dyn Fn() -> Vec<Arc<VolumeMap>> + 'engine;

/// A walk over maps that moves their nodes.
pub(crate) struct NodeMoves<'engine> {
    pool: &'engine Pool,
    all: &'engine AllMaps<'engine>,
    /// Copies of nodes with several parents. Holds a reference to each copy and each node: while
    /// the node counts as shared, it is not changed in place.
    copies: HashMap<NodeRef, NodeRef>,
}

impl<'engine> NodeMoves<'engine> {
    pub(crate) fn new(pool: &'engine Pool, all: &'engine AllMaps<'engine>) -> Self {
        Self { pool, all, copies: HashMap::new() }
    }

    /// Moves the first leaf from number `from` on, if it has to move. Returns the next number, or
    /// `None` after the last leaf.
    pub(crate) fn move_next_leaf(&mut self, map: &VolumeMap, from: u64) -> Option<u64> {
        let store = &self.pool.store;
        let (leaf, node) = map.next_leaf_node(&store.pin(), from)?;
        if store.is_node_in_victim(node) {
            self.move_leaf(map, leaf);
        }
        Some(leaf + 1)
    }

    /// Moves the inner nodes of a map that have to move, lower ones first, because a copy must
    /// refer to the moved children.
    pub(crate) fn move_inner_nodes(&mut self, map: &VolumeMap) {
        let store = &self.pool.store;
        let mut hits = Vec::new();
        map.tree.for_each_inner_node(store, &store.pin(), &mut |parent, node, _| {
            if store.is_node_in_victim(node) {
                hits.push((parent, node));
            }
        });
        for (parent, node) in hits.into_iter().rev() {
            let mut writer = store.writer();
            let _held = self.pool.locks.lock_all();
            if map.is_gone() {
                return;
            }
            if store.child(&writer.pinned, parent) == Some(node) {
                self.move_node(&mut writer, parent, node);
            }
        }
    }

    /// Releases the copies.
    pub(crate) fn end(self) {
        for (node, copy) in self.copies {
            self.pool.store.retire_tree(node);
            self.pool.store.retire_tree(copy);
        }
    }

    fn move_leaf(&mut self, map: &VolumeMap, leaf: u64) {
        let store = &self.pool.store;
        let mut writer = store.writer();
        if map.is_gone() {
            return;
        }
        {
            let _held = self.pool.locks.lock_leaf(map.id(), leaf);
            if !map.may_share() {
                map.leaves.forget(leaf);
                self.move_found_leaf(map, &mut writer, leaf);
                return;
            }
        }
        let _held = self.pool.locks.lock_all();
        // Volumes that are not listed yet have not used their maps.
        for other in (self.all)() {
            other.leaves.forget(leaf);
        }
        self.move_found_leaf(map, &mut writer, leaf);
    }

    fn move_found_leaf(&mut self, map: &VolumeMap, writer: &mut Writer<'_>, leaf: u64) {
        let store = &self.pool.store;
        let Some(parent) = map.tree.parent_of_leaf(store, &writer.pinned, leaf) else { return };
        if let Some(node) = store.child(&writer.pinned, parent) {
            self.move_node(writer, parent, node);
        }
    }

    /// Moves one node, or makes its parent refer to the existing copy. Without memory the node
    /// stays. The caller excludes changes of the node and of the parent word.
    fn move_node(&mut self, writer: &mut Writer<'_>, parent: Parent, node: NodeRef) {
        let store = &self.pool.store;
        if !store.is_node_in_victim(node) {
            return;
        }
        if let Some(&copy) = self.copies.get(&node) {
            if store.share_node(&writer.pinned, copy).is_ok() {
                writer.lane.replace_child(parent, node, copy);
            }
            return;
        }
        let has_others = store.parent_count(&writer.pinned, node) > 1;
        if has_others
            && (self.copies.len() == MOVED_MAX || store.share_node(&writer.pinned, node).is_err())
        {
            return;
        }
        // Without memory the node stays.
        let copy = writer.lane.copy_node(&writer.pinned, parent, node, Purpose::Housekeeping);
        if has_others {
            match copy {
                Ok(copy) if store.share_node(&writer.pinned, copy).is_ok() => {
                    self.copies.insert(node, copy);
                }
                Ok(_) | Err(_) => store.retire_tree(node),
            }
        }
    }
}
