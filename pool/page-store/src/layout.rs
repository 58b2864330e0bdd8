//! Layout of a region.
//!
//! ```text
//! 0          4 KiB      8 KiB           264 KiB
//! ┌──────────┬──────────┬───────────────┬────────────┬──────────────┬───┬────────┬────────┬───
//! │ super-   │ super-   │ root words    │ slab table │ words of     │pad│ slab 0 │ slab 1 │ …
//! │ block A  │ block B  │ (the engine's │ 8 B a slab │ large slots  │   │128 KiB │        │
//! │          │          │ volume table) │            │ 256 B a slab │   │        │        │
//! └──────────┴──────────┴───────────────┴────────────┴──────────────┴───┴────────┴────────┴───
//!               offsets depend on the capacity; a smaller pool uses the first slabs, and the
//!               part of the tables that these need: the rest of the file is holes
//!
//! slab of 4 KiB slots        slot 0 │ slot 1 │ … │ slot 31       (uncompressed pages, nodes)
//! slab of packed slots       word 0 … word n-1 │ slot 0 │ slot 1 │ … │ slot n-1
//! ```
//!
//! Each slot has a word that counts its references (`sync::counted`) and describes its contents: 16
//! bits of length (0 for an uncompressed page) and 32 bits of fingerprint (0 for none).

use std::ops::Range;

use region::SIZE_UNIT_BYTES;
use sync::atomic::{AtomicU32, Ordering};

/// Size of a slab, the unit in which memory changes its use.
pub(crate) const SLAB_BYTES: u64 = 128 << 10;

/// Number of entries of a map node.
pub const NODE_ENTRY_COUNT: usize = 512;

/// Number of words in front of the slab table, which belong to the layer above.
pub const ROOT_WORD_COUNT: usize = (256 << 10) / 8;

/// Number of root words in a table slab, which consists of them: word `n` of slab `s` is root word
/// `ROOT_WORD_COUNT + s * TABLE_SLAB_WORDS + n`.
pub const TABLE_SLAB_WORDS: usize = (128 << 10) / 8;
const _: () = assert!(TABLE_SLAB_WORDS as u64 * 8 == SLAB_BYTES);

/// Maximum number of table slabs of a pool.
pub const TABLE_SLABS_MAX: usize = 32;

/// Value in the slab table for a table slab: at least two bits differ from any other value.
pub(crate) const TABLE_SLAB_NAME: u64 = 0xC3;

/// Size of one superblock. There are two.
pub(crate) const SUPERBLOCK_BYTES: u64 = 4096;

/// Must be increased when the meaning of any byte in a region changes. A pool has the last version
/// while it may have pages in the dense form, the version before once it has table slabs, and
/// [`LAYOUT_VERSION_PLAIN`] otherwise.
pub(crate) const LAYOUT_VERSION: u64 = 4;
pub(crate) const LAYOUT_VERSION_TABLES: u64 = 3;
pub(crate) const LAYOUT_VERSION_PLAIN: u64 = 2;

/// Oldest readable version. Its pools become plain ones when they are opened.
pub(crate) const LAYOUT_VERSION_MIN: u64 = 1;

const ROOT_OFFSET: u64 = 2 * SUPERBLOCK_BYTES;
const SLAB_TABLE_OFFSET: u64 = ROOT_OFFSET + 8 * ROOT_WORD_COUNT as u64;

/// Length of slots for uncompressed pages and nodes, and number of them in a slab.
pub(crate) const LARGE_SLOT_BYTES: u64 = codec::BLOCK_BYTES as u64;
pub(crate) const LARGE_SLOT_COUNT: u64 = SLAB_BYTES / LARGE_SLOT_BYTES;
const LARGE_WORDS_BYTES: u64 = LARGE_SLOT_COUNT * 8;

/// Number of bytes before the slabs for each slab.
pub(crate) const SLAB_WORDS_BYTES: u64 = LARGE_WORDS_BYTES + 8;

/// Maximum number of slabs that an entry can address: 2 TiB.
const SLAB_COUNT_MAX: u64 = 1 << 24;

/// Minimum number of slabs of a pool.
const SLAB_COUNT_MIN: u32 = 16;

/// Use of a slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Class(u8);

/// Division of a slab of one class into slots.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) slot_bytes: u64,
    pub(crate) slot_count: u32,
    /// Offset of slot 0 in the slab.
    first_slot: u64,
}

/// First id of the packed classes, which are sorted by decreasing slot size.
const FIRST_PACKED: usize = 3;

