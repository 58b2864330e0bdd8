//! Fingerprints of contents, and descriptions of slots in their words.

use std::num::NonZeroU32;

use codec::Block;
use twox_hash::XxHash3_128;

/// Maximum length of a secret that XXH3 uses.
const SECRET_BYTES: usize = 192;

/// 32 bits of the keyed XXH3-128 of a block: dedup compares them first, and they reveal damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint(NonZeroU32);

impl Fingerprint {
    /// Creates a fingerprint of these bits. 0 means "none" in a slot's word, so it becomes 1.
    #[inline]
    pub fn from_bits(bits: u32) -> Self {
        Self(NonZeroU32::new(bits).unwrap_or(NonZeroU32::MIN))
    }

    #[inline]
    pub(crate) const fn bits(self) -> u32 {
        self.0.get()
    }
}

/// Bytes that never appear in messages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Secret<const BYTES: usize>(pub(crate) [u8; BYTES]);

impl<const BYTES: usize> std::fmt::Debug for Secret<BYTES> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("secret")
    }
}

/// Fingerprint function of one pool, keyed by its secret, without which no colliding contents can
/// be made.
#[derive(Debug)]
pub(crate) struct Fingerprinter(Secret<SECRET_BYTES>);

impl Fingerprinter {
    /// Stretches the pool's secret to the length that XXH3 needs.
    pub(crate) fn new(pool_secret: &Secret<32>) -> Self {
        let mut secret = [0; SECRET_BYTES];
        for (seed, bytes) in (0..).zip(secret.as_chunks_mut::<16>().0) {
            *bytes = XxHash3_128::oneshot_with_seed(seed, &pool_secret.0).to_le_bytes();
        }
        Self(Secret(secret))
    }

    #[inline]
    pub(crate) fn of(&self, contents: &Block) -> Fingerprint {
        let hash = XxHash3_128::oneshot_with_secret(&self.0.0, contents)
            .expect("the secret is as long as XXH3 wants");
        let low = u32::try_from(hash & u128::from(u32::MAX)).expect("32 bits were kept");
        Fingerprint::from_bits(low)
    }
}

/// Description of a slot in its word, beside the count of its references.
///
/// ```text
///  47          16 15  14  13  12 11      0
/// ┌──────────────┬───┬───┬───┬──┬─────────┐
/// │ fingerprint  │ u │ j │ n │ z│ length  │
/// └──────────────┴───┴───┴───┴──┴─────────┘
/// ```
/// The length is that of the encoding, or 0 for an uncompressed page. A fingerprint of 0 means
/// none. Bit u: the page is untried, and waits for compression. Bit j: the journal has the page.
/// Bit n: the dedup index does not contain the page. Bit z: the encoding is the dense one
/// (`crate::dense`), else LZ4. The description of nodes is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Description(u64);

const LENGTH: u64 = (1 << 12) - 1;
pub(crate) const DENSE: u64 = 1 << 12;
const UNINDEXED: u64 = 1 << 13;
const JOURNALED: u64 = 1 << 14;
pub(crate) const UNTRIED: u64 = 1 << 15;
/// Bits that a page reference repeats.
pub(crate) const REPEATED: u64 = LENGTH | DENSE | UNTRIED;
const FINGERPRINT_SHIFT: u32 = 16;

impl Description {
    /// Description of nodes.
    pub(crate) const NONE: Self = Self(0);

    /// Description of uncompressed contents, which writers may find by their fingerprint.
    #[inline]
    pub(crate) const fn indexed(fingerprint: Fingerprint) -> Self {
        Self((fingerprint.bits() as u64) << FINGERPRINT_SHIFT)
    }

    /// Description of uncompressed contents, whose fingerprint only serves to detect damage.
    #[inline]
    pub(crate) const fn unindexed(fingerprint: Fingerprint) -> Self {
        Self(Self::indexed(fingerprint).0 | UNINDEXED)
    }

    /// Returns the description in a slot's word.
    #[inline]
    pub(crate) const fn in_word(word: u64) -> Self {
        Self(sync::counted::description_of(word))
    }

    #[inline]
    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    #[inline]
    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    /// Description of the same contents, in an LZ4 encoding of this length, or uncompressed if it
    /// is 0.
    pub(crate) const fn with_length(self, length_bytes: usize) -> Self {
        Self(self.0 & !(LENGTH | DENSE | UNTRIED | JOURNALED) | length_bytes as u64)
    }

