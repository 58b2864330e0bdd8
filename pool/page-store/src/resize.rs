//! Growing and shrinking of a pool.
//!
//! ```text
//!  grow      take memory ─▶ commit the size ─▶ admit the new slabs
//!  shrink    begin: no lane opens a slab past the new end ─▶ the engine moves their contents away
//!            ─▶ end: commit the size ─▶ no reader uses a slab past the end ─▶ free the memory
//! ```
//!
//! The size in the superblock commits the resize. A kill before it leaves the old size, a kill
//! after it the new one. Memory that the size does not need is freed when the pool is opened.

use region::SIZE_UNIT_BYTES;
use sync::atomic::Ordering;

use crate::error::{ResizeError, ResizeErrorKind};
use crate::layout::{Class, LARGE_SLOT_COUNT, SLAB_BYTES};
use crate::page_ref::NodeRef;
use crate::slabs::reserve_of;
use crate::store::PageStore;
use crate::taking::give_back_holes;

/// Slabs that are about to leave the pool. Must be passed to [`PageStore::end_shrinking`] or
/// [`PageStore::cancel_shrinking`].
#[derive(Debug)]
#[must_use = "slabs that are leaving are of no use"]
pub struct Leaving {
    slab_count: u32,
    size_bytes: u64,
    dropped_index: bool,
}

impl Leaving {
    /// Returns whether the dedup index was dropped and must be filled again.
    pub fn dropped_index(&self) -> bool {
        self.dropped_index
    }
}

impl PageStore {
    /// Populates a piece of the pool's memory from `offset` on, so that requests cause no page
    /// faults. Returns the offset of the next piece, if there is one.
    pub fn populate(&self, offset: u64) -> std::io::Result<Option<u64>> {
        let layout = &self.core.memory.layout;
        let mut ranges = layout.memory_of(layout.slab_count()).into_iter();
        let Some(range) = ranges.find(|range| offset < range.end) else { return Ok(None) };
        let next = self.core.memory.region.populate(offset.max(range.start)..range.end)?;
        Ok(next.or_else(|| ranges.next().map(|range| range.start)))
    }

