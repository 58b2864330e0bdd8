//! Capacity of the pool: claims on it, memory that is not yet taken, and free memory.

use region::RegionError;
use sync::atomic::Ordering;

use crate::claims::ClaimRefused;
use crate::index::full_segment_hints;
use crate::layout::{LARGE_SLOT_BYTES, LARGE_SLOT_COUNT, SLAB_BYTES};
use crate::purpose::Purpose;
use crate::store::PageStore;

/// Outcome of an attempt to claim.
enum Claimed {
    Made,
    /// There is room, but a part of it has no memory yet.
    LacksMemory(ClaimRefused),
    LacksRoom(ClaimRefused),
}

impl PageStore {
    /// Claims slots for the caller, which allocates them with [`Purpose::Claimed`]. Fails when too
    /// few are free. The caller must hold neither a pin nor a lane.
    pub fn claim(&self, slots: u64) -> Result<(), ClaimRefused> {
        // Memory that is about to be freed counts as free.
        self.reclaim();
        self.claim_now(slots)
    }

    /// Claims slots from the memory that is free at this moment. Takes memory for slabs that have
    /// none first, because claimed slots must have memory.
    pub fn claim_now(&self, slots: u64) -> Result<(), ClaimRefused> {
        loop {
            let seen = self.core.memory.layout.slab_count();
            match self.try_claim(slots) {
                Claimed::Made => return Ok(()),
                Claimed::LacksMemory(_) if self.core.memory.find_more(seen).is_ok() => {}
                Claimed::LacksMemory(refused) | Claimed::LacksRoom(refused) => return Err(refused),
            }
        }
    }

    fn try_claim(&self, slots: u64) -> Claimed {
        let (memory, claims) = (&self.core.memory, &self.core.memory.claims);
        let _changing = claims.lock();
        claims.slots.fetch_add(slots, Ordering::SeqCst);
        // A thread that opened a slab before has its slots from the margin.
        let (reserve, reserve_of_all) = (memory.reserved_slots(), self.reserve_slots());
        let untaken = u64::from(memory.untaken()) * LARGE_SLOT_COUNT;
        let (kept, free) = (claims.kept(), memory.free_slots());
        let has_room = kept + reserve_of_all <= free + untaken;
        if has_room && kept + reserve <= free {
            return Claimed::Made;
        }
        claims.slots.fetch_sub(slots, Ordering::SeqCst);
        claims.kept();
        let available = (free + slots).saturating_sub(kept + reserve);
        let refused = ClaimRefused {
            wanted_bytes: slots * LARGE_SLOT_BYTES,
            available_bytes: available * LARGE_SLOT_BYTES,
        };
        if has_room { Claimed::LacksMemory(refused) } else { Claimed::LacksRoom(refused) }
    }

    /// Restores claims of an earlier run.
    pub fn claim_again(&self, slots: u64) {
        self.core.memory.claims.slots.fetch_add(slots, Ordering::SeqCst);
    }

    /// Changes the number of slots reserved for copies of map nodes. Before an increase the caller
    /// claims slots, which it releases afterwards.
    pub fn keep_for_nodes(&self, change: i64) {
        let slots = &self.core.memory.claims.node_slots;
        slots.fetch_add(change.cast_unsigned(), Ordering::SeqCst);
    }

    /// Releases a claim. The owner's slots in it must be subtracted by [`PageStore::note_owned`].
    pub fn release_claim(&self, slots: u64) {
        self.core.memory.claims.slots.fetch_sub(slots, Ordering::SeqCst);
        self.core.memory.claims.kept();
    }

    /// Changes the number of slots that the owners of claims use.
    pub fn note_owned(&self, change: i64) {
        let claims = &self.core.memory.claims;
        let _changing = claims.lock();
        claims.owned.add(claims.lane_count, change);
    }

