//! Evacuation of slabs: sparse ones, so that their memory becomes free for any use, and those that
//! leave the pool.
//!
//! The pool selects the victims. One walk over all maps moves their pages. A moved entry keeps its
//! contents, so readers see no difference and writers are delayed for one exchange.

use std::collections::HashMap;
use std::sync::Arc;

use page_store::{NODE_ENTRY_COUNT, OwnedPageRef, PageRef, Victims, Writer};

use crate::blocks::LEAF_BLOCKS;
use crate::map::entries::Update;
use crate::map::volume_map::VolumeMap;
use crate::pool::shared::Pool;

/// Maximum number of slabs evacuated in one walk over the maps.
const VICTIMS_MAX: usize = 1024;

/// Maximum number of shared pages whose new location one walk remembers. Beyond it, each entry of a
/// shared page gets its own page.
const MOVED_MAX: usize = 256 << 10;

/// Number of leaves visited in one step.
const LEAVES_A_STEP: usize = 64;

/// A walk over the maps that evacuates some slabs.
#[derive(Debug)]
pub(crate) struct Evacuation {
    /// Slabs to evacuate. `None`: those that leave the pool.
    victims: Option<Victims>,
    maps: Vec<Arc<VolumeMap>>,
    next_leaf: u64,
    /// New locations of shared pages, each with a reference, so that all entries of a page follow.
    moved: HashMap<PageRef, OwnedPageRef>,
}

impl Evacuation {
    /// Selects slabs to evacuate, if that may free `bytes_min` or more.
    pub(crate) fn begin(
        pool: &Pool,
        maps: impl FnOnce() -> Vec<Arc<VolumeMap>>,
        bytes_min: u64,
    ) -> Option<Self> {
        let victims = pool.store.choose_victims(bytes_min, VICTIMS_MAX)?;
        // Listed afterwards: a map that is created later has no page in these slabs.
        let maps = maps();
        Some(Self { victims: Some(victims), maps, next_leaf: 0, moved: HashMap::new() })
    }

    /// Begins to evacuate the slabs that leave the pool.
    pub(crate) fn of_leaving(maps: Vec<Arc<VolumeMap>>) -> Self {
        Self { victims: None, maps, next_leaf: 0, moved: HashMap::new() }
    }

    /// Performs a step of the walk. Returns whether there is more to walk.
    pub(crate) fn step(&mut self) -> bool {
        for _ in 0..LEAVES_A_STEP {
            let Some(map) = self.maps.last().map(Arc::clone) else { return false };
            match map.next_leaf(self.next_leaf) {
                Some(leaf) => {
                    self.move_pages_of(&map, leaf);
                    self.next_leaf = leaf + 1;
                }
                None => {
                    self.maps.pop();
                    self.next_leaf = 0;
                }
            }
        }
        true
    }

    /// Frees the empty victims, and returns the others to use. Returns the number of empty ones.
    pub(crate) fn end(self, pool: &Pool) -> usize {
        let mut lane = pool.store.lane();
        for (_, page) in self.moved {
            lane.give_back(page);
        }
        lane.drain();
        drop(lane);
        self.victims.map_or(0, |victims| pool.store.release_victims(victims))
    }

    fn move_pages_of(&mut self, map: &VolumeMap, leaf: u64) {
        let store = &map.pool.store;
        let hits: Vec<usize> = {
            let pinned = store.pin();
            let Some(node) = map.tree.find_leaf(store, &pinned, leaf) else { return };
            let is_hit = |&index: &usize| store.is_in_victim(store.entry(&pinned, node, index));
            (0..NODE_ENTRY_COUNT).filter(is_hit).collect()
        };
        for index in hits {
            let mut writer = store.writer();
            let block = leaf * LEAF_BLOCKS + index as u64;
            let moved = map.update_if(&mut writer, block, |writer, now| {
                let page = self.move_page(map, writer, now);
                Ok(page.map(Update::Page))
            });
            moved.expect("without memory to move to, a page stays");
        }
    }

    /// Moves one page out of a victim. The caller holds the lock of its block.
    fn move_page(
        &mut self,
        map: &VolumeMap,
        writer: &mut Writer<'_>,
        entry: PageRef,
    ) -> Option<OwnedPageRef> {
        let store = &map.pool.store;
        if !store.is_in_victim(entry) {
            return None;
        }
        // Two entries of one page may differ in dirty bits.
        let name = entry.name();
        let known = self.moved.get(&name).and_then(|page| writer.lane.share(page));
        // If there is no memory for a copy, the page stays: its slab is returned to use at the end.
        let page = known.or_else(|| writer.lane.relocate(&writer.pinned, entry))?;
        if store.is_shared(entry)
            && self.moved.len() < MOVED_MAX
            && !self.moved.contains_key(&name)
            && let Some(own) = writer.lane.share(&page)
        {
            self.moved.insert(name, own);
        }
        Some(page)
    }
}
