//! Bitmaps with a bit for each leaf of a map: dirty towards the journal, waiting for compression,
//! or recently used.
//!
//! Private memory of a fixed size. A bit stands for one leaf of most volumes, and for several
//! leaves of very large ones. A set bit may be unnecessary, but a leaf with such an entry always
//! has its bit set, or is in a set that was taken and is being walked.

use sync::atomic::{AtomicU64, Ordering};
use zerocopy::FromZeros;

/// Number of bits for one volume: exact up to 128 GiB.
const BIT_COUNT: u64 = 64 << 10;
const WORD_BITS: u64 = 64;
const WORD_COUNT: usize = 1 << 10;

const _: () = assert!(WORD_COUNT as u64 * WORD_BITS == BIT_COUNT);

/// Bitmap of the leaves of one volume.
#[derive(Debug)]
pub(crate) struct LeafBits {
    words: Box<[AtomicU64]>,
}

/// Set of leaves taken from a bitmap to be walked.
#[derive(Debug)]
pub(crate) struct LeafSet {
    /// The first words. All others are zero.
    words: Box<[u64]>,
    /// Exclusive upper bound of the leaf numbers in the set.
    end: u64,
}

impl LeafBits {
    pub(crate) fn new() -> Self {
        // Words that were never stored use no memory, and most volumes are small.
        let words = <[AtomicU64]>::new_box_zeroed_with_elems(WORD_COUNT);
        Self { words: words.expect("address space is not short") }
    }

    /// Sets the bit of a leaf, after a block of it got such an entry. Called with the block still
    /// locked: a thread that takes the bits then sees the bit or, after locking the leaf, the
    /// entry. Returns whether the bit was clear.
    #[inline]
    pub(crate) fn set(&self, leaf: u64) -> bool {
        let (index, bit) = place(leaf);
        let word = &self.words[index];
        // Usually set already: a load keeps the cache line shared by all writers.
        let is_new = word.load(Ordering::Relaxed) & bit == 0;
        if is_new {
            // PAIRS-WITH: LeafBits::take, "leaves that the volume has grown by".
            word.fetch_or(bit, Ordering::Release);
        }
        is_new
    }

    /// Sets the bits of the first leaves, any of which may have such entries.
    pub(crate) fn set_first(&self, leaf_count: u64) {
        let count = usize::try_from(leaf_count.div_ceil(WORD_BITS)).unwrap_or(usize::MAX);
        for word in self.words.iter().take(count) {
            word.store(u64::MAX, Ordering::Relaxed);
        }
    }

    /// Takes all bits of a volume that has `leaf_count()` leaves. Returns `None` if no bit is set.
    pub(crate) fn take(&self, leaf_count: impl Fn() -> u64) -> Option<LeafSet> {
        let word_count = leaf_count().div_ceil(WORD_BITS);
        let used = usize::try_from(word_count).unwrap_or(WORD_COUNT).min(WORD_COUNT);
        let used = &self.words[..used];
        if used.iter().all(|word| word.load(Ordering::Relaxed) == 0) {
            return None;
        }
        let take = |word: &AtomicU64| match word.load(Ordering::Relaxed) {
            // Not stored, so that the word still uses no memory.
            0 => 0,
            // PAIRS-WITH: LeafBits::set, "leaves that the volume has grown by".
            _ => word.swap(0, Ordering::Acquire),
        };
        let words = used.iter().map(take).collect();
        // Read again: the volume may have grown, and bits that its new leaves share may have been
        // set.
        let end = if leaf_count() > BIT_COUNT { u64::MAX } else { word_count * WORD_BITS };
        Some(LeafSet { words, end })
    }

    /// Returns whether the bit of a leaf is set.
    pub(crate) fn has(&self, leaf: u64) -> bool {
        let (index, bit) = place(leaf);
        self.words[index].load(Ordering::Relaxed) & bit != 0
    }

    /// Takes all bits, as words.
    pub(crate) fn take_words(&self) -> Box<[u64]> {
        let take = |word: &AtomicU64| match word.load(Ordering::Relaxed) {
            // Not stored, so that the word still uses no memory.
            0 => 0,
            _ => word.swap(0, Ordering::Relaxed),
        };
        self.words.iter().map(take).collect()
    }

    /// Sets the bits of these words, and clears all others. No other thread sets bits meanwhile.
    pub(crate) fn set_words(&self, words: &[u64]) {
        for (word, &bits) in self.words.iter().zip(words) {
            if word.load(Ordering::Relaxed) != bits {
                word.store(bits, Ordering::Relaxed);
            }
        }
    }

    /// Clears the bits of these words. No other thread sets bits meanwhile.
    pub(crate) fn clear_words(&self, words: &[u64]) {
        for (word, &bits) in self.words.iter().zip(words) {
            let now = word.load(Ordering::Relaxed);
            if now & bits != 0 {
                word.store(now & !bits, Ordering::Relaxed);
            }
        }
    }

    /// Sets the bits of a taken set again.
    pub(crate) fn put_back(&self, set: &LeafSet) {
        for (word, &bits) in self.words.iter().zip(&set.words) {
            if bits != 0 {
                word.fetch_or(bits, Ordering::Relaxed);
            }
        }
    }
}

