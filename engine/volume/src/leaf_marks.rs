//! Which leaves of a map wait for something: for being compressed, for the journal.
//!
//! Private memory of a fixed size: a bit stands for one leaf of most volumes, and for several
//! leaves of very large ones. A set bit may be idle; a leaf with such an entry always has its bit
//! set, or is in a set that was taken and is being walked.

use sync::atomic::{AtomicU64, Ordering};
use zerocopy::FromZeros;

/// Bits for one volume: exact up to 128 GiB.
const BIT_COUNT: u64 = 64 << 10;
const WORD_BITS: u64 = 64;
const WORD_COUNT: usize = 1 << 10;

const _: () = assert!(WORD_COUNT as u64 * WORD_BITS == BIT_COUNT);

/// The leaves of one volume.
#[derive(Debug)]
pub(crate) struct LeafMarks {
    words: Box<[AtomicU64]>,
}

/// Leaves that were taken to be walked.
#[derive(Debug)]
pub(crate) struct LeafSet {
    words: Box<[u64]>,
}

impl LeafMarks {
    pub(crate) fn new() -> Self {
        // Words that were never stored to take no memory: most volumes are small.
        let words = <[AtomicU64]>::new_box_zeroed_with_elems(WORD_COUNT);
        Self { words: words.expect("address space is not short") }
    }

    /// A block of the leaf got such an entry. Called with the block still locked: who takes the
    /// leaves then sees the bit or, having locked the leaf, the entry.
    #[inline]
    pub(crate) fn mark(&self, leaf: u64) {
        let (index, bit) = place(leaf);
        let word = &self.words[index];
        // Mostly set already: a load leaves the line with all who write.
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Any of the first leaves may have such entries.
    pub(crate) fn mark_first(&self, leaf_count: u64) {
        let count = usize::try_from(leaf_count.div_ceil(WORD_BITS)).unwrap_or(usize::MAX);
        for word in self.words.iter().take(count) {
            word.store(u64::MAX, Ordering::Relaxed);
        }
    }

    /// Takes all marked leaves, if there are any.
    pub(crate) fn take(&self) -> Option<LeafSet> {
        if self.words.iter().all(|word| word.load(Ordering::Relaxed) == 0) {
            return None;
        }
        let take = |word: &AtomicU64| match word.load(Ordering::Relaxed) {
            // Left alone, it goes on to take no memory.
            0 => 0,
            _ => word.swap(0, Ordering::Relaxed),
        };
        let words = self.words.iter().map(take).collect();
        Some(LeafSet { words })
    }

    /// Marks leaves again that were taken.
    pub(crate) fn put_back(&self, set: &LeafSet) {
        for (word, &bits) in self.words.iter().zip(&set.words) {
            if bits != 0 {
                word.fetch_or(bits, Ordering::Relaxed);
            }
        }
    }
}

impl LeafSet {
    /// The first leaf from number `leaf` on that may be in the set.
    pub(crate) fn next_from(&self, leaf: u64) -> Option<u64> {
        let (first, bit) = place(leaf);
        let mut base = leaf / WORD_BITS * WORD_BITS;
        // Bits below the leaf's own belong to leaves a whole turn later.
        let mut bits = self.words[first] & !(bit - 1);
        for step in 1..=WORD_COUNT + 1 {
            if bits != 0 {
                return Some(base + u64::from(bits.trailing_zeros()));
            }
            bits = self.words[(first + step) % WORD_COUNT];
            base += WORD_BITS;
        }
        None
    }
}

/// The word and the bit that stand for a leaf.
fn place(leaf: u64) -> (usize, u64) {
    let bit = leaf % BIT_COUNT;
    let word = usize::try_from(bit / WORD_BITS).expect("the words fit memory");
    (word, 1 << (bit % WORD_BITS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(marked: &[u64], from: u64, expected: Option<u64>) {
        let leaves = LeafMarks::new();
        marked.iter().for_each(|&leaf| leaves.mark(leaf));
        let set = leaves.take();
        assert_eq!(set.and_then(|set| set.next_from(from)), expected);
        assert!(leaves.take().is_none(), "what is taken is gone");
    }

    #[test]
    fn marked_leaves_are_found_in_order() {
        check(&[], 0, None);
        check(&[0], 0, Some(0));
        check(&[5, 70, 5000], 6, Some(70));
        check(&[5, 70, 5000], 71, Some(5000));
        check(&[63, 64], 64, Some(64));
    }

    #[test]
    fn leaves_of_a_very_large_volume_share_bits() {
        check(&[5], 6, Some(BIT_COUNT + 5));
        check(&[3 * BIT_COUNT + 5], 0, Some(5));
        check(&[5], 2 * BIT_COUNT + 5, Some(2 * BIT_COUNT + 5));
        check(&[BIT_COUNT - 1], 0, Some(BIT_COUNT - 1));
    }

    #[test]
    fn the_first_leaves_can_be_marked_at_once() {
        for (count, expected) in
            [(0, None), (1, Some(0)), (65, Some(64)), (BIT_COUNT * 3, Some(99))]
        {
            let leaves = LeafMarks::new();
            leaves.mark_first(count);
            let found = leaves.take().and_then(|set| set.next_from(expected.unwrap_or(0)));
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn what_is_put_back_is_taken_again() {
        let leaves = LeafMarks::new();
        leaves.mark(9);
        let set = leaves.take().expect("a leaf is marked");
        leaves.mark(10);
        leaves.put_back(&set);
        let set = leaves.take().expect("leaves are marked");
        assert_eq!((set.next_from(0), set.next_from(10)), (Some(9), Some(10)));
    }
}
