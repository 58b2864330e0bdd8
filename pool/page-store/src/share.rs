//! Shared nodes of several maps, and copies of them before a change.
//!
//! A node counts the parents that refer to it, like a page counts its entries. A thread that
//! changes a map with a shared node makes a copy first. The copy's references are raised before the
//! copy is published, and the one to the old node is lowered after a grace period, as with pages.

use codec::BLOCK_BYTES;
use sync::atomic::Ordering;
use sync::{Pinned, counted};

use crate::error::{LinkError, NoSpace};
use crate::fingerprint::Description;
use crate::lane::Lane;
use crate::layout::{Class, NODE_ENTRY_COUNT};
use crate::page_ref::{NodeRef, PageRef, Parent};
use crate::purpose::Purpose;
use crate::store::PageStore;

/// Number of entries ahead for which the word of a slot is prefetched.
const AHEAD: usize = 16;

impl PageStore {
    /// Number of parents that refer to a node, read under this pin.
    #[inline]
    pub fn parent_count(&self, _pinned: &Pinned<'_>, node: NodeRef) -> u64 {
        // PAIRS-WITH: drop_many, "earlier holders are done with the contents".
        counted::count_of(self.core.memory.slot_word(node.0, Ordering::Acquire))
    }

    /// Adds a reference to a node for another parent. Fails if its count is at the maximum.
    pub fn share_node(&self, _pinned: &Pinned<'_>, node: NodeRef) -> Result<(), NoSpace> {
        self.core.memory.try_share(node.0, |_| true).map(drop).ok_or(NoSpace)
    }

    /// Sets a root word to a tree to which the caller owns a reference, or to nothing. The caller
    /// takes over the reference of the old value.
    pub fn set_root(&self, root_word: usize, tree: Option<NodeRef>) {
        // PAIRS-WITH: PageStore::child, "the node that the parent names".
        self.set_root_word(root_word, tree.map_or(0, NodeRef::to_word));
    }
}

impl Lane<'_> {
    /// Replaces the child of `parent` by a copy, and retires the parent's reference to the old
    /// node. Without memory it fails without any change. The caller excludes other writers of the
    /// parent word. The node may only change in ways that keep its meaning.
    pub fn copy_node(
        &mut self,
        pinned: &Pinned<'_>,
        parent: Parent,
        node: NodeRef,
        purpose: Purpose,
    ) -> Result<NodeRef, LinkError> {
        let at = self.take_slot(Class::NODE, purpose)?;
        let mut words = [PageRef::HOLE; NODE_ENTRY_COUNT];
        for (to, from) in words.iter_mut().zip(self.core.memory.entries_of(node)) {
            *to = from;
        }
        for index in 0..NODE_ENTRY_COUNT {
            if let Some(far) = words.get(index + AHEAD).and_then(|word| word.slot()) {
                self.core.prefetch_word(far);
            }
            match self.share_or_copy(pinned, words[index], purpose) {
                Ok(word) => words[index] = word,
                Err(error) => {
                    self.give_back_entries(&words[..index]);
                    self.put_slot_back(at);
                    return Err(error.into());
                }
            }
        }
        self.core.memory.fill_slot(at, &to_bytes(&words));
        self.publish(at, Description::NONE);
        let copy = NodeRef(at);
        self.replace_child(parent, node, copy);
        Ok(copy)
    }

    /// Replaces the child of `parent` by a node of the same meaning, and retires the reference to
    /// the old one. The caller passes a reference for the parent, and excludes other writers of the
    /// parent word.
    pub fn replace_child(&mut self, parent: Parent, old: NodeRef, new: NodeRef) {
        let memory = &self.core.memory;
        let word = memory.region.word_to_store(memory.parent_offset(parent));
        // PAIRS-WITH: PageStore::child, "the node that the parent names".
        word.store(new.to_word(), Ordering::Release);
        self.retire(old.0);
    }

    /// Returns a new reference to the page of an entry. Contents whose page has its maximum count
    /// are stored again. A damaged entry that refers to a missing page is returned unchanged.
    fn share_or_copy(
        &mut self,
        pinned: &Pinned<'_>,
        entry: PageRef,
        purpose: Purpose,
    ) -> Result<PageRef, NoSpace> {
        let memory = &self.core.memory;
        let Some(at) = memory.slot_of(entry) else { return Ok(entry) };
        if memory.try_share(at, |_| true).is_some()
            || memory.reference_count(at) == 0
            || !memory.is_named(at)
        {
            return Ok(entry);
        }
        if at.class == Class::NODE || self.core.stored_page(pinned, entry).is_err() {
            return Err(NoSpace);
        }
        self.copy_page(pinned, entry, purpose).map(|page| page.0).ok_or(NoSpace)
    }

    fn give_back_entries(&mut self, entries: &[PageRef]) {
        for at in entries.iter().filter_map(|&entry| self.core.memory.slot_of(entry)) {
            self.core.release(at, self.state.index);
        }
    }
}

fn to_bytes(words: &[PageRef; NODE_ENTRY_COUNT]) -> codec::Block {
    let mut bytes = [0; BLOCK_BYTES];
    for (bytes, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *bytes = word.0.to_ne_bytes();
    }
    bytes
}
