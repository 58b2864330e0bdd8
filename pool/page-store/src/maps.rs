//! Looking at the words of maps.

use sync::Pinned;
use sync::atomic::Ordering;

use crate::node::Parent;
use crate::page_ref::{NodeRef, PageRef};
use crate::store::PageStore;

impl PageStore {
    /// What entry `index` of a leaf says. The pin keeps what it names from being reused.
    #[inline]
    pub fn entry(&self, _pinned: &Pinned<'_>, leaf: NodeRef, index: usize) -> PageRef {
        let word = self.core.memory.region.word(self.core.node_word_offset(leaf, index));
        // PAIRS-WITH: Lane::replace, "the page that the entry names".
        PageRef(word.load(Ordering::Acquire))
    }

    /// The node that a parent names. Words that name no node of this pool are no child.
    #[inline]
    pub fn child(&self, _pinned: &Pinned<'_>, parent: Parent) -> Option<NodeRef> {
        let word = self.core.memory.region.word(self.core.parent_offset(parent));
        // PAIRS-WITH: Lane::link, "the node that the parent names".
        let node = NodeRef::from_word(word.load(Ordering::Acquire))?;
        self.core.memory.layout.has(node.0).then_some(node)
    }

    /// Whether a parent names something that is no node of this pool.
    pub fn has_damaged_child(&self, pinned: &Pinned<'_>, parent: Parent) -> bool {
        let word = self.core.memory.region.word(self.core.parent_offset(parent));
        word.load(Ordering::Acquire) != 0 && self.child(pinned, parent).is_none()
    }

    /// Brings an entry near that will be looked at soon.
    #[inline]
    pub fn prefetch_entry(&self, leaf: NodeRef, index: usize) {
        self.core.memory.region.prefetch(self.core.node_word_offset(leaf, index));
    }

    /// Brings the first lines of a page near that will be read soon.
    #[inline]
    pub fn prefetch_page(&self, entry: PageRef) {
        if let Some(at) = entry.slot().filter(|&at| self.core.memory.layout.has(at)) {
            let offset = self.core.memory.layout.slot(at);
            for line in 0..4 {
                self.core.memory.region.prefetch(offset + 64 * line);
            }
        }
    }
}
