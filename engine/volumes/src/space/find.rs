//! Finding memory for requests that meet a full pool.
//!
//! What is on its way to be free is collected first, and what a kill has leaked; then pages are
//! compressed, and frozen copies give way. A thin volume's new data gets no more than that.
//! Overwrites of what a block has alone go on while nothing else keeps a page, and writes of
//! claimed memory go on until they find it.
//!
//! Frozen copies take memory as the volumes change, and claim none:
//!
//! ```text
//!  freeze ─▶ frozen ─┬─ dropped by its reader ────────────────────┬─▶ gone, maps retired
//!                    └─ memory is short ─┬─ given up at once ─────┤
//!                                        └─ held on to: given up ─┘
//!                                           when not read on, or after a while
//! ```
//!
//! Copies that gave way twice may be held on to: then writers wait for a reader that goes on, so
//! that a volume which is always written in a full pool can be read as a whole some time.

use std::sync::{Arc, Mutex, MutexGuard, RwLock};

use block_device::{DeviceError, DeviceErrorKind};
use page_store::ClaimRefused;

use crate::map::table::Kind;
use crate::map::volume_map::VolumeMap;
use crate::pool::shared::Pool;
use crate::walks::compression::{Compression, Progress};
use crate::walks::evacuation::Evacuation;
use crate::walks::idle_compression::IdleCompression;
use crate::walks::leaks::LeakSearch;

/// How often a request that finds no memory tries again after collecting what is on its way to be
/// freed.
const SPACE_TRIES_MAX: usize = 2;

/// How often an overwrite does so: what it finds others may take first.
const OVERWRITE_TRIES_MAX: usize = 64;

/// How often a request takes nodes apart that no map names any more, and tries again.
const DROPS_MAX: usize = 1 << 16;

/// How often one tries that has claimed memory.
const CLAIMED_TRIES_MAX: usize = 4096;

/// How often it tries before it has frozen copies give way again, which others may have made.
const GIVING_WAY_TRIES: usize = 64;

/// How often a request compresses some pages and tries again.
const COMPRESSIONS_MAX: usize = 64;

type Attempted = Result<(), DeviceError>;

/// The memory of one pool, and what can be made to give some back.
#[derive(Debug)]
pub(crate) struct Space {
    pub(crate) pool: Arc<Pool>,
    /// Of volumes and snapshots that are listed, and of frozen copies.
    maps: RwLock<Vec<Arc<VolumeMap>>>,
    pub(crate) compression: Compression,
    pub(crate) idle_compression: IdleCompression,
    pub(crate) leak_search: LeakSearch,
    /// The walk that empties slabs, if there is one.
    evacuation: Mutex<Option<Evacuation>>,
    /// Held by a request that collects memory for itself: what it finds is not for the next one
    /// that is short of it.
    shortage: Mutex<()>,
}

impl Space {
    pub(crate) fn new(pool: Arc<Pool>) -> Self {
        Self {
            pool,
            maps: RwLock::default(),
            compression: Compression::new(),
            idle_compression: IdleCompression::new(),
            leak_search: LeakSearch::default(),
            evacuation: Mutex::default(),
            shortage: Mutex::new(()),
        }
    }

    /// Ends a period of the compression of what is idle.
    pub(crate) fn begin_idle_period(&self) {
        self.idle_compression.begin_period(self.maps());
    }

    /// Compresses some of what is idle. Returns whether there may be more in this period.
    pub(crate) fn compress_idle(&self) -> bool {
        self.idle_compression.step(&self.pool, &self.maps(), &self.compression)
    }

    /// Brings some blocks back that were read in the dense form. Returns whether there were any.
    pub(crate) fn bring_back_read(&self) -> bool {
        self.pool.dense_reads.has_any()
            && self.idle_compression.bring_back(&self.pool, &self.maps(), &self.compression)
    }

    /// All maps that there are, but for those of volumes that are being made.
    pub(crate) fn maps(&self) -> Vec<Arc<VolumeMap>> {
        self.maps.read().expect("nothing panics with the maps locked").clone()
    }

