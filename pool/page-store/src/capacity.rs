//! Capacity of the pool: claims on it, memory that it is still to take, and what is free.

use region::RegionError;
use sync::atomic::Ordering;

use crate::claims::ClaimRefused;
use crate::index::full_segment_hints;
use crate::layout::{LARGE_SLOT_BYTES, LARGE_SLOT_COUNT, SLAB_BYTES};
use crate::purpose::Purpose;
use crate::store::PageStore;

/// How a claim went.
enum Claimed {
    Made,
    /// There is room, which has no memory yet.
    LacksMemory(ClaimRefused),
    LacksRoom(ClaimRefused),
}

impl PageStore {
    /// Keeps so many slots for the caller, which takes them as [`Purpose::Claimed`]. Refused when
    /// too few are free. Not to be called while pinned or with a lane.
    pub fn claim(&self, slots: u64) -> Result<(), ClaimRefused> {
        // What is on its way to be free counts too.
        self.reclaim();
        self.claim_now(slots)
    }

    /// The same, as memory is at this moment. What has none yet is taken first: what is claimed has
    /// memory.
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
        // A thread that opened a slab before has it from the margin.
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

    /// Claims slots that the pool owes from an earlier run.
    pub fn claim_again(&self, slots: u64) {
        self.core.memory.claims.slots.fetch_add(slots, Ordering::SeqCst);
    }

    /// Keeps so many more slots, or fewer, for copies of map nodes. More must be claimed before,
    /// and released after.
    pub fn keep_for_nodes(&self, change: i64) {
        let slots = &self.core.memory.claims.node_slots;
        slots.fetch_add(change.cast_unsigned(), Ordering::SeqCst);
    }

    /// Gives a claim up. What its owner has of it must be taken off by [`PageStore::note_owned`].
    pub fn release_claim(&self, slots: u64) {
        self.core.memory.claims.slots.fetch_sub(slots, Ordering::SeqCst);
        self.core.memory.claims.kept();
    }

    /// The owners of claims have so many more, or fewer, of the slots.
    pub fn note_owned(&self, change: i64) {
        let claims = &self.core.memory.claims;
        let _changing = claims.lock();
        claims.owned.add(claims.lane_count, change);
    }

    /// The same, by the holder of the lane of this index.
    #[inline]
    pub fn note_owned_in(&self, lane: usize, change: i64) {
        self.core.memory.claims.owned.add(lane, change);
    }

    /// Bytes that are kept for claims, without what is in flight.
    pub fn claimed_bytes(&self) -> u64 {
        let claims = &self.core.memory.claims;
        let slots = claims.slots.load(Ordering::Relaxed);
        slots.saturating_sub(claims.owned.sum()) * LARGE_SLOT_BYTES
    }

    /// Bytes that new data leaves: for overwrites, for the pool's own work, for copies of nodes,
    /// and in flight.
    pub fn reserved_bytes(&self) -> u64 {
        let claims = &self.core.memory.claims;
        let besides = match claims.is_empty() {
            true => 0,
            false => claims.margin() + claims.node_slots.load(Ordering::Relaxed),
        };
        (self.reserve_slots() + besides) * LARGE_SLOT_BYTES
    }

    /// Pages that may be kept from being freed for a while, at most: a quarter of the reserve.
    pub fn withheld_pages_max(&self) -> usize {
        usize::try_from(self.reserve_slots() / 4).expect("slots fit memory")
    }

    /// Slots that new data leaves for others once all of the pool has memory.
    fn reserve_slots(&self) -> u64 {
        self.core.memory.book.reserve() as u64 * LARGE_SLOT_COUNT
    }

    /// Bytes that overwrites find, of those kept for them and of free ones, when `block_count`
    /// blocks are stored as they are, each for itself. What is to be freed first is not counted.
    pub fn overwrite_room_bytes(&self, block_count: u64) -> u64 {
        let memory = &self.core.memory;
        let left_slabs = Purpose::Overwrite.floor(memory.book.reserve()) as u64 + 1;
        let others =
            memory.claims.kept() + (left_slabs + self.index_growth(block_count)) * LARGE_SLOT_COUNT;
        let untaken = u64::from(memory.untaken()) * LARGE_SLOT_COUNT;
        (memory.free_slots() + untaken).saturating_sub(others) * LARGE_SLOT_BYTES
    }

    /// Slabs that the dedup index may come to take for so many pages: it leaves the reserve alone.
    fn index_growth(&self, page_count: u64) -> u64 {
        let book = &self.core.memory.book;
        let spare = book.free_soon().saturating_sub(book.reserve()) as u64
            + u64::from(self.core.memory.untaken());
        // Segments are half full after a split.
        let segments = page_count.div_ceil(u64::from(full_segment_hints() / 2));
        segments.saturating_sub(u64::from(self.core.index.segment_count())).min(spare)
    }

    /// Takes some of the memory that the pool is to have and has not. `false`: there is none that
    /// no other thread is taking. Fails when the host has too little; to be tried again then. Any
    /// number of threads may call it.
    pub fn take_memory(&self) -> Result<bool, RegionError> {
        self.core.memory.take_piece()
    }

    /// Memory that the pool is to have and has not.
    pub fn untaken_bytes(&self) -> u64 {
        u64::from(self.core.memory.untaken()) * SLAB_BYTES
    }

    /// Memory that the pool has and that is free: a guess that costs one load.
    pub fn ready_bytes(&self) -> u64 {
        self.core.memory.book.free_soon() as u64 * SLAB_BYTES
    }

    /// Bytes of free slabs, and of those on their way to be free: a guess that costs three loads.
    #[inline]
    pub fn free_bytes_soon(&self) -> u64 {
        self.ready_bytes() + self.untaken_bytes()
    }

    /// Bytes of free slabs that are not claimed: a guess that costs four loads.
    #[inline]
    pub fn unclaimed_bytes_soon(&self) -> u64 {
        let kept_bytes = self.core.memory.claims.kept_bytes_of_late.load(Ordering::Relaxed);
        self.free_bytes_soon().saturating_sub(kept_bytes)
    }
}
