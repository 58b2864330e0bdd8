//! Lists of free slabs, and of slabs with free slots.
//!
//! All of this state is private to the process and derived: the region records the use of each slab
//! (slab table) and the live slots (their words), and `SlabBook` follows.
//!
//! ```text
//!            take_free                close, full
//!   unused ─────────────▶ open ────────────────────▶ resting
//!    ▲                     ▲  │ close, with free slots   │
//!    │ grace period        │  ▼                          │ enough slots freed
//!   emptied ◀──────────── listed ◀──────────────────────┘
//!             last slot freed (also of a resting or a victim slab)
//! ```
//!
//! A slab is `unused` once it has memory (`taking`). Slabs from `end` on leave the pool: no lane
//! opens them any more, their contents are moved away like those of victims, and free ones are kept
//! separately.
//!
//! `free` of a slab counts its free slots that no lane has taken. It is debited before a slot is
//! used and credited after its word is free, so it never promises a slot that is in use.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard};

use sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use sync::{Epoch, Grace};
use zerocopy::FromZeros;

use crate::layout::{CLASS_COUNT, Class};
use crate::slab_state::{SlabState, StateWords, Use, as_signed};

/// Maximum number of slabs in one search for free slots that are not listed.
const SEARCHED_SLABS_MAX: u32 = 16 << 10;

/// Minimum number of slabs that new data leaves: one for each purpose that may use more.
const RESERVE_MIN: usize = 3;

/// Free slabs, and those waiting for their grace period.
#[derive(Debug, Default)]
struct FreeSlabs {
    /// Slabs with memory, taken from the back.
    ready: VecDeque<u32>,
    waiting: VecDeque<(Epoch, u32)>,
    /// Free slabs past the end.
    leaving: VecDeque<u32>,
}

/// Locked list of the slabs of one class that have free slots.
type List<'book> = MutexGuard<'book, Vec<u32>>;

/// Uses of all slabs of a pool.
#[derive(Debug)]
pub(crate) struct SlabBook {
    slabs: Box<[StateWords]>,
    /// First slab that leaves the pool, or is not part of it.
    end: AtomicU32,
    listed: Box<[Mutex<Vec<u32>>]>,
    free: Mutex<FreeSlabs>,
    /// Number of slabs of uncompressed pages, without victims.
    raw_slabs: AtomicUsize,
    /// Number of slabs that are free or about to be, readable without the lock.
    free_soon: AtomicUsize,
    /// Number of slabs that new data leaves for overwrites.
    reserve: AtomicUsize,
    /// Free slabs have run out, so single free slots are used.
    is_scarce: AtomicBool,
    /// Next slab and remaining length of the search for free slots that are not listed.
    search: Mutex<Search>,
}

#[derive(Debug, Default)]
struct Search {
    next: u32,
    left: u32,
}

impl SlabBook {
    /// Creates a book in which every slab is unknown: each below `end` must be registered once by
    /// [`SlabBook::admit_free`] or [`SlabBook::admit_used`].
    pub(crate) fn new(slab_capacity: u32, end: u32) -> Self {
        let slabs = <[StateWords]>::new_box_zeroed_with_elems(index_of(slab_capacity));
        Self {
            slabs: slabs.expect("address space is not short"),
            end: AtomicU32::new(end),
            listed: (0..CLASS_COUNT).map(|_| Mutex::default()).collect(),
            free: Mutex::default(),
            raw_slabs: AtomicUsize::new(0),
            free_soon: AtomicUsize::new(0),
            reserve: AtomicUsize::new(reserve_of(end)),
            is_scarce: AtomicBool::new(false),
            search: Mutex::default(),
        }
    }

