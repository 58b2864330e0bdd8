//! Memory for requests that meet a full pool.
//!
//! Memory that is about to be freed is reclaimed first, then leaked memory. Then pages are
//! compressed, and frozen copies are given up. New data of a thin volume gets no more than that.
//! Overwrites of unshared blocks continue while nothing else retains a page. Writes of claimed
//! memory continue until they find it.
//!
//! Frozen copies use memory as the volumes change, and claim none:
//!
//! ```text
//!  freeze ─▶ frozen ─┬─ dropped by its reader ────────────────────┬─▶ gone, maps retired
//!                    └─ memory is short ─┬─ given up at once ─────┤
//!                                        └─ held on to: given up ─┘
//!                                           when not read on, or after a while
//! ```
//!
//! After copies were given up twice, the reader may make writers wait while it continues, so that a
//! volume that is always written in a full pool can eventually be read completely.

use std::sync::{Arc, Mutex, MutexGuard};

use block_device::{DeviceError, DeviceErrorKind};
use page_store::ClaimRefused;

use crate::map::maps::Maps;
use crate::map::table::Kind;
use crate::map::volume_map::VolumeMap;
use crate::pool::shared::Pool;
use crate::walks::compression::{Compression, Progress};
use crate::walks::evacuation::Evacuation;
use crate::walks::idle_compression::IdleCompression;
use crate::walks::leaks::LeakSearch;

/// Number of retries of a request that finds no memory, each after reclaiming memory that is about
/// to be freed.
const SPACE_TRIES_MAX: usize = 2;

/// Number of retries of an overwrite. It is larger, because others may take the memory first.
const OVERWRITE_TRIES_MAX: usize = 64;

/// Number of times that a request frees unreferenced nodes and retries.
const DROPS_MAX: usize = 1 << 16;

/// Number of attempts of a request with claimed memory.
const CLAIMED_TRIES_MAX: usize = 4096;

/// Number of attempts before it makes frozen copies give way again, as others may have made some.
const GIVING_WAY_TRIES: usize = 64;

/// Number of times that a request compresses some pages and retries.
const COMPRESSIONS_MAX: usize = 64;

type Attempted = Result<(), DeviceError>;

/// The memory of one pool, and all means to free some.
#[derive(Debug)]
pub(crate) struct Space {
    pub(crate) pool: Arc<Pool>,
    /// Maps of listed volumes and snapshots, and of frozen copies.
    pub(crate) maps: Maps,
    pub(crate) compression: Compression,
    pub(crate) idle_compression: IdleCompression,
    pub(crate) leak_search: LeakSearch,
    /// Evacuation in progress, if there is one.
    evacuation: Mutex<Option<Evacuation>>,
    /// Held by a request that reclaims memory for itself, so that the next request short of memory
    /// does not take it.
    shortage: Mutex<()>,
}

impl Space {
    pub(crate) fn new(pool: Arc<Pool>) -> Self {
        Self {
            pool,
            maps: Maps::default(),
            compression: Compression::new(),
            idle_compression: IdleCompression::new(),
            leak_search: LeakSearch::default(),
            evacuation: Mutex::default(),
            shortage: Mutex::new(()),
        }
    }

    /// Ends a period of idle compression and begins the next.
    pub(crate) fn begin_idle_period(&self) {
        self.idle_compression.begin_period(self.maps.all());
    }

    /// Compresses some idle pages. Returns whether there may be more in this period.
    pub(crate) fn compress_idle(&self) -> bool {
        self.idle_compression.step(&self.pool, &self.maps, &self.compression)
    }

    /// Restores some blocks that were read in the dense form. Returns whether there may be more.
    pub(crate) fn bring_back_read(&self) -> bool {
        self.pool.dense_reads.has_any()
            && self.idle_compression.bring_back(&self.pool, &self.maps.all(), &self.compression)
    }

