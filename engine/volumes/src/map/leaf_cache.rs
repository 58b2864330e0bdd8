//! A private shortcut past a map's inner nodes: from leaf numbers to nodes.
//!
//! A word for each of the first leaves that came to a place of the table:
//!
//! ```text
//!  63           37 36  32 31                  0
//! ┌───────────────┬────┬─┬─────────────────────┐
//! │ leaf + 1      │ 0  │o│ number of the node  │     0: nothing remembered
//! └───────────────┴────┴─┴─────────────────────┘
//! ```
//!
//! Bit o: the leaf is the volume's own, so its entries may be changed. Only a copy of the whole map
//! ends that, with every block held.
//!
//! Words are set with a block of the leaf held and cleared with the whole leaf held, before the
//! leaf is unlinked; or at any time, to see which leaves are used (`idle_leaves`). So a node that
//! is found here was linked when the word was read, and a pin taken before keeps it, as it does a
//! node that was found by walking the map.

use page_store::NodeRef;
use sync::atomic::{AtomicU64, Ordering};
use zerocopy::FromZeros;

use crate::map::leaf_bits::LeafBits;

/// The most leaves remembered of a volume: 16 GiB of blocks, in 64 KiB.
const LEAVES_MAX: u64 = 1 << 13;

/// The same of a copy that only few read.
const LEAVES_OF_COPY_MAX: u64 = 1 << 8;

const NODE_BITS: u32 = 37;

const OWN: u64 = 1 << 32;

/// Words that the caches of all volumes may have together, 16 MiB, and those that one has at least.
const BUDGET_WORDS: u64 = 2 << 20;
const WORDS_MIN: u64 = 64;

/// What is left of the budget, of all pools of the process.
static BUDGET_LEFT: AtomicU64 = AtomicU64::new(BUDGET_WORDS);

/// Takes as many words as are wanted, if there are so many left; else few are granted, and none
/// taken. A power of two, as is what is wanted.
fn take_of_budget(wanted: u64) -> (u64, u64) {
    let take = |left: u64| left.checked_sub(wanted);
    match BUDGET_LEFT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
        Ok(_) => (wanted, wanted),
        Err(_) => (wanted.min(WORDS_MIN), 0),
    }
}

/// The nodes of one volume's leaves, as far as they are remembered.
#[derive(Debug)]
pub(crate) struct LeafCache {
    words: Box<[AtomicU64]>,
    /// Words that were taken of the budget.
    taken: u64,
    /// Leaves that were looked up since they were last forgotten to be watched.
    used: LeafBits,
}

impl Drop for LeafCache {
    fn drop(&mut self) {
        BUDGET_LEFT.fetch_add(self.taken, Ordering::Relaxed);
    }
}

impl LeafCache {
    /// Creates a cache for a volume of `leaf_count` leaves, which may become more.
    pub(crate) fn new(leaf_count: u64) -> Self {
        let wanted = leaf_count.clamp(1, LEAVES_MAX).next_power_of_two();
        let (granted, taken) = take_of_budget(wanted);
        let count = usize::try_from(granted).expect("the words fit memory");
        // Words that were never stored to take no memory.
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

    /// The leaf, if it is remembered as the volume's own. The caller holds a block of the leaf.
    #[inline]
    pub(crate) fn find_own(&self, leaf: u64) -> Option<NodeRef> {
        let word = self.word(leaf).load(Ordering::Acquire);
        let node = u32::try_from(word & u64::from(u32::MAX)).expect("32 bits were kept");
        (word >> NODE_BITS == leaf + 1 && word & OWN != 0).then(|| NodeRef::from_number(node))
    }

    /// Remembers a leaf's node, unless the place is another's: what was first stays, so that
    /// volumes with more leaves than places do not fight over them. The caller holds a block of
    /// the leaf.
    pub(crate) fn remember(&self, leaf: u64, node: NodeRef) {
        self.put(leaf, node, 0);
    }

    /// Remembers the node of a leaf that is the volume's own.
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

    /// No leaf is the volume's own any more. The caller holds every block.
    pub(crate) fn share_all(&self) {
        for word in &self.words {
            let now = word.load(Ordering::Relaxed);
            if now & OWN != 0 {
                word.store(now & !OWN, Ordering::Release);
            }
        }
    }

    /// Forgets everything. The caller holds every block.
    pub(crate) fn forget_all(&self) {
        for word in &self.words {
            word.store(0, Ordering::Release);
        }
    }

    /// A leaf that was not found here is used.
    pub(crate) fn note_use(&self, leaf: u64) {
        self.used.set(leaf);
    }

    /// Leaves that were used in this period.
    pub(crate) fn used(&self) -> &LeafBits {
        &self.used
    }

    /// Takes the leaves that were used since the last time, as words of [`LeafBits`], and forgets
    /// where all are, so that the next use of each is noted again. Any thread may call it at any
    /// time: what is forgotten is looked up.
    pub(crate) fn take_used(&self) -> Box<[u64]> {
        let used = self.used.take_words();
        // Afterwards: a use that is noted from here on is followed by another look-up.
        for word in &self.words {
            if word.load(Ordering::Relaxed) != 0 {
                word.store(0, Ordering::Relaxed);
            }
        }
        used
    }

    /// Returns whether a leaf that was not found could be remembered.
    pub(crate) fn has_room(&self, leaf: u64) -> bool {
        self.word(leaf).load(Ordering::Relaxed) == 0
    }

    /// Forgets a leaf that is about to be unlinked. The caller holds the whole leaf.
    pub(crate) fn forget(&self, leaf: u64) {
        let word = self.word(leaf);
        let now = word.load(Ordering::Relaxed);
        if now >> NODE_BITS == leaf + 1 {
            // Others may take the place meanwhile, but only once it is empty.
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
