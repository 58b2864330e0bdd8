//! Nodes: where the words of maps lie.

use crate::core::Core;
use crate::entry::NodeRef;
use crate::layout::{Layout, NODE_ENTRY_COUNT};

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
        assert!(
            index < NODE_ENTRY_COUNT && self.memory.layout.has(node.0),
            "the entry is in a node"
        );
        self.memory.layout.slot(node.0) + 8 * index as u64
    }

    pub(crate) fn parent_offset(&self, parent: Parent) -> u64 {
        match parent {
            Parent::Root(index) => Layout::root_word(index),
            Parent::Node(node, index) => self.node_word_offset(node, index),
        }
    }
}
