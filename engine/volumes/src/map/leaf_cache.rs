//! Cache from leaf numbers to nodes, private to the process, which bypasses a map's inner nodes.
//!
//! Each slot of the table has a word for the first leaf that was stored in it:
//!
//! ```text
//!  63           37 36  32 31                  0
//! ┌───────────────┬────┬─┬─────────────────────┐
//! │ leaf + 1      │ 0  │o│ number of the node  │     0: empty
//! └───────────────┴────┴─┴─────────────────────┘
//! ```
//!
//! Bit o: the leaf is unshared, so its entries may be changed. Only a copy of the whole map ends
//! that, with all block locks held.
//!
//! Words are set with the lock of a block of the leaf held. They are cleared with the locks of the
//! whole leaf held, before the leaf is unlinked, or at any time, to detect the use of leaves
//! (`idle_leaves`). Therefore a node found here was linked when the word was read, and a pin taken
//! before keeps it valid, like a node found by walking the map.

use page_store::NodeRef;
use sync::atomic::{AtomicU64, Ordering};
use zerocopy::FromZeros;

use crate::map::leaf_bits::LeafBits;

/// Maximum number of cached leaves of a volume: 16 GiB of blocks, in 64 KiB.
const LEAVES_MAX: u64 = 1 << 13;

/// Maximum number of cached leaves of a copy, which has few readers.
const LEAVES_OF_COPY_MAX: u64 = 1 << 8;

const NODE_BITS: u32 = 37;

const OWN: u64 = 1 << 32;

/// Limit on the words of all volumes together, 16 MiB, and minimum number of words of one.
const BUDGET_WORDS: u64 = 2 << 20;
const WORDS_MIN: u64 = 64;

/// Rest of the budget, over all pools of the process.
static BUDGET_LEFT: AtomicU64 = AtomicU64::new(BUDGET_WORDS);

/// Takes the wanted number of words from the budget. If too few are left, grants the minimum and
/// takes nothing. Returns the numbers granted and taken. `wanted` is a power of two, and so is the
/// grant.
fn take_of_budget(wanted: u64) -> (u64, u64) {
    let take = |left: u64| left.checked_sub(wanted);
    match BUDGET_LEFT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
        Ok(_) => (wanted, wanted),
        Err(_) => (wanted.min(WORDS_MIN), 0),
    }
}

/// Cached nodes of one volume's leaves.
#[derive(Debug)]
pub(crate) struct LeafCache {
    words: Box<[AtomicU64]>,
    /// Number of words taken from the budget.
    taken: u64,
    /// Leaves that were looked up since the uses were last taken.
    used: LeafBits,
}

impl Drop for LeafCache {
    fn drop(&mut self) {
        BUDGET_LEFT.fetch_add(self.taken, Ordering::Relaxed);
    }
}

impl LeafCache {
    /// Creates a cache for a volume of `leaf_count` leaves, whose number may grow.
    pub(crate) fn new(leaf_count: u64) -> Self {
        let wanted = leaf_count.clamp(1, LEAVES_MAX).next_power_of_two();
        let (granted, taken) = take_of_budget(wanted);
        let count = usize::try_from(granted).expect("the words fit memory");
        // Words that were never stored use no memory.
        let words = <[AtomicU64]>::new_box_zeroed_with_elems(count);
        let words = words.expect("address space is not short");
        Self { words, taken, used: LeafBits::new() }
    }

    /// Creates a cache for a snapshot, which is smaller because there may be very many.
    pub(crate) fn new_for_copy(leaf_count: u64) -> Self {
        Self::new(leaf_count.min(LEAVES_OF_COPY_MAX))
    }

    #[inline]
    pub(crate) fn find(&self, leaf: u64) -> Option<NodeRef> {
        // PAIRS-WITH: LeafCache::remember, "the node that a place of the cache names".
        let word = self.word(leaf).load(Ordering::Acquire);
        let node = u32::try_from(word & u64::from(u32::MAX)).expect("32 bits were kept");
        (word >> NODE_BITS == leaf + 1).then(|| NodeRef::from_number(node))
    }

    /// Returns the node of a leaf, if it is cached as unshared. The caller holds the lock of a
    /// block of the leaf.
    #[inline]
    pub(crate) fn find_own(&self, leaf: u64) -> Option<NodeRef> {
        let word = self.word(leaf).load(Ordering::Acquire);
        let node = u32::try_from(word & u64::from(u32::MAX)).expect("32 bits were kept");
        (word >> NODE_BITS == leaf + 1 && word & OWN != 0).then(|| NodeRef::from_number(node))
    }

    /// Caches the node of a leaf, unless its slot is in use. The first leaf stays, so that volumes
    /// with more leaves than slots do not thrash. The caller holds the lock of a block of the leaf.
    pub(crate) fn remember(&self, leaf: u64, node: NodeRef) {
        self.put(leaf, node, 0);
    }

    /// Caches the node of an unshared leaf.
    pub(crate) fn remember_own(&self, leaf: u64, node: NodeRef) {
        self.put(leaf, node, OWN);
    }

