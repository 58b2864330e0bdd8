//! Slots that are kept for whoever has claimed them, whatever others store.
//!
//! ```text
//!  slots for pages as they are that nobody has
//!  ├──────────────── claimed ──────────────┼─ margin ─┼─ reserve ─┼── anybody's ──┤
//!    claims, less the pages that their       in flight
//!    owners have alone by now, and what
//!    copies of their map nodes take
//! ```
//!
//! Who opens a slab without a claim leaves as many slots as are claimed; nothing is asked for
//! single pages. Free slots count wherever they are: in free slabs, and single ones in slabs of
//! pages as they are. The margin covers what lanes keep open, and what overwrites retire in one
//! batch.

use std::sync::{Mutex, MutexGuard};

use sync::Striped;
use sync::atomic::{AtomicU64, Ordering};
use units::Size;

use crate::core::Core;
use crate::index::full_segment_hints;
use crate::lane::Purpose;
use crate::layout::{Class, SLAB_BYTES};
use crate::memory::Memory;
use crate::store::PageStore;

/// Slots that each lane may have in flight: in two open slabs, and retired in one batch.
const MARGIN_A_LANE: u64 = 128;

const SLOT_BYTES: u64 = 4096;
const SLOTS_A_SLAB: u64 = SLAB_BYTES / SLOT_BYTES;

/// What is claimed of one pool.
#[derive(Debug)]
pub(crate) struct Claims {
    /// Slots that were claimed.
    slots: AtomicU64,
    /// Of these, the ones that their owners have: a part for each lane, and one for whoever holds
    /// `changing`.
    owned: Striped,
    /// Slots kept besides, for copies of the owners' map nodes. None without claims.
    node_slots: AtomicU64,
    lane_count: usize,
    changing: Mutex<()>,
    /// Bytes that are still to be kept, as they were when that was last asked for.
    kept_bytes_of_late: AtomicU64,
}

/// Too little is free to be claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} are wanted, and {} can be claimed", Size(*wanted_bytes), Size(*available_bytes))]
pub struct ClaimRefused {
    pub wanted_bytes: u64,
    pub available_bytes: u64,
}

/// What a claim lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missing {
    Room,
    /// There is room, which has no memory yet.
    Memory,
}

impl Claims {
    pub(crate) fn new(lane_count: usize) -> Self {
        Self {
            slots: AtomicU64::new(0),
            owned: Striped::new(lane_count + 1),
            node_slots: AtomicU64::new(0),
            lane_count,
            changing: Mutex::new(()),
            kept_bytes_of_late: AtomicU64::new(0),
        }
    }

    /// Slots to be kept now, in flight included.
    fn kept(&self) -> u64 {
        let slots = self.slots.load(Ordering::SeqCst);
        let kept = match slots {
            0 => 0,
            _ => {
                let nodes = self.node_slots.load(Ordering::SeqCst);
                slots.saturating_sub(self.owned.sum()) + nodes + self.margin()
            }
        };
        self.kept_bytes_of_late.store(kept * SLOT_BYTES, Ordering::Relaxed);
        kept
    }

    fn margin(&self) -> u64 {
        self.lane_count as u64 * MARGIN_A_LANE
    }

    fn hold(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().expect("nobody panics while changing claims")
    }
}

impl Core {
    /// Whether a slab may be opened for this purpose: enough is left for those who have claims.
    pub(crate) fn may_open(&self, purpose: Purpose) -> bool {
        if purpose == Purpose::Claimed {
            return true;
        }
        if self.memory.claims.slots.load(Ordering::Relaxed) == 0 {
            return match purpose {
                Purpose::NewData | Purpose::Overwrite => self.leaves_slabs(purpose),
                _ => true,
            };
        }
        let kept = self.memory.claims.kept();
        let left = match purpose {
            // Gives back more than it takes, and may use half of what is in flight.
            Purpose::Removal => kept - self.memory.claims.margin() / 2,
            _ => kept + self.memory.floor(purpose) as u64 * SLOTS_A_SLAB,
        };
        self.free_slots() >= left + SLOTS_A_SLAB
    }

    /// Whether as much is left as is reserved for others. Single slots count like those of free
    /// slabs: else who may not take the slabs would take what others free in their place.
    fn leaves_slabs(&self, purpose: Purpose) -> bool {
        let slabs = self.memory.floor(purpose) + 1;
        // The exact number takes a look at every lane.
        self.memory.book.free_soon() >= slabs || self.free_slots() >= slabs as u64 * SLOTS_A_SLAB
    }

    /// Free slots beside those that are claimed or reserved.
    pub(crate) fn spare_slots(&self) -> u64 {
        let reserve = self.memory.floor(Purpose::NewData) as u64 * SLOTS_A_SLAB;
        self.free_slots().saturating_sub(self.memory.claims.kept() + reserve)
    }

    /// Slots for pages as they are that hold none, wherever there is memory.
    fn free_slots(&self) -> u64 {
        let book = &self.memory.book;
        let in_slabs = book.raw_slab_count() as u64 * SLOTS_A_SLAB;
        let live = self.live[Class::RAW.index()].sum();
        book.free_soon() as u64 * SLOTS_A_SLAB + in_slabs.saturating_sub(live)
    }
}

impl Core {
    /// Slabs that the dedup index may come to take for so many pages: it leaves the reserve alone.
    fn index_growth(&self, page_count: u64) -> u64 {
        let book = &self.memory.book;
        let spare = book.free_soon().saturating_sub(book.floor(Purpose::NewData, 0)) as u64
            + u64::from(self.memory.untaken());
        // Segments are half full after a split.
        let segments = page_count.div_ceil(u64::from(full_segment_hints() / 2));
        segments.saturating_sub(u64::from(self.index.segment_count())).min(spare)
    }
}