    pub(crate) fn admit_free(&self, slab: u32) {
        self.slab(slab).set(Use::Unused);
        self.lock_free().ready.push_back(slab);
        self.free_soon.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds slabs that have memory now, and are free. They are taken after those that were free
    /// before.
    pub(crate) fn admit_taken(&self, slabs: Range<u32>) {
        self.free_soon.fetch_add(slabs.len(), Ordering::Relaxed);
        let mut free = self.lock_free();
        slabs.for_each(|slab| free.ready.push_front(slab));
    }

    pub(crate) fn admit_used(&self, slab: u32, class: Class, free_slots: u32) {
        let state = self.slab(slab);
        state.free.store(free_slots, Ordering::SeqCst);
        state.set(Use::Resting(class));
        self.count_raw(class, 1);
        self.list_if_worthwhile(slab, class);
    }

    /// Takes a slab with free slots of `class` and opens it.
    pub(crate) fn take_listed(&self, class: Class) -> Option<u32> {
        let mut listed = self.lock_list(class);
        let slab = listed.pop()?;
        self.slab(slab).set(Use::Open(class));
        Some(slab)
    }

    /// Takes a free slab, if more than `floor` are free. The caller formats it and registers it.
    /// Ends the scarcity if more than `plenty` are free.
    pub(crate) fn take_free(
        &self,
        floor: usize,
        plenty: Option<usize>,
        grace: &Grace,
    ) -> Option<u32> {
        let mut free = self.lock_free_above(floor, grace)?;
        let is_plenty = plenty.is_some_and(|plenty| free.ready.len() > plenty);
        if is_plenty && self.is_scarce.load(Ordering::Relaxed) {
            self.is_scarce.store(false, Ordering::Relaxed);
        }
        let taken = free.ready.pop_back()?;
        self.free_soon.fetch_sub(1, Ordering::Relaxed);
        Some(taken)
    }

    /// Takes the free slab with the lowest number, which the caller keeps permanently.
    pub(crate) fn take_lowest_free(&self, floor: usize, grace: &Grace) -> Option<u32> {
        let mut free = self.lock_free_above(floor, grace)?;
        let (lowest, _) = free.ready.iter().enumerate().min_by_key(|&(_, &slab)| slab)?;
        let taken = free.ready.remove(lowest)?;
        self.free_soon.fetch_sub(1, Ordering::Relaxed);
        Some(taken)
    }

    /// Locks the free slabs, if more than `floor` have memory.
    fn lock_free_above(&self, floor: usize, grace: &Grace) -> Option<MutexGuard<'_, FreeSlabs>> {
        let mut free = self.lock_free();
        if free.ready.len() <= floor {
            self.collect(&mut free, grace);
        }
        (free.ready.len() > floor).then_some(free)
    }

    /// Registers a slab that a lane has taken and formatted: all of its slots are free.
    pub(crate) fn admit_open(&self, slab: u32, class: Class) {
        self.slab(slab).free.store(class.shape().slot_count, Ordering::SeqCst);
        self.slab(slab).set(Use::Open(class));
        self.count_raw(class, 1);
    }

    /// Returns the number of free slots recorded for a slab, for its debit. Must be read before the
    /// slots' words: slots freed meanwhile are credited in any case.
    pub(crate) fn promised(&self, slab: u32) -> u32 {
        self.slab(slab).free().max(0).unsigned_abs()
    }

    /// Subtracts the `count` free slots that a lane found in a slab that it opened. If more were
    /// `promised`, the region was damaged, and the larger number is subtracted.
    pub(crate) fn debit(&self, slab: u32, count: u32, promised: u32) {
        self.slab(slab).free.fetch_sub(count.max(promised), Ordering::SeqCst);
    }

    /// Adds one slot whose word says that it is free. The slab cannot change its use before this is
    /// counted. Returns whether the caller must add the slab to the free ones.
    #[must_use]
    #[inline(always)]
    pub(crate) fn credit(&self, slab: u32, class: Class) -> bool {
        let state = self.slab(slab);
        let free = as_signed(state.free.fetch_add(1, Ordering::SeqCst).wrapping_add(1));
        // SeqCst, here and in `close`: either the closer sees the credit or this thread sees it
        // closed.
        if free == slot_count(class) {
            return !state.is(Use::Open(class)) && self.settle(slab, class);
        }
        if free >= self.threshold(class) && state.is(Use::Resting(class)) {
            self.list_if_worthwhile(slab, class);
        }
        false
    }

    /// Closes a slab that a lane opened, and returns `unused` slots to it. Returns whether the
    /// caller must add the slab to the free ones.
    #[must_use]
    pub(crate) fn close(&self, slab: u32, class: Class, unused: u32) -> bool {
        let state = self.slab(slab);
        state.free.fetch_add(unused, Ordering::SeqCst);
        {
            let _list = self.lock_list(class);
            state.set(Use::Resting(class));
        }
        self.settle(slab, class)
    }

