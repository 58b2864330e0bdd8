//! Compressing what writers stored as it is, in the background.
//!
//! A walk over the leaves that have untried entries tries their pages, a few at a time: under a pin
//! and a reference, but without lane or lock. Then each entry that still says the same gets the
//! compressed page or loses bit u, with its block locked for that one store. A
//! writer of a block meanwhile is not held up and wins.
//!
//! Entries that share a page follow one by one: the dedup index leads them to the compressed page.

use std::sync::{Arc, Mutex, MutexGuard};

use page_store::{
    Attempt, Compressor, DirtyBits, NODE_ENTRY_COUNT, NoSpace, PageRef, Shrunk, Writer,
};

use crate::blocks::LEAF_BLOCKS;
use crate::map::entries::Update;
use crate::map::leaf_bits::LeafSet;
use crate::map::table::Kind;
use crate::map::volume_map::VolumeMap;
use crate::pool::shared::Pool;

/// Pages tried under one pin, and then exchanged with one lane.
const PAGES_A_BATCH: usize = 16;

/// Batches in one step of maintenance.
const BATCHES_A_STEP: usize = 8;

/// Batches when a request needs memory, for some hundred pages.
const BATCHES_FOR_SPACE: usize = 32;

/// Progress of a piece of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// There may be more to do now.
    Made,
    /// Nothing is left to try.
    Done,
    /// There is not even memory for the compressed pages.
    NoSpace,
}

/// The compression of one pool: one thread at a time works on it.
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
    /// Entries that lost bit u in the piece of work in hand.
    settled: usize,
}

/// Where the walk goes on in the last volume of the list.
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

    /// Does a bounded piece of the work on these maps.
    pub(crate) fn step(&self, pool: &Pool, maps: &[Arc<VolumeMap>]) -> Progress {
        self.work(pool, maps, BATCHES_A_STEP)
    }

    /// Compresses some hundred pages for a request that finds no memory. Not to be called while
    /// pinned or with a lane.
    pub(crate) fn shrink_some(&self, pool: &Pool, maps: &[Arc<VolumeMap>]) -> Progress {
        self.work(pool, maps, BATCHES_FOR_SPACE)
    }

    /// Waits for the piece in hand, which keeps some pages. None is begun until the result is
    /// dropped.
    pub(crate) fn hold(&self) -> MutexGuard<'_, impl Sized> {
        self.state()
    }

    /// Waits for the piece in hand. All volumes are gone by now, so it is the last one.
    pub(crate) fn stop(&self) {
        self.state().walk.clear();
    }

    fn work(&self, pool: &Pool, maps: &[Arc<VolumeMap>], batch_count: usize) -> Progress {
        let mut state = self.state();
        if state.walk.is_empty() {
            state.begin_walk(maps);
        }
        state.settled = 0;
        for _ in 0..batch_count {
            match state.batch(pool) {
                Progress::Made => {}
                Progress::Done => {
                    // Set meanwhile, perhaps.
                    state.begin_walk(maps);
                    return if state.walk.is_empty() { Progress::Done } else { Progress::Made };
                }
                Progress::NoSpace => {
                    state.put_back();
                    // What has shrunk may leave memory for the next piece.
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
    /// Takes all leaves that wait. Frozen copies do not last long enough.
    fn begin_walk(&mut self, maps: &[Arc<VolumeMap>]) {
        let take = |map: &Arc<VolumeMap>| {
            let set = map.untried_leaves.take(|| map.leaf_count());
            if set.is_none() && map.may_share() {
                // Leaves that volumes share are settled through one of them.
                map.counts.forget_untried();
            }
            Some((Arc::clone(map), set?))
        };
        let lasting = maps.iter().filter(|map| map.kind != Kind::Frozen);
        self.walk = lasting.filter_map(take).collect();
        self.next = Place::default();
    }

    /// Ends the walk. Its leaves are for the next one, also those that were walked.
    fn put_back(&mut self) {
        for (map, set) in self.walk.drain(..) {
            map.untried_leaves.put_back(&set);
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
            // A thread that published an entry in the leaf before the set was taken is out of it
            // from here on; all others see the bit gone and set it again.
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

    /// Tries some pages of the leaf. Returns whether they were the last.
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
            // A page that this batch is about to store: the next batch will find it.
            let is_coming =
                self.attempts.iter().any(|(_, tried, attempt)| *tried == entry && attempt.is_new());
            if is_coming || self.attempts.len() == PAGES_A_BATCH {
                self.next.index = index;
                return false;
            }
            // The next page is on its way while this one is encoded.
            untried.peek();
            let attempt = self.compressor.attempt(store, &pinned, entry);
            self.attempts.push((index, entry, attempt));
        }
        true
    }

    /// Gives the entries what became of their pages.
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

/// Entries of one volume being changed.
struct Exchange<'work, 'store> {
    map: &'work VolumeMap,
    writer: &'work mut Writer<'store>,
    settled: usize,
}

impl Exchange<'_, '_> {
    /// Gives the entry the compressed page.
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

    /// Changes an entry, if it still says what it did when its page was tried. The attempt's
    /// reference keeps the page: the same entry means the same contents.
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

/// Changes the entry of a block, if it still says the same. Returns whether it was changed.
pub(super) fn change_if_same(
    map: &VolumeMap,
    writer: &mut Writer<'_>,
    (block, entry): (u64, PageRef),
    update: impl FnOnce() -> Option<Update>,
) -> bool {
    // Dirty bits may come and go meanwhile.
    let is_same = |now: PageRef| now.without(DirtyBits::ALL) == entry.without(DirtyBits::ALL);
    let changed =
        map.update_if(writer, block, |_, now| Ok(if is_same(now) { update() } else { None }));
    changed == Ok(true)
}
