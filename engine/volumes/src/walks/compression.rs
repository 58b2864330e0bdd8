//! Background compression of pages that writers stored uncompressed.
//!
//! A walk over the leaves with untried entries tries their pages in batches, under a pin and a
//! reference, but without lane or lock. Then each entry that is still unchanged gets the compressed
//! page or loses bit u, with its block locked for that one store. A concurrent writer of a block is
//! not delayed and takes precedence.
//!
//! Entries that share a page follow one by one: the dedup index leads to the compressed page.

use std::sync::{Arc, Mutex, MutexGuard};

use page_store::{
    Attempt, Compressor, DirtyBits, NODE_ENTRY_COUNT, NoSpace, PageRef, Shrunk, Writer,
};

use crate::blocks::LEAF_BLOCKS;
use crate::map::entries::Update;
use crate::map::leaf_bits::LeafSet;
use crate::map::maps::Maps;
use crate::map::table::Kind;
use crate::map::volume_map::VolumeMap;
use crate::pool::shared::Pool;

/// Maximum number of pages tried under one pin, and then exchanged with one lane.
const PAGES_A_BATCH: usize = 16;

/// Number of batches in one step of maintenance.
const BATCHES_A_STEP: usize = 8;

/// Number of batches when a request needs memory: some hundred pages.
const BATCHES_FOR_SPACE: usize = 32;

/// Outcome of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// There may be more work now.
    Made,
    /// No untried page is left.
    Done,
    /// There is no memory even for the compressed pages.
    NoSpace,
}

/// Compression of one pool. One thread at a time works on it.
#[derive(Debug)]
pub(crate) struct Compression {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    compressor: Compressor,
    walk: Vec<(Arc<VolumeMap>, LeafSet)>,
    next: Place,
    attempts: Vec<(usize, PageRef, Attempt)>,
    /// Number of entries that lost bit u in the current step.
    settled: usize,
}

/// Position of the walk in the last volume of the list.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    leaf: u64,
    index: usize,
}

impl Compression {
    pub(crate) fn new() -> Self {
        let state = State {
            compressor: Compressor::new(),
            walk: Vec::new(),
            next: Place::default(),
            attempts: Vec::with_capacity(PAGES_A_BATCH),
            settled: 0,
        };
        Self { state: Mutex::new(state) }
    }

    /// Performs a bounded step of the work on these maps.
    pub(crate) fn step(&self, pool: &Pool, maps: &Maps) -> Progress {
        self.work(pool, maps, BATCHES_A_STEP)
    }

    /// Compresses some hundred pages for a request that finds no memory. The caller must hold
    /// neither a pin nor a lane.
    pub(crate) fn shrink_some(&self, pool: &Pool, maps: &Maps) -> Progress {
        self.work(pool, maps, BATCHES_FOR_SPACE)
    }

    /// Waits for the step in progress, which retains some pages. No other begins until the result
    /// is dropped.
    pub(crate) fn hold(&self) -> MutexGuard<'_, impl Sized> {
        self.state()
    }

    /// Waits for the step in progress. All volumes are gone by now, so it is the last one.
    pub(crate) fn stop(&self) {
        self.state().walk.clear();
    }

    fn work(&self, pool: &Pool, maps: &Maps, batch_count: usize) -> Progress {
        let mut state = self.state();
        if state.walk.is_empty() {
            state.begin_walk(pool, maps);
        }
        state.settled = 0;
        for _ in 0..batch_count {
            match state.batch(pool) {
                Progress::Made => {}
                Progress::Done => {
                    // Bits may have been set meanwhile.
                    state.begin_walk(pool, maps);
                    return if state.walk.is_empty() { Progress::Done } else { Progress::Made };
                }
                Progress::NoSpace => {
                    state.put_back();
                    // Compressed pages may have freed memory for the next step.
                    let has_won = state.settled > 0;
                    return if has_won { Progress::Made } else { Progress::NoSpace };
                }
            }
        }
        Progress::Made
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("a panic while compressing ends the process")
    }
}

impl State {
    /// Takes all leaves with untried entries. Frozen copies do not last long enough.
    fn begin_walk(&mut self, pool: &Pool, maps: &Maps) {
        let noted = pool.take_untried().into_iter().filter_map(|root_word| maps.get(root_word));
        let lasting = noted.filter(|map| map.kind != Kind::Frozen);
        self.walk = lasting.filter_map(|map| map.take_untried().map(|set| (map, set))).collect();
        self.next = Place::default();
        if pool.is_sharing() && self.walk.is_empty() {
            settle_shared(maps);
        }
    }

    /// Ends the walk. All of its leaves are left to the next walk, including those already walked.
    fn put_back(&mut self) {
        for (map, set) in self.walk.drain(..) {
            map.put_back_untried(&set);
        }
    }

