//! Allocation policy of free memory: the reserve of each purpose, claims, slabs about to be freed,
//! and parts of the pool that have no memory yet.

use std::ops::Range;

use region::RegionError;
use sync::atomic::Ordering;

use crate::error::NoSpace;
use crate::layout::{Class, LARGE_SLOT_COUNT, Slot};
use crate::memory::Memory;
use crate::purpose::Purpose;
use crate::taking::Pieces;

/// Maximum reserve while slabs without memory are left. A writer that needs more takes the next of
/// these first, and does not wait for a share of a large pool.
const RESERVE_MAX_WHILE_UNTAKEN: usize = 32;

impl Memory {
    /// Number of slabs of the pool that have no memory yet.
    pub(crate) fn untaken(&self) -> u32 {
        self.book.end().saturating_sub(self.layout.slab_count())
    }

    /// Number of free slabs with memory that an allocation for this purpose leaves for others.
    fn floor(&self, purpose: Purpose) -> usize {
        self.floor_with(purpose, self.untaken())
    }

    fn floor_with(&self, purpose: Purpose, untaken: u32) -> usize {
        let all = self.book.reserve();
        purpose.floor(if untaken == 0 { all } else { all.min(RESERVE_MAX_WHILE_UNTAKEN) })
    }

    /// Number of slots with memory that new data leaves for others.
    pub(crate) fn reserved_slots(&self) -> u64 {
        self.floor(Purpose::NewData) as u64 * LARGE_SLOT_COUNT
    }

    /// Takes a free slab, and memory for it if necessary. The caller formats it and registers it.
    pub(crate) fn take_free_slab(&self, purpose: Purpose) -> Option<u32> {
        loop {
            let (seen, untaken) = (self.layout.slab_count(), self.untaken());
            // Claimed slabs are taken also while others find none.
            let plenty =
                (purpose != Purpose::Claimed).then(|| self.floor_with(Purpose::NewData, untaken));
            let taken = self.book.take_free(self.floor_with(purpose, untaken), plenty, &self.grace);
            if taken.is_some() {
                return taken;
            }
            if untaken == 0 {
                self.book.begin_scarcity();
                return None;
            }
            self.find_more(seen).ok()?;
        }
    }

    /// Takes the free slab with the lowest number, for a permanent use, under the conditions for
    /// new data.
    pub(crate) fn take_lowest_free_slab(&self) -> Option<u32> {
        loop {
            let seen = self.layout.slab_count();
            let floor = self.floor(Purpose::NewData);
            if self.may_open(Purpose::NewData)
                && let Some(slab) = self.book.take_lowest_free(floor, &self.grace)
            {
                return Some(slab);
            }
            self.find_more(seen).ok()?;
        }
    }

    /// Number of free slots for uncompressed pages, wherever there is memory.
    pub(crate) fn free_slots(&self) -> u64 {
        let in_slabs = self.book.raw_slab_count() as u64 * LARGE_SLOT_COUNT;
        let live = self.live[Class::RAW.index()].sum();
        self.book.free_soon() as u64 * LARGE_SLOT_COUNT + in_slabs.saturating_sub(live)
    }

    /// Number of free slots that are neither claimed nor reserved.
    pub(crate) fn spare_slots(&self) -> u64 {
        self.free_slots().saturating_sub(self.claims.kept() + self.reserved_slots())
    }

    /// Returns whether a slab may be opened for this purpose: enough must be left for claims.
    pub(crate) fn may_open(&self, purpose: Purpose) -> bool {
        if purpose == Purpose::Claimed {
            return true;
        }
        if self.claims.is_empty() {
            return match purpose {
                Purpose::NewData | Purpose::Overwrite => self.leaves_slabs(purpose),
                _ => true,
            };
        }
        let kept = self.claims.kept();
        let left = match purpose {
            // Frees more than it takes, and may use half of the margin.
            Purpose::Removal => kept - self.claims.margin() / 2,
            _ => kept + self.floor(purpose) as u64 * LARGE_SLOT_COUNT,
        };
        self.free_slots() >= left + LARGE_SLOT_COUNT
    }

    /// Returns whether the reserve for others is left. Single slots count like those of free slabs:
    /// otherwise a writer that may not take slabs would take the slots that others free in
    /// exchange.
    fn leaves_slabs(&self, purpose: Purpose) -> bool {
        let slabs = self.floor(purpose) + 1;
        // The exact number requires a sum over all lanes.
        self.book.free_soon() >= slabs || self.free_slots() >= slabs as u64 * LARGE_SLOT_COUNT
    }

