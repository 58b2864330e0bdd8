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

use region::{Region, RegionError, SIZE_UNIT_BYTES};

use crate::error::{OpenError, OpenErrorKind, ResizeError, ResizeErrorKind};
use crate::layout::{Class, Layout, SLAB_BYTES, Slot};
use crate::page_ref::NodeRef;
use crate::slabs::reserve_of;
use crate::store::PageStore;
use crate::superblock::Superblock;
use crate::taking::PIECE_SLABS;

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

/// Whether there was a pool in the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolState {
    New,
    Existing,
}

/// Says which slabs a pool has and which of them have memory, and sees to it that some have. A new
/// pool is refused when the host does not have the memory for all of it.
pub(crate) fn begin_with_memory(
    region: &Region,
    layout: &Layout,
    superblock: &mut Superblock,
    state: PoolState,
) -> Result<(), OpenError> {
    let too_small = || OpenError::new(OpenErrorKind::TooSmall);
    let pool_slabs = layout.slabs_in(superblock.size_bytes).ok_or_else(too_small)?;
    let taken = begin_taking(region, layout, (superblock.untaken_slabs, pool_slabs), state)
        .map_err(|source| OpenError { kind: OpenErrorKind::Memory, source: Some(source) })?;
    superblock.untaken_slabs = pool_slabs - taken;
    layout.set_pool_slabs(pool_slabs);
    layout.set_slab_count(taken);
    Ok(())
}

/// Returns how many slabs have memory.
fn begin_taking(
    region: &Region,
    layout: &Layout,
    (untaken, pool_slabs): (u32, u32),
    state: PoolState,
) -> Result<u32, RegionError> {
    // What an interrupted resize left would count as memory of slabs.
    give_back_holes(region, layout, pool_slabs)?;
    let expected_bytes = layout.memory_bytes_of(pool_slabs);
    if region.held_bytes()? >= expected_bytes {
        return Ok(pool_slabs);
    }
    if state == PoolState::New {
        region.reserve_memory(&layout.memory_of(pool_slabs))?;
    }
    let first = PIECE_SLABS.min(pool_slabs);
    let taken = match state {
        PoolState::New => first,
        PoolState::Existing => pool_slabs.saturating_sub(untaken).max(first),
    };
    let missing = match region.held_bytes()? < layout.memory_bytes_of(taken) {
        // A pool that is new, or whose file was copied without its memory.
        true => layout.memory_of(taken),
        false => Vec::new(),
    };
    region.take_memory(&missing, expected_bytes)?;
    Ok(taken)
}

fn give_back_holes(region: &Region, layout: &Layout, slab_count: u32) -> Result<(), RegionError> {
    layout.holes_beside(slab_count).into_iter().try_for_each(|hole| region.give_back_memory(hole))
}

impl PageStore {
    /// The memory that the pool may come to have.
    pub fn capacity_bytes(&self) -> u64 {
        self.core.memory.region.capacity_bytes()
    }

    /// Makes a piece of the memory that the pool has ready from `offset` on, so that requests meet
    /// no page faults. Returns where the next piece begins, if there is one.
    pub fn populate(&self, offset: u64) -> std::io::Result<Option<u64>> {
        let layout = &self.core.memory.layout;
        let mut ranges = layout.memory_of(layout.slab_count()).into_iter();
        let Some(range) = ranges.find(|range| offset < range.end) else { return Ok(None) };
        let next = self.core.memory.region.populate(offset.max(range.start)..range.end)?;
        Ok(next.or_else(|| ranges.next().map(|range| range.start)))
    }

    /// Gives the pool more memory, at once, after all that it was to have before. One resize at a
    /// time.
    pub fn grow(&self, size_bytes: u64) -> Result<(), ResizeError> {
        let memory = &self.core.memory;
        let pool_slabs = self.slabs_for(size_bytes)?;
        let fail = |source| ResizeError::memory(source, size_bytes);
        while memory.await_more(memory.layout.slab_count()).map_err(fail)? {}
        let expected_bytes = memory.layout.memory_bytes_of(pool_slabs);
        let more = memory.layout.memory_between(&(memory.layout.pool_slabs()..pool_slabs));
        if let Err(error) = memory.region.take_memory(&more, expected_bytes) {
            // The error of the allocation is the one to report.
            let _kept = give_back_holes(&memory.region, &memory.layout, memory.layout.pool_slabs());
            return Err(fail(error));
        }
        memory.while_nobody_takes(|| {
            self.set_size_bytes(size_bytes, (pool_slabs, pool_slabs));
            memory.layout.set_pool_slabs(pool_slabs);
            memory.layout.set_slab_count(pool_slabs);
            memory.book.admit_new(pool_slabs);
        });
        Ok(())
    }

    /// Begins to take memory away: from now on slabs behind the new end are victims, and what they
    /// hold must be relocated. Refused when that does not fit in front of it. One resize at a time;
    /// not to be called while pinned or with a lane.
    pub fn begin_shrinking(&self, size_bytes: u64) -> Result<Leaving, ResizeError> {
        let memory = &self.core.memory;
        let slab_count = self.slabs_for(size_bytes)?;
        self.check_fits(slab_count, size_bytes)?;
        memory.while_nobody_takes(|| memory.book.begin_leaving(slab_count));
        memory.book.leave(memory.layout.slab_count());
        // Whoever took a slab before is done with it when its lane, or the index, is ours.
        self.reclaim();
        let dropped_index = self.core.index.clear_from(memory, slab_count);
        Ok(Leaving { slab_count, size_bytes, dropped_index })
    }

    /// Bytes behind the new end that are still in use.
    pub fn leaving_bytes(&self, leaving: &Leaving) -> u64 {
        let memory = &self.core.memory;
        let all = u64::from(memory.layout.slab_count().saturating_sub(leaving.slab_count));
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
        memory.while_nobody_takes(|| {
            let slab_count = memory.layout.slab_count().min(leaving.slab_count);
            self.set_size_bytes(leaving.size_bytes, (slab_count, leaving.slab_count));
            memory.layout.set_pool_slabs(leaving.slab_count);
            memory.layout.set_slab_count(slab_count);
            memory.book.end_leaving();
        });
        // Who still holds the name of a slab behind the end has learnt it under a pin.
        self.wait_for_readers();
        give_back_holes(&memory.region, &memory.layout, leaving.slab_count)
            .map_err(|source| ResizeError::memory(source, leaving.size_bytes))
    }

    /// Lets the slabs behind the end take part again.
    pub fn cancel_shrinking(&self, _leaving: Leaving) {
        let memory = &self.core.memory;
        memory.while_nobody_takes(|| {
            memory.book.stay(memory.layout.pool_slabs(), memory.book_context());
        });
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
        let needed = (needed + reserve).min(self.core.memory.layout.pool_slabs());
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