    /// Frees a slab of the caller, which the slab table no longer contains, after the grace period
    /// since then.
    pub(crate) fn free_after(&self, epoch: Epoch, slab: u32) {
        self.slab(slab).set(Use::Emptied);
        self.lock_free().waiting.push_back((epoch, slab));
        self.free_soon.fetch_add(1, Ordering::Relaxed);
    }

    /// Lists slabs of `class` with any free slot that are not listed, because they normally have
    /// too few. Visits a bounded number, and continues from call to call until all have been
    /// visited since free slabs ran out. Returns whether it found any.
    pub(crate) fn list_rest(&self, class: Class) -> bool {
        let Ok(mut search) = self.search.try_lock() else { return false };
        let end = self.end();
        let mut found = false;
        for _ in 0..search.left.min(SEARCHED_SLABS_MAX) {
            let slab = search.next % end;
            search.next = slab + 1;
            search.left -= 1;
            if let Some(resting) = self.resting_class(slab)
                && self.slab(slab).free() > 0
            {
                self.list_if_worthwhile(slab, resting);
                found |= resting == class;
            }
        }
        found
    }

    /// Returns whether the slab's pages are being moved away.
    pub(crate) fn is_victim(&self, slab: u32, class: Class) -> bool {
        self.slab(slab).usage.load(Ordering::Relaxed) == Use::Victim(class).to_word()
    }

    /// Takes sparse slabs of `class` out of the list, emptiest first, as long as the slots that
    /// stay listed can hold their pages. At most `count_max` slabs, with at most `spare_slots` free
    /// slots together, which cannot be used until the slabs are empty.
    pub(crate) fn choose_victims(
        &self,
        class: Class,
        count_max: usize,
        spare_slots: u64,
    ) -> Vec<u32> {
        let slots = slot_count(class);
        // Sorted outside the lock, because writers of the class wait for the list.
        let candidates = self.lock_list(class).clone().into_iter();
        let free_of = |slab| (self.slab(slab).free().clamp(0, slots), slab);
        let mut by_free: Vec<(i32, u32)> = candidates.map(free_of).collect();
        by_free.sort_unstable_by(|a, b| b.cmp(a));
        let mut room: i64 = by_free.iter().map(|&(free, _)| i64::from(free)).sum();
        let mut victims = Vec::new();
        let mut spare = i64::try_from(spare_slots).unwrap_or(i64::MAX);
        for (free, slab) in by_free {
            // Its free slots are no longer available, and its live ones need room.
            let taken = i64::from(slots);
            let is_enough = victims.len() == count_max || i64::from(free) > spare;
            if is_enough || taken > room || free * 4 < slots {
                break;
            }
            let mut listed = self.lock_list(class);
            if self.slab(slab).is(Use::Listed(class)) {
                room -= taken;
                spare -= i64::from(free);
                self.unlist(&mut listed, slab);
                self.condemn(slab, class);
                victims.push(slab);
            }
        }
        victims
    }

    /// Returns a victim that still holds pages to use. Returns whether the caller must add it to
    /// the free ones after all, or `None` if it was emptied already.
    #[must_use]
    pub(crate) fn release_victim(&self, slab: u32, class: Class) -> Option<bool> {
        let state = self.slab(slab);
        {
            let _list = self.lock_list(class);
            if !state.is(Use::Victim(class)) {
                return None;
            }
            state.set(Use::Resting(class));
            self.count_raw(class, 1);
        }
        Some(self.settle(slab, class))
    }

    /// Number of free slabs, including those whose grace period has just passed.
    pub(crate) fn free_count(&self, grace: &Grace) -> usize {
        let mut free = self.lock_free();
        self.collect(&mut free, grace);
        free.ready.len()
    }

    /// Number of slabs with memory that are free, or will be after a grace period: an estimate that
    /// takes no lock.
    pub(crate) fn free_soon(&self) -> usize {
        self.free_soon.load(Ordering::Relaxed)
    }

    /// Number of free slots in the listed slabs of a class.
    pub(crate) fn listed_free_slots(&self, class: Class) -> u64 {
        let listed = self.lock_list(class);
        listed.iter().map(|&slab| u64::from(self.slab(slab).free().max(0).unsigned_abs())).sum()
    }

    /// Makes a victim of a slab that no lane has open. The caller holds the list of its class.
    fn condemn(&self, slab: u32, class: Class) {
        self.slab(slab).set(Use::Victim(class));
        self.count_raw(class, -1);
    }