    /// Makes an attempt, and retries it if it finds no memory. `is_overwrite` then says whether the
    /// attempt overwrites existing contents, for which memory is reserved. The caller must hold
    /// neither a pin nor a lane.
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

    /// Retries an attempt with claimed memory. The memory exists, but others may still have to free
    /// it or give way.
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

    /// Retries an overwrite while housekeeping retains no page, so that unshared pages are
    /// recognized as such and their memory becomes free. Others may take that memory first, but
    /// free as much in turn.
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

    /// Retries with memory that is about to be freed, can be saved by compression, or is given up.
    fn attempt_with_what_comes_back(
        &self,
        mut result: Attempted,
        attempt: &mut impl FnMut() -> Attempted,
    ) -> Attempted {
        let pool = &self.pool;
        // The last leaks may be freed between an attempt and the next check.
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
        for _ in 0..COMPRESSIONS_MAX {
            let shrunk = || self.compression.shrink_some(pool, &self.maps);
            if !is_short(&result) || shrunk() != Progress::Made {
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

    /// Frees unreferenced nodes, until an attempt finds memory or none are left.
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

    /// Prevents other requests from reclaiming memory for themselves until the result is dropped.
    pub(crate) fn hold_shortage(&self) -> MutexGuard<'_, ()> {
        self.shortage.lock().expect("a panic in a request ends the process")
    }

    /// Locks the evacuation until the result is dropped.
    pub(crate) fn hold_evacuation(&self) -> MutexGuard<'_, Option<Evacuation>> {
        self.evacuation.lock().expect("a panic in housekeeping ends the process")
    }

    /// Ends the evacuation, because a request that is short of memory needs the slots of its slabs.
    pub(crate) fn end_evacuation(&self) {
        let evacuation = self.hold_evacuation().take();
        if let Some(evacuation) = evacuation {
            evacuation.end(&self.pool);
        }
    }

    /// Makes frozen copies give way to a caller that finds no memory. Returns whether there were
    /// any: memory of only these copies is about to be freed then. The caller must hold no pin,
    /// lane or block lock.
    fn make_frozen_give_way(&self) -> bool {
        self.pool.frozen.wait_while_read();
        let copies = self.frozen();
        self.let_go(&copies);
        !copies.is_empty()
    }

    /// Returns the existing frozen copies.
    pub(crate) fn frozen(&self) -> Vec<Arc<VolumeMap>> {
        if self.pool.frozen.is_empty() {
            return Vec::new();
        }
        let mut copies = self.maps.all();
        copies.retain(|map| map.kind == Kind::Frozen && !map.is_gone());
        copies
    }

    /// Retires the maps of those copies that are not gone. On return the maps of all are being
    /// freed.
    pub(crate) fn let_go(&self, copies: &[Arc<VolumeMap>]) {
        let (pool, frozen) = (&self.pool, &self.pool.frozen);
        let _keep = frozen.keep();
        let left: Vec<_> = copies.iter().filter(|copy| copy.set_gone()).collect();
        left.iter().for_each(|copy| self.maps.remove(copy));
        // The end of the run waits for this lock: nothing is retired afterwards.
        if !left.is_empty() {
            pool.store.wait_for_readers();
            left.iter().for_each(|copy| copy.retire());
        }
        frozen.note_gone(left.len());
    }

    /// Makes frozen copies give way, and frees the memory of only these copies. Returns whether
    /// there were any.
    pub(crate) fn take_back_frozen(&self) -> bool {
        let had_some = self.make_frozen_give_way();
        if had_some {
            self.pool.reclaim_all_deferred();
        }
        had_some
    }

    /// Runs the leak check to its end, which frees all leaked memory. The caller must hold no pin,
    /// lane or block lock.
    pub(crate) fn end_leak_search(&self) {
        while self.leak_search.step(&self.pool) {}
    }

    /// Claims slots, including those that frozen copies or leaks occupy.
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
