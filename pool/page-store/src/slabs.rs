//! Lists of slabs that are free, and of those with free slots.
//!
//! All of this is private to the process and derived: the region says what each slab is used for
//! (slab table) and which slots are live (their words), and `SlabBook` follows.
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
//! A slab is `unused` from when it has memory (`taking`). Slabs from `end` on leave the pool:
//! no lane opens them any more, what they hold is moved away as from victims, and free ones are
//! kept apart.
//!
//! `free` of a slab counts its free slots that no lane has taken. It is debited before a slot is
//! used and credited after its word says free, so it never promises a slot that is in use.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard};

use sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use sync::{Epoch, Grace};
use zerocopy::FromZeros;

use crate::layout::{CLASS_COUNT, Class};
use crate::slab_state::{SlabState, StateWords, Use, as_signed};

/// Slabs looked at in one search for free slots that are not listed.
const SEARCHED_SLABS_MAX: u32 = 16 << 10;

/// Slabs that new data leaves at least: one more for each purpose that may go further down.
const RESERVE_MIN: usize = 3;

/// The free slabs, and those that wait to be.
#[derive(Debug, Default)]
struct FreeSlabs {
    /// Those with memory, taken from the back.
    ready: VecDeque<u32>,
    waiting: VecDeque<(Epoch, u32)>,
    /// Free slabs past the end.
    leaving: VecDeque<u32>,
}

/// The slabs of one class that have free slots.
type List<'book> = MutexGuard<'book, Vec<u32>>;

/// The uses of all slabs of a pool.
#[derive(Debug)]
pub(crate) struct SlabBook {
    slabs: Box<[StateWords]>,
    /// Slabs from here on leave the pool, or are not part of it.
    end: AtomicU32,
    listed: Box<[Mutex<Vec<u32>>]>,
    free: Mutex<FreeSlabs>,
    /// Slabs of pages as they are, but for victims.
    raw_slabs: AtomicUsize,
    /// Free slabs, and those on their way to be, without the lock.
    free_soon: AtomicUsize,
    /// Slabs that new data leaves for overwrites.
    reserve: AtomicUsize,
    /// Free slabs have run short: single free slots count.
    is_scarce: AtomicBool,
    /// Where the search for free slots that are not listed goes on, and how far it has to go.
    search: Mutex<Search>,
}

#[derive(Debug, Default)]
struct Search {
    next: u32,
    left: u32,
}

impl SlabBook {
    /// A book in which every slab is unknown: each below `end` must be told of by
    /// [`SlabBook::admit_free`] or [`SlabBook::admit_used`] once.
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

    /// These slabs have memory now, and are free. Taken after those that were free before.
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

    /// Takes a free slab, if more than `floor` are free: the caller formats it and tells of it.
    /// Slabs are not scarce any more where more than `plenty` are free.
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

    /// The same for the free slab of the lowest number, which the caller keeps for good.
    pub(crate) fn take_lowest_free(&self, floor: usize, grace: &Grace) -> Option<u32> {
        let mut free = self.lock_free_above(floor, grace)?;
        let (lowest, _) = free.ready.iter().enumerate().min_by_key(|&(_, &slab)| slab)?;
        let taken = free.ready.remove(lowest)?;
        self.free_soon.fetch_sub(1, Ordering::Relaxed);
        Some(taken)
    }

