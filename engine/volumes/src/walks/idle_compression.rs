//! Idle compression: encodes pages that were not used recently once more, to save memory.
//!
//! A period is the time for which a leaf must be unused. The owner begins each period. Then the
//! pages of leaves that were not used in the whole previous period are encoded in the dense form,
//! in batches, and exchanged as in `compression`. A block that is read in that form is noted, and
//! restored to the readable form alone: the rest of its leaf stays unchanged.
//!
//! Leaves of volumes with other reductions than `full`, and of class `guaranteed`, are skipped,
//! even if another volume shares them. A use of a leaf counts for all maps that share leaves.
//!
//! Lock order: the state here, then that of `compression`, for which requests short of memory wait:
//! it is held for one step at most.

use std::sync::{Arc, Mutex, MutexGuard};

use page_store::{
    DenseCompressor, NODE_ENTRY_COUNT, NoSpace, NodeRef, OwnedPageRef, PageRef, Reencoded,
};
use sync::Pinned;
use sync::atomic::{AtomicBool, Ordering};

use crate::blocks::{LEAF_BLOCKS, index_in_leaf, leaf_of};
use crate::map::entries::Update;
use crate::map::leaf_bits::LeafSet;
use crate::map::maps::Maps;
use crate::map::table::Kind;
use crate::map::volume_map::VolumeMap;
use crate::pool::shared::Pool;
use crate::spec::Reduction;
use crate::walks::compression::{Compression, change_if_same};

/// Number of pages that one step tries to encode, and number of leaves that it visits.
const PAGES_A_STEP: usize = 8;
const LEAVES_A_STEP: usize = 64;

/// Number of periods after which all idle leaves are processed again, because a page with several
/// references may have only one by now.
const PERIODS_A_ROUND: u64 = 16;

/// Number of blocks restored in one step.
const BLOCKS_BACK_A_STEP: usize = 8;

/// Idle compression of one pool. One thread at a time works on it.
#[derive(Debug)]
pub(crate) struct IdleCompression {
    state: Mutex<State>,
    /// The work of a period is complete, and has emptied slots.
    has_emptied: AtomicBool,
}

#[derive(Debug)]
struct State {
    compressor: DenseCompressor,
    /// Number of periods begun.
    periods: u64,
    /// Pages were compressed since the work of a period was last complete.
    has_changed: bool,
    /// Maps that are still to be processed in this period.
    maps: Vec<Arc<VolumeMap>>,
    walk: Option<Walk>,
}

/// A walk over the idle leaves of one map.
#[derive(Debug)]
struct Walk {
    map: Arc<VolumeMap>,
    set: LeafSet,
    leaf: u64,
    index: usize,
}

/// Outcome of a visit of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looked {
    /// Pages were tried, enough for a step.
    Worked,
    /// It took almost no time.
    Passed,
    Ended,
}

/// A block, its entry, and its page in the other form.
type Change = (u64, PageRef, Reencoded);

impl IdleCompression {
    pub(crate) fn new() -> Self {
        let compressor = DenseCompressor::new();
        let state =
            State { compressor, periods: 0, has_changed: false, maps: Vec::new(), walk: None };
        Self { state: Mutex::new(state), has_emptied: AtomicBool::new(false) }
    }

    /// Ends a period: leaves that were not used in it are idle, and uses of all leaves are recorded
    /// again. A walk in progress continues.
    pub(crate) fn begin_period(&self, mut maps: Vec<Arc<VolumeMap>>) {
        maps.retain(|map| map.kind != Kind::Frozen);
        let mut state = self.state();
        let mut used_by_sharers: Option<Box<[u64]>> = None;
        for map in &maps {
            let used = map.leaves.take_used();
            if !map.may_share() {
                map.idle_leaves.begin_period(&used);
                continue;
            }
            match &mut used_by_sharers {
                Some(all) => all.iter_mut().zip(&used).for_each(|(all, own)| *all |= own),
                None => used_by_sharers = Some(used),
            }
        }
        if let Some(used) = used_by_sharers {
            let sharers = maps.iter().filter(|map| map.may_share());
            sharers.for_each(|map| map.idle_leaves.begin_period(&used));
        }
        state.periods += 1;
        if state.periods.is_multiple_of(PERIODS_A_ROUND) {
            maps.iter().for_each(|map| map.idle_leaves.look_again());
        }
        maps.retain(|map| may_be_dense(map));
        state.maps = maps;
    }

