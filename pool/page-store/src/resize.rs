//! Giving a pool more memory, and taking some away.
//!
//! ```text
//!  grow      take memory ─▶ commit the size ─▶ admit the new slabs
//!  shrink    begin: nobody opens a slab behind the new end ─▶ the engine moves away what they hold
//!            ─▶ end: commit the size ─▶ nobody names a slab behind the end ─▶ give memory back
//! ```
//!
//! The size in the superblock commits either. A kill before it leaves the old size, a kill after it
//! the new one; memory beside what the size needs is given back when the pool is opened.

use region::{Region, SIZE_UNIT_BYTES};

use crate::entry::NodeRef;
use crate::error::{OpenError, OpenErrorKind, ResizeError, ResizeErrorKind};
use crate::layout::{Class, Layout, SLAB_BYTES, Slot};
use crate::slabs::reserve_of;
use crate::store::PageStore;

/// Slabs on their way out of the pool. Must go to [`PageStore::end_shrinking`] or
/// [`PageStore::cancel_shrinking`].
#[derive(Debug)]
#[must_use = "slabs that are leaving can be used by nobody"]
pub struct Leaving {
    slab_count: u32,
    size_bytes: u64,
    dropped_index: bool,
}

impl Leaving {
    /// Whether the dedup index had to be dropped: it is then to be filled again.
    pub fn dropped_index(&self) -> bool {
        self.dropped_index
    }
}

/// Puts the slabs into use that a pool of this size has, and sees to their memory.
pub(crate) fn take_memory(
    region: &Region,
    layout: &Layout,
    size_bytes: u64,
) -> Result<(), OpenError> {
    let too_small = || OpenError::new(OpenErrorKind::TooSmall);
    let slab_count = layout.slabs_in(size_bytes).ok_or_else(too_small)?;
    layout.set_slab_count(slab_count);
    let result = (|| {
        if region.held_bytes()? > layout.memory_bytes_of(slab_count) {
            give_back_holes(region, layout, slab_count)?;
        }
        region.take_memory(&layout.memory_of(slab_count))
    })();
    result.map_err(|source| OpenError { kind: OpenErrorKind::Memory, source: Some(source) })
}

fn give_back_holes(
    region: &Region,
    layout: &Layout,
    slab_count: u32,
) -> Result<(), region::RegionError> {
    layout.holes_beside(slab_count).into_iter().try_for_each(|hole| region.give_back_memory(hole))
}

impl PageStore {
    /// The memory that the pool may come to have.
    pub fn capacity_bytes(&self) -> u64 {
        self.core.memory.region.capacity_bytes()
    }

    /// Makes a piece of the pool's memory ready from `offset` on, so that requests meet no page
    /// faults. Returns where the next piece begins, if there is one.
    pub fn populate(&self, offset: u64) -> std::io::Result<Option<u64>> {
        let layout = &self.core.memory.layout;
        let mut ranges = layout.memory_of(layout.slab_count()).into_iter();
        let Some(range) = ranges.find(|range| offset < range.end) else { return Ok(None) };
        let next = self.core.memory.region.populate(offset.max(range.start)..range.end)?;
        Ok(next.or_else(|| ranges.next().map(|range| range.start)))
    }

    /// Gives the pool more memory, at once. One resize at a time.
    pub fn grow(&self, size_bytes: u64) -> Result<(), ResizeError> {
        let memory = &self.core.memory;
        let slab_count = self.slabs_for(size_bytes)?;
        let fail = |source| ResizeError::memory(source, size_bytes);
        if let Err(error) = memory.region.take_memory(&memory.layout.memory_of(slab_count)) {
            // The error of the allocation is the one to report.
            let _kept = give_back_holes(&memory.region, &memory.layout, memory.layout.slab_count());
            return Err(fail(error));
        }
        self.set_size_bytes(size_bytes);
        memory.layout.set_slab_count(slab_count);
        memory.book.admit_new(slab_count);
        Ok(())
    }