    /// The free slabs, if more than `floor` have memory.
    fn lock_free_above(&self, floor: usize, grace: &Grace) -> Option<MutexGuard<'_, FreeSlabs>> {
        let mut free = self.lock_free();
        if free.ready.len() <= floor {
            self.collect(&mut free, grace);
        }
        (free.ready.len() > floor).then_some(free)
    }

    /// A lane has formatted a slab that it took: all of its slots are free.
    pub(crate) fn admit_open(&self, slab: u32, class: Class) {
        self.slab(slab).free.store(class.shape().slot_count, Ordering::SeqCst);
        self.slab(slab).set(Use::Open(class));
        self.count_raw(class, 1);
    }

    /// Free slots that the book promises of a slab, for its debit. Read before the slots' words:
    /// what is freed meanwhile is credited whether or not it was seen.
    pub(crate) fn promised(&self, slab: u32) -> u32 {
        self.slab(slab).free().max(0).unsigned_abs()
    }

    /// A lane has taken the `count` free slots that it saw of a slab that it opened. A book that
    /// had `promised` more was misled by a damaged region, and promises no more of them.
    pub(crate) fn debit(&self, slab: u32, count: u32, promised: u32) {
        self.slab(slab).free.fetch_sub(count.max(promised), Ordering::SeqCst);
    }

    /// One slot is free: its word says so. The slab cannot go to another use before this is
    /// counted. Returns whether it is the caller's to send to the free ones.
    #[must_use]
    #[inline(always)]
    pub(crate) fn credit(&self, slab: u32, class: Class) -> bool {
        let state = self.slab(slab);
        let free = as_signed(state.free.fetch_add(1, Ordering::SeqCst).wrapping_add(1));
        // SeqCst, here and in `close`: either the closer sees the credit or we see it closed.
        if free == slot_count(class) {
            return !state.is(Use::Open(class)) && self.settle(slab, class);
        }
        if free >= self.threshold(class) && state.is(Use::Resting(class)) {
            self.list_if_worthwhile(slab, class);
        }
        false
    }

    /// A lane is done with a slab that it opened, and gives `unused` of its slots back. Returns
    /// whether the slab is the caller's to send to the free ones.
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

    /// A slab that the caller has, and whose name the slab table has given up, is free once the
    /// grace period since then is over.
    pub(crate) fn free_after(&self, epoch: Epoch, slab: u32) {
        self.slab(slab).set(Use::Emptied);
        self.lock_free().waiting.push_back((epoch, slab));
        self.free_soon.fetch_add(1, Ordering::Relaxed);
    }

    /// Lists slabs of `class` that have any free slot and are not listed, because they have too few
    /// to be worth it in better times. Looks at a bounded number, going on from call to call, until
    /// it has seen all since free slabs ran short. Returns whether it found any.
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
    /// stay listed can take their pages in. `count_max` at most, and as many as have `spare_slots`
    /// free ones together: these are of no use until the slabs are empty.
    pub(crate) fn choose_victims(
        &self,
        class: Class,
        count_max: usize,
        spare_slots: u64,
    ) -> Vec<u32> {
        let slots = slot_count(class);
        // Sorted outside the lock: writers of the class wait for the list.
        let candidates = self.lock_list(class).clone().into_iter();
        let free_of = |slab| (self.slab(slab).free().clamp(0, slots), slab);
        let mut by_free: Vec<(i32, u32)> = candidates.map(free_of).collect();
        by_free.sort_unstable_by(|a, b| b.cmp(a));
        let mut room: i64 = by_free.iter().map(|&(free, _)| i64::from(free)).sum();
        let mut victims = Vec::new();
        let mut spare = i64::try_from(spare_slots).unwrap_or(i64::MAX);
        for (free, slab) in by_free {
            // Its free slots take nothing in any more, and its live ones need room.
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

    /// Lets a victim that still holds pages take part again. Returns whether it is the caller's to
    /// send to the free ones after all; `None` if it was empty before.
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

    /// Free slabs, after collecting those whose grace period has passed.
    pub(crate) fn free_count(&self, grace: &Grace) -> usize {
        let mut free = self.lock_free();
        self.collect(&mut free, grace);
        free.ready.len()
    }

    /// Free slabs with memory, and those that will be once a grace period has passed: a guess that
    /// takes no lock.
    pub(crate) fn free_soon(&self) -> usize {
        self.free_soon.load(Ordering::Relaxed)
    }

    /// Free slots in the listed slabs of a class.
    pub(crate) fn listed_free_slots(&self, class: Class) -> u64 {
        let listed = self.lock_list(class);
        listed.iter().map(|&slab| u64::from(self.slab(slab).free().max(0).unsigned_abs())).sum()
    }

    /// A slab that no lane has open is emptied from now on. The caller holds the list of its class.
    fn condemn(&self, slab: u32, class: Class) {
        self.slab(slab).set(Use::Victim(class));
        self.count_raw(class, -1);
    }

    fn count_raw(&self, class: Class, change: isize) {
        if class == Class::RAW {
            // Adding a negative number: the sum wraps around to what it shall be.
            self.raw_slabs.fetch_add(change.cast_unsigned(), Ordering::Relaxed);
        }
    }

    /// Slabs of pages as they are that are not being emptied.
    pub(crate) fn raw_slab_count(&self) -> usize {
        self.raw_slabs.load(Ordering::Relaxed)
    }

    /// Slabs that new data leaves for others.
    pub(crate) fn reserve(&self) -> usize {
        self.reserve.load(Ordering::Relaxed)
    }

    /// Slabs that may be opened have lower numbers.
    pub(crate) fn end(&self) -> u32 {
        // SeqCst: see `SlabBook::begin_leaving`.
        self.end.load(Ordering::SeqCst)
    }

    /// From now on no lane opens a slab from `end` on. Lanes may still have some open.
    pub(crate) fn begin_leaving(&self, end: u32) {
        // SeqCst: a thread that lists a slab either sees the new end, or is seen by `leave`, which
        // comes later and takes the same lock.
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

    /// Slabs past the end that are free by now.
    pub(crate) fn left_count(&self, grace: &Grace) -> usize {
        let mut free = self.lock_free();
        self.collect(&mut free, grace);
        free.leaving.len()
    }

    /// The slabs past the end are all free, and no part of the pool any more.
    pub(crate) fn end_leaving(&self) {
        self.lock_free().leaving.clear();
    }

    /// Slabs up to `slab_count` stay. Victims among those that were leaving, which are returned
    /// with their classes, must be released.
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

    /// Slabs from the end up to `slab_count` are new and free.
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

    /// Free slabs have run short: from now on, and for all slabs once, single slots count.
    pub(crate) fn begin_scarcity(&self) {
        if !self.is_scarce.swap(true, Ordering::Relaxed) {
            let mut search = self.search.lock().expect("no thread panics while searching");
            search.left = self.end();
        }
    }

    /// Free slots from which on a slab is worth opening again: a sixteenth of it, or one.
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

    /// Lists a slab that has free slots. One that has no others is the caller's to send to the free
    /// ones: returns whether it is. A slab that has gone to another use meanwhile is left alone.
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

    /// Makes slabs free whose grace period has passed.
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

/// Slabs that new data leaves for others, in a pool of so many.
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