impl LeafSet {
    /// Returns the leaves of a volume of `leaf_count` leaves whose bits are set in none of the
    /// bitmaps.
    pub(crate) fn outside_of(all: &[&LeafBits], leaf_count: u64) -> Self {
        let word_count = leaf_count.div_ceil(WORD_BITS);
        let used = usize::try_from(word_count).unwrap_or(WORD_COUNT).min(WORD_COUNT);
        let bits_in = |bits: &LeafBits, index: usize| bits.words[index].load(Ordering::Relaxed);
        let outside = |index| !all.iter().fold(0, |in_one, bits| in_one | bits_in(bits, index));
        let end = if leaf_count > BIT_COUNT { u64::MAX } else { word_count * WORD_BITS };
        Self { words: (0..used).map(outside).collect(), end }
    }

    /// Returns the first leaf from number `leaf` on that may be in the set.
    pub(crate) fn next_from(&self, leaf: u64) -> Option<u64> {
        if leaf >= self.end {
            return None;
        }
        let (first, bit) = place(leaf);
        let mut base = leaf / WORD_BITS * WORD_BITS;
        // Lower bits belong to leaves one turn later.
        let mut bits = self.word(first) & !(bit - 1);
        for step in 1..=WORD_COUNT + 1 {
            if bits != 0 {
                return Some(base + u64::from(bits.trailing_zeros()));
            }
            bits = self.word((first + step) % WORD_COUNT);
            base += WORD_BITS;
            if base >= self.end {
                return None;
            }
        }
        None
    }

    fn word(&self, index: usize) -> u64 {
        self.words.get(index).copied().unwrap_or(0)
    }
}

/// Returns the index of the word and the bit of a leaf.
fn place(leaf: u64) -> (usize, u64) {
    let bit = leaf % BIT_COUNT;
    let word = usize::try_from(bit / WORD_BITS).expect("the words fit memory");
    (word, 1 << (bit % WORD_BITS))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of leaves at which several share a bit.
    fn many() -> u64 {
        BIT_COUNT * 4
    }

    #[track_caller]
    fn check(set: &[u64], from: u64, expected: Option<u64>) {
        let leaves = LeafBits::new();
        assert!(set.iter().all(|&leaf| leaves.set(leaf)), "no bit was set");
        let set = leaves.take(many);
        assert_eq!(set.and_then(|set| set.next_from(from)), expected);
        assert!(leaves.take(many).is_none(), "what is taken is gone");
    }

    #[test]
    fn leaves_are_found_in_order() {
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
    fn the_bits_of_the_first_leaves_can_be_set_at_once() {
        for (count, expected) in
            [(0, None), (1, Some(0)), (65, Some(64)), (BIT_COUNT * 3, Some(99))]
        {
            let leaves = LeafBits::new();
            leaves.set_first(count);
            let found = leaves.take(many).and_then(|set| set.next_from(expected.unwrap_or(0)));
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn what_is_put_back_is_taken_again() {
        let leaves = LeafBits::new();
        leaves.set(9);
        let set = leaves.take(many).expect("a bit is set");
        leaves.set(10);
        leaves.put_back(&set);
        let set = leaves.take(many).expect("bits are set");
        assert_eq!((set.next_from(0), set.next_from(10)), (Some(9), Some(10)));
    }

    #[test]
    fn leaves_outside_of_some_are_those_that_have_no_bit_in_any() {
        let [one, other] = [LeafBits::new(), LeafBits::new()];
        one.set(1);
        other.set(2);
        let set = LeafSet::outside_of(&[&one, &other], 64);
        let found = [0, 1, 3, 64].map(|leaf| set.next_from(leaf));
        assert_eq!(found, [Some(0), Some(3), Some(3), None]);
        assert!(one.has(1) && !one.has(2));
        let words = one.take_words();
        assert!(!one.has(1));
        other.set_words(&words);
        assert!(other.has(1) && !other.has(2));
        other.clear_words(&words);
        assert!(!other.has(1));
    }

    #[test]
    fn leaves_of_a_small_volume_are_looked_for_up_to_its_end() {
        let leaves = LeafBits::new();
        assert!([5, 130, 500].iter().all(|&leaf| leaves.set(leaf)), "no bit was set");
        assert!(!leaves.set(130), "it was set before");
        let set = leaves.take(|| 131).expect("bits are set");
        let found = [0, 6, 131].map(|from| set.next_from(from));
        assert_eq!(found, [Some(5), Some(130), None]);
        let rest = leaves.take(|| 501).expect("one is left");
        assert_eq!(rest.next_from(0), Some(500), "what lies past the end stays set");
    }

    #[test]
    fn a_volume_that_grows_while_its_leaves_are_taken_loses_none() {
        let leaves = LeafBits::new();
        leaves.set(5);
        let counts = std::cell::Cell::new(64);
        let set = leaves.take(|| counts.replace(BIT_COUNT + 64)).expect("a bit is set");
        assert_eq!(set.next_from(6), Some(BIT_COUNT + 5));
        assert_eq!(set.next_from(BIT_COUNT + 6), Some(2 * BIT_COUNT + 5));
    }
}