    fn count_raw(&self, class: Class, change: isize) {
        if class == Class::RAW {
            // Adds a negative number: the sum wraps around to the right value.
            self.raw_slabs.fetch_add(change.cast_unsigned(), Ordering::Relaxed);
        }
    }

    /// Number of slabs of uncompressed pages that are not being emptied.
    pub(crate) fn raw_slab_count(&self) -> usize {
        self.raw_slabs.load(Ordering::Relaxed)
    }

    /// Number of slabs that new data leaves for others.
    pub(crate) fn reserve(&self) -> usize {
        self.reserve.load(Ordering::Relaxed)
    }

    /// Exclusive upper bound of the slabs that may be opened.
    pub(crate) fn end(&self) -> u32 {
        // SeqCst: see `SlabBook::begin_leaving`.
        self.end.load(Ordering::SeqCst)
    }

    /// Prevents lanes from opening slabs from `end` on. Lanes may still have some open.
    pub(crate) fn begin_leaving(&self, end: u32) {
        // SeqCst: a thread that lists a slab either sees the new end, or is seen by `leave`, which
        // follows and takes the same lock.
        self.end.store(end, Ordering::SeqCst);
        self.reserve.store(reserve_of(end), Ordering::Relaxed);
        let mut free = self.lock_free();
        (free.ready, free.leaving) = free.ready.drain(..).partition(|&slab| slab < end);
        self.free_soon.fetch_sub(free.leaving.len(), Ordering::Relaxed);
    }

    /// Makes victims of the slabs from the end up to `slab_count` that no lane has open.
    pub(crate) fn leave(&self, slab_count: u32) {
        for slab in self.end()..slab_count {
            let state = self.slab(slab);
            let Some(class) = state.class() else { continue };
            let mut listed = self.lock_list(class);
            let is_listed = state.is(Use::Listed(class));
            if is_listed {
                self.unlist(&mut listed, slab);
            }
            if is_listed || state.is(Use::Resting(class)) {
                self.condemn(slab, class);
            }
        }
    }

    /// Number of slabs past the end that are free by now.
    pub(crate) fn left_count(&self, grace: &Grace) -> usize {
        let mut free = self.lock_free();
        self.collect(&mut free, grace);
        free.leaving.len()
    }

    /// Removes the slabs past the end from the pool. All of them are free.
    pub(crate) fn end_leaving(&self) {
        self.lock_free().leaving.clear();
    }

    /// Returns the slabs up to `slab_count` to use. The caller must release the victims among the
    /// returned slabs.
    pub(crate) fn stay(&self, slab_count: u32) -> impl Iterator<Item = (u32, Class)> {
        let first = self.end.swap(slab_count, Ordering::SeqCst);
        self.reserve.store(reserve_of(slab_count), Ordering::Relaxed);
        {
            let mut free = self.lock_free();
            let mut leaving = std::mem::take(&mut free.leaving);
            self.free_soon.fetch_add(leaving.len(), Ordering::Relaxed);
            free.ready.append(&mut leaving);
        }
        (first..slab_count).filter_map(|slab| Some((slab, self.slab(slab).class()?)))
    }

    /// Adds the slabs from the end up to `slab_count`, which are new and free.
    pub(crate) fn admit_new(&self, slab_count: u32) {
        let first = self.end.swap(slab_count, Ordering::SeqCst);
        self.reserve.store(reserve_of(slab_count), Ordering::Relaxed);
        for slab in (first..slab_count).rev() {
            self.admit_free(slab);
        }
    }