    /// Same as [`PageStore::note_owned`], for the holder of the lane of this index.
    #[inline]
    pub fn note_owned_in(&self, lane: usize, change: i64) {
        self.core.memory.claims.owned.add(lane, change);
    }

    /// Bytes reserved for claims, without those in flight.
    pub fn claimed_bytes(&self) -> u64 {
        let claims = &self.core.memory.claims;
        let slots = claims.slots.load(Ordering::Relaxed);
        slots.saturating_sub(claims.owned.sum()) * LARGE_SLOT_BYTES
    }

    /// Bytes that new data leaves for overwrites, for the pool's own work, for copies of nodes, and
    /// for memory in flight.
    pub fn reserved_bytes(&self) -> u64 {
        let claims = &self.core.memory.claims;
        let besides = match claims.is_empty() {
            true => 0,
            false => claims.margin() + claims.node_slots.load(Ordering::Relaxed),
        };
        (self.reserve_slots() + besides) * LARGE_SLOT_BYTES
    }

    /// Maximum number of pages that may be kept from being freed for a while: a quarter of the
    /// reserve.
    pub fn withheld_pages_max(&self) -> usize {
        usize::try_from(self.reserve_slots() / 4).expect("slots fit memory")
    }

    /// Slots that new data leaves for others once the whole pool has memory.
    fn reserve_slots(&self) -> u64 {
        self.core.memory.book.reserve() as u64 * LARGE_SLOT_COUNT
    }

    /// Bytes that overwrites find, from the reserve and from free memory, when `block_count` blocks
    /// are stored uncompressed and unshared. Memory that must be freed first does not count.
    pub fn overwrite_room_bytes(&self, block_count: u64) -> u64 {
        let memory = &self.core.memory;
        let left_slabs = Purpose::Overwrite.floor(memory.book.reserve()) as u64 + 1;
        let others =
            memory.claims.kept() + (left_slabs + self.index_growth(block_count)) * LARGE_SLOT_COUNT;
        let untaken = u64::from(memory.untaken()) * LARGE_SLOT_COUNT;
        (memory.free_slots() + untaken).saturating_sub(others) * LARGE_SLOT_BYTES
    }

    /// Number of slabs that the dedup index may take for this many pages. It leaves the reserve
    /// alone.
    fn index_growth(&self, page_count: u64) -> u64 {
        let book = &self.core.memory.book;
        let spare = book.free_soon().saturating_sub(book.reserve()) as u64
            + u64::from(self.core.memory.untaken());
        // Segments are half full after a split.
        let segments = page_count.div_ceil(u64::from(full_segment_hints() / 2));
        segments.saturating_sub(u64::from(self.core.index.segment_count())).min(spare)
    }

    /// Takes a part of the pool's memory that is not yet taken. Returns `false` if no part is left
    /// that no other thread is taking. Fails when the host has too little memory, and may be
    /// retried then. Any number of threads may call it.
    pub fn take_memory(&self) -> Result<bool, RegionError> {
        self.core.memory.take_piece()
    }

    /// Bytes of the pool's size that are not yet taken.
    pub fn untaken_bytes(&self) -> u64 {
        u64::from(self.core.memory.untaken()) * SLAB_BYTES
    }

    /// Bytes of taken memory that are free: an estimate that costs one load.
    pub fn ready_bytes(&self) -> u64 {
        self.core.memory.book.free_soon() as u64 * SLAB_BYTES
    }

    /// Bytes of slabs that are free or about to be: an estimate that costs three loads.
    #[inline]
    pub fn free_bytes_soon(&self) -> u64 {
        self.ready_bytes() + self.untaken_bytes()
    }

    /// Bytes of free slabs that are not claimed: an estimate that costs four loads.
    #[inline]
    pub fn unclaimed_bytes_soon(&self) -> u64 {
        let kept_bytes = self.core.memory.claims.kept_bytes_of_late.load(Ordering::Relaxed);
        self.free_bytes_soon().saturating_sub(kept_bytes)
    }
}
