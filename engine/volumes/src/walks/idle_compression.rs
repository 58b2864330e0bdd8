//! Compressing what nobody reads a second time, so that it takes less memory.
//!
//! A period is as long as a leaf must be unused. The owner says when one begins; then the pages of
//! leaves that were not used in the whole of the one before are encoded in the dense form, a few at
//! a time, and exchanged as in `compression`. A block that is read in that form is noted, and
//! brought back to the form for reading by itself: the rest of its leaf stays as it is.
//!
//! Leaves of volumes of other reductions than `full`, and of class `guaranteed`, are left alone,
//! also where another volume shares them. Maps that share leaves count as used together.
//!
//! Lock order: the state here, then that of `compression`, which requests short of memory wait for:
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
use crate::map::table::Kind;
use crate::map::volume_map::VolumeMap;
use crate::pool::shared::Pool;
use crate::spec::Reduction;
use crate::walks::compression::{Compression, change_if_same};

/// Pages that one step tries to encode, and leaves that it looks at.
const PAGES_A_STEP: usize = 8;
const LEAVES_A_STEP: usize = 64;

/// After so many periods all that is idle is looked at again: a page that had several references
/// may have one by now.
const PERIODS_A_ROUND: u64 = 16;

/// Blocks brought back in one step.
const BLOCKS_BACK_A_STEP: usize = 8;

/// The compression of what is idle in one pool: one thread at a time works on it.
#[derive(Debug)]
pub(crate) struct IdleCompression {
    state: Mutex<State>,
    /// The work of a period is done, and has emptied slots.
    has_emptied: AtomicBool,
}

#[derive(Debug)]
struct State {
    compressor: DenseCompressor,
    /// Periods that began.
    periods: u64,
    /// Pages were compressed since the work of a period was last done.
    has_changed: bool,
    /// Maps that this period still has to look at.
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

/// How a look at a leaf went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looked {
    /// Pages were tried: enough for a step.
    Worked,
    /// It took next to no time.
    Passed,
    Ended,
}

/// A block, what its entry said, and the other form of its page.
type Change = (u64, PageRef, Reencoded);

impl IdleCompression {
    pub(crate) fn new() -> Self {
        let compressor = DenseCompressor::new();
        let state =
            State { compressor, periods: 0, has_changed: false, maps: Vec::new(), walk: None };
        Self { state: Mutex::new(state), has_emptied: AtomicBool::new(false) }
    }

    /// Ends a period: what was not used in it is idle, and the uses of all leaves are noted anew.
    /// A walk that is under way goes on.
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
    /// maps of the pool. Not to be called while pinned or with a lane.
    pub(crate) fn step(
        &self,
        pool: &Pool,
        all: &[Arc<VolumeMap>],
        compression: &Compression,
    ) -> bool {
        let mut state = self.state();
        // Almost always none: looked for once, and before requests are kept waiting.
        let needing = all.iter().filter(|map| needs_as_they_are(map)).cloned().collect::<Vec<_>>();
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
                    // There is not even memory for smaller pages: another period.
                    state.rest();
                    self.note_end(&mut state);
                    return false;
                }
            }
        }
        true
    }

    /// Brings some blocks back that were read in the dense form, unless memory is short. Returns
    /// whether there may be more. Not to be called while pinned or with a lane.
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
            // What is claimed would not take the other form, see `exchange`.
            let is_it = |map: &&Arc<VolumeMap>| map.id() == map_id && !map.is_gone();
            let map = all.iter().find(is_it).filter(|map| !map.claims.is_claimed());
            has_changed |= map.is_some_and(|map| state.bring_back(map, block));
        }
        has_changed || pool.dense_reads.has_any()
    }

    /// The work of a period is done.
    fn note_end(&self, state: &mut State) {
        if std::mem::take(&mut state.has_changed) {
            self.has_emptied.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether the work of a period was done since the last call, and has emptied slots.
    pub(crate) fn take_emptied(&self) -> bool {
        self.has_emptied.load(Ordering::Relaxed) && self.has_emptied.swap(false, Ordering::Relaxed)
    }

    /// Waits for the step in hand. All volumes are gone by now, so it is the last one.
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

    /// Encodes some pages of a leaf, unless it is used again or others need it as it is.
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
            // Not to be dealt with before it is idle again.
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
                // To be looked at again when it is tried.
                map.leaves.note_use(leaf);
            }
            if let Some(change) = self.compressor.make_dense(store, &pinned, entry) {
                changes.push((leaf * LEAF_BLOCKS + index as u64, entry, change));
            }
        }
        (walk.leaf, walk.index) = (leaf + 1, 0);
        changes
    }

    /// Gives the entries their pages in the other form, those that did not change meanwhile.
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
            // Stored as they are from now on, what was written before is not to change either.
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

    /// Returns whether the block has its page in another form now.
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
        // Without memory it stays as it is.
        self.compressor.held_count() > 0
            && self.exchange(map, change.into_iter().collect()).is_ok()
            && is_changed
    }
}

fn may_be_dense(map: &VolumeMap) -> bool {
    map.reduction() == Reduction::Full && !map.claims.is_claimed() && !map.is_gone()
}

/// Returns whether leaves that a map shares must not get pages in the dense form.
fn needs_as_they_are(map: &VolumeMap) -> bool {
    map.kind != Kind::Frozen && map.may_share() && !may_be_dense(map)
}

/// Returns whether a map that must not have pages in the dense form shares this leaf.
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
