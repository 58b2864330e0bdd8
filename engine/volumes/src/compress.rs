//! Compressing what writers stored as it is, while nobody waits.
//!
//! A walk over the leaves that have untried entries tries their pages, a few at a time: under a pin
//! and a reference, but without lane or lock. Then each entry that still says the same gets the
//! compressed page or loses its mark, with its block locked for that one store. Whoever overwrites
//! a block meanwhile is not held up and wins.
//!
//! Entries that share a page follow one by one: the dedup index leads them to the compressed page.

use std::sync::{Arc, Mutex, MutexGuard, Weak};

use page_store::{
    Attempt, Compressor, DirtyBits, Lane, NODE_ENTRY_COUNT, NoSpace, NodeRef, PageRef, Shrunk,
};
use sync::Pinned;

use crate::leaf_marks::LeafSet;
use crate::map::LEAF_BLOCKS;
use crate::shared::Shared;
use crate::volume::Volume;

/// Pages tried under one pin, and then exchanged with one lane.
const PAGES_A_BATCH: usize = 16;

/// Batches in one step of maintenance.
const BATCHES_A_STEP: usize = 8;

/// Batches when a request needs memory, for some hundred pages.
const BATCHES_FOR_SPACE: usize = 32;

/// How far a piece of the work got.
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
    /// Volumes that may have something to compress.
    volumes: Mutex<Vec<Weak<Volume>>>,
}

#[derive(Debug)]
struct State {
    compressor: Compressor,
    /// Weak: the volumes own the pool that this is part of.
    walk: Vec<(Weak<Volume>, LeafSet)>,
    next: Place,
    attempts: Vec<(usize, PageRef, Attempt)>,
    /// Entries that lost their mark in the piece of work in hand.
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
        Self { state: Mutex::new(state), volumes: Mutex::default() }
    }

    /// Takes care of a volume from now on.
    pub(crate) fn watch(&self, volume: &Arc<Volume>) {
        let mut volumes = self.volumes.lock().expect("nobody panics with the list locked");
        volumes.retain(|volume| volume.strong_count() > 0);
        volumes.push(Arc::downgrade(volume));
    }

    /// Does a bounded piece of the work.
    pub(crate) fn step(&self, shared: &Shared) -> Progress {
        self.work(shared, BATCHES_A_STEP)
    }

    /// Compresses some hundred pages for a request that finds no memory. Not to be called while
    /// pinned or with a lane.
    pub(crate) fn shrink_some(&self, shared: &Shared) -> Progress {
        self.work(shared, BATCHES_FOR_SPACE)
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

    fn work(&self, shared: &Shared, batch_count: usize) -> Progress {
        let mut state = self.state();
        if state.walk.is_empty() {
            state.walk = self.take_all();
            state.next = Place::default();
        }
        state.settled = 0;
        for _ in 0..batch_count {
            match state.batch(shared) {
                Progress::Made => {}
                Progress::Done => {
                    // Marked meanwhile, perhaps.
                    state.walk = self.take_all();
                    state.next = Place::default();
                    return if state.walk.is_empty() { Progress::Done } else { Progress::Made };
                }
                Progress::NoSpace => {
                    state.put_back();
                    // What has shrunk may leave memory behind for the next piece.
                    let has_won = state.settled > 0;
                    return if has_won { Progress::Made } else { Progress::NoSpace };
                }
            }
        }
        Progress::Made
    }

    fn take_all(&self) -> Vec<(Weak<Volume>, LeafSet)> {
        let volumes = self.volumes.lock().expect("nobody panics with the list locked");
        let take = |weak: &Weak<Volume>| {
            let volume = weak.upgrade()?;
            let set = volume.untried_leaves.take(|| volume.leaf_count());
            if set.is_none() && volume.sharing.is_possible() {
                // Leaves that volumes share are settled through one of them.
                volume.counts.forget_untried();
            }
            Some((Weak::clone(weak), set?))
        };
        volumes.iter().filter_map(take).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("a panic while compressing ends the process")
    }
}

impl State {
    /// Ends the walk. Its leaves are for the next one, also those that were walked.
    fn put_back(&mut self) {
        for (volume, set) in self.walk.drain(..) {
            if let Some(volume) = volume.upgrade() {
                volume.untried_leaves.put_back(&set);
            }
        }
    }

