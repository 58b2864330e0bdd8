//! Nodes: where the words of maps lie.

use crate::core::Core;
use crate::layout::{Layout, NODE_ENTRY_COUNT};
use crate::page_ref::NodeRef;

/// Where a node's name is written: what makes it part of a map.
#[derive(Clone, Copy, Debug)]
pub enum Parent {
    /// A root word of the layer above.
    Root(usize),
    /// An entry of another node.
    Node(NodeRef, usize),
}

impl Core {
    #[inline]
    pub(crate) fn node_word_offset(&self, node: NodeRef, index: usize) -> u64 {
        let (layout, at) = (&self.memory.layout, node.0);
        let is_there = index < NODE_ENTRY_COUNT && layout.has_large(at.slab, at.slot);
        assert!(is_there, "the entry is in a node");
        layout.large_slot(at.slab, at.slot) + 8 * index as u64
    }

    pub(crate) fn parent_offset(&self, parent: Parent) -> u64 {
        match parent {
            Parent::Root(index) => Layout::root_word(index),
            Parent::Node(node, index) => self.node_word_offset(node, index),
        }
    }
}