    /// Tries the next pages, of one leaf.
    fn batch(&mut self, pool: &Pool) -> Progress {
        let Some((map, set)) = self.walk.last() else { return Progress::Done };
        let map = Arc::clone(map);
        let Some(leaf) = map.next_leaf_in(set, self.next.leaf) else {
            self.walk.pop();
            self.next = Place::default();
            return Progress::Made;
        };
        if leaf != self.next.leaf {
            self.next = Place { leaf, index: 0 };
        }
        if self.next.index == 0 {
            // A thread that published an entry in the leaf before the set was taken has unlocked it
            // from here on. All others see the bit cleared and set it again.
            drop(pool.locks.lock_leaf(map.id(), leaf));
        }
        let is_walked = self.try_pages(&map);
        let exchanged = self.exchange_pages(&map);
        if is_walked {
            self.next = Place { leaf: leaf + 1, index: 0 };
        }
        match exchanged {
            Ok(()) => Progress::Made,
            Err(NoSpace) => Progress::NoSpace,
        }
    }

    /// Tries some pages of the leaf. Returns whether these were the last.
    fn try_pages(&mut self, map: &VolumeMap) -> bool {
        let store = &map.pool.store;
        let pinned = store.pin();
        if map.is_gone() {
            return true;
        }
        let Some(node) = map.tree.find_leaf(store, &pinned, self.next.leaf) else { return true };
        let mut untried = (self.next.index..NODE_ENTRY_COUNT)
            .map(|index| (index, store.entry(&pinned, node, index)))
            .filter(|(_, entry)| entry.is_untried())
            .inspect(|&(_, entry)| store.prefetch_page(entry))
            .peekable();
        while let Some((index, entry)) = untried.next() {
            // This batch is about to store that page: the next batch will find it.
            let is_coming =
                self.attempts.iter().any(|(_, tried, attempt)| *tried == entry && attempt.is_new());
            if is_coming || self.attempts.len() == PAGES_A_BATCH {
                self.next.index = index;
                return false;
            }
            // Prefetches the next page while this one is encoded.
            untried.peek();
            let attempt = self.compressor.attempt(store, &pinned, entry);
            self.attempts.push((index, entry, attempt));
        }
        true
    }

    /// Applies the results of the attempts to the entries.
    fn exchange_pages(&mut self, map: &VolumeMap) -> Result<(), NoSpace> {
        if self.attempts.is_empty() {
            return Ok(());
        }
        let mut writer = map.pool.store.writer();
        let mut exchange = Exchange { map, writer: &mut writer, settled: 0 };
        let mut result = Ok(());
        for (index, entry, attempt) in self.attempts.drain(..) {
            let place = Place { leaf: self.next.leaf, index };
            match attempt {
                Attempt::Damaged => {}
                Attempt::Keep => {
                    exchange.if_unchanged(place, entry, || Some(Update::Tried));
                }
                Attempt::Shrink(shrunk) => {
                    result = result.and(exchange.shrink(place, entry, &self.compressor, shrunk));
                }
            }
        }
        self.settled += exchange.settled;
        writer.lane.end_batch(&mut self.compressor);
        result
    }
}

/// Clears the counts of maps whose leaves have no untried entries: those that volumes share were
/// settled through one of them.
fn settle_shared(maps: &Maps) {
    let is_settled = |map: &&Arc<VolumeMap>| {
        map.kind != Kind::Frozen && map.may_share() && !map.is_noted_untried()
    };
    for map in maps.all().iter().filter(is_settled) {
        map.counts.forget_untried();
    }
}

/// Exchange of entries of one volume.
struct Exchange<'work, 'store> {
    map: &'work VolumeMap,
    writer: &'work mut Writer<'store>,
    settled: usize,
}

impl Exchange<'_, '_> {
    /// Replaces the page of the entry by the compressed page.
    fn shrink(
        &mut self,
        place: Place,
        entry: PageRef,
        compressor: &Compressor,
        shrunk: Shrunk,
    ) -> Result<(), NoSpace> {
        let mut page =
            Some(self.writer.lane.store_shrunk(&self.writer.pinned, compressor, shrunk)?);
        self.if_unchanged(place, entry, || page.take().map(Update::Page));
        if let Some(page) = page {
            self.writer.lane.give_back(page);
        }
        Ok(())
    }

    /// Changes an entry, if it is unchanged since its page was tried. The attempt's reference keeps
    /// the page, so equal entries mean equal contents.
    fn if_unchanged(
        &mut self,
        place: Place,
        entry: PageRef,
        update: impl FnOnce() -> Option<Update>,
    ) {
        let block = place.leaf * LEAF_BLOCKS + place.index as u64;
        let changed = change_if_same(self.map, self.writer, (block, entry), update);
        self.settled += usize::from(changed);
    }
}

/// Changes the entry of a block, if it is unchanged. Returns whether it was changed.
pub(super) fn change_if_same(
    map: &VolumeMap,
    writer: &mut Writer<'_>,
    (block, entry): (u64, PageRef),
    update: impl FnOnce() -> Option<Update>,
) -> bool {
    // Dirty bits may change meanwhile.
    let is_same = |now: PageRef| now.without(DirtyBits::ALL) == entry.without(DirtyBits::ALL);
    let changed =
        map.update_if(writer, block, |_, now| Ok(if is_same(now) { update() } else { None }));
    changed == Ok(true)
}