    /// Grows the pool at once, after taking the rest of its current memory. Only one resize at a
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
        memory.while_none_taken(|| {
            self.commit_size(size_bytes, pool_slabs, pool_slabs);
            memory.book.admit_new(pool_slabs);
        });
        Ok(())
    }

    /// Commits the size of the pool: `pool_slabs` slabs, of which `slab_count` have memory.
    fn commit_size(&self, size_bytes: u64, pool_slabs: u32, slab_count: u32) {
        let memory = &self.core.memory;
        memory.change_superblock(|superblock| {
            superblock.size_bytes = size_bytes;
            superblock.untaken_slabs = pool_slabs - slab_count;
        });
        self.size_bytes.store(size_bytes, Ordering::Relaxed);
        memory.layout.set_pool_slabs(pool_slabs);
        memory.layout.set_slab_count(slab_count);
    }

    /// Begins to shrink the pool: from now on slabs past the new end are victims, whose contents
    /// must be relocated. Fails if they do not fit before it. Only one resize at a time. The caller
    /// must hold neither a pin nor a lane.
    pub fn begin_shrinking(&self, size_bytes: u64) -> Result<Leaving, ResizeError> {
        let memory = &self.core.memory;
        let slab_count = self.slabs_for(size_bytes)?;
        self.check_fits(slab_count, size_bytes)?;
        memory.while_none_taken(|| memory.book.begin_leaving(slab_count));
        // From here on no table slab is added past the end.
        if let Some(end) = memory.tables.end().filter(|&end| end > slab_count) {
            memory.while_none_taken(|| memory.stay(memory.layout.pool_slabs()));
            let needed_bytes = memory.layout.memory_bytes_of(end);
            return Err(ResizeError::new(ResizeErrorKind::Tables { needed_bytes }, size_bytes));
        }
        memory.book.leave(memory.layout.slab_count());
        // A thread that took a slab before has finished with it when this thread holds its lane, or
        // the index.
        self.reclaim();
        let dropped_index = self.core.index.clear_from(memory, slab_count);
        Ok(Leaving { slab_count, size_bytes, dropped_index })
    }

    /// Number of bytes past the new end that are still in use.
    pub fn leaving_bytes(&self, leaving: &Leaving) -> u64 {
        let memory = &self.core.memory;
        let all = u64::from(memory.layout.slab_count().saturating_sub(leaving.slab_count));
        let left = memory.book.left_count(&memory.grace) as u64;
        (all - left) * SLAB_BYTES
    }

    /// Shrinks the pool, if nothing past the end is in use any more. The caller must hold neither a
    /// pin nor a lane.
    pub fn end_shrinking(&self, leaving: Leaving) -> Result<(), ResizeError> {
        if self.leaving_bytes(&leaving) > 0 {
            let in_use_bytes = self.core.memory.layout.memory_bytes_of(self.slabs_needed());
            let kind = ResizeErrorKind::InUse { in_use_bytes };
            let error = ResizeError::new(kind, leaving.size_bytes);
            self.cancel_shrinking(leaving);
            return Err(error);
        }
        let memory = &self.core.memory;
        memory.while_none_taken(|| {
            let slab_count = memory.layout.slab_count().min(leaving.slab_count);
            self.commit_size(leaving.size_bytes, leaving.slab_count, slab_count);
            memory.book.end_leaving();
        });
        // A thread that still has a reference to a slab past the end got it under a pin.
        self.wait_for_readers();
        give_back_holes(&memory.region, &memory.layout, leaving.slab_count)
            .map_err(|source| ResizeError::memory(source, leaving.size_bytes))
    }

    /// Returns the slabs past the end to use.
    pub fn cancel_shrinking(&self, _leaving: Leaving) {
        let memory = &self.core.memory;
        memory.while_none_taken(|| {
            memory.stay(memory.layout.pool_slabs());
        });
    }

    /// Returns whether a node is in a slab that is being emptied.
    pub fn is_node_in_victim(&self, node: NodeRef) -> bool {
        let (memory, at) = (&self.core.memory, node.0);
        memory.layout.has(at) && memory.book.is_victim(at.slab, at.class)
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
            ResizeErrorKind::TooSmall { needed_bytes: layout.size_bytes_min() }
        };
        Err(ResizeError::new(kind, size_bytes))
    }

    fn check_fits(&self, slab_count: u32, asked_bytes: u64) -> Result<(), ResizeError> {
        let needed = self.slabs_needed();
        let claimed = self.core.memory.claims.kept().div_ceil(LARGE_SLOT_COUNT);
        let claimed = u32::try_from(claimed).unwrap_or(u32::MAX);
        let reserve = u32::try_from(reserve_of(slab_count)).expect("slab counts fit 24 bits");
        let needed = needed.saturating_add(claimed);
        if needed + reserve <= slab_count {
            return Ok(());
        }
        let needed = (needed + reserve).min(self.core.memory.layout.pool_slabs());
        let in_use_bytes = self.core.memory.layout.memory_bytes_of(needed);
        Err(ResizeError::new(ResizeErrorKind::InUse { in_use_bytes }, asked_bytes))
    }

    /// Minimum number of slabs for the current contents without the index.
    fn slabs_needed(&self) -> u32 {
        let of_class = |class: Class| {
            let live = self.core.memory.live[class.index()].sum();
            live.div_ceil(u64::from(class.shape().slot_count))
        };
        let needed: u64 = Class::all().filter(|class| class.has_slots()).map(of_class).sum();
        let needed = needed + u64::from(self.core.memory.tables.count());
        u32::try_from(needed).unwrap_or(u32::MAX)
    }
}