impl Memory {
    /// Free slabs with memory that are left for others when one is taken for this purpose.
    fn floor(&self, purpose: Purpose) -> usize {
        self.book.floor(purpose, self.untaken())
    }

    /// Whether a whole slab may be taken for the dedup index.
    pub(crate) fn may_take_for_index(&self) -> bool {
        let claims = &self.claims;
        if claims.slots.load(Ordering::Relaxed) == 0 {
            return true;
        }
        let left = claims.kept() + self.floor(Purpose::NewData) as u64 * SLOTS_A_SLAB;
        self.book.free_soon() as u64 * SLOTS_A_SLAB >= left + SLOTS_A_SLAB
    }
}

impl PageStore {
    /// Keeps so many slots for whoever calls, who takes them as [`Purpose::Claimed`]. Refused when
    /// too few are free. Not to be called while pinned or with a lane.
    pub fn claim(&self, slots: u64) -> Result<(), ClaimRefused> {
        // What is on its way to be free counts too.
        self.reclaim();
        self.claim_now(slots)
    }

    /// The same, as memory is at this moment. What has none yet is taken first: whoever has a claim
    /// has the memory.
    pub fn claim_now(&self, slots: u64) -> Result<(), ClaimRefused> {
        loop {
            let seen = self.core.memory.layout.slab_count();
            let Err((refused, missing)) = self.try_claim(slots) else { return Ok(()) };
            let has_more = || self.core.memory.find_more(seen).is_ok();
            if missing == Missing::Room || !has_more() {
                return Err(refused);
            }
        }
    }

    fn try_claim(&self, slots: u64) -> Result<(), (ClaimRefused, Missing)> {
        let (core, claims) = (&self.core, &self.core.memory.claims);
        let _changing = claims.hold();
        claims.slots.fetch_add(slots, Ordering::SeqCst);
        // Who opened a slab before has it from the margin.
        let reserve = core.memory.floor(Purpose::NewData) as u64 * SLOTS_A_SLAB;
        let reserve_of_all = core.memory.book.floor(Purpose::NewData, 0) as u64 * SLOTS_A_SLAB;
        let untaken = u64::from(core.memory.untaken()) * SLOTS_A_SLAB;
        let (kept, free) = (claims.kept(), core.free_slots());
        let missing = match kept + reserve_of_all <= free + untaken {
            true if kept + reserve <= free => return Ok(()),
            true => Missing::Memory,
            false => Missing::Room,
        };
        claims.slots.fetch_sub(slots, Ordering::SeqCst);
        let available = (free + slots).saturating_sub(kept + reserve);
        claims.kept();
        let refused = ClaimRefused {
            wanted_bytes: slots * SLOT_BYTES,
            available_bytes: available * SLOT_BYTES,
        };
        Err((refused, missing))
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
        let _changing = claims.hold();
        claims.owned.add(claims.lane_count, change);
    }

    /// The same, by whoever holds the lane of this index.
    #[inline]
    pub fn note_owned_in(&self, lane: usize, change: i64) {
        self.core.memory.claims.owned.add(lane, change);
    }

    /// Bytes that are kept for those who have claims, without what is in flight.
    pub fn claimed_bytes(&self) -> u64 {
        let claims = &self.core.memory.claims;
        let slots = claims.slots.load(Ordering::Relaxed);
        slots.saturating_sub(claims.owned.sum()) * SLOT_BYTES
    }

    /// Bytes that new data leaves: for overwrites, for the pool's own work, for copies of nodes,
    /// and in flight.
    pub fn reserved_bytes(&self) -> u64 {
        let claims = &self.core.memory.claims;
        let besides = match claims.slots.load(Ordering::Relaxed) {
            0 => 0,
            _ => claims.margin() + claims.node_slots.load(Ordering::Relaxed),
        };
        self.core.memory.book.floor(Purpose::NewData, 0) as u64 * SLAB_BYTES + besides * SLOT_BYTES
    }

    /// Pages that may be kept from being freed for a while, at most: a quarter of the reserve.
    pub fn withheld_pages_max(&self) -> usize {
        let slots = self.core.memory.book.floor(Purpose::NewData, 0) as u64 * SLOTS_A_SLAB;
        usize::try_from(slots / 4).expect("slots fit memory")
    }

    /// Bytes that overwrites find, of those kept for them and of free ones, when `block_count`
    /// blocks are stored as they are, each for itself. What is to be freed first is not counted.
    pub fn overwrite_room_bytes(&self, block_count: u64) -> u64 {
        let core = &self.core;
        let book = &core.memory.book;
        let others = core.memory.claims.kept()
            + (book.floor(Purpose::Overwrite, 0) as u64 + 1) * SLOTS_A_SLAB
            + core.index_growth(block_count) * SLOTS_A_SLAB;
        let untaken = u64::from(core.memory.untaken()) * SLOTS_A_SLAB;
        (core.free_slots() + untaken).saturating_sub(others) * SLOT_BYTES
    }

    /// Bytes of free slabs that nobody has claimed: a guess that costs two loads.
    #[inline]
    pub fn unclaimed_bytes_soon(&self) -> u64 {
        let kept_bytes = self.core.memory.claims.kept_bytes_of_late.load(Ordering::Relaxed);
        self.free_bytes_soon().saturating_sub(kept_bytes)
    }

    /// Slabs that hold what is claimed and not stored yet.
    pub(crate) fn slabs_claimed(&self) -> u64 {
        self.core.memory.claims.kept().div_ceil(SLOTS_A_SLAB)
    }
}
