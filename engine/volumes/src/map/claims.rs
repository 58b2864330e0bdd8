//! Claims of a volume on the pool: whether it may meet a full one.
//!
//! A volume of class `guaranteed` has claimed a slot for each of its blocks, whatever it holds now,
//! and its map is made as a whole when it is created. It stores blocks as they are, for itself
//! alone: a page that others share would need memory to be overwritten that is not claimed.
//! Patterns take none, and keep their claim. Empty leaves stay.
//!
//! The pool knows how many of the claimed slots hold pages (`page_store::claims`): counted as
//! entries change. Pages that snapshots and clones share are not the volume's alone; such a copy
//! claims them again when it is made. Frozen copies claim nothing: they give way to writers, and
//! what the volume has in common with them counts as its own. Copies of nodes leave slots behind
//! that hold nodes alone, so as many as the map has are kept besides, always.

use codec::BLOCK_BYTES;
use page_store::{NODE_ENTRY_COUNT, PageRef, PageRefKind};
use sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use crate::blocks::leaves_in;
use crate::map::tree::INNER_LEVELS;
use crate::spec::CapacityClass;

/// Slots of nodes come in slabs: so many more may be wanted for the last of them.
const NODE_SLOTS_SPARE: u64 = 64;

/// Progress of a volume on its way between the classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Stage {
    Thin,
    Guaranteed,
    /// Writes are those of class `guaranteed` already; what was written before is being stored
    /// anew.
    Becoming,
}

/// Claims of a volume.
#[derive(Debug)]
pub(crate) struct Claims {
    /// A [`Stage`]. Changed with every block held.
    stage: AtomicU8,
    /// Pages of the volume that copies of its map have too, as far as is known, and dense ones,
    /// which a copy had before the volume was restored from it.
    pub(super) shared_pages: AtomicU64,
    /// Slots claimed for nodes: of a map that is being made, or copies that snapshots make needful.
    pub(super) node_slots: AtomicU64,
    /// Slots kept for copies of nodes that frozen copies make needful.
    pub(super) kept_slots: AtomicU64,
    /// Copies of the map may have brought absent pages into leaves that they share with the volume:
    /// `shared_pages` lacks these, which keeps more memory free than need be. Or the volume has
    /// taken over a copy's pages, which are not all stored as they are: counted once nothing shares
    /// them.
    pub(super) is_unsure: AtomicBool,
}

impl Claims {
    pub(crate) fn new(class: CapacityClass) -> Self {
        let stage = match class {
            CapacityClass::Thin => Stage::Thin,
            CapacityClass::Guaranteed => Stage::Guaranteed,
        };
        Self {
            stage: AtomicU8::new(stage as u8),
            shared_pages: AtomicU64::new(0),
            node_slots: AtomicU64::new(0),
            kept_slots: AtomicU64::new(0),
            is_unsure: AtomicBool::new(false),
        }
    }

    #[inline]
    fn is_at(&self, stage: Stage) -> bool {
        self.stage.load(Ordering::Relaxed) == stage as u8
    }

    /// Returns whether blocks are stored as they are, in slots that were claimed.
    #[inline]
    pub(crate) fn is_claimed(&self) -> bool {
        !self.is_at(Stage::Thin)
    }

    #[inline]
    pub(crate) fn is_guaranteed(&self) -> bool {
        self.is_at(Stage::Guaranteed)
    }

    /// The caller holds every block.
    pub(crate) fn set_stage(&self, stage: Stage) {
        self.stage.store(stage as u8, Ordering::Relaxed);
    }

    /// Takes one off the pages that copies of the map have too. `false` if there are none.
    pub(super) fn take_shared_page(&self) -> bool {
        let one_less = |shared: u64| shared.checked_sub(1);
        self.shared_pages.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok()
    }
}

/// Slots that a map of so many bytes takes, made as a whole.
pub(crate) fn node_slots(size_bytes: u64) -> u64 {
    let mut level = leaves_in(size_bytes);
    let mut sum = level;
    for _ in 0..INNER_LEVELS {
        level = level.div_ceil(NODE_ENTRY_COUNT as u64);
        sum += level;
    }
    sum + NODE_SLOTS_SPARE
}

pub(crate) fn block_slots(size_bytes: u64) -> u64 {
    size_bytes / BLOCK_BYTES as u64
}

pub(crate) fn is_page(entry: PageRef) -> bool {
    entry.kind() == PageRefKind::Page
}

/// A count of pages as a change of one.
pub(super) fn signed(pages: u64) -> i64 {
    i64::try_from(pages).expect("pages fit a pool")
}
