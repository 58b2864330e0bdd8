//! The leak check's walk over all maps that there were when the pool was opened, and giving back
//! what it finds leaked. Background work does it, and whoever needs the memory before that.

use std::sync::{Arc, Mutex};

use page_store::LeakCounts;
use sync::atomic::{AtomicBool, Ordering};

use crate::map::volume_map::VolumeMap;
use crate::pool::shared::Pool;

/// Leaves visited in one step.
const LEAVES_A_STEP: usize = 256;

/// Slabs looked through in one step.
const SLABS_A_STEP: usize = 256;

/// Search for leaks: one for each opening after an unclean end.
#[derive(Debug, Default)]
pub(crate) struct LeakSearch {
    phase: Mutex<Option<Phase>>,
    /// There is a phase, for callers that do not wait for a step.
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
    /// Begins a search that visits these maps, before the pool is served.
    pub(crate) fn begin(&self, maps: Vec<Arc<VolumeMap>>) {
        let walk = LeakWalk { maps, next_leaf: 0 };
        *self.phase.lock().expect("nothing panics with it locked") = Some(Phase::Visit(walk));
        self.is_going_on.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_going_on(&self) -> bool {
        self.is_going_on.load(Ordering::Relaxed)
    }

    /// Does a bounded piece. Returns whether there was one to do. Not to be called while pinned,
    /// with a lane or with a block held.
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
    /// Visits some leaves, also of maps whose volume is gone: they must be seen before they go.
    /// When all are visited, what is left over is leaked, if that can be told.
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
