//! The pool as a whole: opening and closing it, and what its parts share.

use std::sync::Mutex;

use codec::{Block, DecodeError};
use region::Region;
use sync::atomic::{AtomicU64, Ordering};
use sync::{Grace, Pinned, Striped, counted, thread_number};

use crate::census::{self, LeakCounts};
use crate::claims::Claims;
use crate::core::{Core, PageBytes};
use crate::deferred::Deferred;
use crate::error::OpenError;
use crate::fingerprint::{Fingerprinter, described_as_journaled, is_described_journaled};
use crate::index::DedupIndex;
use crate::lane::{Lane, LaneState};
use crate::lane_cell::LaneCell;
use crate::layout::{CLASS_COUNT, Layout};
use crate::memory::Memory;
use crate::page_ref::{OwnedPageRef, PageRef, PageRefKind};
use crate::resize::{self, PoolState};
use crate::retire::RETIRED_MAX;
use crate::slabs::SlabBook;
use crate::superblock::Superblock;
use crate::taking::Taking;

/// Threads that pin without waiting for each other.
const PIN_PLACES: usize = 128;

/// References that a batch may retire: lanes are drained while there is less room than this.
const BATCH_REFERENCES_MAX: usize = 2048;

/// How often closing a pool tries to lower what is retired before it leaves that to a leak check.
const CLOSE_TRIES_MAX: usize = 16;

/// Nodes that each try takes apart, of trees that nobody names any more.
const CLOSE_NODES_MAX: usize = 16 << 10;

/// What the owner of a pool decides.
#[derive(Clone, Copy, Debug)]
pub struct StoreOptions {
    /// Writers that work without waiting for each other.
    pub lane_count: usize,
    /// The secret of a new pool; an existing one keeps its own.
    pub fresh_secret: [u8; 32],
}

/// A pool in a region.
#[derive(Debug)]
pub struct PageStore {
    pub(crate) core: Core,
    lanes: Box<[LaneCell]>,
    size_bytes: AtomicU64,
}

impl PageStore {
    /// Opens the pool in `region`, or makes one in a region of zeros. After an unclean end the
    /// second value counts, for each slot, the references that no map has been seen to hold yet.
    pub fn open(
        region: Region,
        options: StoreOptions,
    ) -> Result<(Self, Option<LeakCounts>), OpenError> {
        assert!(options.lane_count > 0, "somebody must be able to write");
        let layout = Layout::of(region.capacity_bytes());
        let found = Superblock::load(&region, &layout)?;
        let fresh = Superblock::new(options.fresh_secret, region.asked_bytes());
        let pool_state = if found.is_some() { PoolState::Existing } else { PoolState::New };
        let mut superblock = found.unwrap_or(fresh);
        resize::begin_with_memory(&region, &layout, &mut superblock, pool_state)?;
        let was_closed_cleanly = superblock.closed_cleanly;
        superblock.closed_cleanly = false;
        superblock.run_epoch += 1;
        superblock.save(&region, &layout);
        let fingerprinter = Fingerprinter::new(&superblock.secret);
        let size_bytes = AtomicU64::new(superblock.size_bytes);
        let memory = Memory {
            grace: Grace::new(PIN_PLACES),
            book: SlabBook::new(layout.slab_capacity, layout.pool_slabs()),
            claims: Claims::new(options.lane_count),
            taking: Taking::new(layout.slab_count()),
            superblock: Mutex::new(superblock),
            region,
            layout,
        };
        let core = Core {
            index: DedupIndex::new(memory.layout.slab_capacity),
            memory,
            fingerprinter,
            live: (0..CLASS_COUNT).map(|_| Striped::new(options.lane_count)).collect(),
            deferred: Deferred::default(),
        };
        let leak_counts = census::take_census(&core, !was_closed_cleanly);
        let lanes = (0..options.lane_count).map(|index| LaneCell::new(LaneState::new(index)));
        let store = Self { core, lanes: lanes.collect(), size_bytes };
        Ok((store, leak_counts))
    }