    /// Begins to take memory away: from now on slabs behind the new end are victims, and what they
    /// hold must be relocated. Refused when that does not fit in front of it. One resize at a time;
    /// not to be called while pinned or with a lane.
    pub fn begin_shrinking(&self, size_bytes: u64) -> Result<Leaving, ResizeError> {
        let memory = &self.core.memory;
        let slab_count = self.slabs_for(size_bytes)?;
        self.check_fits(slab_count, size_bytes)?;
        memory.book.begin_leaving(slab_count);
        memory.book.leave(memory.layout.slab_count());
        // Whoever took a slab before is done with it when its lane, or the index, is ours.
        self.reclaim();
        let dropped_index = self.core.index.clear_from(memory, slab_count);
        Ok(Leaving { slab_count, size_bytes, dropped_index })
    }

    /// Bytes behind the new end that are still in use.
    pub fn leaving_bytes(&self, leaving: &Leaving) -> u64 {
        let memory = &self.core.memory;
        let all = u64::from(memory.layout.slab_count() - leaving.slab_count);
        let left = memory.book.left_count(&memory.grace) as u64;
        (all - left) * SLAB_BYTES
    }

    /// Takes the memory away, if nothing behind the end is in use any more. Not to be called while
    /// pinned or with a lane.
    pub fn end_shrinking(&self, leaving: Leaving) -> Result<(), ResizeError> {
        if self.leaving_bytes(&leaving) > 0 {
            let in_use_bytes = self.core.memory.layout.memory_bytes_of(self.slabs_needed());
            let kind = ResizeErrorKind::InUse { in_use_bytes };
            let error = ResizeError::new(kind, leaving.size_bytes);
            self.cancel_shrinking(leaving);
            return Err(error);
        }
        let memory = &self.core.memory;
        self.set_size_bytes(leaving.size_bytes);
        memory.layout.set_slab_count(leaving.slab_count);
        memory.book.end_leaving();
        // Who still holds the name of a slab behind the end has learnt it under a pin.
        self.wait_for_readers();
        give_back_holes(&memory.region, &memory.layout, leaving.slab_count)
            .map_err(|source| ResizeError::memory(source, leaving.size_bytes))
    }

    /// Lets the slabs behind the end take part again.
    pub fn cancel_shrinking(&self, _leaving: Leaving) {
        let memory = &self.core.memory;
        memory.book.stay(memory.layout.slab_count(), memory.book_context());
    }

    /// Whether a node lies in a slab that is being emptied.
    pub fn is_node_in_victim(&self, node: NodeRef) -> bool {
        let Slot { slab, class, .. } = node.0;
        self.core.memory.layout.has(node.0) && self.core.memory.book.is_victim(slab, class)
    }

    fn slabs_for(&self, size_bytes: u64) -> Result<u32, ResizeError> {
        let capacity_bytes = self.capacity_bytes();
        let layout = &self.core.memory.layout;
        let kind = if !size_bytes.is_multiple_of(SIZE_UNIT_BYTES) {
            ResizeErrorKind::Misaligned
        } else if size_bytes > capacity_bytes {
            ResizeErrorKind::BeyondCapacity { capacity_bytes }
        } else if let Some(slab_count) = layout.slabs_in(size_bytes) {
            return Ok(slab_count);
        } else {
            ResizeErrorKind::TooSmall
        };
        Err(ResizeError::new(kind, size_bytes))
    }

    fn check_fits(&self, slab_count: u32, asked_bytes: u64) -> Result<(), ResizeError> {
        let needed = self.slabs_needed();
        let claimed = u32::try_from(self.slabs_claimed()).unwrap_or(u32::MAX);
        let reserve = u32::try_from(reserve_of(slab_count)).expect("slab counts fit 24 bits");
        let needed = needed.saturating_add(claimed);
        if needed + reserve <= slab_count {
            return Ok(());
        }
        let needed = (needed + reserve).min(self.core.memory.layout.slab_count());
        let in_use_bytes = self.core.memory.layout.memory_bytes_of(needed);
        Err(ResizeError::new(ResizeErrorKind::InUse { in_use_bytes }, asked_bytes))
    }

    /// Slabs that hold what is stored now, packed as tightly as can be, without the index.
    fn slabs_needed(&self) -> u32 {
        let of_class = |class: Class| {
            let live = self.core.live[class.index()].sum();
            live.div_ceil(u64::from(class.shape().slot_count))
        };
        let needed: u64 = Class::all().filter(|class| class.has_slots()).map(of_class).sum();
        u32::try_from(needed).unwrap_or(u32::MAX)
    }
}