    pub(crate) fn add_map(&self, map: &Arc<VolumeMap>) {
        let mut maps = self.maps.write().expect("nothing panics with the maps locked");
        maps.push(Arc::clone(map));
    }

    pub(crate) fn remove_map(&self, map: &Arc<VolumeMap>) {
        let mut maps = self.maps.write().expect("nothing panics with the maps locked");
        maps.retain(|known| !Arc::ptr_eq(known, map));
    }

    /// Makes an attempt, and more if it finds no memory. `is_overwrite` is asked then whether it is
    /// one to overwrite something, for which there is some. Not to be called while pinned or with a
    /// lane.
    pub(crate) fn find(
        &self,
        map: &VolumeMap,
        is_overwrite: impl Fn() -> bool,
        mut attempt: impl FnMut() -> Attempted,
    ) -> Attempted {
        let result = attempt();
        if !is_short(&result) {
            return result;
        }
        self.find_more(map, result, is_overwrite, attempt)
    }

    #[cold]
    fn find_more(
        &self,
        map: &VolumeMap,
        mut result: Attempted,
        is_overwrite: impl Fn() -> bool,
        mut attempt: impl FnMut() -> Attempted,
    ) -> Attempted {
        if map.claims.is_claimed() {
            return self.find_claimed(result, attempt);
        }
        let _turn = self.hold_shortage();
        result = self.attempt_with_what_comes_back(result, &mut attempt);
        match is_short(&result) && is_overwrite() {
            true => self.attempt_undisturbed(is_overwrite, attempt),
            false => result,
        }
    }

    /// Makes attempts that take what was claimed for them, and more if they find nothing: memory is
    /// there, though others may be about to give it back, or have to give way.
    fn find_claimed(
        &self,
        mut result: Attempted,
        mut attempt: impl FnMut() -> Attempted,
    ) -> Attempted {
        for turn in 0..CLAIMED_TRIES_MAX {
            if !is_short(&result) {
                break;
            }
            let _turn = self.hold_shortage();
            if turn % GIVING_WAY_TRIES == SPACE_TRIES_MAX {
                self.end_leak_search();
                self.end_evacuation();
                self.make_frozen_give_way();
            }
            self.pool.reclaim_some_deferred();
            result = attempt();
        }
        result
    }

    /// Makes attempts to overwrite something while housekeeping keeps no page, so that what a
    /// block has alone is known to be its own, and to come back. Others may take that first, but
    /// give as much back in turn.
    fn attempt_undisturbed(
        &self,
        is_overwrite: impl Fn() -> bool,
        mut attempt: impl FnMut() -> Attempted,
    ) -> Attempted {
        self.make_frozen_give_way();
        self.pool.reclaim_all_deferred();
        let mut evacuation = self.hold_evacuation();
        if let Some(evacuation) = evacuation.take() {
            evacuation.end(&self.pool);
        }
        let _compression = self.compression.hold();
        let mut result = attempt();
        for _ in 0..OVERWRITE_TRIES_MAX {
            if !is_short(&result) || !is_overwrite() {
                break;
            }
            self.pool.reclaim_some_deferred();
            result = attempt();
        }
        result
    }

    /// Makes attempts with what is on its way to be free, can be made smaller, or gives way.
    fn attempt_with_what_comes_back(
        &self,
        mut result: Attempted,
        attempt: &mut impl FnMut() -> Attempted,
    ) -> Attempted {
        let pool = &self.pool;
        // The last leaks may come back between an attempt and the next look.
        let was_searching = self.leak_search.is_going_on();
        for _ in 0..SPACE_TRIES_MAX {
            pool.store.reclaim();
            result = attempt();
            if !is_short(&result) {
                return result;
            }
        }
        if was_searching {
            self.end_leak_search();
            pool.store.reclaim();
            result = attempt();
        }
        result = self.attempt_while_deferred(result, attempt);
        let maps = self.maps();
        for _ in 0..COMPRESSIONS_MAX {
            if !is_short(&result) || self.compression.shrink_some(pool, &maps) != Progress::Made {
                break;
            }
            pool.store.reclaim();
            result = attempt();
        }
        if is_short(&result) {
            self.make_frozen_give_way();
            result = self.attempt_while_deferred(result, attempt);
        }
        result
    }

