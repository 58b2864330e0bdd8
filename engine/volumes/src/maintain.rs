//! The work that nobody waits for, in bounded pieces.
//!
//! ```text
//! after an unclean end:  visit all maps ─▶ give leaks back ─┐
//! after a clean end:                                        ├─▶ fill the index ─▶ idle ⇄ evacuate
//! ```
//!
//! While idle, what was stored as it is gets compressed first: it leaves slabs behind that are
//! empty, and then sparse ones to evacuate.

use std::sync::Arc;

use page_store::LeakCounts;
use sync::atomic::Ordering;

use crate::compress::Progress;
use crate::evacuate::Evacuation;
use crate::shared::Shared;
use crate::volume::Volume;

/// Leaves visited in one step.
const LEAVES_A_STEP: usize = 256;

/// Nodes taken apart in one step, of maps that are gone.
const NODES_A_STEP: usize = 64;

/// Slabs looked through in one step.
const SLABS_A_STEP: u32 = 256;

/// Idle calls to let pass after an evacuation that found little to do, at most.
const REST_MAX: u32 = 1024;

/// Which work is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    All,
    /// What is short, or brings the pool in order.
    ButCompression,
}

/// What is being worked on.
#[derive(Debug)]
pub(crate) struct Maintenance {
    task: Task,
    /// Idle calls until an evacuation is thought of again, and how many to wait next time.
    rest: u32,
    rest_next: u32,
    /// Maps were taken apart: slabs may be empty but for slots that lanes keep.
    has_dropped: bool,
}

#[derive(Debug)]
enum Task {
    VisitMaps {
        volumes: Vec<Arc<Volume>>,
        next_leaf: u64,
    },
    Release(LeakCounts),
    FillIndex {
        next_slab: u32,
    },
    Idle,
    /// The one in [`Shared::evacuation`], unless a writer needed what it keeps.
    Evacuate,
}

impl Maintenance {
    /// With the volumes whose maps are to be visited, after an unclean end.
    pub(crate) fn new(unclean: Option<Vec<Arc<Volume>>>) -> Self {
        let task = match unclean {
            Some(volumes) => Task::VisitMaps { volumes, next_leaf: 0 },
            None => Task::FillIndex { next_slab: 0 },
        };
        Self { task, rest: 0, rest_next: 1, has_dropped: false }
    }

    pub(crate) fn is_checking_leaks(&self) -> bool {
        matches!(self.task, Task::VisitMaps { .. } | Task::Release(_))
    }

    /// Does a piece of the task. Returns whether there is more to do now.
    pub(crate) fn step(
        &mut self,
        shared: &Shared,
        work: Work,
        volumes: impl FnOnce() -> Vec<Arc<Volume>>,
    ) -> bool {
        if shared.store.deferred_count() > 0 {
            self.has_dropped = true;
            if shared.store.reclaim_deferred(NODES_A_STEP) {
                return true;
            }
        }
        let was_idle = matches!(self.task, Task::Idle);
        let may_compress = was_idle && work == Work::All;
        if may_compress && shared.compression.step(shared) == Progress::Made {
            return true;
        }
        let task = std::mem::replace(&mut self.task, Task::Idle);
        self.task = match task {
            Task::VisitMaps { volumes, next_leaf } => visit_maps(shared, volumes, next_leaf),
            Task::Release(leak_counts) => release(shared, leak_counts),
            Task::FillIndex { next_slab } => fill_index(shared, next_slab),
            Task::Evacuate => self.evacuate(shared),
            Task::Idle => self.look_for_work(shared, volumes),
        };
        !(was_idle && matches!(self.task, Task::Idle))
    }

    /// Lets a walk that empties slabs end early.
    pub(crate) fn stop(&mut self, shared: &Shared) {
        let task = std::mem::replace(&mut self.task, Task::Idle);
        match task {
            Task::Evacuate => shared.end_evacuation(),
            other => self.task = other,
        }
    }

