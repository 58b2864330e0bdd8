//! From a block's index to the leaf that holds its entry.
//!
//! ```text
//!  block index   33     27 26     18 17      9 8       0
//!               ┌─────────┬─────────┬─────────┬─────────┐
//!               │ level 3 │ level 2 │ level 1 │ leaf    │    a node has 512 words
//!               └─────────┴─────────┴─────────┴─────────┘
//!  root word ──▶ node ────▶ node ────▶ node ────▶ leaf ────▶ entry
//! ```
//!
//! Nodes appear when a block below them is first written; leaves go when their last block is
//! discarded, inner nodes with their volume.

use page_store::{Lane, LinkError, NODE_ENTRY_COUNT, NodeRef, PageStore, Parent, Purpose};
use sync::Pinned;

/// Bits of a block's index that choose an entry of one node.
const NODE_BITS: u32 = NODE_ENTRY_COUNT.trailing_zeros();

/// Levels of nodes above the leaves.
const INNER_LEVELS: u32 = 3;

/// Blocks that one leaf maps.
pub(crate) const LEAF_BLOCKS: u64 = NODE_ENTRY_COUNT as u64;

/// Leaves that a map has room for: the numbers of others would lead to these.
pub(crate) const LEAVES_MAX: u64 = 1 << (NODE_BITS * INNER_LEVELS);

/// The number of the leaf that maps `block`.
pub(crate) const fn leaf_of(block: u64) -> u64 {
    block >> NODE_BITS
}

/// The place of `block` in its leaf.
pub(crate) fn index_in_leaf(block: u64) -> usize {
    usize::try_from(block % LEAF_BLOCKS).expect("a leaf fits memory")
}

/// The map of one volume: its root word in the pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Map {
    pub(crate) root_word: usize,
}

impl Map {
    /// The leaf, if it is there. Any number may be asked for.
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
        let mut node = store.child(pinned, Parent::Root(self.root_word))?;
        for level in (1..=INNER_LEVELS).rev() {
            node = store.child(pinned, Parent::Node(node, index_at(level, leaf)))?;
        }
        Some(node)
    }

    /// The leaf, made with the nodes above it where they are missing: for new data.
    pub(crate) fn make_leaf(
        self,
        store: &PageStore,
        pinned: &Pinned<'_>,
        lane: &mut Lane<'_>,
        leaf: u64,
    ) -> Result<NodeRef, LinkError> {
        let mut parent = Parent::Root(self.root_word);
        for level in (0..=INNER_LEVELS).rev() {
            let node = match store.child(pinned, parent) {
                Some(node) => node,
                None => lane.link(parent, Purpose::NewData)?,
            };
            if level == 0 {
                return Ok(node);
            }
            parent = Parent::Node(node, index_at(level, leaf));
        }
        unreachable!("level 0 returns")
    }

    /// Where the leaf's name is written, if the nodes above it are there.
    pub(crate) fn leaf_parent(
        self,
        store: &PageStore,
        pinned: &Pinned<'_>,
        leaf: u64,
    ) -> Option<Parent> {
        let mut node = store.child(pinned, Parent::Root(self.root_word))?;
        for level in (2..=INNER_LEVELS).rev() {
            node = store.child(pinned, Parent::Node(node, index_at(level, leaf)))?;
        }
        Some(Parent::Node(node, index_at(1, leaf)))
    }

    /// The first leaf that is there from number `from` on, skipping missing subtrees whole.
    pub(crate) fn next_leaf(
        self,
        store: &PageStore,
        pinned: &Pinned<'_>,
        from: u64,
    ) -> Option<(u64, NodeRef)> {
        let root = store.child(pinned, Parent::Root(self.root_word))?;
        next_below(store, pinned, (root, INNER_LEVELS), from)
    }

    /// Shows every inner node to `visit`, also those without leaves below.
    pub(crate) fn for_each_inner_node(
        self,
        store: &PageStore,
        pinned: &Pinned<'_>,
        visit: &mut dyn FnMut(NodeRef),
    ) {
        if let Some(root) = store.child(pinned, Parent::Root(self.root_word)) {
            visit_inner(store, pinned, (root, INNER_LEVELS), visit);
        }
    }

    /// Counts words of inner nodes that name something which is no node.
    pub(crate) fn count_damage(self, store: &PageStore, pinned: &Pinned<'_>) -> u64 {
        let is_damaged = |parent| u64::from(store.has_damaged_child(pinned, parent));
        let mut damage = is_damaged(Parent::Root(self.root_word));
        self.for_each_inner_node(store, pinned, &mut |node| {
            let parents = (0..NODE_ENTRY_COUNT).map(|index| Parent::Node(node, index));
            damage += parents.map(is_damaged).sum::<u64>();
        });
        damage
    }

    /// Takes the inner nodes out of the map, once every leaf is gone. Nobody else uses the map.
    pub(crate) fn unlink_inner_nodes(self, store: &PageStore) {
        let root = Parent::Root(self.root_word);
        let child = store.child(&store.pin(), root);
        if let Some(node) = child {
            unlink_below(store, node, INNER_LEVELS);
            store.lane().unlink(root);
        }
    }
}

fn unlink_below(store: &PageStore, node: NodeRef, level: u32) {
    for index in 0..NODE_ENTRY_COUNT {
        let parent = Parent::Node(node, index);
        let child = store.child(&store.pin(), parent);
        if let Some(child) = child {
            if level > 1 {
                unlink_below(store, child, level - 1);
            }
            store.lane().unlink(parent);
        }
    }
}

fn visit_inner(
    store: &PageStore,
    pinned: &Pinned<'_>,
    (node, level): (NodeRef, u32),
    visit: &mut dyn FnMut(NodeRef),
) {
    visit(node);
    if level == 1 {
        return;
    }
    for index in 0..NODE_ENTRY_COUNT {
        if let Some(child) = store.child(pinned, Parent::Node(node, index)) {
            visit_inner(store, pinned, (child, level - 1), visit);
        }
    }
}

/// The first leaf from number `from` on below `node`. `from` is below it too.
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

/// Which entry of a node at `level` leads to the leaf.
fn index_at(level: u32, leaf: u64) -> usize {
    index_in_leaf(leaf >> (NODE_BITS * (level - 1)))
}
