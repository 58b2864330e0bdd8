//! Walk of the leak check over all maps that existed when the pool was opened, and freeing of
//! leaks. Background work runs it, or any request that needs the memory earlier.

use std::sync::{Arc, Mutex};

use page_store::LeakCounts;
use sync::atomic::{AtomicBool, Ordering};

use crate::map::volume_map::VolumeMap;
use crate::pool::shared::Pool;

/// Number of leaves visited in one step.
const LEAVES_A_STEP: usize = 256;

/// Number of slabs scanned in one step.
const SLABS_A_STEP: usize = 256;

/// Leak check in phases: one for each opening after an unclean end.
#[derive(Debug, Default)]
pub(crate) struct LeakSearch {
    phase: Mutex<Option<Phase>>,
    /// Set while there is a phase, for callers that do not wait for a step.
    is_going_on: AtomicBool,
}

#[derive(Debug)]
enum Phase {
    Visit(LeakWalk),
    Release(LeakCounts),
}

#[derive(Debug)]
struct LeakWalk {
    maps: Vec<Arc<VolumeMap>>,
    next_leaf: u64,
}

impl LeakSearch {
    /// Begins a leak check that visits these maps, before the pool is served.
    pub(crate) fn begin(&self, maps: Vec<Arc<VolumeMap>>) {
        let walk = LeakWalk { maps, next_leaf: 0 };
        *self.phase.lock().expect("nothing panics with it locked") = Some(Phase::Visit(walk));
        self.is_going_on.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_going_on(&self) -> bool {
        self.is_going_on.load(Ordering::Relaxed)
    }

    /// Performs a bounded step. Returns whether there was one to perform. The caller must hold no
    /// pin, lane or block lock.
    pub(crate) fn step(&self, pool: &Pool) -> bool {
        if !self.is_going_on() {
            return false;
        }
        let mut phase = self.phase.lock().expect("a panic in the search ends the process");
        let Some(now) = phase.take() else { return false };
        *phase = match now {
            Phase::Visit(walk) => walk.step(pool),
            Phase::Release(mut leaked) => {
                let has_more = pool.store.release_leaks(&mut leaked, SLABS_A_STEP);
                has_more.then_some(Phase::Release(leaked))
            }
        };
        self.is_going_on.store(phase.is_some(), Ordering::Relaxed);
        true
    }
}

impl LeakWalk {
    /// Visits some leaves, also of maps whose volume was deleted, which must be visited before they
    /// are freed. When all are visited, the remaining references are leaked, unless maps are
    /// damaged.
    fn step(mut self, pool: &Pool) -> Option<Phase> {
        let store = &pool.store;
        for _ in 0..LEAVES_A_STEP {
            let Some(map) = self.maps.last() else {
                return pool.leaks.end_visiting().map(Phase::Release);
            };
            let pinned = store.pin();
            if self.next_leaf == 0 {
                map.tree.for_each_inner_node(store, &pinned, &mut |_, node, _| {
                    pool.leaks.visit_inner(store, &pinned, node);
                });
            }
            match map.tree.next_leaf(store, &pinned, self.next_leaf) {
                Some((leaf, node)) => {
                    map.visit_leaf(&pinned, leaf, node);
                    self.next_leaf = leaf + 1;
                }
                None => {
                    pool.leaks.end_counting(map.id());
                    drop(pinned);
                    self.maps.pop();
                    self.next_leaf = 0;
                }
            }
        }
        Some(Phase::Visit(self))
    }
}
