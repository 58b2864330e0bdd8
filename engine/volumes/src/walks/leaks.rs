//! The leak check's walk over all maps that there were when the pool was opened.

use std::sync::Arc;

use page_store::LeakCounts;

use crate::map::volume_map::VolumeMap;
use crate::pool::shared::Pool;

/// Leaves visited in one step.
const LEAVES_A_STEP: usize = 256;

/// Progress of the walk.
#[derive(Debug)]
pub(crate) struct LeakWalk {
    maps: Vec<Arc<VolumeMap>>,
    next_leaf: u64,
}

/// Outcome of a step.
#[derive(Debug)]
pub(crate) enum Visited {
    Some(LeakWalk),
    /// All: what is left over is leaked, if that can be told.
    All(Option<LeakCounts>),
}

impl LeakWalk {
    pub(crate) fn new(maps: Vec<Arc<VolumeMap>>) -> Self {
        Self { maps, next_leaf: 0 }
    }

    /// Visits some leaves, also of maps whose volume is gone: they must be seen before they go.
    pub(crate) fn step(mut self, pool: &Pool) -> Visited {
        let store = &pool.store;
        for _ in 0..LEAVES_A_STEP {
            let Some(map) = self.maps.last() else {
                return Visited::All(pool.leaks.end_visiting());
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
        Visited::Some(self)
    }
}
