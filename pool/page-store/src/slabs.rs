//! Which slabs are free, which have free slots, and who may take them.
//!
//! All of this is private to the process and derived: the region says what each slab is used for
//! (slab table) and which slots are live (their words), and `SlabBook` follows.
//!
//! ```text
//!            take_free                close, full
//!   free ───────────────▶ open ────────────────────▶ resting ◀─┐ fewer free slots than
//!    ▲                     ▲  │ close, with free slots    │    │ the class lists from
//!    │ grace period        │  ▼                           ▼    │
//!   emptied ◀──────────── listed ◀──────── enough slots freed ─┘
//!             last slot freed (also of a resting or a victim slab)
//! ```
//!
//! `free` of a slab counts its free slots that no lane has taken. It is debited before a slot is
//! used and credited after its word says free, so it never promises a slot that is in use.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

use region::Region;
use sync::atomic::{AtomicU8, AtomicU32, Ordering};
use sync::{Epoch, Grace};

use crate::layout::{CLASS_COUNT, Class, Layout};

/// A lane allocates from it.
const OPEN: u8 = 1;
/// It stands in its class's list of slabs with free slots.
const LISTED: u8 = 2;
/// Its pages are being moved away.
const VICTIM: u8 = 4;
/// It has no live slot and waits for its grace period.
const EMPTIED: u8 = 8;

/// What a slot is wanted for decides how far down the free slabs may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A block that held nothing yet.
    NewData,
    /// A block that held something: draws on the reserve that new data leaves.
    Overwrite,
    /// The pool's own work, which gives back more than it takes.
    Housekeeping,
}

#[derive(Debug, Default)]
struct SlabState {
    /// A signed number: a debit may run ahead of a credit.
    free: AtomicU32,
    flags: AtomicU8,
    /// Where it stands in its class's list. Guarded by the list's lock.
    position: AtomicU32,
}

/// The free slabs, and those that wait to be.
#[derive(Debug, Default)]
struct FreeSlabs {
    ready: Vec<u32>,
    waiting: VecDeque<(Epoch, u32)>,
}

/// The uses of all slabs of a pool.
#[derive(Debug)]
pub(crate) struct SlabBook {
    slabs: Box<[SlabState]>,
    listed: Box<[Mutex<Vec<u32>>]>,
    free: Mutex<FreeSlabs>,
    /// Slabs that new data leaves for overwrites.
    reserve: usize,
}

impl SlabBook {
    /// A book in which every slab is unknown: each must be told of by [`SlabBook::admit_free`] or
    /// [`SlabBook::admit_used`] once.
    pub(crate) fn new(slab_count: u32) -> Self {
        let count = usize::try_from(slab_count).expect("slabs fit memory");
        let free = FreeSlabs { ready: Vec::with_capacity(count), waiting: VecDeque::new() };
        Self {
            slabs: (0..count).map(|_| SlabState::default()).collect(),
            listed: (0..CLASS_COUNT).map(|_| Mutex::default()).collect(),
            free: Mutex::new(free),
            reserve: (count / 64).clamp(2, 1024),
        }
    }

    pub(crate) fn admit_free(&self, slab: u32) {
        self.lock_free().ready.push(slab);
    }

    pub(crate) fn admit_used(&self, slab: u32, class: Class, free_slots: u32) {
        self.slab(slab).free.store(free_slots, Ordering::Relaxed);
        self.list_if_worthwhile(slab, class);
    }

    /// Takes a slab with free slots of `class` and opens it.
    pub(crate) fn take_listed(&self, class: Class) -> Option<u32> {
        let mut listed = self.lock_list(class);
        let slab = listed.pop()?;
        self.slab(slab).flags.store(OPEN, Ordering::SeqCst);
        Some(slab)
    }

    /// Takes a free slab and opens it. The caller formats it.
    pub(crate) fn take_free(&self, purpose: Purpose, grace: &Grace) -> Option<u32> {
        let mut free = self.lock_free();
        let floor = match purpose {
            Purpose::NewData => self.reserve,
            Purpose::Overwrite => self.reserve / 2,
            Purpose::Housekeeping => 0,
        };
        if free.ready.len() <= floor {
            free.collect(grace);
        }
        if free.ready.len() <= floor {
            return None;
        }
        let slab = free.ready.pop()?;
        drop(free);
        self.slab(slab).flags.store(OPEN, Ordering::SeqCst);
        Some(slab)
    }