    /// Description of the same contents, in a dense encoding of this length.
    pub(crate) const fn with_dense_length(self, length_bytes: usize) -> Self {
        Self(self.with_length(length_bytes).0 | DENSE)
    }

    /// Description of the same page, which waits for compression.
    #[inline]
    pub(crate) const fn as_untried(self) -> Self {
        Self(self.0 | UNTRIED)
    }

    /// Description of the same page after compression was tried.
    pub(crate) const fn as_tried(self) -> Self {
        Self(self.0 & !UNTRIED)
    }

    /// Description of the same page after it was journaled.
    pub(crate) const fn as_journaled(self) -> Self {
        Self(self.0 | JOURNALED)
    }

    /// Description of a copy of the page in another slot.
    pub(crate) const fn as_copy(self) -> Self {
        Self(self.0 & !JOURNALED)
    }

    pub(crate) fn length_bytes(self) -> usize {
        usize::try_from(self.0 & LENGTH).expect("twelve bits")
    }

    #[inline]
    pub(crate) const fn is_dense(self) -> bool {
        self.0 & DENSE != 0
    }

    #[inline]
    pub(crate) const fn is_untried(self) -> bool {
        self.0 & UNTRIED != 0
    }

    pub(crate) const fn is_journaled(self) -> bool {
        self.0 & JOURNALED != 0
    }

    /// Returns the fingerprint of the contents, if there is one.
    #[inline]
    pub(crate) fn fingerprint(self) -> Option<Fingerprint> {
        let bits = u32::try_from(self.0 >> FINGERPRINT_SHIFT).expect("descriptions have 48 bits");
        NonZeroU32::new(bits).map(Fingerprint)
    }

    /// Returns the fingerprint under which the dedup index contains the page, if it does.
    #[inline]
    pub(crate) fn hint(self) -> Option<Fingerprint> {
        self.fingerprint().filter(|_| self.0 & UNINDEXED == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINGERPRINT: Fingerprint = Fingerprint(NonZeroU32::MAX);
    const RAW: Description = Description::indexed(FINGERPRINT);

    #[test]
    fn fingerprints_depend_on_the_secret() {
        let block = [7; codec::BLOCK_BYTES];
        let one = Fingerprinter::new(&Secret([1; 32])).of(&block);
        assert_eq!(one, Fingerprinter::new(&Secret([1; 32])).of(&block));
        assert_ne!(one, Fingerprinter::new(&Secret([2; 32])).of(&block));
    }

    #[test]
    fn a_description_holds_length_and_fingerprint() {
        let encoded = RAW.with_length(3632);
        assert_eq!((encoded.length_bytes(), encoded.fingerprint()), (3632, Some(FINGERPRINT)));
        assert!(!encoded.is_untried());
        assert_eq!(encoded.as_journaled().with_length(9), RAW.with_length(9));
    }

    #[test]
    fn a_description_tells_the_dense_encoding_from_the_other() {
        let dense = RAW.as_untried().with_dense_length(3631);
        assert!(dense.is_dense() && !dense.is_untried());
        assert_eq!((dense.length_bytes(), dense.hint()), (3631, Some(FINGERPRINT)));
        assert!(dense.as_journaled().as_copy().is_dense());
        assert_eq!(dense.with_length(9), RAW.with_length(9));
    }

    #[test]
    fn only_what_is_indexed_has_a_hint() {
        assert_eq!(RAW.with_length(9).hint(), Some(FINGERPRINT));
        assert_eq!(Description::NONE.hint(), None);
        let unindexed = Description::unindexed(FINGERPRINT).with_length(9);
        assert_eq!(unindexed.hint(), None);
        assert_eq!((unindexed.fingerprint(), unindexed.length_bytes()), (Some(FINGERPRINT), 9));
    }

    #[test]
    fn a_page_is_untried_until_its_description_says_otherwise() {
        let untried = RAW.as_untried();
        assert!(untried.is_untried());
        assert_eq!(untried.length_bytes(), 0);
        assert_eq!(untried.as_tried(), RAW);
    }

    #[test]
    fn that_the_journal_has_a_page_changes_nothing_else_of_it() {
        let encoded = RAW.with_length(3632);
        assert!(encoded.as_journaled().is_journaled() && !encoded.is_journaled());
        assert_eq!(encoded.as_journaled().length_bytes(), 3632);
        assert_eq!(encoded.as_journaled().fingerprint(), Some(FINGERPRINT));
        assert_eq!(encoded.as_journaled().as_copy(), encoded);
    }
}