    /// Marks the pool as left in order, for the next open to skip the search for leaks. Nobody may
    /// use it any more.
    pub fn close(&self) {
        // A reader that came in between may hold references back once more.
        let is_settled = (0..CLOSE_TRIES_MAX).any(|_| {
            self.reclaim();
            !self.reclaim_deferred(CLOSE_NODES_MAX) && self.retired_count() == 0
        });
        if !is_settled {
            return;
        }
        self.core.memory.change_superblock(|superblock| superblock.closed_cleanly = true);
    }

    /// Memory that the pool has, or is to have.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Relaxed)
    }

    /// Commits the memory that the pool is to have, of which it has what `slab_count` slabs need.
    pub(crate) fn set_size_bytes(&self, size_bytes: u64, (slab_count, pool_slabs): (u32, u32)) {
        self.core.memory.change_superblock(|superblock| {
            superblock.size_bytes = size_bytes;
            superblock.untaken_slabs = pool_slabs - slab_count;
        });
        self.size_bytes.store(size_bytes, Ordering::Relaxed);
    }

    /// How often the pool was opened, this time included.
    pub fn run_epoch(&self) -> u64 {
        self.core.memory.superblock.lock().expect("nobody panics with it locked").run_epoch
    }

    /// A number that stays the same for this pool and differs from those of others.
    pub fn pool_number(&self) -> u64 {
        let superblock = self.core.memory.superblock.lock().expect("nobody panics with it locked");
        superblock.pool_number()
    }

    /// Writers that work without waiting for each other.
    pub fn lane_count(&self) -> usize {
        self.lanes.len()
    }

    /// The region that the pool is in.
    pub fn region(&self) -> &Region {
        &self.core.memory.region
    }

    /// Keeps what the maps name from being reused until the result is dropped.
    #[inline]
    pub fn pin(&self) -> Pinned<'_> {
        self.core.memory.grace.pin()
    }

    /// How often all threads but the caller's have pinned, modulo 2^32.
    pub fn pins_of_others(&self) -> u32 {
        self.core.memory.grace.pins_of_others()
    }

    /// Waits until everybody who is pinned now has let go. Not to be called while pinned.
    pub fn wait_for_readers(&self) {
        let epoch = self.core.memory.grace.retire_epoch();
        while self.core.memory.grace.advance() < epoch {
            sync::atomic_yield();
        }
    }

    /// Takes a lane: this thread's own, another free one, or its own when all are taken. Not to be
    /// called while pinned.
    pub fn lane(&self) -> Lane<'_> {
        let own = thread_number().unwrap_or(0) % self.lanes.len();
        let (before, from) = self.lanes.split_at(own);
        let free = from.iter().chain(before).find_map(LaneCell::try_lock);
        let state = free.unwrap_or_else(|| self.lanes[own].lock());
        let mut lane = Lane::new(&self.core, state);
        lane.release_some();
        while lane.retired_count() > RETIRED_MAX - BATCH_REFERENCES_MAX {
            sync::atomic_yield();
            lane.drain();
        }
        lane
    }

    /// Returns everything that is retired to the free slots and slabs, and the slots that lanes
    /// keep. Not to be called while pinned or with a lane.
    pub fn reclaim(&self) {
        self.wait_for_readers();
        for state in &self.lanes {
            let mut lane = Lane::new(&self.core, state.lock());
            lane.drain();
            lane.close_slabs();
        }
        self.wait_for_readers();
        self.core.memory.book.free_count(&self.core.memory.grace);
    }

    /// Lowers what idle lanes have retired. Not to be called while pinned or with a lane.
    pub fn drain_idle_lanes(&self) {
        for state in &self.lanes {
            if let Some(state) = state.try_lock() {
                Lane::new(&self.core, state).drain();
            }
        }
    }

    /// The same, and gives back the slots that these lanes keep.
    pub fn empty_idle_lanes(&self) {
        for state in &self.lanes {
            if let Some(state) = state.try_lock() {
                let mut lane = Lane::new(&self.core, state);
                lane.drain();
                lane.close_slabs();
            }
        }
    }

    fn retired_count(&self) -> usize {
        let count = |state: &LaneCell| Lane::new(&self.core, state.lock()).retired_count();
        self.lanes.iter().map(count).sum()
    }

    /// A word of the layer above.
    pub fn root_word(&self, index: usize) -> u64 {
        self.core.memory.region.word(Layout::root_word(index)).load(Ordering::Acquire)
    }

    /// Stores a word of the layer above.
    pub fn set_root_word(&self, index: usize, value: u64) {
        let word = self.core.memory.region.word_to_store(Layout::root_word(index));
        word.store(value, Ordering::Release);
    }

    /// What an entry names, where it is stored. The entry was read under this pin.
    #[inline]
    pub fn page<'seen>(
        &'seen self,
        pinned: &'seen Pinned<'_>,
        entry: PageRef,
    ) -> Result<PageBytes<'seen>, DecodeError> {
        match entry.kind() {
            PageRefKind::Hole => Ok(PageBytes::Fill(0)),
            PageRefKind::Fill(pattern) => Ok(PageBytes::Fill(pattern)),
            PageRefKind::Page => self.core.stored_page(pinned, entry),
            PageRefKind::Absent(_) | PageRefKind::Damaged => Err(DecodeError),
        }
    }

    /// Takes a reference to the page that an entry names, read under this pin. `None` when it names
    /// none that is there, or when the page has as many references as can be counted.
    pub fn hold(&self, _pinned: &Pinned<'_>, entry: PageRef) -> Option<OwnedPageRef> {
        let at = entry.slot().filter(|&at| self.core.memory.layout.has(at))?;
        let word = self.core.memory.region.word_to_store(self.core.memory.layout.slot_word(at));
        counted::try_share(word, |_| true).map(|_| OwnedPageRef(entry.name()))
    }

    /// The same for one that finds out whether the page is damaged: also for a page that is shared
    /// as often as it may be.
    pub fn hold_to_mend(&self, _pinned: &Pinned<'_>, entry: PageRef) -> Option<OwnedPageRef> {
        let at = entry.slot().filter(|&at| self.core.memory.layout.has(at))?;
        let word = self.core.memory.region.word_to_store(self.core.memory.layout.slot_word(at));
        counted::try_hold(word).map(|_| OwnedPageRef(entry.name()))
    }

    /// The bytes of a page that the caller holds a reference to.
    pub fn held_page<'seen>(
        &'seen self,
        page: &'seen OwnedPageRef,
    ) -> Result<PageBytes<'seen>, DecodeError> {
        match page.0.kind() {
            PageRefKind::Fill(pattern) => Ok(PageBytes::Fill(pattern)),
            _ => self.core.stored_page(page, page.0),
        }
    }

    /// Whether [`PageStore::note_journaled`] was called for the page that is in this slot now.
    pub fn is_journaled(&self, page: &OwnedPageRef) -> bool {
        self.slot_word_of(page).is_some_and(|word| {
            is_described_journaled(counted::description_of(word.load(Ordering::Relaxed)))
        })
    }

    /// The journal has the page. Forgotten when the page goes, or moves to another slot.
    pub fn note_journaled(&self, page: &OwnedPageRef) {
        if let Some(word) = self.slot_word_of(page) {
            counted::redescribe(word, described_as_journaled);
        }
    }

    fn slot_word_of(&self, page: &OwnedPageRef) -> Option<&AtomicU64> {
        let at = page.0.slot()?;
        Some(self.core.memory.region.word_to_store(self.core.memory.layout.slot_word(at)))
    }

    /// Copies the contents that an entry names. The entry was read under this pin.
    #[inline]
    pub fn read_page(
        &self,
        pinned: &Pinned<'_>,
        entry: PageRef,
        into: &mut Block,
    ) -> Result<(), DecodeError> {
        match self.page(pinned, entry)? {
            PageBytes::Fill(pattern) => codec::write_fill(pattern, into),
            PageBytes::Raw(bytes) => into.copy_from_slice(bytes),
            PageBytes::Encoded(bytes) => codec::decode(bytes, into)?,
        }
        Ok(())
    }
}
