//! Page references: what a word of a map says.
//!
//! ```text
//!  63  60 59 58 57 56 55 54 53 52   41 40    35 34      24 23                  0
//! ┌──────┬──┬──┬──┬──┬─────┬──┬───────┬────────┬──────────┬─────────────────────┐
//! │ kind │ 0│ i│ j│ u│ 0   │ z│ length│ class  │ slot     │ slab                │  2 page, 3 node
//! ├──────┼──┼──┼──┼──┴─────┴──┴───────┴────────┴┬─────────┴─────────────────────┤
//! │ 1    │ 0│ i│ j│ 0                           │ pattern (32 bits)             │  fill
//! ├──────┼──┼──┼──┼─────────────────────────────┴───────────────────────────────┤
//! │ 0    │ 0│ i│ j│ 0                                                           │  hole
//! ├──────┼──┴──┴──┴────────────┬────────────────────────────────────────────────┤
//! │ 4    │ 0                   │ number in an image (48 bits)                   │  absent
//! ├──────┼──┬──┬──┬────────────┴────────────────────────────────────────────────┤
//! │ 5    │ 0│ i│ j│ 0                                                           │  damaged
//! └──────┴──┴──┴──┴─────────────────────────────────────────────────────────────┘
//! ```
//! The length is that of the encoding, or 0 for a page stored as it is. Bit u: the page is
//! untried: stored as it is until there is time to compress it. Bit z: the encoding is the dense
//! one. All repeat what the slot's word says (bits 41 to 56 here are bits 16 to 31 there). A page
//! reference may still have bit u when its page has lost it, never the other way round.
//!
//! Bits j and i: what the block holds is not in the journal, not in an image ([`DirtyBits`]).

use crate::fingerprint::{self, Description};
use crate::layout::{Class, Slot};

const KIND_SHIFT: u32 = 60;
const KIND_FILL: u64 = 1;
const KIND_PAGE: u64 = 2;
const KIND_NODE: u64 = 3;
const KIND_ABSENT: u64 = 4;
const KIND_DAMAGED: u64 = 5;

const DIRTY_SHIFT: u32 = 57;

/// Bits of the number of an absent page.
pub const ABSENT_BITS: u32 = 48;

const SLAB_BITS: u32 = 24;
const SLOT_BITS: u32 = 11;
const CLASS_BITS: u32 = 6;
const LENGTH_BITS: u32 = 12;
const SLOT_SHIFT: u32 = SLAB_BITS;
const CLASS_SHIFT: u32 = SLOT_SHIFT + SLOT_BITS;
const LENGTH_SHIFT: u32 = CLASS_SHIFT + CLASS_BITS;
const UNTRIED: u64 = fingerprint::UNTRIED << LENGTH_SHIFT;
const DENSE: u64 = fingerprint::DENSE << LENGTH_SHIFT;

const fn low_bits(count: u32) -> u64 {
    (1 << count) - 1
}

/// A page reference, as a map entry has it: what one block holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PageRef(pub(crate) u64);

/// Contents of a block, in a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageRefKind {
    /// Never written, or discarded.
    Hole,
    /// The pattern, over and over.
    Fill(u32),
    /// Contents in memory.
    Page,
    /// Contents that an image has under this number, and memory has not yet.
    Absent(u64),
    /// Contents that were found damaged and could not be had from elsewhere.
    Damaged,
}

/// Copies that do not have the contents of a block yet: the journal, or images, do not have them
/// yet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct DirtyBits(u64);

impl DirtyBits {
    pub const NONE: Self = Self(0);
    pub const JOURNAL: Self = Self(1 << DIRTY_SHIFT);
    pub const IMAGE: Self = Self(2 << DIRTY_SHIFT);
    pub const ALL: Self = Self(Self::JOURNAL.0 | Self::IMAGE.0);
}

impl PageRef {
    pub const HOLE: Self = Self(0);
    pub const DAMAGED: Self = Self(KIND_DAMAGED << KIND_SHIFT);

    #[inline]
    pub fn kind(self) -> PageRefKind {
        match self.0 >> KIND_SHIFT {
            0 => PageRefKind::Hole,
            KIND_FILL => {
                let pattern = u32::try_from(self.0 & low_bits(32));
                PageRefKind::Fill(pattern.expect("32 bits were kept"))
            }
            KIND_PAGE => PageRefKind::Page,
            KIND_ABSENT => PageRefKind::Absent(self.0 & low_bits(ABSENT_BITS)),
            _ => PageRefKind::Damaged,
        }
    }