    /// An open slab was formatted for `class`: all of its slots are free.
    pub(crate) fn admit_formatted(&self, slab: u32, class: Class) {
        self.slab(slab).free.store(class.shape().slot_count, Ordering::SeqCst);
    }

    /// A lane has taken `count` free slots of a slab that it opened.
    pub(crate) fn debit(&self, slab: u32, count: u32) {
        self.slab(slab).free.fetch_sub(count, Ordering::SeqCst);
    }

    /// One slot is free: its word says so.
    pub(crate) fn credit(&self, slab: u32, class: Class, book: BookContext<'_>) {
        let state = self.slab(slab);
        let free = state.free.fetch_add(1, Ordering::SeqCst).wrapping_add(1);
        // SeqCst, here and in `close`: either the closer sees the credit or we see it closed.
        let flags = state.flags.load(Ordering::SeqCst);
        if free == class.shape().slot_count {
            if flags & OPEN == 0 {
                self.empty(slab, class, book);
            }
        } else if flags == 0 && as_signed(free) >= listing_threshold(class) {
            self.list_if_worthwhile(slab, class);
        }
    }

    /// A lane is done with a slab that it opened, and gives `unused` of its slots back.
    pub(crate) fn close(&self, slab: u32, class: Class, unused: u32, book: BookContext<'_>) {
        let state = self.slab(slab);
        state.free.fetch_add(unused, Ordering::SeqCst);
        state.flags.store(0, Ordering::SeqCst);
        if state.free.load(Ordering::SeqCst) == class.shape().slot_count {
            self.empty(slab, class, book);
        } else {
            self.list_if_worthwhile(slab, class);
        }
    }

    /// Puts a slab of the index back among the free ones, after a grace period.
    pub(crate) fn give_back_whole(&self, slab: u32, book: BookContext<'_>) {
        self.slab(slab).flags.store(EMPTIED, Ordering::SeqCst);
        self.send_to_wait(slab, book);
    }

    /// Whether the slab's pages are being moved away.
    pub(crate) fn is_victim(&self, slab: u32) -> bool {
        self.slab(slab).flags.load(Ordering::Relaxed) & VICTIM != 0
    }

    /// Takes sparse slabs of `class` out of the list, emptiest first, as long as the slots that
    /// stay listed can take their pages in. `count_max` at most.
    pub(crate) fn choose_victims(&self, class: Class, count_max: usize) -> Vec<u32> {
        let slot_count = class.shape().slot_count;
        let mut listed = self.lock_list(class);
        let mut by_free: Vec<(u32, u32)> = listed
            .iter()
            .map(|&slab| (self.slab(slab).free.load(Ordering::Relaxed).min(slot_count), slab))
            .collect();
        by_free.sort_unstable_by(|a, b| b.cmp(a));
        let mut room: u64 = by_free.iter().map(|&(free, _)| u64::from(free)).sum();
        let mut victims = Vec::new();
        for (free, slab) in by_free {
            // Its free slots take nothing in any more, and its live ones need room.
            let taken = u64::from(slot_count);
            if victims.len() == count_max || taken > room || free * 4 < slot_count {
                break;
            }
            room -= taken;
            self.unlist(&mut listed, slab);
            self.slab(slab).flags.store(VICTIM, Ordering::SeqCst);
            victims.push(slab);
        }
        victims
    }