    fn put(&self, leaf: u64, node: NodeRef, own: u64) {
        self.note_use(leaf);
        let shared = ((leaf + 1) << NODE_BITS) | u64::from(node.number());
        for now in [0, shared] {
            // PAIRS-WITH: LeafCache::find, "the node that a place of the cache names".
            let put = self.word(leaf).compare_exchange(
                now,
                shared | own,
                Ordering::Release,
                Ordering::Relaxed,
            );
            if put.is_ok() || own == 0 {
                return;
            }
        }
    }

    /// Marks all cached leaves as shared. The caller holds all block locks.
    pub(crate) fn share_all(&self) {
        for word in &self.words {
            let now = word.load(Ordering::Relaxed);
            if now & OWN != 0 {
                word.store(now & !OWN, Ordering::Release);
            }
        }
    }

    /// Clears the cache. The caller holds all block locks.
    pub(crate) fn forget_all(&self) {
        for word in &self.words {
            word.store(0, Ordering::Release);
        }
    }

    /// Records the use of a leaf that was not found in the cache.
    pub(crate) fn note_use(&self, leaf: u64) {
        self.used.set(leaf);
    }

    /// Returns the leaves used in this period.
    pub(crate) fn used(&self) -> &LeafBits {
        &self.used
    }

    /// Takes the leaves used since the last call, as words of [`LeafBits`], and clears the cache,
    /// so that the next use of each leaf is recorded again. May be called by any thread at any
    /// time: a cleared slot only causes a lookup.
    pub(crate) fn take_used(&self) -> Box<[u64]> {
        let used = self.used.take_words();
        // Cleared afterwards: a use that is recorded from here on is followed by another lookup.
        for word in &self.words {
            if word.load(Ordering::Relaxed) != 0 {
                word.store(0, Ordering::Relaxed);
            }
        }
        used
    }

    /// Returns whether the slot of a leaf is free.
    pub(crate) fn has_room(&self, leaf: u64) -> bool {
        self.word(leaf).load(Ordering::Relaxed) == 0
    }

    /// Removes a leaf that is about to be unlinked. The caller holds the locks of the whole leaf.
    pub(crate) fn forget(&self, leaf: u64) {
        let word = self.word(leaf);
        let now = word.load(Ordering::Relaxed);
        if now >> NODE_BITS == leaf + 1 {
            // Others may use the slot meanwhile, but only once it is empty.
            word.store(0, Ordering::Release);
        }
    }

    #[inline]
    fn word(&self, leaf: u64) -> &AtomicU64 {
        let index = usize::try_from(leaf).expect("leaf numbers fit memory");
        &self.words[index & (self.words.len() - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leaf_is_found_until_it_is_forgotten() {
        let cache = LeafCache::new(4);
        let node = NodeRef::from_number(77);
        assert_eq!(cache.find(0), None);
        cache.remember(3, node);
        assert_eq!(cache.find(3), Some(node));
        assert_eq!(cache.find(7), None);
        cache.forget(7);
        assert_eq!(cache.find(3), Some(node));
        cache.forget(3);
        assert_eq!(cache.find(3), None);
    }

    #[test]
    fn a_leaf_is_the_volumes_own_until_all_are_shared() {
        let cache = LeafCache::new(4);
        let node = NodeRef::from_number(77);
        cache.remember(3, node);
        assert_eq!(cache.find_own(3), None);
        cache.remember_own(3, node);
        cache.remember_own(7, NodeRef::from_number(5));
        assert_eq!((cache.find(3), cache.find_own(3)), (Some(node), Some(node)));
        assert_eq!(cache.find_own(7), None);
        cache.share_all();
        assert_eq!((cache.find(3), cache.find_own(3)), (Some(node), None));
    }

    #[test]
    fn the_first_use_of_a_leaf_is_noted_and_the_first_after_it_was_taken() {
        let cache = LeafCache::new(4);
        cache.remember(3, NodeRef::from_number(77));
        assert!(cache.used().has(3) && !cache.used().has(2));
        assert_eq!(cache.take_used()[0], 1 << 3);
        assert!(!cache.used().has(3));
        assert_eq!(cache.find(3), None, "it is looked up again, and noted");
        cache.note_use(3);
        assert_eq!(cache.take_used()[0], 1 << 3);
    }

    #[test]
    fn the_first_leaf_keeps_its_place() {
        let cache = LeafCache::new(1);
        cache.remember(0, NodeRef::from_number(1));
        cache.remember(5, NodeRef::from_number(2));
        assert_eq!(cache.find(0), Some(NodeRef::from_number(1)));
        assert_eq!(cache.find(5), None);
    }

    #[test]
    fn the_last_leaf_of_the_largest_volume_fits() {
        let cache = LeafCache::new(u64::MAX);
        let (leaf, node) = ((1 << 27) - 2, NodeRef::from_number(u32::MAX >> 3));
        cache.remember(leaf, node);
        assert_eq!(cache.find(leaf), Some(node));
    }
}
