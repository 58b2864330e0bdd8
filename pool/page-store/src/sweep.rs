//! The work after opening a pool: giving back what leaked, and filling the dedup index.

use sync::atomic::Ordering;
use sync::{Pinned, counted};

use crate::census::Excess;
use crate::fingerprint::described_hint;
use crate::layout::{Class, Slot};
use crate::store::PageStore;

impl PageStore {
    /// Gives back what has leaked in the next `slab_count` slabs. Every map has been seen. Returns
    /// whether there are more.
    pub fn release_excess(&self, excess: &mut Excess, slab_count: usize) -> bool {
        let end = excess.by_slab.len().min(excess.next_slab + slab_count);
        let lane = self.lane();
        for index in excess.next_slab..end {
            let Some(slab) = excess.by_slab[index].take() else { continue };
            for (slot, &leaked) in (0..).zip(&slab.counts) {
                if leaked > 0 {
                    let slab_number = u32::try_from(index).expect("slab counts fit 24 bits");
                    let at = Slot { slab: slab_number, slot, class: slab.class };
                    let (leaked, lane) = (u64::from(leaked), lane.index());
                    // What a node names that was not shown is leaked too, and counted as such.
                    match slab.is_shown(at) {
                        true => self.core.release_many(at, leaked, lane),
                        false => self.core.release_alone(at, leaked, lane),
                    }
                }
            }
        }
        excess.next_slab = end;
        end < excess.by_slab.len()
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
