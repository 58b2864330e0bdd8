//! Work after the opening of a pool: visits of the leak check, freeing of leaks, and filling of the
//! dedup index.

use sync::atomic::Ordering;
use sync::{Pinned, counted};

use crate::fingerprint::Description;
use crate::layout::{Class, Slot};
use crate::leak_counts::{Leak, LeakCounts};
use crate::page_ref::{NodeRef, PageRef};
use crate::store::PageStore;

impl PageStore {
    /// Visits an inner node and its children. Returns the number of words that are no node
    /// references, or refer to missing nodes.
    pub fn visit_inner(&self, counts: &mut LeakCounts, _pinned: &Pinned<'_>, node: NodeRef) -> u64 {
        let words = self.core.memory.entries_of(node).filter(|word| word.0 != 0);
        counts.visit(node, words.map(|word| NodeRef::from_word(word.0).map(|child| child.0)))
    }

    /// Visits a leaf and its pages. Returns the number of words that refer to missing pages.
    pub fn visit_leaf(&self, counts: &mut LeakCounts, _pinned: &Pinned<'_>, leaf: NodeRef) -> u64 {
        counts.visit(leaf, self.core.memory.entries_of(leaf).filter_map(PageRef::slot).map(Some))
    }

    /// Frees the leaks in the next `slab_count` slabs, after every map was visited. Returns whether
    /// there are more.
    pub fn release_leaks(&self, counts: &mut LeakCounts, slab_count: usize) -> bool {
        let lane = self.lane();
        counts.take_leaks(slab_count, |Leak { at, references, is_visited }| match is_visited {
            true => self.core.release_many(at, references, lane.index()),
            // References in a node that was not visited are leaked too, and counted individually.
            false => self.core.release_alone(at, references, lane.index()),
        })
    }

    /// Adds the pages of slabs `first..first + count` to the dedup index. Returns whether there are
    /// more.
    pub fn index_slabs(&self, pinned: &Pinned<'_>, first: u32, count: u32) -> bool {
        let memory = &self.core.memory;
        let end = memory.layout.slab_count().min(first.saturating_add(count));
        for slab in first..end {
            let class = memory.slab_class(slab).filter(|class| class.has_pages());
            let slots = class.map_or(0, |class| class.shape().slot_count);
            for at in (0..slots).filter_map(|slot| Some(Slot { slab, slot, class: class? })) {
                let word = memory.slot_word(at, Ordering::Relaxed);
                if counted::count_of(word) > 0
                    && let Some(fingerprint) = Description::in_word(word).hint()
                {
                    self.core.index.insert(memory, pinned, fingerprint, at);
                }
            }
        }
        end < memory.layout.slab_count()
    }

    /// Drops a dedup index that is far too large for the number of pages. Returns whether it was
    /// dropped and must be filled again.
    pub fn shrink_index(&self) -> bool {
        let (index, memory) = (&self.core.index, &self.core.memory);
        let classes = Class::all().filter(|class| class.has_pages());
        let pages: u64 = classes.map(|class| memory.live[class.index()].sum()).sum();
        let is_too_large = index.segment_count() > 1 && index.capacity() / 8 > pages;
        if is_too_large {
            index.clear(memory);
        }
        is_too_large
    }
}