    /// Tries the next pages, of one leaf.
    fn batch(&mut self, shared: &Shared) -> Progress {
        let Some((volume, set)) = self.walk.last() else { return Progress::Done };
        let found = volume.upgrade().and_then(|volume| {
            let leaf = volume.next_marked_leaf(set, self.next.leaf)?;
            Some((volume, leaf))
        });
        let Some((volume, leaf)) = found else {
            self.walk.pop();
            self.next = Place::default();
            return Progress::Made;
        };
        if leaf != self.next.leaf {
            self.next = Place { leaf, index: 0 };
        }
        if self.next.index == 0 {
            // Who published an entry in the leaf before the set was taken is out of it from here
            // on; all others see the bit gone and set it again.
            drop(shared.locks.lock_leaf(volume.id(), leaf));
        }
        let is_walked = self.try_pages(shared, &volume);
        let exchanged = self.exchange_pages(shared, &volume);
        if is_walked {
            self.next = Place { leaf: leaf + 1, index: 0 };
        }
        match exchanged {
            Ok(()) => Progress::Made,
            Err(NoSpace) => Progress::NoSpace,
        }
    }

    /// Tries some pages of the leaf. Returns whether they were the last.
    fn try_pages(&mut self, shared: &Shared, volume: &Volume) -> bool {
        let store = &shared.store;
        let pinned = store.pin();
        if volume.is_gone() {
            return true;
        }
        let Some(node) = volume.map.find_leaf(store, &pinned, self.next.leaf) else { return true };
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
    fn exchange_pages(&mut self, shared: &Shared, volume: &Volume) -> Result<(), NoSpace> {
        if self.attempts.is_empty() {
            return Ok(());
        }
        let mut lane = shared.store.lane();
        let pinned = shared.store.pin();
        let mut exchange = Exchange { volume, lane: &mut lane, pinned: &pinned, settled: 0 };
        let mut result = Ok(());
        for (index, entry, attempt) in self.attempts.drain(..) {
            let place = Place { leaf: self.next.leaf, index };
            match attempt {
                Attempt::Damaged => {}
                Attempt::Keep => exchange.keep(place, entry),
                Attempt::Shrink(shrunk) => {
                    result = result.and(exchange.shrink(place, entry, (&self.compressor, shrunk)));
                }
            }
        }
        self.settled += exchange.settled;
        lane.end_batch(&mut self.compressor);
        result
    }
}

/// Entries of one volume being changed.
struct Exchange<'work, 'store> {
    volume: &'work Volume,
    lane: &'work mut Lane<'store>,
    pinned: &'work Pinned<'work>,
    settled: usize,
}

impl Exchange<'_, '_> {
    /// Lets the entry keep its page.
    fn keep(&mut self, place: Place, entry: PageRef) {
        let volume = self.volume;
        self.if_unchanged(place, entry, |lane, (node, index)| {
            let (old, new) = lane.settle_tried(node, index);
            volume.note_change(lane, old, new);
        });
    }

    /// Gives the entry the compressed page.
    fn shrink(
        &mut self,
        place: Place,
        entry: PageRef,
        (compressor, shrunk): (&Compressor, Shrunk),
    ) -> Result<(), NoSpace> {
        let volume = self.volume;
        let mut page = Some(self.lane.store_shrunk(self.pinned, compressor, shrunk)?);
        self.if_unchanged(place, entry, |lane, at| {
            if let Some(page) = page.take() {
                volume.move_to(lane, at, page);
            }
        });
        if let Some(page) = page {
            self.lane.give_back(page);
        }
        Ok(())
    }

    /// Changes an entry, if it still says what it did when its page was tried. The attempt's
    /// reference keeps the page: the same entry means the same contents.
    fn if_unchanged(
        &mut self,
        place: Place,
        entry: PageRef,
        change: impl FnOnce(&mut Lane<'_>, (NodeRef, usize)),
    ) {
        let block = place.leaf * LEAF_BLOCKS + place.index as u64;
        // Marks of what stable storage lacks may come and go meanwhile.
        let is_same = |now: PageRef| now.without(DirtyBits::ALL) == entry.without(DirtyBits::ALL);
        let changed = self.volume.reword_block(self.lane, self.pinned, (block, is_same), change);
        self.settled += usize::from(changed);
    }
}
