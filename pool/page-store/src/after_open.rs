//! The work after opening a pool: giving back what leaked, and filling the dedup index.

use codec::DecodeError;
use sync::atomic::Ordering;
use sync::{Pinned, counted};

use crate::census::LeakCounts;
use crate::fingerprint::described_hint;
use crate::layout::{Class, Slot};
use crate::page_ref::{NodeRef, PageRef};
use crate::store::PageStore;

impl PageStore {
    /// Visits an inner node and the nodes that it names. Returns how many of its words name
    /// something else, or what was not there.
    pub fn visit_inner(&self, counts: &mut LeakCounts, _pinned: &Pinned<'_>, node: NodeRef) -> u64 {
        let words = self.core.words_of(node);
        let damage = words.filter(|entry| entry.0 != 0).map(|entry| {
            let child = NodeRef::from_word(entry.0).ok_or(DecodeError);
            u64::from(child.and_then(|child| counts.see(child.0)).is_err())
        });
        let damage = damage.sum();
        counts.forget(node);
        damage
    }

    /// Visits a leaf and the pages that it names. Returns how many of its words name what was not
    /// there.
    pub fn visit_leaf(&self, counts: &mut LeakCounts, _pinned: &Pinned<'_>, leaf: NodeRef) -> u64 {
        let pages = self.core.words_of(leaf).filter_map(PageRef::slot);
        let damage = pages.map(|at| u64::from(counts.see(at).is_err())).sum();
        counts.forget(leaf);
        damage
    }

    /// Gives back what has leaked in the next `slab_count` slabs. Every map has been seen. Returns
    /// whether there are more.
    pub fn release_leaks(&self, leak_counts: &mut LeakCounts, slab_count: usize) -> bool {
        let end = leak_counts.by_slab.len().min(leak_counts.next_slab + slab_count);
        let lane = self.lane();
        for index in leak_counts.next_slab..end {
            let Some(slab) = leak_counts.by_slab[index].take() else { continue };
            for (slot, &leaked) in (0..).zip(&slab.counts) {
                if leaked > 0 {
                    let slab_number = u32::try_from(index).expect("slab counts fit 24 bits");
                    let at = Slot { slab: slab_number, slot, class: slab.class };
                    let (leaked, lane) = (u64::from(leaked), lane.index());
                    // What a node names that was not visited is leaked too, and counted as such.
                    match slab.is_visited(at) {
                        true => self.core.release_many(at, leaked, lane),
                        false => self.core.release_alone(at, leaked, lane),
                    }
                }
            }
        }
        leak_counts.next_slab = end;
        end < leak_counts.by_slab.len()
    }

    /// Fills the dedup index from the words of slabs `first..first + count`. Returns whether there
    /// are more.
    pub fn index_slabs(&self, pinned: &Pinned<'_>, first: u32, count: u32) -> bool {
        let core = &self.core;
        let end = core.memory.layout.slab_count().min(first.saturating_add(count));
        for slab in first..end {
            let Some(class) = core.memory.slab_class(slab).filter(|&class| is_indexed(class))
            else {
                continue;
            };
            for slot in 0..class.shape().slot_count {
                let at = Slot { slab, slot, class };
                let word = core
                    .memory
                    .region
                    .word(core.memory.layout.slot_word(at))
                    .load(Ordering::Relaxed);
                if counted::count_of(word) > 0
                    && let Some(fingerprint) = described_hint(counted::description_of(word))
                {
                    core.index.insert(&core.memory, pinned, fingerprint, at);
                }
            }
        }
        end < core.memory.layout.slab_count()
    }

    /// Drops a dedup index that has become far too large for the pages there are. Returns whether
    /// it did: the index is then to be filled again.
    pub fn shrink_index(&self) -> bool {
        let pages: u64 = Class::all()
            .filter(|&class| is_indexed(class))
            .map(|class| self.core.live[class.index()].sum())
            .sum();
        let is_too_large =
            self.core.index.segment_count() > 1 && self.core.index.capacity() / 8 > pages;
        if is_too_large {
            self.core.index.clear(&self.core.memory);
        }
        is_too_large
    }
}

fn is_indexed(class: Class) -> bool {
    class.has_slots() && class != Class::NODE
}
