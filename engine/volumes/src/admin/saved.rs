//! Clears the dirty bits of blocks saved in an image, without copying shared nodes.
//!
//! A leaf that several maps share has one set of dirty bits for all of them. The bits are cleared
//! in place when the image contains the leaf for each map that relies on them, so no node is
//! copied. Otherwise they stay until the next image.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::sync::Arc;

use page_store::{DirtyBits, NODE_ENTRY_COUNT, NodeRef, Writer};

use crate::admin::engine::Engine;
use crate::device::volume::Volume;
use crate::map::entries::clean_shared;
use crate::map::table::Kind;
use crate::map::volume_map::VolumeMap;
use crate::spec::Durability;

/// Number of leaves processed before another operation of the administration may run.
const LEAVES_A_TURN: usize = 64;

/// Changes of a volume that an image supersedes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settles {
    Image,
    /// The changes are not needed in the journal either. Only for a volume without transactions in
    /// the journal that the image does not supersede.
    ImageAndJournal,
}

impl Settles {
    fn bits(self) -> DirtyBits {
        match self {
            Self::Image => DirtyBits::IMAGE,
            Self::ImageAndJournal => DirtyBits::ALL,
        }
    }
}

/// A volume whose base is an image of `copy`: a frozen copy of it, or the volume itself if it does
/// not change.
#[derive(Clone, Debug)]
pub struct SavedVolume {
    pub volume: Arc<Volume>,
    pub copy: Arc<Volume>,
    pub settles: Settles,
}

/// Copies and lasting maps that share one leaf node.
#[derive(Default)]
struct Group<'it> {
    places: HashSet<usize>,
    sharers: Vec<&'it Arc<VolumeMap>>,
}

impl Engine {
    /// Clears the dirty bits of blocks that still have the saved contents. Maps continue to share
    /// their nodes.
    pub fn note_saved(&self, saved: &[SavedVolume]) {
        SharedWalk::begin(self, saved).run();
        for SavedVolume { volume, copy, settles } in saved {
            volume.map.note_stored(&copy.map, settles.bits());
        }
    }
}

/// Walk over the leaves that saved volumes share with their copies, in order of leaf number.
struct SharedWalk<'it> {
    engine: &'it Engine,
    saved: &'it [SavedVolume],
    /// Index in `saved`, by volume id.
    places: HashMap<u64, usize>,
    /// Next leaf of each copy.
    next: BinaryHeap<Reverse<(u64, usize)>>,
}

impl<'it> SharedWalk<'it> {
    fn begin(engine: &'it Engine, saved: &'it [SavedVolume]) -> Self {
        let places = (0..).zip(saved).map(|(place, saved)| (saved.volume.id(), place)).collect();
        let mut walk = Self { engine, saved, places, next: BinaryHeap::new() };
        (0..saved.len()).for_each(|place| walk.find_next(place, 0));
        walk
    }

    fn find_next(&mut self, place: usize, from: u64) {
        let next = self.saved[place].copy.map.next_leaf(from);
        self.next.extend(next.map(|leaf| Reverse((leaf, place))));
    }

    fn run(&mut self) {
        while !self.next.is_empty() {
            // During this turn no map becomes a copy of another and no class changes.
            let _administration = self.engine.administrate();
            let maps = self.engine.space.maps.all();
            for _ in 0..LEAVES_A_TURN {
                let Some(&Reverse((leaf, _))) = self.next.peek() else { break };
                let mut copies = Vec::new();
                while let Some(&Reverse((next, place))) = self.next.peek()
                    && next == leaf
                {
                    self.next.pop();
                    self.find_next(place, leaf + 1);
                    copies.push(place);
                }
                self.clean_leaf(leaf, &copies, &maps);
            }
        }
    }

    /// Clears dirty bits of the nodes that some copies share as one leaf.
    fn clean_leaf(&self, leaf: u64, copies: &[usize], maps: &[Arc<VolumeMap>]) {
        let pool = &self.engine.pool;
        // A copy is given up only between two leaves, so every map that shares a node with it has
        // the same contents.
        let _kept = pool.frozen.keep();
        let mut writer = pool.store.writer();
        let mut nodes: HashMap<NodeRef, Group<'_>> = HashMap::new();
        for &place in copies {
            let copy = &self.saved[place].copy.map;
            let found = copy.tree.find_leaf(&pool.store, &writer.pinned, leaf);
            if let Some(node) = found.filter(|_| !copy.is_gone()) {
                nodes.entry(node).or_default().places.insert(place);
            }
        }
        nodes.retain(|&node, _| {
            let entry = |index| pool.store.entry(&writer.pinned, node, index);
            (0..NODE_ENTRY_COUNT).any(|index| entry(index).is_dirty(DirtyBits::ALL))
        });
        if nodes.is_empty() {
            return;
        }
        for map in maps.iter().filter(|map| map.kind != Kind::Frozen && !map.is_gone()) {
            let found = map.tree.find_leaf(&pool.store, &writer.pinned, leaf);
            if let Some(group) = found.and_then(|node| nodes.get_mut(&node)) {
                group.sharers.push(map);
            }
        }
        for (node, group) in nodes {
            self.clean_node(&mut writer, (leaf, node), group);
        }
    }

    fn clean_node(
        &self,
        writer: &mut Writer<'_>,
        (leaf, node): (u64, NodeRef),
        Group { places, mut sharers }: Group<'_>,
    ) {
        let pool = &self.engine.pool;
        let _held = pool.locks.lock_leaf_of_all(sharers.iter().map(|map| map.id()), leaf);
        let _moves = pool.hold_moves();
        // A map that has changed the leaf since has a copy of it.
        sharers.retain(|map| map.tree.find_leaf(&pool.store, &writer.pinned, leaf) == Some(node));
        let bits = self.bits_to_clear(&places, &sharers);
        clean_shared(writer, (leaf, node), &sharers, bits);
    }

    /// Returns the bits that are obsolete for all maps that share a leaf with the copies at
    /// `places`.
    fn bits_to_clear(&self, places: &HashSet<usize>, sharers: &[&Arc<VolumeMap>]) -> DirtyBits {
        let settled = |map: &Arc<VolumeMap>| {
            let place = self.places.get(&map.id()).filter(|place| places.contains(place))?;
            let saved = &self.saved[*place];
            let is_same = saved.copy.map.generation() == map.generation();
            is_same.then_some(saved.settles)
        };
        let is_with_base = |map: &&&Arc<VolumeMap>| map.image_base().is_some();
        let others = || sharers.iter().filter(|map| settled(map).is_none());
        let are_all_other = sharers.iter().all(|map| settled(map).is_none());
        if are_all_other
            || others().filter(is_with_base).any(|map| map.durability() != Durability::Ram)
        {
            return DirtyBits::NONE;
        }
        // The next image of such a volume then saves all of it.
        others().filter(is_with_base).for_each(|map| map.set_image_base(None));
        let settles_journal =
            |map: &&Arc<VolumeMap>| settled(map) == Some(Settles::ImageAndJournal);
        let needs_no_journal = |map: &&Arc<VolumeMap>| !map.is_journaled() || settles_journal(map);
        match sharers.iter().any(settles_journal) && sharers.iter().all(needs_no_journal) {
            true => DirtyBits::ALL,
            false => DirtyBits::IMAGE,
        }
    }
}
