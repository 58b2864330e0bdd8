//! Opening a pool: what is live, and after an unclean end, what has leaked.
//!
//! A kill leaves counts that are too high, never too low: references that were raised and not
//! published, or unpublished and not lowered. [`Excess`] starts as all counts at the moment of
//! opening. The engine shows it every entry that maps held at that moment; what is left over then
//! is leaked, whatever has happened to the counts since.

use codec::DecodeError;
use sync::atomic::Ordering;
use sync::{Pinned, counted};

use crate::dedup::described_fingerprint;
use crate::entry::{Entry, NodeRef};
use crate::layout::{Class, Slot};
use crate::store::{Core, PageStore};

/// References, by slot, that the pool held when it was opened and no map has been seen to hold.
#[derive(Debug)]
pub struct Excess {
    by_slab: Vec<Option<SlabExcess>>,
    next_slab: usize,
}

#[derive(Debug)]
struct SlabExcess {
    class: Class,
    counts: Box<[u16]>,
    /// Slots that were live at the opening.
    was_live: Box<[bool]>,
}

impl Excess {
    /// A map held this entry when the pool was opened. An error says that the entry names a page
    /// that was not there: the region is damaged.
    pub fn see_entry(&mut self, entry: Entry) -> Result<(), DecodeError> {
        match entry.slot() {
            Some(at) => self.see(at),
            None => Ok(()),
        }
    }

    /// A map held this node when the pool was opened.
    pub fn see_node(&mut self, node: NodeRef) -> Result<(), DecodeError> {
        self.see(node.0)
    }

    /// Whether the node was there when the pool was opened: younger ones hold nothing to see.
    pub fn had_node(&self, node: NodeRef) -> bool {
        self.slab(node.0).is_some_and(|slab| slab.was_live[slot_index(node.0)])
    }

    /// The node held nothing from before the opening, or all of it has been seen: its slot may
    /// become another node.
    pub fn forget_node(&mut self, node: NodeRef) {
        if let Some(slab) = self.slab_mut(node.0) {
            slab.was_live[slot_index(node.0)] = false;
        }
    }

    fn see(&mut self, at: Slot) -> Result<(), DecodeError> {
        let slab = self.slab_mut(at).ok_or(DecodeError)?;
        let count = slab.counts.get_mut(slot_index(at)).ok_or(DecodeError)?;
        // A saturated count does not tell how many there were.
        *count = count.checked_sub(1).ok_or(DecodeError)?;
        Ok(())
    }

    fn slab(&self, at: Slot) -> Option<&SlabExcess> {
        let slab = self.by_slab.get(usize::try_from(at.slab).ok()?)?.as_ref()?;
        (slab.class == at.class).then_some(slab)
    }

    fn slab_mut(&mut self, at: Slot) -> Option<&mut SlabExcess> {
        let slab = self.by_slab.get_mut(usize::try_from(at.slab).ok()?)?.as_mut()?;
        (slab.class == at.class).then_some(slab)
    }
}

impl PageStore {
    /// Gives back what has leaked in the next `slab_count` slabs. Every map has been seen. Returns
    /// whether there are more.
    pub fn release_excess(&self, excess: &mut Excess, slab_count: usize) -> bool {
        let end = excess.by_slab.len().min(excess.next_slab + slab_count);
        for index in excess.next_slab..end {
            let Some(slab) = excess.by_slab[index].take() else { continue };
            for (slot, &leaked) in (0..).zip(&slab.counts) {
                if leaked > 0 {
                    let slab_number = u32::try_from(index).expect("slab counts fit 24 bits");
                    let at = Slot { slab: slab_number, slot, class: slab.class };
                    self.core.release_many(at, u64::from(leaked), index);
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
        let end = core.layout.slab_count.min(first.saturating_add(count));
        for slab in first..end {
            let Some(class) = core.slab_class(slab).filter(|&class| is_indexed(class)) else {
                continue;
            };
            for slot in 0..class.shape().slot_count {
                let at = Slot { slab, slot, class };
                let word = core.region.word(core.layout.slot_word(at)).load(Ordering::Relaxed);
                let fingerprint = described_fingerprint(counted::description_of(word));
                if counted::count_of(word) > 0 && fingerprint != 0 {
                    core.index.insert(core, pinned, fingerprint, at);
                }
            }
        }
        end < core.layout.slab_count
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
            self.core.index.clear(&self.core);
        }
        is_too_large
    }
}

impl Core {
    fn slab_class(&self, slab: u32) -> Option<Class> {
        let word = self.region.word(self.layout.table_word(slab)).load(Ordering::Acquire);
        word.checked_sub(1).and_then(Class::from_id)
    }
}

/// Tells the book of every slab, and counts all references if the last end was unclean.
pub(crate) fn take_census(core: &Core, count_references: bool) -> Option<Excess> {
    let slab_count = usize::try_from(core.layout.slab_count).expect("slabs fit memory");
    let mut by_slab = Vec::new();
    by_slab.resize_with(if count_references { slab_count } else { 0 }, || None);
    // Downwards, so that the slabs taken first are the first.
    for slab in (0..core.layout.slab_count).rev() {
        let class = core.slab_class(slab).filter(|class| class.has_slots());
        let Some(class) = class else {
            free_slab(core, slab);
            continue;
        };
        let counts = slot_counts(core, slab, class);
        let live = counts.iter().filter(|&&count| count > 0).count();
        if live == 0 {
            free_slab(core, slab);
            continue;
        }
        core.live[class.index()].add(0, i64::try_from(live).expect("slots fit eleven bits"));
        let live = u32::try_from(live).expect("slots fit eleven bits");
        core.book.admit_used(slab, class, class.shape().slot_count - live);
        if count_references {
            let was_live = counts.iter().map(|&count| count > 0).collect();
            let index = usize::try_from(slab).expect("slabs fit memory");
            by_slab[index] = Some(SlabExcess { class, counts, was_live });
        }
    }
    count_references.then_some(Excess { by_slab, next_slab: 0 })
}

/// A slab without live slots, or of the index, which is dropped.
fn free_slab(core: &Core, slab: u32) {
    let table_word = core.layout.table_word(slab);
    if core.region.word(table_word).load(Ordering::Relaxed) != 0 {
        core.region.word_to_store(table_word).store(0, Ordering::Release);
    }
    core.book.admit_free(slab);
}

fn slot_counts(core: &Core, slab: u32, class: Class) -> Box<[u16]> {
    let count = |slot| {
        let word = core.region.word(core.layout.slot_word(Slot { slab, slot, class }));
        let count = counted::count_of(word.load(Ordering::Relaxed));
        u16::try_from(count).expect("counts have sixteen bits")
    };
    (0..class.shape().slot_count).map(count).collect()
}

fn is_indexed(class: Class) -> bool {
    class.has_slots() && class != Class::NODE
}

fn slot_index(at: Slot) -> usize {
    usize::try_from(at.slot).expect("slots fit memory")
}
