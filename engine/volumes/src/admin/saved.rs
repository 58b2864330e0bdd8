//! Taking note that an image has what volumes hold, without taking apart what their maps share.
//!
//! A leaf that several maps share speaks for all of them. Its dirty bits go in its place when the
//! image has it for each map that relies on them, so that nothing is copied; else they stay until
//! the next image.

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

/// Leaves looked at before another operation of the administration may come.
const LEAVES_A_TURN: usize = 64;

/// Changes of a volume that an image makes superfluous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settles {
    Image,
    /// The changes need not go into the journal either. Only for a volume without transactions in
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

/// A volume whose base is an image that holds `copy`: a frozen copy of it, or the volume itself if
/// it does not change.
#[derive(Clone, Debug)]
pub struct SavedVolume {
    pub volume: Arc<Volume>,
    pub copy: Arc<Volume>,
    pub settles: Settles,
}

/// Copies and lasting maps that have one node as a leaf.
#[derive(Default)]
struct Group<'it> {
    places: HashSet<usize>,
    sharers: Vec<&'it Arc<VolumeMap>>,
}

impl Engine {
    /// Clears the dirty bits of blocks that still hold what was saved. Maps go on sharing their
    /// nodes.
    pub fn note_saved(&self, saved: &[SavedVolume]) {
        SharedWalk::begin(self, saved).run();
        for SavedVolume { volume, copy, settles } in saved {
            volume.map.note_stored(&copy.map, settles.bits());
        }
    }
}

/// A walk over the leaves that saved volumes have in common with their copies, in the order of
/// their numbers.
struct SharedWalk<'it> {
    engine: &'it Engine,
    saved: &'it [SavedVolume],
    /// By the volume's id.
    places: HashMap<u64, usize>,
    /// The next leaf of each copy.
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
            // No map becomes a copy of another, nor does a class change, in this turn.
            let _administration = self.engine.administrate();
            let maps = self.engine.space.maps();
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

    /// Takes dirty bits off the nodes that some copies have as one leaf.
    fn clean_leaf(&self, leaf: u64, copies: &[usize], maps: &[Arc<VolumeMap>]) {
        let pool = &self.engine.pool;
        // A copy is given up only between two leaves: what shares a node with it holds the same.
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
        // Who has changed the leaf since has a copy of it.
        sharers.retain(|map| map.tree.find_leaf(&pool.store, &writer.pinned, leaf) == Some(node));
        let bits = self.bits_to_clear(&places, &sharers);
        clean_shared(writer, (leaf, node), &sharers, bits);
    }

    /// Which bits say nothing any more to any of the maps that share a leaf with the copies at
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
        // An image that has such a volume again takes all of it anew.
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
