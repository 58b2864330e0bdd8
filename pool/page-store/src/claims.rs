//! Claims: slots reserved for their owners, independent of other data.
//!
//! ```text
//!  slots for uncompressed pages that are free
//!  ├──────────────── claimed ──────────────┼─ margin ─┼─ reserve ─┼── anybody's ──┤
//!    claims, less the pages that their       in flight
//!    owners have unshared, plus slots
//!    for copies of their map nodes
//! ```
//!
//! A thread that opens a slab without a claim must leave as many slots as are claimed. Single pages
//! are not checked. Free slots count wherever they are: in free slabs, and single ones in slabs of
//! uncompressed pages. The margin covers slots in the open slabs of lanes, and those retired by
//! overwrites in one batch.

use std::sync::{Mutex, MutexGuard};

use sync::Striped;
use sync::atomic::{AtomicU64, Ordering};
use units::Size;

use crate::layout::LARGE_SLOT_BYTES;

/// Number of slots that each lane may have in flight: in two open slabs, and retired in one batch.
const MARGIN_A_LANE: u64 = 128;

/// Claims on the memory of one pool.
#[derive(Debug)]
pub(crate) struct Claims {
    /// Number of claimed slots.
    pub(crate) slots: AtomicU64,
    /// Part of `slots` that their owners use, with a part for each lane, and one for the holder of
    /// `changing`.
    pub(crate) owned: Striped,
    /// Number of slots reserved in addition, for copies of the owners' map nodes. Zero without
    /// claims.
    pub(crate) node_slots: AtomicU64,
    pub(crate) lane_count: usize,
    changing: Mutex<()>,
    /// Bytes still to be reserved, as computed last.
    pub(crate) kept_bytes_of_late: AtomicU64,
}

/// Error of a claim that exceeds the free memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} are needed, and {} are available", Size(*wanted_bytes), Size(*available_bytes))]
pub struct ClaimRefused {
    pub wanted_bytes: u64,
    pub available_bytes: u64,
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

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.load(Ordering::Relaxed) == 0
    }

    /// Number of slots to be reserved now, including those in flight.
    pub(crate) fn kept(&self) -> u64 {
        let slots = self.slots.load(Ordering::SeqCst);
        let kept = match slots {
            0 => 0,
            _ => {
                let nodes = self.node_slots.load(Ordering::SeqCst);
                slots.saturating_sub(self.owned.sum()) + nodes + self.margin()
            }
        };
        self.kept_bytes_of_late.store(kept * LARGE_SLOT_BYTES, Ordering::Relaxed);
        kept
    }

    pub(crate) fn margin(&self) -> u64 {
        self.lane_count as u64 * MARGIN_A_LANE
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().expect("no thread panics while changing claims")
    }
}