    /// Encodes some idle pages. Returns whether there may be more in this period. `all` are the
    /// maps of the pool. The caller must hold neither a pin nor a lane.
    pub(crate) fn step(&self, pool: &Pool, all: &Maps, compression: &Compression) -> bool {
        let mut state = self.state();
        // Almost always empty. Determined once, and before requests have to wait.
        let mut needing = if pool.is_sharing() { all.all() } else { Vec::new() };
        needing.retain(|map| needs_as_they_are(map));
        let _turn = compression.hold();
        for _ in 0..LEAVES_A_STEP {
            match state.look_at_leaf(pool, &needing) {
                Ok(Looked::Worked) => return true,
                Ok(Looked::Passed) => {}
                Ok(Looked::Ended) => {
                    self.note_end(&mut state);
                    return false;
                }
                Err(NoSpace) => {
                    // There is no memory even for smaller pages: wait for another period.
                    state.rest();
                    self.note_end(&mut state);
                    return false;
                }
            }
        }
        true
    }

    /// Restores some blocks that were read in the dense form, unless memory is short. Returns
    /// whether there may be more. The caller must hold neither a pin nor a lane.
    pub(crate) fn bring_back(
        &self,
        pool: &Pool,
        all: &[Arc<VolumeMap>],
        compression: &Compression,
    ) -> bool {
        let noted = pool.dense_reads.take(BLOCKS_BACK_A_STEP);
        if noted.is_empty() || pool.is_short_of_memory() {
            return false;
        }
        let mut state = self.state();
        let _turn = compression.hold();
        let mut has_changed = false;
        for (map_id, block) in noted {
            // The pages of claimed volumes are not exchanged, see `exchange`.
            let is_it = |map: &&Arc<VolumeMap>| map.id() == map_id && !map.is_gone();
            let map = all.iter().find(is_it).filter(|map| !map.claims.is_claimed());
            has_changed |= map.is_some_and(|map| state.bring_back(map, block));
        }
        has_changed || pool.dense_reads.has_any()
    }

