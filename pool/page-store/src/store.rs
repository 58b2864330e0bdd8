//! The pool as a whole: opening, closing, and state shared by its parts.

use region::Region;
use sync::atomic::{AtomicU64, Ordering};
use sync::{Pinned, thread_number};

use crate::census;
use crate::core::Core;
use crate::deferred::Deferred;
use crate::error::OpenError;
use crate::fingerprint::Fingerprinter;
use crate::index::DedupIndex;
use crate::lane::{Lane, LaneState};
use crate::lane_cell::LaneCell;
use crate::layout::Layout;
use crate::leak_counts::LeakCounts;
use crate::memory::Memory;
use crate::page_ref::NodeRef;
use crate::retire::RETIRED_MAX;
use crate::superblock::Superblock;
use crate::taking;

/// Maximum number of references that a batch retires: lanes are drained while they have less room.
const BATCH_REFERENCES_MAX: usize = 2048;

/// Number of attempts of a close to release retired references before it leaves them to a leak
/// check.
const CLOSE_TRIES_MAX: usize = 16;

/// Number of nodes that each attempt frees, of deferred trees.
const CLOSE_NODES_MAX: usize = 16 << 10;

/// Settings of a pool, chosen by its owner.
#[derive(Clone, Copy, Debug)]
pub struct StoreOptions {
    /// Number of writers that can work without waiting for each other.
    pub lane_count: usize,
    /// Secret for a new pool. An existing one keeps its own.
    pub fresh_secret: [u8; 32],
}

/// A pool in a region.
#[derive(Debug)]
pub struct PageStore {
    pub(crate) core: Core,
    lanes: Box<[LaneCell<LaneState>]>,
    pub(crate) size_bytes: AtomicU64,
}

impl PageStore {
    /// Opens the pool in `region`, or creates one in a zeroed region. After an unclean end the
    /// second value contains, for each slot, the references that have not been found in a map yet.
    pub fn open(
        region: Region,
        options: StoreOptions,
    ) -> Result<(Self, Option<LeakCounts>), OpenError> {
        assert!(options.lane_count > 0, "a writer needs a lane");
        let layout = Layout::of(region.capacity_bytes());
        let fresh = Superblock::new(options.fresh_secret, region.asked_bytes());
        let mut superblock = Superblock::load(&region, &layout)?.unwrap_or(fresh);
        taking::take_first(&region, &layout, &mut superblock)?;
        let was_closed_cleanly = superblock.closed_cleanly;
        superblock.closed_cleanly = false;
        superblock.run_epoch += 1;
        superblock.save(&region, &layout);
        let size_bytes = AtomicU64::new(superblock.size_bytes);
        let core = Core {
            index: DedupIndex::new(layout.slab_capacity),
            fingerprinter: Fingerprinter::new(&superblock.secret),
            memory: Memory::new(region, layout, superblock, options.lane_count),
            deferred: Deferred::default(),
        };
        let slab_count = core.memory.layout.slab_count();
        let mut leak_counts = (!was_closed_cleanly).then(|| LeakCounts::new(slab_count));
        let are_all_known = census::admit_slabs(&core.memory, leak_counts.as_mut());
        census::count_tables(&core.memory);
        census::settle_dense(&core.memory, are_all_known);
        let lanes = (0..options.lane_count).map(|index| LaneCell::new(LaneState::new(index)));
        let store = Self { core, lanes: lanes.collect(), size_bytes };
        Ok((store, leak_counts))
    }

    /// Marks the pool as closed cleanly, so that the next open skips the leak check. The pool must
    /// not be used afterwards.
    pub fn close(&self) {
        // A reader in between may delay the release of references again.
        let is_settled = (0..CLOSE_TRIES_MAX).any(|_| {
            self.reclaim();
            !self.reclaim_deferred(CLOSE_NODES_MAX) && self.retired_count() == 0
        });
        if !is_settled {
            return;
        }
        self.core.memory.change_superblock(|superblock| superblock.closed_cleanly = true);
    }

