//! Opening a pool: what is live, and after an unclean end, what has leaked.
//!
//! A kill leaves counts that are too high, never too low: references that were raised and not
//! published, or unpublished and not lowered. [`LeakCounts`] starts as all counts at the moment of
//! opening. The engine visits every node that maps held at that moment, once however many parents
//! share it, and with the node all that it names; what is left over then is leaked, whatever has
//! happened to the counts since.

use codec::DecodeError;
use sync::atomic::Ordering;
use sync::counted;

use crate::core::Core;
use crate::layout::{Class, Slot};
use crate::page_ref::NodeRef;
use crate::slab_names::{self, Found};

/// References, by slot, that the pool held when it was opened and no map has been seen to hold.
#[derive(Debug)]
pub struct LeakCounts {
    pub(crate) by_slab: Vec<Option<SlabCounts>>,
    pub(crate) next_slab: usize,
}

#[derive(Debug)]
pub(crate) struct SlabCounts {
    pub(crate) class: Class,
    pub(crate) counts: Box<[u16]>,
    /// Slots that were live at the opening, but for nodes that were visited.
    was_live: Box<[bool]>,
}

impl SlabCounts {
    /// Whether what was in a slot, if it was a node, was visited.
    pub(crate) fn is_visited(&self, at: Slot) -> bool {
        !self.was_live[slot_index(at)]
    }
}

impl LeakCounts {
    /// A root word held this node when the pool was opened. An error says that the node was not
    /// there: the region is damaged.
    pub fn visit_root(&mut self, root: NodeRef) -> Result<(), DecodeError> {
        self.see(root.0)
    }

    /// Whether the node was there when the pool was opened and was not visited: younger ones
    /// hold nothing to count.
    pub fn awaits_visit(&self, node: NodeRef) -> bool {
        self.slab(node.0).is_some_and(|slab| slab.was_live[slot_index(node.0)])
    }

    /// What the node held from before the opening has been seen: its slot may become another node.
    pub(crate) fn forget(&mut self, node: NodeRef) {
        if let Some(slab) = self.slab_mut(node.0) {
            slab.was_live[slot_index(node.0)] = false;
        }
    }

    pub(crate) fn see(&mut self, at: Slot) -> Result<(), DecodeError> {
        let slab = self.slab_mut(at).ok_or(DecodeError)?;
        let count = slab.counts.get_mut(slot_index(at)).ok_or(DecodeError)?;
        // A saturated count does not tell how many there were.
        *count = count.checked_sub(1).ok_or(DecodeError)?;
        Ok(())
    }

    fn slab(&self, at: Slot) -> Option<&SlabCounts> {
        let slab = self.by_slab.get(usize::try_from(at.slab).ok()?)?.as_ref()?;
        (slab.class == at.class).then_some(slab)
    }

    fn slab_mut(&mut self, at: Slot) -> Option<&mut SlabCounts> {
        let slab = self.by_slab.get_mut(usize::try_from(at.slab).ok()?)?.as_mut()?;
        (slab.class == at.class).then_some(slab)
    }
}

/// Tells the book of every slab, and counts all references if the last end was unclean.
pub(crate) fn take_census(core: &Core, count_references: bool) -> Option<LeakCounts> {
    let slab_count = usize::try_from(core.memory.layout.slab_count()).expect("slabs fit memory");
    let mut by_slab = Vec::new();
    by_slab.resize_with(if count_references { slab_count } else { 0 }, || None);
    // Downwards, so that the slabs taken first are the first.
    for slab in (0..core.memory.layout.slab_count()).rev() {
        let class = match slab_names::find(core, slab) {
            Found::Used(class) => class,
            Found::Free => {
                free_slab(core, slab);
                continue;
            }
            Found::Unknown => continue,
        };
        let counts = slot_counts(core, slab, class);
        let live = counts.iter().filter(|&&count| count > 0).count();
        if live == 0 {
            free_slab(core, slab);
            continue;
        }
        core.live[class.index()].add(0, i64::try_from(live).expect("slots fit eleven bits"));
        let live = u32::try_from(live).expect("slots fit eleven bits");
        core.memory.book.admit_used(slab, class, class.shape().slot_count - live);
        if count_references {
            let was_live = counts.iter().map(|&count| count > 0).collect();
            let index = usize::try_from(slab).expect("slabs fit memory");
            by_slab[index] = Some(SlabCounts { class, counts, was_live });
        }
    }
    count_references.then_some(LeakCounts { by_slab, next_slab: 0 })
}

/// A slab without live slots, or of the index, which is dropped.
fn free_slab(core: &Core, slab: u32) {
    let table_word = core.memory.layout.table_word(slab);
    if core.memory.region.word(table_word).load(Ordering::Relaxed) != 0 {
        core.memory.region.word_to_store(table_word).store(0, Ordering::Release);
    }
    core.memory.book.admit_free(slab);
}

fn slot_counts(core: &Core, slab: u32, class: Class) -> Box<[u16]> {
    let count = |slot| {
        let word =
            core.memory.region.word(core.memory.layout.slot_word(Slot { slab, slot, class }));
        let count = counted::count_of(word.load(Ordering::Relaxed));
        u16::try_from(count).expect("counts have sixteen bits")
    };
    (0..class.shape().slot_count).map(count).collect()
}

fn slot_index(at: Slot) -> usize {
    usize::try_from(at.slot).expect("slots fit memory")
}
