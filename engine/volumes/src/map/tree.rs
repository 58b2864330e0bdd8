//! Tree of a map: from the index of a block to the leaf of its entry.
//!
//! ```text
//!  block index   33     27 26     18 17      9 8       0
//!               ┌─────────┬─────────┬─────────┬─────────┐
//!               │ level 3 │ level 2 │ level 1 │ leaf    │    a node has 512 words
//!               └─────────┴─────────┴─────────┴─────────┘
//!  root word ──▶ node ────▶ node ────▶ node ────▶ leaf ────▶ entry
//! ```
//!
//! Nodes are created when a block below them is first written. Leaves are removed when their last
//! block is discarded, inner nodes with their volume.
//!
//! Maps may share nodes, and with them whole subtrees: see `sharing`.

use std::ops::Range;

use page_store::{NODE_ENTRY_COUNT, NodeRef, PageStore, Parent};
use sync::Pinned;

use crate::blocks::{NODE_BITS, index_in_leaf};

/// Number of levels above the leaves.
pub(crate) const INNER_LEVELS: u32 = 3;

/// Maximum number of leaves. Larger numbers would alias smaller ones.
const LEAVES_MAX: u64 = 1 << (NODE_BITS * INNER_LEVELS);

/// The tree of one map: its root word in the pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tree {
    pub(crate) root_word: usize,
}

impl Tree {
    #[inline]
    pub(crate) fn root(self, store: &PageStore, pinned: &Pinned<'_>) -> Option<NodeRef> {
        store.child(pinned, Parent::Root(self.root_word))
    }

    /// Finds a leaf. Any number is valid.
    #[inline]
    pub(crate) fn find_leaf(
        self,
        store: &PageStore,
        pinned: &Pinned<'_>,
        leaf: u64,
    ) -> Option<NodeRef> {
        if leaf >= LEAVES_MAX {
            return None;
        }
        let mut node = self.root(store, pinned)?;
        for level in (1..=INNER_LEVELS).rev() {
            node = store.child(pinned, Parent::Node(node, index_at(level, leaf)))?;
        }
        Some(node)
    }

    /// Returns the parent word of a leaf, if the nodes above it exist.
    pub(crate) fn parent_of_leaf(
        self,
        store: &PageStore,
        pinned: &Pinned<'_>,
        leaf: u64,
    ) -> Option<Parent> {
        let mut node = self.root(store, pinned)?;
        for level in (2..=INNER_LEVELS).rev() {
            node = store.child(pinned, Parent::Node(node, index_at(level, leaf)))?;
        }
        Some(Parent::Node(node, index_at(1, leaf)))
    }

    /// Returns the first existing leaf from number `from` on. Skips missing subtrees.
    pub(crate) fn next_leaf(
        self,
        store: &PageStore,
        pinned: &Pinned<'_>,
        from: u64,
    ) -> Option<(u64, NodeRef)> {
        let root = self.root(store, pinned)?;
        next_below(store, pinned, (root, INNER_LEVELS), from)
    }

    /// Passes every inner node to `visit` before those below it, including nodes without leaves.
    /// The arguments are its parent word, the node, and the number of maps that share it, if all of
    /// its parents are shared equally.
    pub(crate) fn for_each_inner_node(
        self,
        store: &PageStore,
        pinned: &Pinned<'_>,
        visit: &mut dyn FnMut(Parent, NodeRef, u64),
    ) {
        let root = Parent::Root(self.root_word);
        visit_inner(store, pinned, (root, INNER_LEVELS), 1, visit);
    }

    /// Returns the number of maps that share a leaf.
    pub(crate) fn owners_of_leaf(self, store: &PageStore, pinned: &Pinned<'_>, leaf: u64) -> u64 {
        let mut owners = 1;
        let mut next = self.root(store, pinned);
        for level in (0..=INNER_LEVELS).rev() {
            let Some(node) = next else { break };
            owners *= store.parent_count(pinned, node).max(1);
            if level > 0 {
                next = store.child(pinned, Parent::Node(node, index_at(level, leaf)));
            }
        }
        owners
    }

    /// Returns the first of `leaves` whose node differs between the maps, with the node of each.
    pub(crate) fn next_difference(
        maps: [Self; 2],
        store: &PageStore,
        pinned: &Pinned<'_>,
        leaves: Range<u64>,
    ) -> Option<(u64, Pair)> {
        let roots = maps.map(|map| map.root(store, pinned));
        difference_below(store, pinned, (roots, INNER_LEVELS), leaves)
    }
}

/// Nodes of two maps at the same position.
type Pair = [Option<NodeRef>; 2];

/// Returns the first difference below two nodes. The first leaf must be below them.
fn difference_below(
    store: &PageStore,
    pinned: &Pinned<'_>,
    (nodes, level): (Pair, u32),
    leaves: Range<u64>,
) -> Option<(u64, Pair)> {
    if nodes[0] == nodes[1] {
        return None;
    }
    if level == 0 {
        return Some((leaves.start, nodes));
    }
    let leaves_a_child = 1_u64 << (NODE_BITS * (level - 1));
    let mut first = leaves.start;
    for index in index_at(level, first)..NODE_ENTRY_COUNT {
        if first >= leaves.end {
            break;
        }
        let child = |node| store.child(pinned, Parent::Node(node, index));
        let children = nodes.map(|node| node.and_then(child));
        let found = difference_below(store, pinned, (children, level - 1), first..leaves.end);
        if found.is_some() {
            return found;
        }
        first = (first / leaves_a_child + 1) * leaves_a_child;
    }
    None
}

fn visit_inner(
    store: &PageStore,
    pinned: &Pinned<'_>,
    (parent, level): (Parent, u32),
    owners_above: u64,
    visit: &mut dyn FnMut(Parent, NodeRef, u64),
) {
    let Some(node) = store.child(pinned, parent) else { return };
    let owners = owners_above * store.parent_count(pinned, node).max(1);
    visit(parent, node, owners);
    if level > 1 {
        for index in 0..NODE_ENTRY_COUNT {
            let below = Parent::Node(node, index);
            visit_inner(store, pinned, (below, level - 1), owners, visit);
        }
    }
}

/// Returns the first leaf from number `from` on below `node`. `from` must be below it too.
fn next_below(
    store: &PageStore,
    pinned: &Pinned<'_>,
    (node, level): (NodeRef, u32),
    from: u64,
) -> Option<(u64, NodeRef)> {
    let leaves_a_child = 1_u64 << (NODE_BITS * (level - 1));
    let mut first = from;
    for index in index_at(level, from)..NODE_ENTRY_COUNT {
        if let Some(child) = store.child(pinned, Parent::Node(node, index)) {
            let found = match level {
                1 => Some((first, child)),
                _ => next_below(store, pinned, (child, level - 1), first),
            };
            if found.is_some() {
                return found;
            }
        }
        first = (first / leaves_a_child + 1) * leaves_a_child;
    }
    None
}

/// Returns the index of the entry of a node at `level` that leads to the leaf.
pub(crate) fn index_at(level: u32, leaf: u64) -> usize {
    index_in_leaf(leaf >> (NODE_BITS * (level - 1)))
}
