//! Background work, in bounded pieces.
//!
//! ```text
//! after an unclean end: visit all maps ─▶ give leaks back ┐
//! after a clean end:                                      ├─▶ fill the index ─▶ idle ⇄ evacuate
//! ```
//!
//! While idle, uncompressed pages are compressed first, which leaves empty slabs, and then sparse
//! ones to evacuate.

use crate::map::table::Kind;
use crate::pool::shared::Pool;
use crate::space::find::Space;
use crate::walks::compression::Progress;
use crate::walks::evacuation::Evacuation;

/// Number of nodes of deleted maps that one step frees.
const NODES_A_STEP: usize = 64;

/// Number of slabs that one step scans.
const SLABS_A_STEP: u32 = 256;

/// Maximum number of idle calls to skip after an evacuation that gained little.
const REST_MAX: u32 = 1024;

/// Maximum number of evacuations after idle compression, which leaves sparse slabs of many classes.
/// Each of them must free the share below of the used memory.
const EVACUATIONS_AFTER_IDLE: u32 = 32;
const SHARE_AFTER_IDLE: u64 = 256;

/// Kinds of work to perform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    All,
    /// All work but compression, and the evacuations that follow idle compression.
    ButCompression,
}

/// Background work in progress.
#[derive(Debug)]
pub(crate) struct Maintenance {
    task: Task,
    /// Number of idle calls until the next evacuation is considered, and the next value of that
    /// number.
    rest: u32,
    rest_next: u32,
    /// Maps were freed: slabs may be empty apart from slots cached by lanes.
    has_dropped: bool,
    /// Number of evacuations that may still follow idle compression.
    after_idle: u32,
    /// The pool is being shrunk, against which other evacuations would work.
    pub(super) is_shrinking: bool,
}

#[derive(Debug)]
enum Task {
    FillIndex {
        next_slab: u32,
    },
    Idle,
    /// The evacuation in [`Space::hold_evacuation`], unless a writer took the memory that it
    /// retains.
    Evacuate,
}

impl Maintenance {
    pub(crate) fn new() -> Self {
        let task = Task::FillIndex { next_slab: 0 };
        Self { task, rest: 0, rest_next: 1, has_dropped: false, after_idle: 0, is_shrinking: false }
    }

    /// Performs a step of the task. Returns whether more work is pending.
    pub(crate) fn step(&mut self, space: &Space, work: Work) -> bool {
        let pool = &space.pool;
        if pool.store.deferred_count() > 0 {
            self.has_dropped = true;
            if pool.store.reclaim_deferred(NODES_A_STEP) {
                return true;
            }
        }
        if space.leak_search.step(pool) {
            return true;
        }
        let was_idle = matches!(self.task, Task::Idle);
        let may_compress = was_idle && work == Work::All;
        if may_compress && space.compression.step(pool, &space.maps) == Progress::Made {
            return true;
        }
        let task = std::mem::replace(&mut self.task, Task::Idle);
        self.task = match task {
            Task::FillIndex { next_slab } => fill_index(pool, next_slab),
            Task::Evacuate => self.evacuate(space),
            Task::Idle => self.look_for_work(space, work),
        };
        !(was_idle && matches!(self.task, Task::Idle))
    }

    /// Ends an evacuation early.
    pub(crate) fn stop(&mut self, space: &Space) {
        let task = std::mem::replace(&mut self.task, Task::Idle);
        match task {
            Task::Evacuate => space.end_evacuation(),
            other => self.task = other,
        }
    }

    /// Starts to fill the dedup index again, after it was dropped.
    pub(crate) fn refill_index(&mut self) {
        if matches!(self.task, Task::Idle | Task::FillIndex { .. }) {
            self.task = Task::FillIndex { next_slab: 0 };
        }
    }

    fn look_for_work(&mut self, space: &Space, work: Work) -> Task {
        let store = &space.pool.store;
        match std::mem::take(&mut self.has_dropped) {
            true => store.empty_idle_lanes(),
            false => store.drain_idle_lanes(),
        }
        if store.shrink_index() {
            return Task::FillIndex { next_slab: 0 };
        }
        if space.idle_compression.take_emptied() {
            self.after_idle = EVACUATIONS_AFTER_IDLE;
        }
        let is_after_idle = self.after_idle > 0 && work == Work::All;
        if self.rest > 0 && !is_after_idle {
            self.rest -= 1;
            return Task::Idle;
        }
        if self.is_shrinking {
            return Task::Idle;
        }
        let usage = store.usage();
        let used_bytes = usage.size_bytes - usage.free_bytes;
        // An evacuation must free a sixteenth of the used memory, less after idle compression, or
        // any slab when the pool is nearly full.
        let is_tight = usage.free_bytes < usage.size_bytes / 16;
        let share = if is_after_idle { SHARE_AFTER_IDLE } else { 16 };
        let bytes_min = if is_tight { 0 } else { used_bytes / share };
        let maps = || {
            let mut maps = space.maps.all();
            maps.retain(|map| map.kind != Kind::Frozen);
            maps
        };
        // Held before slabs are taken out of use, so that any thread that holds it knows that none
        // are.
        let mut evacuation = space.hold_evacuation();
        *evacuation = Evacuation::begin(&space.pool, maps, bytes_min);
        match &*evacuation {
            Some(_) => {
                self.after_idle -= u32::from(is_after_idle);
                Task::Evacuate
            }
            None => {
                if is_after_idle {
                    self.after_idle = 0;
                }
                Task::Idle
            }
        }
    }

    fn evacuate(&mut self, space: &Space) -> Task {
        let mut evacuation = space.hold_evacuation();
        if evacuation.as_mut().is_some_and(Evacuation::step) {
            return Task::Evacuate;
        }
        let gained = evacuation.take().is_some_and(|evacuation| evacuation.end(&space.pool) > 0);
        if !gained {
            self.after_idle = 0;
        }
        self.rest = if gained { 0 } else { self.rest_next };
        self.rest_next = if gained { 1 } else { (self.rest_next * 2).min(REST_MAX) };
        Task::Idle
    }
}

fn fill_index(pool: &Pool, next_slab: u32) -> Task {
    match pool.store.index_slabs(&pool.store.pin(), next_slab, SLABS_A_STEP) {
        true => Task::FillIndex { next_slab: next_slab + SLABS_A_STEP },
        false => Task::Idle,
    }
}