    /// The dedup index was dropped: it is to be filled again.
    pub(crate) fn refill_index(&mut self) {
        if matches!(self.task, Task::Idle | Task::FillIndex { .. }) {
            self.task = Task::FillIndex { next_slab: 0 };
        }
    }

    fn look_for_work(
        &mut self,
        shared: &Shared,
        volumes: impl FnOnce() -> Vec<Arc<Volume>>,
    ) -> Task {
        match std::mem::take(&mut self.has_dropped) {
            true => shared.store.empty_idle_lanes(),
            false => shared.store.drain_idle_lanes(),
        }
        if shared.store.shrink_index() {
            return Task::FillIndex { next_slab: 0 };
        }
        if self.rest > 0 {
            self.rest -= 1;
            return Task::Idle;
        }
        if shared.is_shrinking.load(Ordering::Relaxed) {
            return Task::Idle;
        }
        let usage = shared.store.usage();
        let used_bytes = usage.size_bytes - usage.free_bytes;
        // Worth a walk when it brings a sixteenth of what is used back, or any slab when the pool
        // is nearly full.
        let is_tight = usage.free_bytes < usage.size_bytes / 16;
        let bytes_min = if is_tight { 0 } else { used_bytes / 16 };
        let volumes = volumes();
        // Held before slabs are taken out of use: whoever holds it knows that none are.
        let mut evacuation = shared.hold_evacuation();
        *evacuation = Evacuation::begin(&shared.store, &volumes, bytes_min);
        match &*evacuation {
            Some(_) => Task::Evacuate,
            None => Task::Idle,
        }
    }

    fn evacuate(&mut self, shared: &Shared) -> Task {
        let mut evacuation = shared.hold_evacuation();
        if evacuation.as_mut().is_some_and(|evacuation| evacuation.step(shared)) {
            return Task::Evacuate;
        }
        let gained = evacuation.take().is_some_and(|evacuation| evacuation.end(shared) > 0);
        self.rest = if gained { 0 } else { self.rest_next };
        self.rest_next = if gained { 1 } else { (self.rest_next * 2).min(REST_MAX) };
        Task::Idle
    }
}

fn visit_maps(shared: &Shared, mut volumes: Vec<Arc<Volume>>, mut next_leaf: u64) -> Task {
    for _ in 0..LEAVES_A_STEP {
        let Some(volume) = volumes.last() else {
            let leak_counts = shared.leak_check.end_visits();
            return leak_counts.map_or(Task::FillIndex { next_slab: 0 }, Task::Release);
        };
        let pinned = shared.store.pin();
        if next_leaf == 0 {
            let mut visit = |node| shared.leak_check.visit_inner(&shared.store, &pinned, node);
            volume.map.for_each_inner_node(&shared.store, &pinned, &mut visit);
        }
        match volume.map.next_leaf(&shared.store, &pinned, next_leaf) {
            Some((leaf, node)) => {
                shared.leak_check.visit_leaf(volume, &pinned, leaf, node);
                next_leaf = leaf + 1;
            }
            None => {
                shared.leak_check.end_counting(volume.id());
                drop(pinned);
                volumes.pop();
                next_leaf = 0;
            }
        }
    }
    Task::VisitMaps { volumes, next_leaf }
}

fn release(shared: &Shared, mut leak_counts: LeakCounts) -> Task {
    let slabs = usize::try_from(SLABS_A_STEP).expect("a small number");
    match shared.store.release_leaks(&mut leak_counts, slabs) {
        true => Task::Release(leak_counts),
        false => Task::FillIndex { next_slab: 0 },
    }
}

fn fill_index(shared: &Shared, next_slab: u32) -> Task {
    match shared.store.index_slabs(&shared.store.pin(), next_slab, SLABS_A_STEP) {
        true => Task::FillIndex { next_slab: next_slab + SLABS_A_STEP },
        false => Task::Idle,
    }
}
