//! The pool as a whole: opening and closing it, and what its parts share.

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

/// References that a batch may retire: lanes are drained while there is less room than this.
const BATCH_REFERENCES_MAX: usize = 2048;

/// How often closing a pool tries to lower what is retired before it leaves that to a leak check.
const CLOSE_TRIES_MAX: usize = 16;

/// Nodes that each try takes apart, of trees that no map names any more.
const CLOSE_NODES_MAX: usize = 16 << 10;

/// Settings that the owner of a pool chooses.
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
    lanes: Box<[LaneCell<LaneState>]>,
    pub(crate) size_bytes: AtomicU64,
}

impl PageStore {
    /// Opens the pool in `region`, or makes one in a region of zeros. After an unclean end the
    /// second value counts, for each slot, the references that no map has been seen to hold yet.
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

    /// Marks the pool as left in order, for the next open to skip the leak check. It must not be
    /// used any more.
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

    /// The memory that the pool may come to have.
    pub fn capacity_bytes(&self) -> u64 {
        self.core.memory.region.capacity_bytes()
    }

    /// Number of times that the pool was opened, this time included.
    pub fn run_epoch(&self) -> u64 {
        self.core.memory.superblock().run_epoch
    }

    /// A number that stays the same for this pool and differs from those of others.
    pub fn pool_number(&self) -> u64 {
        self.core.memory.superblock().pool_number()
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

    /// Number of pins by all threads but the caller's, modulo 2^32.
    pub fn pins_of_others(&self) -> u32 {
        self.core.memory.grace.pins_of_others()
    }

    /// Waits until every thread that is pinned now has let go. Not to be called while pinned.
    pub fn wait_for_readers(&self) {
        let grace = &self.core.memory.grace;
        let epoch = grace.retire_epoch();
        while grace.advance() < epoch {
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
            Lane::new(&self.core, state.lock()).empty();
        }
        self.wait_for_readers();
        self.core.memory.book.free_count(&self.core.memory.grace);
    }

    /// Lowers what idle lanes have retired. Not to be called while pinned or with a lane.
    pub fn drain_idle_lanes(&self) {
        self.idle_lanes().for_each(|mut lane| lane.drain());
    }

    /// The same, and gives back the slots that these lanes keep.
    pub fn empty_idle_lanes(&self) {
        self.idle_lanes().for_each(|mut lane| lane.empty());
    }

    fn idle_lanes(&self) -> impl Iterator<Item = Lane<'_>> {
        self.lanes.iter().filter_map(|state| Some(Lane::new(&self.core, state.try_lock()?)))
    }

    /// Gives a reference to a tree back that no map holds any more, once its readers are gone.
    /// Waits for nothing and needs no lane: [`PageStore::reclaim_deferred`] does the work.
    pub fn retire_tree(&self, root: NodeRef) {
        self.core.deferred.push_root(root.0, &self.core.memory.grace);
    }

    /// Trees and nodes that wait to be taken apart.
    pub fn deferred_count(&self) -> usize {
        self.core.deferred.count()
    }

    /// Takes up to `node_count` nodes apart. Returns whether there are more. Not to be called while
    /// pinned or with a lane.
    pub fn reclaim_deferred(&self, node_count: usize) -> bool {
        let deferred = &self.core.deferred;
        for _ in 0..node_count {
            if deferred.count() == 0 {
                return false;
            }
            // A lane for each node: others may want it meanwhile. Taken first, so that a thread
            // that has all lanes in turn knows that what was counted before is gone.
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

    /// A word of the layer above.
    pub fn root_word(&self, index: usize) -> u64 {
        let memory = &self.core.memory;
        memory.region.word(memory.layout.root_word(index)).load(Ordering::Acquire)
    }

    /// Stores a word of the layer above.
    pub fn set_root_word(&self, index: usize, value: u64) {
        let memory = &self.core.memory;
        let word = memory.region.word_to_store(memory.layout.root_word(index));
        word.store(value, Ordering::Release);
    }
}