    /// Records that the work of a period is complete.
    fn note_end(&self, state: &mut State) {
        if std::mem::take(&mut state.has_changed) {
            self.has_emptied.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether the work of a period was completed since the last call, and has emptied
    /// slots.
    pub(crate) fn take_emptied(&self) -> bool {
        self.has_emptied.load(Ordering::Relaxed) && self.has_emptied.swap(false, Ordering::Relaxed)
    }

    /// Waits for the step in progress. All volumes are gone by now, so it is the last one.
    pub(crate) fn stop(&self) {
        self.state().rest();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("a panic while compressing ends the process")
    }
}

impl State {
    fn rest(&mut self) {
        self.maps.clear();
        self.walk = None;
    }

    /// Encodes pages of the next idle leaf.
    fn look_at_leaf(&mut self, pool: &Pool, needing: &[Arc<VolumeMap>]) -> Result<Looked, NoSpace> {
        let Some(walk) = &mut self.walk else {
            return Ok(if self.begin_walk() { Looked::Passed } else { Looked::Ended });
        };
        let map = Arc::clone(&walk.map);
        let next = map.next_leaf_in(&walk.set, walk.leaf);
        let Some(leaf) = next.filter(|_| may_be_dense(&map)) else {
            map.idle_leaves.settle(&walk.set);
            self.walk = None;
            return Ok(Looked::Passed);
        };
        if leaf != walk.leaf {
            (walk.leaf, walk.index) = (leaf, 0);
        }
        let changes = self.encode_pages(pool, &map, leaf, needing);
        self.has_changed |= !changes.is_empty();
        if self.compressor.held_count() == 0 {
            return Ok(Looked::Passed);
        }
        self.exchange(&map, changes).map(|()| Looked::Worked)
    }

    fn begin_walk(&mut self) -> bool {
        let Some(map) = self.maps.pop() else { return false };
        let set = map.idle_leaves.waiting(&map.leaves, map.leaf_count());
        self.walk = Some(Walk { map, set, leaf: 0, index: 0 });
        true
    }

    /// Encodes some pages of a leaf, unless it is used again or shared with a map that must not
    /// have dense pages.
    fn encode_pages(
        &mut self,
        pool: &Pool,
        map: &VolumeMap,
        leaf: u64,
        needing: &[Arc<VolumeMap>],
    ) -> Vec<Change> {
        let Some(walk) = &mut self.walk else { return Vec::new() };
        let store = &pool.store;
        let pinned = store.pin();
        let is_idle = map.idle_leaves.is_idle(&map.leaves, leaf);
        if !is_idle {
            // The leaf must not be settled before it is idle again.
            map.leaves.note_use(leaf);
        }
        let node = map.tree.find_leaf(store, &pinned, leaf).filter(|_| is_idle && !map.is_gone());
        let node = node.filter(|&node| !is_needed_as_it_is(map, &pinned, (leaf, node), needing));
        let Some(node) = node else {
            (walk.leaf, walk.index) = (leaf + 1, 0);
            return Vec::new();
        };
        let mut changes = Vec::with_capacity(PAGES_A_STEP);
        for index in walk.index..NODE_ENTRY_COUNT {
            if self.compressor.held_count() == PAGES_A_STEP {
                walk.index = index;
                return changes;
            }
            let entry = store.entry(&pinned, node, index);
            if entry.is_untried() {
                // Untried pages: the leaf is processed again after compression has tried them.
                map.leaves.note_use(leaf);
            }
            if let Some(change) = self.compressor.make_dense(store, &pinned, entry) {
                changes.push((leaf * LEAF_BLOCKS + index as u64, entry, change));
            }
        }
        (walk.leaf, walk.index) = (leaf + 1, 0);
        changes
    }

    /// Replaces the pages of entries by their other form, if the entries are unchanged.
    fn exchange(&mut self, map: &VolumeMap, changes: Vec<Change>) -> Result<(), NoSpace> {
        let store = &map.pool.store;
        store.begin_dense();
        let mut writer = store.writer();
        let mut result = Ok(());
        for (block, entry, change) in changes {
            let stored = writer.lane.store_reencoded(&writer.pinned, &self.compressor, change);
            let mut page: Option<OwnedPageRef> = match stored {
                Ok(page) => Some(page),
                Err(error) => {
                    result = Err(error);
                    continue;
                }
            };
            // Pages of a volume that claims memory meanwhile stay in their form.
            let is_left = map.claims.is_claimed();
            let update = || if is_left { None } else { page.take().map(Update::Page) };
            change_if_same(map, &mut writer, (block, entry), update);
            if let Some(page) = page {
                writer.lane.give_back(page);
            }
        }
        writer.lane.end_reencoding(&mut self.compressor);
        result
    }

    /// Restores a block to the readable form. Returns whether its entry has changed.
    fn bring_back(&mut self, map: &VolumeMap, block: u64) -> bool {
        let store = &map.pool.store;
        let change = {
            let pinned = store.pin();
            let node = map.tree.find_leaf(store, &pinned, leaf_of(block));
            let entry = node.map(|node| store.entry(&pinned, node, index_in_leaf(block)));
            entry.filter(|entry| entry.is_dense()).and_then(|entry| {
                let change = self.compressor.make_readable(store, &pinned, entry)?;
                Some((block, entry, change))
            })
        };
        let is_changed = change.is_some();
        // If there is no memory, it stays dense.
        self.compressor.held_count() > 0
            && self.exchange(map, change.into_iter().collect()).is_ok()
            && is_changed
    }
}

fn may_be_dense(map: &VolumeMap) -> bool {
    map.reduction() == Reduction::Full && !map.claims.is_claimed() && !map.is_gone()
}

/// Returns whether a map excludes the dense form for leaves that it shares.
fn needs_as_they_are(map: &VolumeMap) -> bool {
    map.kind != Kind::Frozen && map.may_share() && !may_be_dense(map)
}

/// Returns whether a map that must not have dense pages shares this leaf.
fn is_needed_as_it_is(
    map: &VolumeMap,
    pinned: &Pinned<'_>,
    (leaf, node): (u64, NodeRef),
    needing: &[Arc<VolumeMap>],
) -> bool {
    let store = &map.pool.store;
    let has_it = |other: &Arc<VolumeMap>| other.tree.find_leaf(store, pinned, leaf) == Some(node);
    map.may_share() && needing.iter().any(has_it)
}