    /// Returns whether a whole slab may be taken for the dedup index.
    pub(crate) fn may_take_for_index(&self) -> bool {
        let free = || self.book.free_soon() as u64 * LARGE_SLOT_COUNT;
        self.claims.is_empty()
            || free() >= self.claims.kept() + self.reserved_slots() + LARGE_SLOT_COUNT
    }

    /// Adds a slot whose word says that it is free. Its slab may change its use from then on.
    pub(crate) fn credit(&self, at: Slot) {
        if self.book.credit(at.slab, at.class) {
            self.free_slab(at.slab);
        }
    }

    /// Closes a slab that a lane opened, and returns `unused` slots to it.
    pub(crate) fn close_slab(&self, slab: u32, class: Class, unused: u32) {
        if self.book.close(slab, class, unused) {
            self.free_slab(slab);
        }
    }

    /// Returns a victim that still holds pages to use. Returns whether it was empty.
    pub(crate) fn release_victim(&self, slab: u32, class: Class) -> bool {
        let released = self.book.release_victim(slab, class);
        if released == Some(true) {
            self.free_slab(slab);
        }
        released.is_none()
    }

    /// Returns the slabs up to `slab_count` to use.
    pub(crate) fn stay(&self, slab_count: u32) {
        for (slab, class) in self.book.stay(slab_count) {
            self.release_victim(slab, class);
        }
    }

    /// Adds a slab of the caller to the free ones, after a grace period. Clears its word in the
    /// slab table first: a thread that pins later cannot use it with its old class.
    pub(crate) fn free_slab(&self, slab: u32) {
        self.region.word_to_store(self.layout.table_word(slab)).store(0, Ordering::Release);
        self.book.free_after(self.grace.retire_epoch(), slab);
    }

    /// Takes a piece of memory that no other thread is taking. Returns `false` if there is none
    /// now.
    pub(crate) fn take_piece(&self) -> Result<bool, RegionError> {
        let piece = self.taking.lock().begin(self.book.end());
        piece.map_or(Ok(false), |piece| self.take(piece).map(|()| true))
    }

    /// Waits until more slabs have memory than the `seen` ones: takes a piece, or waits for other
    /// threads. Returns `false` if all have memory.
    pub(crate) fn await_more(&self, seen: u32) -> Result<bool, RegionError> {
        let mut pieces = self.taking.lock();
        loop {
            if self.layout.slab_count() > seen {
                return Ok(true);
            }
            if self.untaken() == 0 {
                return Ok(false);
            }
            pieces = match pieces.begin(self.book.end()) {
                Some(piece) => {
                    drop(pieces);
                    self.take(piece)?;
                    self.taking.lock()
                }
                None => self.taking.wait(pieces),
            };
        }
    }

    /// Same as [`Memory::await_more`], for a thread that searches for a free slab.
    pub(crate) fn find_more(&self, seen: u32) -> Result<(), NoSpace> {
        // The thread that takes memory in the background reports the reason.
        match self.await_more(seen) {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(NoSpace),
        }
    }

    fn take(&self, piece: Range<u32>) -> Result<(), RegionError> {
        let expected_bytes = self.layout.memory_bytes_of(self.book.end());
        let result = self.region.take_memory(&self.layout.memory_between(&piece), expected_bytes);
        let mut pieces = self.taking.lock();
        let before = self.layout.slab_count();
        let taken = pieces.end(piece, result.is_ok(), before);
        if taken > before {
            let untaken_slabs = self.layout.pool_slabs() - taken;
            self.change_superblock(|superblock| superblock.untaken_slabs = untaken_slabs);
            self.layout.set_slab_count(taken);
            self.book.admit_taken(before..taken);
        }
        self.taking.notify();
        result
    }

    /// Calls `change`, which may change the number of slabs of the pool and of those with memory,
    /// while no thread takes memory.
    pub(crate) fn while_none_taken<T>(&self, change: impl FnOnce() -> T) -> T {
        let mut pieces = self.taking.hold();
        let result = change();
        *pieces = Pieces::from(self.layout.slab_count());
        self.taking.notify();
        result
    }
}
