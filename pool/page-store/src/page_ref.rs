//! Page references: the words of maps.
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
//! The length is that of the encoding, or 0 for an uncompressed page. Bit u: the page is untried:
//! uncompressed, and waiting for compression. Bit z: the encoding is the dense one. All repeat the
//! description in the slot's word (bits 41 to 56 here are bits 16 to 31 there). A page reference
//! may still have bit u when its page has lost it, but not vice versa.
//!
//! Bits j and i: the block's contents are not in the journal, not in an image ([`DirtyBits`]).

use crate::fingerprint::{self, Description};
use crate::layout::{Class, Slot};

const KIND_SHIFT: u32 = 60;
const KIND_FILL: u64 = 1;
const KIND_PAGE: u64 = 2;
const KIND_NODE: u64 = 3;
const KIND_ABSENT: u64 = 4;
const KIND_DAMAGED: u64 = 5;

const DIRTY_SHIFT: u32 = 57;

/// Number of bits in the number of an absent page.
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

/// A page reference, the map entry of one block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PageRef(pub(crate) u64);

/// Kinds of a block's contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageRefKind {
    /// Never written, or discarded.
    Hole,
    /// A repeated pattern.
    Fill(u32),
    /// Contents in memory.
    Page,
    /// Contents that an image has with this number, and that are not in memory yet.
    Absent(u64),
    /// Contents that were found damaged and could not be healed.
    Damaged,
}

/// Copies that lack the current contents of a block: the journal, or images.
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

    /// Creates a reference to a repeated pattern.
    pub fn filled(pattern: u32) -> Self {
        Self((KIND_FILL << KIND_SHIFT) | u64::from(pattern))
    }

    /// Creates a reference to a page in `at`, encoded in `length_bytes`, or uncompressed if that is
    /// 0.
    pub(crate) fn page(at: Slot, length_bytes: usize) -> Self {
        debug_assert!((length_bytes as u64) <= low_bits(LENGTH_BITS), "encodings are short");
        let length = (length_bytes as u64) << LENGTH_SHIFT;
        Self((KIND_PAGE << KIND_SHIFT) | length | pack(at))
    }

    /// Creates a reference to the page that a slot's word describes.
    #[inline]
    pub(crate) fn described(at: Slot, description: Description) -> Self {
        let repeated = description.bits() & fingerprint::REPEATED;
        Self((KIND_PAGE << KIND_SHIFT) | (repeated << LENGTH_SHIFT) | pack(at))
    }

    /// Creates a reference to contents that an image has with this number.
    pub fn absent(number: u64) -> Self {
        assert!(number <= low_bits(ABSENT_BITS), "numbers have {ABSENT_BITS} bits");
        Self((KIND_ABSENT << KIND_SHIFT) | number)
    }

    /// Returns whether any of these bits is set.
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

    /// Returns the dirty bits.
    #[inline]
    pub const fn dirty_bits(self) -> DirtyBits {
        DirtyBits(self.0 & DirtyBits::ALL.0)
    }

    /// Returns whether the page is uncompressed and waits for compression.
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

    /// Returns the reference without bit u.
    #[must_use]
    pub(crate) fn as_tried(self) -> Self {
        if self.is_untried() { Self(self.0 & !UNTRIED) } else { self }
    }

    /// Returns the reference without dirty bits and bit u, which is equal for all references to one
    /// page.
    #[must_use]
    pub fn name(self) -> Self {
        self.as_tried().without(DirtyBits::ALL)
    }

    /// Returns the slot of a page or node, or `None` for any other word, including damaged ones.
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

/// A page reference that owns one of its page's references, and is in no map. Must be passed to
/// [`crate::Lane::replace`] or [`crate::Lane::give_back`]. If it is dropped, the reference leaks
/// until the next leak check.
#[derive(Debug)]
#[must_use = "a page that is neither published nor given back leaks"]
pub struct OwnedPageRef(pub(crate) PageRef);

impl OwnedPageRef {
    /// Creates a reference to contents that a pattern fills, which use no memory.
    pub fn fill(pattern: u32) -> Self {
        Self(PageRef::filled(pattern))
    }

    pub fn page_ref(&self) -> PageRef {
        self.0
    }

    /// Returns the number of the page's slot, which is stable while there is a reference to it, or
    /// `None` for a pattern.
    pub fn slot_number(&self) -> Option<u64> {
        self.0.slot().map(pack)
    }
}

/// Reference to a node of a map.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NodeRef(pub(crate) Slot);

impl NodeRef {
    /// Returns the number of the node, which is stable for its lifetime, to store it elsewhere.
    #[inline]
    pub fn number(self) -> u32 {
        self.0.slab * Class::NODE.shape().slot_count + self.0.slot
    }

    /// Returns the node of a number.
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

/// Location of a reference to a node, which makes the node part of a map.
#[derive(Clone, Copy, Debug)]
pub enum Parent {
    /// A root word of the layer above.
    Root(usize),
    /// An entry of another node.
    Node(NodeRef, usize),
}

/// Packs a slot into the low 41 bits of a word.
#[inline]
pub(crate) fn pack(at: Slot) -> u64 {
    u64::from(at.slab)
        | (u64::from(at.slot) << SLOT_SHIFT)
        | (u64::from(at.class.id()) << CLASS_SHIFT)
}

/// Unpacks the slot in the low 41 bits of a word. Any bits give a slot, but it may not exist: see
/// `Layout::has`.
#[inline]
pub(crate) fn unpack(word: u64) -> Slot {
    let bits = |shift: u32, count: u32| (word >> shift) & low_bits(count);
    Slot {
        slab: u32::try_from(bits(0, SLAB_BITS)).expect("24 bits"),
        slot: u32::try_from(bits(SLOT_SHIFT, SLOT_BITS)).expect("11 bits"),
        class: Class::from_id(bits(CLASS_SHIFT, CLASS_BITS)).expect("six bits name a class"),
    }
}

/// Number of bits that [`pack`] uses.
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