    /// Takes nodes apart that no map names any more, until an attempt finds memory or none are
    /// left.
    fn attempt_while_deferred(
        &self,
        mut result: Attempted,
        attempt: &mut impl FnMut() -> Attempted,
    ) -> Attempted {
        for _ in 0..DROPS_MAX {
            if !is_short(&result) || self.pool.store.deferred_count() == 0 {
                break;
            }
            self.pool.reclaim_some_deferred();
            result = attempt();
        }
        result
    }

    /// No other request collects memory for itself until the result is dropped.
    pub(crate) fn hold_shortage(&self) -> MutexGuard<'_, ()> {
        self.shortage.lock().expect("a panic in a request ends the process")
    }

    /// The walk that empties slabs. No other thread looks at it until the result is dropped.
    pub(crate) fn hold_evacuation(&self) -> MutexGuard<'_, Option<Evacuation>> {
        self.evacuation.lock().expect("a panic in housekeeping ends the process")
    }

    /// Lets the slabs that are being emptied work on: a request that is short of memory needs their
    /// slots.
    pub(crate) fn end_evacuation(&self) {
        let evacuation = self.hold_evacuation().take();
        if let Some(evacuation) = evacuation {
            evacuation.end(&self.pool);
        }
    }

    /// Has the frozen copies give way to a caller that finds no memory. Returns whether there were
    /// any: what only they had is on its way to be free. Not to be called while pinned, with a
    /// lane or with a block held.
    fn make_frozen_give_way(&self) -> bool {
        self.pool.frozen.wait_while_read();
        let copies = self.frozen();
        self.let_go(&copies);
        !copies.is_empty()
    }

    /// The frozen copies that there are.
    pub(crate) fn frozen(&self) -> Vec<Arc<VolumeMap>> {
        let mut copies = self.maps();
        copies.retain(|map| map.kind == Kind::Frozen && !map.is_gone());
        copies
    }

    /// Gives the maps of copies back that are not gone. What went before is on its way too when
    /// this returns.
    pub(crate) fn let_go(&self, copies: &[Arc<VolumeMap>]) {
        let (pool, frozen) = (&self.pool, &self.pool.frozen);
        let _keep = frozen.keep();
        let left: Vec<_> = copies.iter().filter(|copy| copy.set_gone()).collect();
        left.iter().for_each(|copy| self.remove_map(copy));
        // To end the run this lock is waited for: nothing is retired past that.
        if !left.is_empty() {
            pool.store.wait_for_readers();
            left.iter().for_each(|copy| copy.retire());
        }
        frozen.note_gone(left.len());
    }

    /// Has frozen copies give way, and brings back what only they had. Returns whether there were
    /// any.
    pub(crate) fn take_back_frozen(&self) -> bool {
        let had_some = self.make_frozen_give_way();
        if had_some {
            self.pool.reclaim_all_deferred();
        }
        had_some
    }

    /// Gives all back that a kill has leaked. Not to be called while pinned, with a lane or with a
    /// block held.
    pub(crate) fn end_leak_search(&self) {
        while self.leak_search.step(&self.pool) {}
    }

    /// Claims slots, those that frozen copies have, or that a kill has leaked, included.
    pub(crate) fn claim(&self, slots: u64) -> Result<(), ClaimRefused> {
        let store = &self.pool.store;
        if store.claim(slots).is_ok() {
            return Ok(());
        }
        self.end_leak_search();
        store.reclaim();
        store.claim(slots).or_else(|refused| match self.take_back_frozen() {
            true => store.claim(slots),
            false => Err(refused),
        })
    }
}

fn is_short(result: &Attempted) -> bool {
    result.as_ref().is_err_and(|error| error.kind == DeviceErrorKind::NoSpace)
}