    pub fn is_hole(self) -> bool {
        self.0 >> KIND_SHIFT == 0
    }

    /// One pattern, over and over.
    pub fn filled(pattern: u32) -> Self {
        Self((KIND_FILL << KIND_SHIFT) | u64::from(pattern))
    }

    /// A page in `at`: encoded in `length_bytes`, or as it is when that is 0.
    pub(crate) fn page(at: Slot, length_bytes: usize) -> Self {
        debug_assert!((length_bytes as u64) <= low_bits(LENGTH_BITS), "encodings are short");
        let length = (length_bytes as u64) << LENGTH_SHIFT;
        Self((KIND_PAGE << KIND_SHIFT) | length | pack(at))
    }

    /// The page that a slot's word describes.
    #[inline]
    pub(crate) fn described(at: Slot, description: Description) -> Self {
        let repeated = description.bits() & fingerprint::REPEATED;
        Self((KIND_PAGE << KIND_SHIFT) | (repeated << LENGTH_SHIFT) | pack(at))
    }

    /// Reference to the contents that an image has under this number.
    pub fn absent(number: u64) -> Self {
        assert!(number <= low_bits(ABSENT_BITS), "numbers have {ABSENT_BITS} bits");
        Self((KIND_ABSENT << KIND_SHIFT) | number)
    }

    /// Returns whether it has any of these bits.
    #[inline]
    pub const fn is_dirty(self, bits: DirtyBits) -> bool {
        self.0 & bits.0 != 0
    }

    #[must_use]
    #[inline]
    pub const fn with(self, bits: DirtyBits) -> Self {
        Self(self.0 | bits.0)
    }

    #[must_use]
    pub const fn without(self, bits: DirtyBits) -> Self {
        Self(self.0 & !bits.0)
    }

    /// The dirty bits that it has.
    #[inline]
    pub const fn dirty_bits(self) -> DirtyBits {
        DirtyBits(self.0 & DirtyBits::ALL.0)
    }

    /// Returns whether the page is stored as it is only until there is time to compress it.
    #[inline]
    pub fn is_untried(self) -> bool {
        self.0 & UNTRIED != 0 && self.0 >> KIND_SHIFT == KIND_PAGE
    }

    /// Returns whether the page is stored in the dense form, which takes longer to read. Entries
    /// without a page have the bit only if they are damaged.
    #[inline]
    pub fn is_dense(self) -> bool {
        self.0 & DENSE != 0
    }

    /// The same page, which is not to be tried any more.
    #[must_use]
    pub(crate) fn as_tried(self) -> Self {
        if self.is_untried() { Self(self.0 & !UNTRIED) } else { self }
    }

    /// The same without dirty bits and bit u: equal for all that name one page.
    #[must_use]
    pub fn name(self) -> Self {
        self.as_tried().without(DirtyBits::ALL)
    }

    /// The slot of a page or node; `None` for every other word, also a damaged one.
    #[inline]
    pub(crate) fn slot(self) -> Option<Slot> {
        let kind = self.0 >> KIND_SHIFT;
        (kind == KIND_PAGE || kind == KIND_NODE).then(|| unpack(self.0))
    }

    #[inline]
    pub(crate) fn length_bytes(self) -> usize {
        let length = (self.0 >> LENGTH_SHIFT) & low_bits(LENGTH_BITS);
        usize::try_from(length).expect("twelve bits")
    }
}

/// A page reference that owns one of its page's references, and is in no map. Must go to
/// [`crate::Lane::replace`] or [`crate::Lane::give_back`]: dropped, it leaks until the next leak
/// check.
#[derive(Debug)]
#[must_use = "a page that is neither published nor given back leaks"]
pub struct OwnedPageRef(pub(crate) PageRef);

impl OwnedPageRef {
    /// Contents that one pattern fills: no memory.
    pub fn fill(pattern: u32) -> Self {
        Self(PageRef::filled(pattern))
    }

    pub fn page_ref(&self) -> PageRef {
        self.0
    }

    /// The number of the slot that the page is in, as long as there is a reference to it. `None`
    /// for a pattern.
    pub fn slot_number(&self) -> Option<u64> {
        self.0.slot().map(pack)
    }
}

/// A node of a map.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NodeRef(pub(crate) Slot);

impl NodeRef {
    /// A number that the node has as long as it lives, to remember it elsewhere.
    #[inline]
    pub fn number(self) -> u32 {
        self.0.slab * Class::NODE.shape().slot_count + self.0.slot
    }