    /// Lets slabs that still hold pages take part again.
    pub(crate) fn release_victim(&self, slab: u32, class: Class, book: BookContext<'_>) {
        let state = self.slab(slab);
        let was_victim = {
            let _list = self.lock_list(class);
            state.flags.compare_exchange(VICTIM, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        };
        if was_victim {
            self.close(slab, class, 0, book);
        }
    }

    /// Free slabs now, after collecting those whose grace period has passed.
    pub(crate) fn free_count(&self, grace: &Grace) -> usize {
        let mut free = self.lock_free();
        free.collect(grace);
        free.ready.len()
    }

    /// Free slots in the listed slabs of a class.
    pub(crate) fn listed_free_slots(&self, class: Class) -> u64 {
        let listed = self.lock_list(class);
        let free = |&slab: &u32| as_signed(self.slab(slab).free.load(Ordering::Relaxed)).max(0);
        listed.iter().map(|slab| u64::from(free(slab).unsigned_abs())).sum()
    }

    fn slab(&self, slab: u32) -> &SlabState {
        &self.slabs[usize::try_from(slab).expect("slabs fit memory")]
    }

    fn list_if_worthwhile(&self, slab: u32, class: Class) {
        let mut listed = self.lock_list(class);
        let state = self.slab(slab);
        let free = as_signed(state.free.load(Ordering::SeqCst));
        if state.flags.load(Ordering::SeqCst) != 0 || free < listing_threshold(class) {
            return;
        }
        state.flags.store(LISTED, Ordering::SeqCst);
        let position = u32::try_from(listed.len()).expect("slab counts fit 24 bits");
        state.position.store(position, Ordering::Relaxed);
        listed.push(slab);
    }

    fn unlist(&self, listed: &mut MutexGuard<'_, Vec<u32>>, slab: u32) {
        let position = self.slab(slab).position.load(Ordering::Relaxed);
        let index = usize::try_from(position).expect("slabs fit memory");
        assert_eq!(listed[index], slab, "a listed slab knows its position");
        listed.swap_remove(index);
        if let Some(&moved) = listed.get(index) {
            self.slab(moved).position.store(position, Ordering::Relaxed);
        }
    }

    /// Sends a slab without live slots to the free ones, if it still is one.
    fn empty(&self, slab: u32, class: Class, book: BookContext<'_>) {
        let state = self.slab(slab);
        {
            let mut listed = self.lock_list(class);
            let flags = state.flags.load(Ordering::SeqCst);
            let all_free = state.free.load(Ordering::SeqCst) == class.shape().slot_count;
            if !all_free || flags & (OPEN | EMPTIED) != 0 {
                return;
            }
            if flags & LISTED != 0 {
                self.unlist(&mut listed, slab);
            }
            state.flags.store(EMPTIED, Ordering::SeqCst);
        }
        self.send_to_wait(slab, book);
    }

    /// The slab table stops naming the slab first: who pins later cannot take it for what it was.
    fn send_to_wait(&self, slab: u32, book: BookContext<'_>) {
        let word = book.region.word_to_store(book.layout.table_word(slab));
        word.store(0, Ordering::Release);
        let epoch = book.grace.retire_epoch();
        self.lock_free().waiting.push_back((epoch, slab));
    }

    fn lock_list(&self, class: Class) -> MutexGuard<'_, Vec<u32>> {
        self.listed[class.index()].lock().expect("nobody panics with a list locked")
    }

    fn lock_free(&self) -> MutexGuard<'_, FreeSlabs> {
        self.free.lock().expect("nobody panics with the free slabs locked")
    }
}

impl FreeSlabs {
    fn collect(&mut self, grace: &Grace) {
        if self.waiting.is_empty() {
            return;
        }
        let passed = grace.advance();
        while let Some(&(epoch, slab)) = self.waiting.front() {
            if epoch > passed {
                break;
            }
            self.waiting.pop_front();
            self.ready.push(slab);
        }
    }
}

/// What the book needs of the pool to change a slab's use.
#[derive(Clone, Copy)]
pub(crate) struct BookContext<'pool> {
    pub(crate) region: &'pool Region,
    pub(crate) layout: &'pool Layout,
    pub(crate) grace: &'pool Grace,
}

/// Free slots from which on a slab is worth opening again: a sixteenth of it.
fn listing_threshold(class: Class) -> i32 {
    let slots = class.shape().slot_count / 16;
    i32::try_from(slots.max(1)).expect("slot counts fit eleven bits")
}

fn as_signed(free: u32) -> i32 {
    i32::from_ne_bytes(free.to_ne_bytes())
}