/// Number of classes, whose ids fit the six bits of an entry.
pub(crate) const CLASS_COUNT: usize = 64;

/// Maximum length of an encoding: longer ones save too little for the cost of decoding.
const PACKED_BYTES_MAX: u64 = 3632;

/// Share by which the slot size shrinks from class to class, half of which is wasted on average.
/// The step is at least [`PACKED_STEP_BYTES_MIN`].
const PACKED_STEP_SHARE: u64 = 48;
const PACKED_STEP_BYTES_MIN: u64 = 48;

const SHAPES: [Shape; CLASS_COUNT] = shapes();

const fn shapes() -> [Shape; CLASS_COUNT] {
    let large = Shape { slot_bytes: LARGE_SLOT_BYTES, slot_count: 32, first_slot: 0 };
    let whole = Shape { slot_bytes: SLAB_BYTES, slot_count: 0, first_slot: 0 };
    let mut shapes = [large; CLASS_COUNT];
    shapes[Class::INDEX.0 as usize] = whole;
    let mut id = FIRST_PACKED;
    let mut slot_count = 33;
    let mut slot_bytes_max = PACKED_BYTES_MAX;
    while id < CLASS_COUNT {
        let shape = packed_shape(slot_count);
        if shape.slot_bytes <= slot_bytes_max {
            let share = shape.slot_bytes / PACKED_STEP_SHARE;
            let step = if share > PACKED_STEP_BYTES_MIN { share } else { PACKED_STEP_BYTES_MIN };
            slot_bytes_max = shape.slot_bytes.saturating_sub(step);
            shapes[id] = shape;
            id += 1;
        }
        slot_count += 1;
    }
    shapes
}

const fn packed_shape(slot_count: u32) -> Shape {
    let words_bytes = (slot_count as u64 * 8).next_multiple_of(64);
    let slot_bytes = (SLAB_BYTES - words_bytes) / slot_count as u64 / 16 * 16;
    Shape { slot_bytes, slot_count, first_slot: words_bytes }
}

impl Class {
    /// Uncompressed pages: 4 KiB slots.
    pub(crate) const RAW: Self = Self(0);
    /// Map nodes: 4 KiB slots.
    pub(crate) const NODE: Self = Self(1);
    /// Segment of the dedup index: the whole slab.
    pub(crate) const INDEX: Self = Self(2);

    pub(crate) const fn id(self) -> u8 {
        self.0
    }

    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }

    #[inline]
    pub(crate) fn from_id(id: u64) -> Option<Self> {
        u8::try_from(id).ok().filter(|&id| usize::from(id) < CLASS_COUNT).map(Self)
    }

    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..).take(CLASS_COUNT).map(Self)
    }

    pub(crate) const fn shape(self) -> &'static Shape {
        &SHAPES[self.index()]
    }

    /// Returns whether the class has slots with pages or nodes, each with a word.
    pub(crate) fn has_slots(self) -> bool {
        self != Self::INDEX
    }

    /// Returns whether the class has slots with pages.
    pub(crate) fn has_pages(self) -> bool {
        self.has_slots() && self != Self::NODE
    }

    /// Returns whether the class has 4 KiB slots, with their words before the slabs.
    pub(crate) const fn is_large(self) -> bool {
        self.index() < Self::INDEX.index()
    }

    /// Returns the packed class with the smallest slots that hold `length_bytes`.
    pub(crate) fn packed_for(length_bytes: usize) -> Option<Self> {
        let packed = &SHAPES[FIRST_PACKED..];
        let fitting = packed.partition_point(|shape| shape.slot_bytes >= length_bytes as u64);
        let id = FIRST_PACKED + fitting.checked_sub(1)?;
        Some(Self(u8::try_from(id).expect("class ids fit a byte")))
    }

    /// Returns the classes with larger slots for packed pages, nearest first, the raw class last.
    pub(crate) fn larger(self) -> impl Iterator<Item = Self> {
        let first = u8::try_from(FIRST_PACKED).expect("class ids fit a byte");
        (first..self.0).rev().map(Self).chain([Self::RAW])
    }
}

/// Maximum length of a useful encoding, in bytes.
pub(crate) fn packed_bytes_max() -> usize {
    usize::try_from(SHAPES[FIRST_PACKED].slot_bytes).expect("slots fit memory")
}

/// Position of one slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Slot {
    pub(crate) slab: u32,
    pub(crate) slot: u32,
    pub(crate) class: Class,
}