    /// The node of a number.
    #[inline]
    pub fn from_number(number: u32) -> Self {
        let slots = const { Class::NODE.shape().slot_count };
        Self(Slot { slab: number / slots, slot: number % slots, class: Class::NODE })
    }

    pub(crate) fn to_word(self) -> u64 {
        (KIND_NODE << KIND_SHIFT) | pack(self.0)
    }

    pub(crate) fn from_word(word: u64) -> Option<Self> {
        let slot = unpack(word);
        (word >> KIND_SHIFT == KIND_NODE && slot.class == Class::NODE).then_some(Self(slot))
    }
}

/// Where a node's name is written: what makes it part of a map.
#[derive(Clone, Copy, Debug)]
pub enum Parent {
    /// A root word of the layer above.
    Root(usize),
    /// An entry of another node.
    Node(NodeRef, usize),
}

/// A slot in the low 41 bits of a word.
#[inline]
pub(crate) fn pack(at: Slot) -> u64 {
    u64::from(at.slab)
        | (u64::from(at.slot) << SLOT_SHIFT)
        | (u64::from(at.class.id()) << CLASS_SHIFT)
}

/// The slot in the low 41 bits of a word. Any bits make a slot, though maybe one that is not
/// there: `Layout::has` tells.
#[inline]
pub(crate) fn unpack(word: u64) -> Slot {
    let bits = |shift: u32, count: u32| (word >> shift) & low_bits(count);
    Slot {
        slab: u32::try_from(bits(0, SLAB_BITS)).expect("24 bits"),
        slot: u32::try_from(bits(SLOT_SHIFT, SLOT_BITS)).expect("11 bits"),
        class: Class::from_id(bits(CLASS_SHIFT, CLASS_BITS)).expect("six bits name a class"),
    }
}

/// Bits that [`pack`] uses.
pub(crate) const PACKED_BITS: u32 = LENGTH_SHIFT;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fingerprint::Fingerprint;

    #[test]
    fn a_page_reference_says_where_and_how_long() {
        let slot = Slot { slab: (1 << 24) - 1, slot: 2047, class: Class::from_id(63).expect("63") };
        let page = PageRef::page(slot, 3632);
        assert_eq!(page.slot(), Some(slot));
        assert_eq!(page.length_bytes(), 3632);
        assert_eq!(page.kind(), PageRefKind::Page);
    }

    #[test]
    fn a_page_reference_repeats_that_its_page_is_untried() {
        let slot = Slot { slab: 7, slot: 3, class: Class::RAW };
        let raw = Description::unindexed(Fingerprint::from_bits(9));
        let untried = PageRef::described(slot, raw.as_untried());
        assert!(untried.is_untried());
        assert_eq!((untried.slot(), untried.length_bytes()), (Some(slot), 0));
        assert_eq!(untried.name(), PageRef::page(slot, 0));
        assert!(!PageRef::described(slot, raw).is_untried());
        assert_eq!(PageRef::filled(5).name(), PageRef::filled(5));
    }

    #[test]
    fn a_page_reference_repeats_that_its_page_is_dense() {
        let slot = Slot { slab: 7, slot: 3, class: Class::from_id(40).expect("40") };
        let raw = Description::unindexed(Fingerprint::from_bits(9));
        let dense = PageRef::described(slot, raw.with_dense_length(900));
        assert!(dense.is_dense() && !dense.is_untried());
        assert_eq!((dense.slot(), dense.length_bytes()), (Some(slot), 900));
        assert_eq!(dense.with(DirtyBits::ALL).name(), dense, "the form is part of the name");
        assert!(!PageRef::described(slot, raw.with_length(900)).is_dense());
        assert!(!PageRef::absent(low_bits(ABSENT_BITS)).is_dense());
    }

    #[test]
    fn holes_and_fills_have_no_slot() {
        assert_eq!(PageRef::HOLE.slot(), None);
        assert_eq!(PageRef::filled(u32::MAX).slot(), None);
        assert_eq!(PageRef::filled(u32::MAX).kind(), PageRefKind::Fill(u32::MAX));
    }

    #[test]
    fn only_words_of_nodes_are_nodes() {
        let node = NodeRef(Slot { slab: 5, slot: 31, class: Class::NODE });
        assert_eq!(NodeRef::from_word(node.to_word()), Some(node));
        assert_eq!(NodeRef::from_word(0), None);
        assert_eq!(NodeRef::from_word(PageRef::page(node.0, 0).0), None);
    }
}