    fn slab(&self, slab: u32) -> SlabState<'_> {
        let [free, usage, position] = &self.slabs[index_of(slab)];
        SlabState { free, usage, position }
    }

    fn resting_class(&self, slab: u32) -> Option<Class> {
        let state = self.slab(slab);
        state.class().filter(|&class| state.is(Use::Resting(class)))
    }

    /// Begins the scarcity of slabs: single free slots are used from now on, in all slabs once.
    pub(crate) fn begin_scarcity(&self) {
        if !self.is_scarce.swap(true, Ordering::Relaxed) {
            let mut search = self.search.lock().expect("no thread panics while searching");
            search.left = self.end();
        }
    }

    /// Number of free slots from which on a slab is worth opening again: a sixteenth of it, or one.
    fn threshold(&self, class: Class) -> i32 {
        match self.is_scarce.load(Ordering::Relaxed) {
            true => 1,
            false => (slot_count(class) / 16).max(1),
        }
    }

    fn list_if_worthwhile(&self, slab: u32, class: Class) {
        let mut listed = self.lock_list(class);
        self.list_in(&mut listed, slab, class);
    }

    fn list_in(&self, listed: &mut List<'_>, slab: u32, class: Class) {
        let state = self.slab(slab);
        if slab >= self.end() {
            if state.is(Use::Resting(class)) {
                self.condemn(slab, class);
            }
            return;
        }
        if !state.is(Use::Resting(class)) || state.free() < self.threshold(class) {
            return;
        }
        state.set(Use::Listed(class));
        let position = u32::try_from(listed.len()).expect("slab counts fit 24 bits");
        state.position.store(position, Ordering::Relaxed);
        listed.push(slab);
    }

    fn unlist(&self, listed: &mut List<'_>, slab: u32) {
        let position = self.slab(slab).position.load(Ordering::Relaxed);
        let index = usize::try_from(position).expect("slabs fit memory");
        assert_eq!(listed[index], slab, "a listed slab knows its position");
        listed.swap_remove(index);
        if let Some(&moved) = listed.get(index) {
            self.slab(moved).position.store(position, Ordering::Relaxed);
        }
    }

    /// Lists a slab that has free slots. Returns whether all of its slots are free, in which case
    /// the caller must add it to the free ones. A slab that has changed its use meanwhile is
    /// ignored.
    fn settle(&self, slab: u32, class: Class) -> bool {
        let state = self.slab(slab);
        let mut listed = self.lock_list(class);
        let is_listed = state.is(Use::Listed(class));
        let is_closed = is_listed || state.is(Use::Resting(class)) || state.is(Use::Victim(class));
        if !is_closed || state.free() != slot_count(class) {
            self.list_in(&mut listed, slab, class);
            return false;
        }
        if is_listed {
            self.unlist(&mut listed, slab);
        }
        if !state.is(Use::Victim(class)) {
            self.count_raw(class, -1);
        }
        state.set(Use::Emptied);
        true
    }

    fn lock_list(&self, class: Class) -> List<'_> {
        self.listed[class.index()].lock().expect("no thread panics with a list locked")
    }

    fn lock_free(&self) -> MutexGuard<'_, FreeSlabs> {
        self.free.lock().expect("no thread panics with the free slabs locked")
    }

    /// Frees slabs whose grace period has passed.
    fn collect(&self, free: &mut FreeSlabs, grace: &Grace) {
        if free.waiting.is_empty() {
            return;
        }
        let (end, passed) = (self.end(), grace.advance());
        while let Some(&(epoch, slab)) = free.waiting.front() {
            if epoch > passed {
                break;
            }
            free.waiting.pop_front();
            if slab < end {
                free.ready.push_back(slab);
            } else {
                free.leaving.push_back(slab);
                self.free_soon.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

/// Number of slabs that new data leaves for others, in a pool of this size.
pub(crate) fn reserve_of(slab_count: u32) -> usize {
    (index_of(slab_count) / 64).max(RESERVE_MIN)
}

fn index_of(slab: u32) -> usize {
    usize::try_from(slab).expect("slabs fit memory")
}

fn slot_count(class: Class) -> i32 {
    i32::try_from(class.shape().slot_count).expect("slot counts fit eleven bits")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn book_with_a_slab_of(free_slots: u32) -> SlabBook {
        let book = SlabBook::new(1, 1);
        book.admit_used(0, Class::RAW, free_slots);
        assert_eq!(book.take_listed(Class::RAW), Some(0));
        book
    }

    #[test]
    fn a_slot_freed_while_a_slab_is_opened_is_not_forgotten() {
        let book = book_with_a_slab_of(20);
        let promised = book.promised(0);
        book.slab(0).free.fetch_add(1, Ordering::SeqCst);
        book.debit(0, 20, promised);
        assert_eq!(book.promised(0), 1);
    }

    #[test]
    fn a_promise_that_no_word_keeps_is_dropped() {
        let book = book_with_a_slab_of(20);
        let promised = book.promised(0);
        book.debit(0, 3, promised);
        assert_eq!(book.promised(0), 0);
    }
}