    /// Size of the pool, including memory not yet taken.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Relaxed)
    }

    /// Maximum size of the pool.
    pub fn capacity_bytes(&self) -> u64 {
        self.core.memory.region.capacity_bytes()
    }

    /// Number of times that the pool was opened, including this time.
    pub fn run_epoch(&self) -> u64 {
        self.core.memory.superblock().run_epoch
    }

    /// A number that is constant for this pool and differs from those of others.
    pub fn pool_number(&self) -> u64 {
        self.core.memory.superblock().pool_number()
    }

    /// Number of writers that can work without waiting for each other.
    pub fn lane_count(&self) -> usize {
        self.lanes.len()
    }

    /// The region that contains the pool.
    pub fn region(&self) -> &Region {
        &self.core.memory.region
    }

    /// Prevents reuse of pages and nodes that maps refer to until the result is dropped.
    #[inline]
    pub fn pin(&self) -> Pinned<'_> {
        self.core.memory.grace.pin()
    }

    /// Number of pins by all threads but the caller's, modulo 2^32.
    pub fn pins_of_others(&self) -> u32 {
        self.core.memory.grace.pins_of_others()
    }

    /// Waits until every thread that is pinned now has unpinned. Must not be called while pinned.
    pub fn wait_for_readers(&self) {
        let grace = &self.core.memory.grace;
        let epoch = grace.retire_epoch();
        while grace.advance() < epoch {
            sync::atomic_yield();
        }
    }

    /// Takes a lane: this thread's own, another free one, or its own when all are taken. Must not
    /// be called while pinned.
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

    /// Releases everything that is retired, and the slots that lanes have taken. The caller must
    /// hold neither a pin nor a lane.
    pub fn reclaim(&self) {
        self.wait_for_readers();
        for state in &self.lanes {
            Lane::new(&self.core, state.lock()).empty();
        }
        self.wait_for_readers();
        self.core.memory.book.free_count(&self.core.memory.grace);
    }

    /// Releases the references that idle lanes have retired. The caller must hold neither a pin nor
    /// a lane.
    pub fn drain_idle_lanes(&self) {
        self.idle_lanes().for_each(|mut lane| lane.drain());
    }

    /// Same as [`PageStore::drain_idle_lanes`], but also returns the slots that these lanes have
    /// taken.
    pub fn empty_idle_lanes(&self) {
        self.idle_lanes().for_each(|mut lane| lane.empty());
    }

    fn idle_lanes(&self) -> impl Iterator<Item = Lane<'_>> {
        self.lanes.iter().filter_map(|state| Some(Lane::new(&self.core, state.try_lock()?)))
    }

    /// Releases a reference to a tree that no map holds any more, once its readers are gone. Waits
    /// for nothing and needs no lane: [`PageStore::reclaim_deferred`] does the work.
    pub fn retire_tree(&self, root: NodeRef) {
        self.core.deferred.push_root(root.0, &self.core.memory.grace);
    }

    /// Number of trees and nodes that wait to be freed.
    pub fn deferred_count(&self) -> usize {
        self.core.deferred.count()
    }

    /// Frees up to `node_count` deferred nodes. Returns whether there are more. The caller must
    /// hold neither a pin nor a lane.
    pub fn reclaim_deferred(&self, node_count: usize) -> bool {
        let deferred = &self.core.deferred;
        for _ in 0..node_count {
            if deferred.count() == 0 {
                return false;
            }
            // One lane for each node, because others may need it meanwhile. Taken first, so that a
            // thread that has held all lanes in turn knows that everything counted before is freed.
            let lane = self.lane();
            if let Some(node) = deferred.take_node() {
                self.core.release_tree(node, lane.index());
            } else if let Some(root) = deferred.take_root(&self.core.memory.grace) {
                self.core.release(root, lane.index());
            } else {
                break;
            }
        }
        deferred.count() > 0
    }

    fn retired_count(&self) -> usize {
        let count = |state: &LaneCell<_>| Lane::new(&self.core, state.lock()).retired_count();
        self.lanes.iter().map(count).sum()
    }

    /// Returns a root word, which belongs to the layer above.
    pub fn root_word(&self, index: usize) -> u64 {
        let memory = &self.core.memory;
        memory.region.word(memory.layout.root_word(index)).load(Ordering::Acquire)
    }

    /// Stores a root word, which belongs to the layer above.
    pub fn set_root_word(&self, index: usize, value: u64) {
        let memory = &self.core.memory;
        let word = memory.region.word_to_store(memory.layout.root_word(index));
        word.store(value, Ordering::Release);
    }
}
