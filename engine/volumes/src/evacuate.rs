//! Emptying slabs: sparse ones, so that their memory can be used for anything, and those that leave
//! the pool.
//!
//! The pool names the victims; one walk over all maps moves what they hold. An entry that is moved
//! keeps its contents, so readers see no difference and writers are held up for one exchange.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use page_store::{Lane, NODE_ENTRY_COUNT, NodeRef, OwnedPageRef, PageRef, PageStore, Victims};
use sync::Pinned;

use crate::map::LEAF_BLOCKS;
use crate::shared::Shared;
use crate::volume::Volume;

/// Slabs emptied in one walk over the maps.
const VICTIMS_MAX: usize = 1024;

/// Shared pages whose new place is remembered in one walk. Of further ones each entry gets a page
/// of its own.
const MOVED_MAX: usize = 256 << 10;

/// Leaves looked at in one step.
const LEAVES_A_STEP: usize = 64;

/// A walk over the maps that empties some slabs.
#[derive(Debug)]
pub(crate) struct Evacuation {
    /// `None`: the slabs that leave the pool.
    victims: Option<Victims>,
    /// Weak: the volumes own the pool that this is part of.
    volumes: Vec<Weak<Volume>>,
    next_leaf: u64,
    /// Where shared pages went, with a reference of ours, so that all their entries follow.
    moved: HashMap<PageRef, OwnedPageRef>,
}

impl Evacuation {
    /// Chooses slabs to empty, if that may bring back `bytes_min` or more.
    pub(crate) fn begin(
        store: &PageStore,
        volumes: &[Arc<Volume>],
        bytes_min: u64,
    ) -> Option<Self> {
        let victims = store.choose_victims(bytes_min, VICTIMS_MAX)?;
        let victims = Some(victims);
        Some(Self { victims, volumes: weak(volumes), next_leaf: 0, moved: HashMap::new() })
    }

    /// Empties the slabs that leave the pool.
    pub(crate) fn of_leaving(volumes: &[Arc<Volume>]) -> Self {
        Self { victims: None, volumes: weak(volumes), next_leaf: 0, moved: HashMap::new() }
    }

    /// Walks on for a while. Returns whether there is more to walk.
    pub(crate) fn step(&mut self, shared: &Shared) -> bool {
        for _ in 0..LEAVES_A_STEP {
            let Some(volume) = self.volumes.last() else { return false };
            let Some(volume) = volume.upgrade() else {
                self.volumes.pop();
                self.next_leaf = 0;
                continue;
            };
            let next = {
                let pinned = shared.store.pin();
                let next = volume.map.next_leaf(&shared.store, &pinned, self.next_leaf);
                next.filter(|_| !volume.is_gone())
            };
            match next {
                Some((leaf, _)) => {
                    self.move_pages_of(shared, &volume, leaf);
                    self.next_leaf = leaf + 1;
                }
                None => {
                    self.volumes.pop();
                    self.next_leaf = 0;
                }
            }
        }
        true
    }

    /// Lets the victims that are empty go, and the others work on. Returns how many were empty.
    pub(crate) fn end(self, shared: &Shared) -> usize {
        let mut lane = shared.store.lane();
        for (_, page) in self.moved {
            lane.give_back(page);
        }
        lane.drain();
        drop(lane);
        self.victims.map_or(0, |victims| shared.store.release_victims(victims))
    }

    fn move_pages_of(&mut self, shared: &Shared, volume: &Volume, leaf: u64) {
        let is_hit = |pinned: &Pinned<'_>, node, index| {
            shared.store.is_in_victim(shared.store.entry(pinned, node, index))
        };
        let hits: Vec<usize> = {
            let pinned = shared.store.pin();
            let Some(node) = volume.map.find_leaf(&shared.store, &pinned, leaf) else { return };
            (0..NODE_ENTRY_COUNT).filter(|&index| is_hit(&pinned, node, index)).collect()
        };
        for index in hits {
            let mut lane = shared.store.lane();
            let pinned = shared.store.pin();
            let block = leaf * LEAF_BLOCKS + index as u64;
            let is_hit = |entry| shared.store.is_in_victim(entry);
            volume.reword_block(&mut lane, &pinned, (block, is_hit), |lane, at| {
                self.move_page(volume, lane, &pinned, at);
            });
        }
    }

    /// Moves one page out of a victim. The caller holds its block.
    fn move_page(
        &mut self,
        volume: &Volume,
        lane: &mut Lane<'_>,
        pinned: &Pinned<'_>,
        (node, index): (NodeRef, usize),
    ) {
        let store = &volume.shared.store;
        let entry = store.entry(pinned, node, index);
        // Two entries of one page may differ in the mark.
        let name = entry.name();
        let known = self.moved.get(&name).and_then(|page| lane.share(page));
        // Without memory to move to, the page stays: its slab is used again in the end.
        let Some(page) = known.or_else(|| lane.relocate(pinned, entry)) else { return };
        if store.is_shared(entry)
            && self.moved.len() < MOVED_MAX
            && !self.moved.contains_key(&name)
            && let Some(own) = lane.share(&page)
        {
            self.moved.insert(name, own);
        }
        volume.move_to(lane, (node, index), page);
    }
}

fn weak(volumes: &[Arc<Volume>]) -> Vec<Weak<Volume>> {
    volumes.iter().map(Arc::downgrade).collect()
}
