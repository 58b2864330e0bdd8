//! Counts of leaked slots and references after an unclean end.
//!
//! A kill leaves reference counts too high, never too low: references that were raised and not
//! published, or unpublished and not lowered. [`LeakCounts`] starts as a copy of all counts at
//! opening. The engine visits every node that maps held at that moment, once however many parents
//! share it, and with it all its entries. The remaining references are leaked, independent of later
//! changes of the counts.

use codec::DecodeError;

use crate::layout::{Class, Slot};
use crate::page_ref::NodeRef;

/// References that the pool held when it was opened and that have not been found in a map, by slot.
#[derive(Debug)]
pub struct LeakCounts {
    by_slab: Vec<Option<SlabCounts>>,
    next_slab: usize,
}

#[derive(Debug)]
struct SlabCounts {
    class: Class,
    counts: Box<[u16]>,
    /// Slots that were live at opening, except nodes that were visited.
    was_live: Box<[bool]>,
}

/// References to one slot that no map holds.
pub(crate) struct Leak {
    pub(crate) at: Slot,
    pub(crate) references: u64,
    /// True for a node that was visited.
    pub(crate) is_visited: bool,
}

impl LeakCounts {
    pub(crate) fn new(slab_count: u32) -> Self {
        let mut by_slab = Vec::new();
        by_slab.resize_with(index_of(slab_count), || None);
        Self { by_slab, next_slab: 0 }
    }

    /// Sets the counts of all slots of a slab.
    pub(crate) fn set(&mut self, slab: u32, class: Class, counts: Box<[u16]>) {
        let was_live = counts.iter().map(|&count| count > 0).collect();
        self.by_slab[index_of(slab)] = Some(SlabCounts { class, counts, was_live });
    }

    /// Visits a node that a root word referred to at opening. An error says that the node does not
    /// exist: the region is damaged.
    pub fn visit_root(&mut self, root: NodeRef) -> Result<(), DecodeError> {
        self.see(root.0)
    }

    /// Returns whether the node existed at opening and was not visited. Younger nodes hold no
    /// references to count.
    pub fn awaits_visit(&self, node: NodeRef) -> bool {
        self.by_slab
            .get(index_of(node.0.slab))
            .and_then(Option::as_ref)
            .is_some_and(|slab| slab.class == Class::NODE && slab.was_live[index_of(node.0.slot)])
    }

    /// Visits a node and the references in its words. `None` stands for a word that is no valid
    /// reference. Returns the number of such words and of references to missing slots.
    pub(crate) fn visit(
        &mut self,
        node: NodeRef,
        named: impl Iterator<Item = Option<Slot>>,
    ) -> u64 {
        let is_damage = |at: Option<Slot>| at.is_none_or(|at| self.see(at).is_err());
        let damage = named.map(is_damage).map(u64::from).sum();
        // All references from before the opening have been seen: the slot may be reused.
        if let Some(slab) = self.slab_mut(node.0) {
            slab.was_live[index_of(node.0.slot)] = false;
        }
        damage
    }

    /// Passes the leaks in the next `slab_count` slabs to `release`. Returns whether there are
    /// more.
    pub(crate) fn take_leaks(&mut self, slab_count: usize, mut release: impl FnMut(Leak)) -> bool {
        let end = self.by_slab.len().min(self.next_slab + slab_count);
        for (slab, taken) in (0..).zip(&mut self.by_slab).take(end).skip(self.next_slab) {
            let Some(SlabCounts { class, counts, was_live }) = taken.take() else { continue };
            for ((slot, &count), was_live) in (0..).zip(&counts).zip(was_live) {
                if count > 0 {
                    let at = Slot { slab, slot, class };
                    release(Leak { at, references: u64::from(count), is_visited: !was_live });
                }
            }
        }
        self.next_slab = end;
        end < self.by_slab.len()
    }

    fn see(&mut self, at: Slot) -> Result<(), DecodeError> {
        let slab = self.slab_mut(at).ok_or(DecodeError)?;
        let count = slab.counts.get_mut(index_of(at.slot)).ok_or(DecodeError)?;
        // A saturated count is not exact.
        *count = count.checked_sub(1).ok_or(DecodeError)?;
        Ok(())
    }

    fn slab_mut(&mut self, at: Slot) -> Option<&mut SlabCounts> {
        let slab = self.by_slab.get_mut(index_of(at.slab))?.as_mut()?;
        (slab.class == at.class).then_some(slab)
    }
}

fn index_of(number: u32) -> usize {
    usize::try_from(number).expect("slabs and slots fit memory")
}