/// Offsets in a region of one capacity.
#[derive(Debug)]
pub(crate) struct Layout {
    capacity_bytes: u64,
    /// Number of slabs that fit the region.
    pub(crate) slab_capacity: u32,
    /// Number of slabs that have memory, from the lowest on. The others are untouched holes.
    slab_count: AtomicU32,
    /// Number of slabs of the pool, including those without memory.
    pool_slabs: AtomicU32,
    large_words: u64,
    data: u64,
}

impl Layout {
    /// Layout with all slabs in the pool, and with memory.
    pub(crate) fn of(capacity_bytes: u64) -> Self {
        let room = capacity_bytes - SLAB_TABLE_OFFSET - SLAB_BYTES;
        let slab_count = (room / (SLAB_BYTES + SLAB_WORDS_BYTES)).min(SLAB_COUNT_MAX);
        let large_words = (SLAB_TABLE_OFFSET + slab_count * 8).next_multiple_of(LARGE_WORDS_BYTES);
        let data = (large_words + slab_count * LARGE_WORDS_BYTES).next_multiple_of(SLAB_BYTES);
        assert!(data + slab_count * SLAB_BYTES <= capacity_bytes, "the slabs fit the region");
        let slab_capacity = u32::try_from(slab_count).expect("slab counts fit 24 bits");
        let [slab_count, pool_slabs] = [slab_capacity; 2].map(AtomicU32::new);
        Self { capacity_bytes, slab_capacity, slab_count, pool_slabs, large_words, data }
    }

    #[inline]
    pub(crate) fn slab_count(&self) -> u32 {
        // Relaxed: a thread that follows a reference into a new slab got it from one that knew the
        // count.
        self.slab_count.load(Ordering::Relaxed)
    }

    /// Sets the number of slabs that have memory, from the lowest on.
    pub(crate) fn set_slab_count(&self, slab_count: u32) {
        assert!(slab_count <= self.slab_capacity, "slabs lie inside the region");
        self.slab_count.store(slab_count, Ordering::Relaxed);
    }

    pub(crate) fn pool_slabs(&self) -> u32 {
        self.pool_slabs.load(Ordering::Relaxed)
    }

    /// Sets the number of slabs of the pool, including those without memory.
    pub(crate) fn set_pool_slabs(&self, pool_slabs: u32) {
        assert!(pool_slabs <= self.slab_capacity, "slabs lie inside the region");
        self.pool_slabs.store(pool_slabs, Ordering::Relaxed);
    }

