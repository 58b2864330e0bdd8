//! Claims of a volume on the pool: whether its writes can fail for lack of memory.
//!
//! A volume of class `guaranteed` has claimed a slot for each of its blocks, independent of their
//! current contents, and its map is created completely with the volume. It stores blocks
//! uncompressed and unshared: overwriting a page that others share would need memory that is not
//! claimed. Fill patterns use no memory, and keep their claim. Empty leaves stay.
//!
//! The pool counts the claimed slots that hold pages, as entries change (`page_store::claims`).
//! Pages shared with snapshots and clones do not count as the volume's: such a copy claims them
//! again when it is created. Frozen copies claim nothing, because they are given up for writers;
//! pages shared with them count as the volume's. Copies of nodes leave slots behind that can only
//! hold nodes, so a number of slots equal to the map's nodes is always reserved in addition.

use codec::BLOCK_BYTES;
use page_store::{NODE_ENTRY_COUNT, PageRef, PageRefKind};
use sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use crate::blocks::leaves_in;
use crate::map::tree::INNER_LEVELS;
use crate::spec::CapacityClass;

/// Number of additional node slots, because slots of nodes are allocated in slabs.
const NODE_SLOTS_SPARE: u64 = 64;

/// State of a volume between the capacity classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Stage {
    Thin,
    Guaranteed,
    /// Writes already follow the rules of class `guaranteed`. Earlier pages are being rewritten.
    Becoming,
}

/// Claims of a volume.
#[derive(Debug)]
pub(crate) struct Claims {
    /// A [`Stage`]. Changed with all block locks held.
    stage: AtomicU8,
    /// Number of pages that copies of the map also have, as far as is known, and of dense pages,
    /// which a copy had before the volume was restored from it.
    pub(super) shared_pages: AtomicU64,
    /// Slots claimed for nodes: of a map that is being created, or for copies because of snapshots.
    pub(super) node_slots: AtomicU64,
    /// Slots reserved for copies of nodes because of frozen copies.
    pub(super) kept_slots: AtomicU64,
    /// Copies of the map may have fetched absent pages into leaves that they share with the volume.
    /// `shared_pages` lacks these, which reserves more memory than necessary. Or the volume has
    /// taken over a copy's pages, some of which are not stored uncompressed. Such pages are counted
    /// once nothing shares them.
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

    /// Returns whether blocks are stored uncompressed, in claimed slots.
    #[inline]
    pub(crate) fn is_claimed(&self) -> bool {
        !self.is_at(Stage::Thin)
    }

    #[inline]
    pub(crate) fn is_guaranteed(&self) -> bool {
        self.is_at(Stage::Guaranteed)
    }

    /// Changes the stage. The caller holds all block locks.
    pub(crate) fn set_stage(&self, stage: Stage) {
        self.stage.store(stage as u8, Ordering::Relaxed);
    }

    /// Decrements the number of shared pages. Returns `false` if it is zero.
    pub(super) fn take_shared_page(&self) -> bool {
        let one_less = |shared: u64| shared.checked_sub(1);
        self.shared_pages.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok()
    }
}

/// Number of slots that the complete map of a volume of this size takes.
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

/// Converts a number of pages to a signed difference.
pub(super) fn signed(pages: u64) -> i64 {
    i64::try_from(pages).expect("pages fit a pool")
}