    /// Returns the ranges of memory that the first `slab_count` slabs need, in whole pages of the
    /// region.
    pub(crate) fn memory_of(&self, slab_count: u32) -> Vec<Range<u64>> {
        if slab_count == self.slab_capacity {
            return std::iter::once(0..self.capacity_bytes).collect();
        }
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for range in self.memory_between(&(0..slab_count)) {
            match ranges.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => ranges.push(range),
            }
        }
        ranges
    }

    /// Returns the ranges of memory that these slabs need, in whole pages of the region, including
    /// pages that they share with slabs before them. The ranges may overlap.
    pub(crate) fn memory_between(&self, slabs: &Range<u32>) -> [Range<u64>; 3] {
        let (first, end) = (u64::from(slabs.start), u64::from(slabs.end));
        let table_start = if first == 0 { 0 } else { SLAB_TABLE_OFFSET + 8 * first };
        // The last slab includes the remainder that does not divide into slabs.
        let data_end = match slabs.end == self.slab_capacity {
            true => self.capacity_bytes,
            false => self.data + SLAB_BYTES * end,
        };
        let parts = [
            table_start..SLAB_TABLE_OFFSET + 8 * end,
            self.large_words + LARGE_WORDS_BYTES * first
                ..self.large_words + LARGE_WORDS_BYTES * end,
            self.data + SLAB_BYTES * first..data_end,
        ];
        parts.map(|part| {
            let start = part.start / SIZE_UNIT_BYTES * SIZE_UNIT_BYTES;
            start..part.end.next_multiple_of(SIZE_UNIT_BYTES).min(self.capacity_bytes)
        })
    }

    /// Number of bytes of memory that the first `slab_count` slabs need, including tables.
    pub(crate) fn memory_bytes_of(&self, slab_count: u32) -> u64 {
        self.memory_of(slab_count).iter().map(|range| range.end - range.start).sum()
    }

    /// Returns the ranges without memory while the first `slab_count` slabs are in use.
    pub(crate) fn holes_beside(&self, slab_count: u32) -> Vec<Range<u64>> {
        let mut at = 0;
        let mut holes = Vec::new();
        for range in self.memory_of(slab_count) {
            holes.push(at..range.start);
            at = range.end;
        }
        holes.push(at..self.capacity_bytes);
        holes.retain(|hole| !hole.is_empty());
        holes
    }

    /// Returns the maximum number of slabs for which `size_bytes` of memory suffice, or `None` if
    /// they are too few for a pool.
    pub(crate) fn slabs_in(&self, size_bytes: u64) -> Option<u32> {
        if size_bytes >= self.capacity_bytes {
            return Some(self.slab_capacity);
        }
        let (mut enough, mut too_many) = (0, self.slab_capacity);
        while enough + 1 < too_many {
            let middle = enough.midpoint(too_many);
            match self.memory_bytes_of(middle) <= size_bytes {
                true => enough = middle,
                false => too_many = middle,
            }
        }
        Some(enough).filter(|&count| count >= SLAB_COUNT_MIN)
    }

    /// Minimum size of a pool of this capacity.
    pub(crate) fn size_bytes_min(&self) -> u64 {
        self.memory_bytes_of(SLAB_COUNT_MIN).next_multiple_of(SIZE_UNIT_BYTES)
    }

    /// Number of bytes of the pool outside of slabs.
    pub(crate) fn table_bytes(&self) -> u64 {
        let slab_count = self.pool_slabs();
        self.memory_bytes_of(slab_count) - u64::from(slab_count) * SLAB_BYTES
    }

    #[inline]
    pub(crate) fn root_word(&self, index: usize) -> u64 {
        match index < ROOT_WORD_COUNT {
            true => ROOT_OFFSET + 8 * index as u64,
            false => self.table_slab_word(index - ROOT_WORD_COUNT),
        }
    }

    #[cold]
    fn table_slab_word(&self, index: usize) -> u64 {
        let end = u64::from(self.slab_count()) * TABLE_SLAB_WORDS as u64;
        assert!((index as u64) < end, "word {index} of table slabs is past the last");
        self.data + 8 * index as u64
    }

    /// Offset of a slab's word in the slab table: 0 for a free slab, else the class plus one.
    pub(crate) fn table_word(&self, slab: u32) -> u64 {
        SLAB_TABLE_OFFSET + 8 * u64::from(slab)
    }

    pub(crate) fn slab(&self, slab: u32) -> u64 {
        self.data + u64::from(slab) * SLAB_BYTES
    }

    /// Offset of the word that counts a slot's references.
    #[inline]
    pub(crate) fn slot_word(&self, at: Slot) -> u64 {
        let word = 8 * u64::from(at.slot);
        if usize::from(at.class.0) < FIRST_PACKED {
            self.large_words + u64::from(at.slab) * LARGE_WORDS_BYTES + word
        } else {
            self.slab(at.slab) + word
        }
    }

    /// Offset of a slot's contents.
    #[inline]
    pub(crate) fn slot(&self, at: Slot) -> u64 {
        let shape = at.class.shape();
        self.slab(at.slab) + shape.first_slot + u64::from(at.slot) * shape.slot_bytes
    }

    /// Offset of a slot that is known to be a large one: needs no lookup of its shape.
    #[inline]
    pub(crate) fn large_slot(&self, slab: u32, slot: u32) -> u64 {
        self.slab(slab) + u64::from(slot) * LARGE_SLOT_BYTES
    }

    /// Returns whether there is such a large slot.
    #[inline]
    pub(crate) fn has_large(&self, slab: u32, slot: u32) -> bool {
        slab < self.slab_count() && u64::from(slot) < LARGE_SLOT_COUNT
    }

    /// Returns whether the slot exists. Entries in a region are not trusted without this check.
    #[inline]
    pub(crate) fn has(&self, at: Slot) -> bool {
        at.slab < self.slab_count() && at.slot < at.class.shape().slot_count
    }

    /// Number of bytes of slot words inside a slab of this class, zeroed before the slab is used.
    pub(crate) fn inner_words_bytes(class: Class) -> usize {
        let bytes = if class.index() < FIRST_PACKED { 0 } else { class.shape().first_slot };
        usize::try_from(bytes).expect("a slab fits memory")
    }

    /// Returns a number that differs between layouts that cannot read each other.
    pub(crate) fn fingerprint(&self, version: u64) -> u64 {
        let fold = |hash: u64, value: u64| (hash ^ value).wrapping_mul(0x0000_0100_0000_01B3);
        let fixed = [version, SLAB_BYTES, ROOT_OFFSET, SLAB_TABLE_OFFSET];
        let sized = [self.large_words, self.data, u64::from(self.slab_capacity)];
        let shapes =
            SHAPES.iter().flat_map(|shape| [shape.slot_bytes, u64::from(shape.slot_count)]);
        fixed.into_iter().chain(sized).chain(shapes).fold(0xCBF2_9CE4_8422_2325, fold)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn packed_slots_fit_their_slab_and_shrink_from_class_to_class() {
        let packed = &SHAPES[FIRST_PACKED..];
        for pair in packed.windows(2) {
            assert!(pair[1].slot_bytes < pair[0].slot_bytes);
        }
        for shape in packed {
            let end = shape.first_slot + u64::from(shape.slot_count) * shape.slot_bytes;
            assert!(end <= SLAB_BYTES);
            assert!(SLAB_BYTES - end < shape.slot_bytes + 16 * u64::from(shape.slot_count));
            assert!(shape.slot_count < 2048, "slot numbers have eleven bits");
        }
    }

    #[test]
    fn an_encoding_gets_the_smallest_slot_that_holds_it() {
        for length in 1..=packed_bytes_max() {
            let class = Class::packed_for(length).expect("there is a slot for every length");
            assert!(class.shape().slot_bytes >= length as u64);
            let next = usize::from(class.0) + 1;
            assert!(next == CLASS_COUNT || SHAPES[next].slot_bytes < length as u64);
        }
        assert_eq!(Class::packed_for(packed_bytes_max() + 1), None);
    }

    #[test]
    fn the_tables_take_less_than_a_hundredth_of_a_large_region() {
        let layout = Layout::of(8 << 30);
        assert!(layout.table_bytes() < (8 << 30) / 100 / 2);
    }

    /// Checks that the slabs for a size take no more than it, and that one more slab would.
    #[track_caller]
    fn check_size(capacity_bytes: u64, size_bytes: u64) {
        let layout = Layout::of(capacity_bytes);
        let slab_count = layout.slabs_in(size_bytes).expect("it is large enough");
        assert!(layout.memory_bytes_of(slab_count) <= size_bytes);
        if slab_count < layout.slab_capacity {
            assert!(layout.memory_bytes_of(slab_count + 1) > size_bytes);
        }
        layout.set_pool_slabs(slab_count);
        assert!(layout.table_bytes() < size_bytes / 32 + 3 * SIZE_UNIT_BYTES);
        let all = [layout.memory_of(slab_count), layout.holes_beside(slab_count)].concat();
        let sum: u64 = all.iter().map(|range| range.end - range.start).sum();
        assert_eq!(sum, capacity_bytes, "every byte is memory or a hole");
        assert!(all.iter().all(|range| range.start.is_multiple_of(SIZE_UNIT_BYTES)));
    }

    /// Checks that slabs taken in pieces get the same memory as slabs taken at once.
    #[track_caller]
    fn check_pieces(capacity_bytes: u64, slab_count: u32, piece: u32) {
        let layout = Layout::of(capacity_bytes);
        let units = |ranges: &[Range<u64>]| -> BTreeSet<u64> {
            let unit = usize::try_from(SIZE_UNIT_BYTES).expect("it fits memory");
            ranges.iter().flat_map(|range| range.clone().step_by(unit)).collect()
        };
        let mut taken = BTreeSet::new();
        let mut first = 0;
        while first < slab_count {
            let end = slab_count.min(first + piece);
            taken.extend(units(&layout.memory_between(&(first..end))));
            assert_eq!(taken, units(&layout.memory_of(end)), "the first {end} slabs");
            first = end;
        }
    }

    #[test]
    fn pieces_of_memory_add_up() {
        check_pieces(64 << 20, Layout::of(64 << 20).slab_capacity, 7);
        check_pieces(1 << 30, Layout::of(1 << 30).slab_capacity, 32);
        check_pieces(24 << 30, 20_000, 32);
        check_pieces(2 << 40, 20_000, 999);
    }

    #[test]
    fn a_pool_takes_the_memory_that_it_was_given() {
        for capacity_bytes in [8 << 20, 64 << 20, 24 << 30, 2 << 40] {
            for size_bytes in [8 << 20, 10 << 20, 64 << 20, 8 << 30, 1 << 40] {
                if size_bytes <= capacity_bytes {
                    check_size(capacity_bytes, size_bytes);
                }
            }
        }
        assert_eq!(Layout::of(24 << 30).slabs_in(4 << 20), None, "nothing is left for slabs");
    }
}
