//! The dedup index: maps fingerprints to slots that may have the same contents.
//!
//! The index contains only hints: a writer that follows one takes a reference and compares bytes.
//! Therefore races may lose some or leave stale ones, and a restart drops the index and fills it
//! again from the fingerprints in the slots' words.
//!
//! Extendible hashing over slabs. The upper bits of a fingerprint select a segment through the
//! directory, the lower ones a bucket of sixteen words (two cache lines that are fetched together).
//!
//! ```text
//!  fingerprint (32 bits)  ┌─ directory ─┬──────────────┬─ bucket (10) ─┐
//!                         └────────────── tag (22) ────┴───────────────┘
//!  word of a bucket       ┌ 1 ┬── tag (22) ──┬── slot, class, slab (41) ──┐
//! ```
//!
//! Segments are slabs of the pool, accessed under a pin, so that a freed segment stays one for all
//! threads that may still use it.

use std::sync::Mutex;

use sync::atomic::{AtomicU32, AtomicU64, Ordering};
use sync::{Pinned, counted};

use crate::fingerprint::{Description, Fingerprint};
use crate::layout::{Class, SLAB_BYTES, Slot};
use crate::memory::Memory;
use crate::page_ref::{PACKED_BITS, pack, unpack};
use crate::purpose::Purpose;

const BUCKET_BYTES: u64 = 128;
const BUCKET_COUNT: u64 = SLAB_BYTES / BUCKET_BYTES;
const BUCKET_BITS: u32 = BUCKET_COUNT.trailing_zeros();
const WORDS_A_BUCKET: usize = 16;
const WORDS_A_SEGMENT: u32 = 16 << 10;

/// Number of hints from which on a segment is split.
const FULL_FROM: u32 = WORDS_A_SEGMENT / 10 * 7;

const PRESENT: u64 = 1 << 63;
const TAG_SHIFT: u32 = PACKED_BITS;
const TAG_MASK: u64 = (1 << (32 - BUCKET_BITS)) - 1;

/// Format of a directory entry: the segment's slab plus one in the low half, its depth above.
const DEPTH_SHIFT: u32 = 32;

/// Number of hints in a segment that is about to be split.
pub(crate) const fn full_segment_hints() -> u32 {
    FULL_FROM
}

/// Dedup index of one pool.
#[derive(Debug)]
pub(crate) struct DedupIndex {
    directory: Box<[AtomicU64]>,
    directory_bits: u32,
    /// Number of hints in each segment, at its first directory entry.
    filled: Box<[AtomicU32]>,
    segment_count: AtomicU32,
    /// Locked to add, split or drop segments.
    changing: Mutex<()>,
}

#[derive(Clone, Copy)]
struct Segment {
    slab: u32,
    depth: u32,
}

impl DedupIndex {
    /// Creates an empty index that can grow to hold every page of `slab_count` slabs.
    pub(crate) fn new(slab_count: u32) -> Self {
        let segments = (u64::from(slab_count) * 64).div_ceil(u64::from(WORDS_A_SEGMENT));
        let directory_bits = segments.next_power_of_two().trailing_zeros();
        let length = 1_usize << directory_bits;
        Self {
            directory: (0..length).map(|_| AtomicU64::new(0)).collect(),
            directory_bits,
            filled: (0..length).map(|_| AtomicU32::new(0)).collect(),
            segment_count: AtomicU32::new(0),
            changing: Mutex::new(()),
        }
    }

    pub(crate) fn segment_count(&self) -> u32 {
        self.segment_count.load(Ordering::Relaxed)
    }

    /// Number of hints that all segments can hold.
    pub(crate) fn capacity(&self) -> u64 {
        u64::from(self.segment_count()) * u64::from(WORDS_A_SEGMENT)
    }

    /// Prefetches the buckets of a fingerprint.
    pub(crate) fn prefetch(&self, memory: &Memory, fingerprint: Fingerprint) {
        if let Some(segment) = self.segment(self.place(fingerprint)) {
            let bucket = bucket(memory, segment, fingerprint);
            memory.region.prefetch(bucket);
            memory.region.prefetch(bucket + BUCKET_BYTES / 2);
        }
    }

    /// Returns slots that may have contents with this fingerprint.
    pub(crate) fn hints<'seen>(
        &self,
        memory: &'seen Memory,
        _pinned: &'seen Pinned<'_>,
        fingerprint: Fingerprint,
    ) -> impl Iterator<Item = Slot> + use<'seen> {
        let segment = self.segment(self.place(fingerprint));
        let words = segment.map_or(&[][..], |segment| words(memory, segment, fingerprint));
        words.iter().filter_map(move |word| {
            let hint = word.load(Ordering::Relaxed);
            has_tag(hint, fingerprint).then(|| unpack(hint))
        })
    }

    /// Adds a hint that `at` has contents with this fingerprint. It replaces a stale hint with the
    /// same tag, an empty word, or another hint. If there is no memory for a first segment, nothing
    /// is added.
    pub(crate) fn insert(
        &self,
        memory: &Memory,
        pinned: &Pinned<'_>,
        fingerprint: Fingerprint,
        at: Slot,
    ) {
        let place = self.place(fingerprint);
        let Some(segment) = self.segment(place).or_else(|| self.add_first(memory)) else { return };
        let hint = PRESENT | (tag(fingerprint) << TAG_SHIFT) | pack(at);
        let words = words(memory, segment, fingerprint);
        let mut empty = None;
        for word in words {
            let found = word.load(Ordering::Relaxed);
            if found == hint {
                return;
            }
            if found & PRESENT == 0 {
                empty = empty.or(Some(word));
            } else if has_tag(found, fingerprint)
                && !can_share_tag(memory, unpack(found), tag(fingerprint))
            {
                word.store(hint, Ordering::Relaxed);
                return;
            }
        }
        if let Some(word) = empty {
            word.store(hint, Ordering::Relaxed);
            if self.change_filled(place, segment.depth, 1) > FULL_FROM {
                self.split(memory, pinned, place);
            }
            return;
        }
        // The slot's number is sufficiently random.
        let victim = usize::try_from(at.slot).expect("slots fit memory") % WORDS_A_BUCKET;
        words[victim].store(hint, Ordering::Relaxed);
    }

    /// Removes the hint that `at` has contents with this fingerprint.
    pub(crate) fn remove(
        &self,
        memory: &Memory,
        _pinned: &Pinned<'_>,
        fingerprint: Fingerprint,
        at: Slot,
    ) {
        let place = self.place(fingerprint);
        let Some(segment) = self.segment(place) else { return };
        let hint = PRESENT | (tag(fingerprint) << TAG_SHIFT) | pack(at);
        let words = words(memory, segment, fingerprint);
        let Some(word) = words.iter().find(|word| word.load(Ordering::Relaxed) == hint) else {
            return;
        };
        // A hint that another thread stores there meanwhile is lost, which costs a duplicate at
        // most.
        word.store(0, Ordering::Relaxed);
        self.change_filled(place, segment.depth, -1);
    }

    /// Changes the number of hints, and returns the new number. An estimate: two concurrent changes
    /// may count as one, which costs less than locked instructions.
    #[inline]
    fn change_filled(&self, place: usize, depth: u32, change: i32) -> u32 {
        let filled = &self.filled[self.first_place(place, depth)];
        let count = filled.load(Ordering::Relaxed).saturating_add_signed(change);
        filled.store(count, Ordering::Relaxed);
        count
    }

    /// Clears the index if a segment is a slab from `end` on. No thread takes such a slab any more,
    /// but one may be about to use a slab taken earlier.
    pub(crate) fn clear_from(&self, memory: &Memory, end: u32) -> bool {
        let changing = self.changing.lock().expect("no thread panics while changing the index");
        let is_leaving = (0..self.directory.len())
            .filter_map(|place| self.segment(place))
            .any(|it| it.slab >= end);
        drop(changing);
        if is_leaving {
            self.clear(memory);
        }
        is_leaving
    }

    /// Clears the index and frees its segments.
    pub(crate) fn clear(&self, memory: &Memory) {
        let _changing = self.changing.lock().expect("no thread panics while changing the index");
        let mut slabs: Vec<u32> = Vec::new();
        for (place, entry) in self.directory.iter().enumerate() {
            let segment = unpack_segment(entry.swap(0, Ordering::AcqRel));
            slabs.extend(segment.map(|segment| segment.slab));
            self.filled[place].store(0, Ordering::Relaxed);
        }
        slabs.dedup();
        self.segment_count.store(0, Ordering::Relaxed);
        for slab in slabs {
            memory.free_slab(slab);
        }
    }

    fn place(&self, fingerprint: Fingerprint) -> usize {
        let place = u64::from(fingerprint.bits()) >> (32 - self.directory_bits);
        usize::try_from(place).expect("the directory fits memory")
    }

    /// Returns the first directory entry of a segment of `depth`.
    fn first_place(&self, place: usize, depth: u32) -> usize {
        let shared_bits = self.directory_bits - depth;
        place >> shared_bits << shared_bits
    }

    fn segment(&self, place: usize) -> Option<Segment> {
        // PAIRS-WITH: DedupIndex::point_at, "the segment is formatted".
        unpack_segment(self.directory[place].load(Ordering::Acquire))
    }

    fn point_at(&self, places: std::ops::Range<usize>, segment: Segment) {
        let entry = (u64::from(segment.depth) << DEPTH_SHIFT) | u64::from(segment.slab + 1);
        for place in places {
            // PAIRS-WITH: DedupIndex::segment, "the segment is formatted".
            self.directory[place].store(entry, Ordering::Release);
        }
    }

    /// Adds the first segment, which covers all fingerprints.
    fn add_first(&self, memory: &Memory) -> Option<Segment> {
        let _changing = self.changing.lock().expect("no thread panics while changing the index");
        if let Some(segment) = self.segment(0) {
            return Some(segment);
        }
        let segment = Segment { slab: self.take_slab(memory)?, depth: 0 };
        self.point_at(0..self.directory.len(), segment);
        Some(segment)
    }

    fn take_slab(&self, memory: &Memory) -> Option<u32> {
        if !memory.may_take_for_index() {
            return None;
        }
        let slab = memory.take_free_slab(Purpose::NewData)?;
        let length = usize::try_from(SLAB_BYTES).expect("a slab fits memory");
        memory.zero_free_slab(slab, length);
        memory.name_slab(slab, Class::INDEX);
        self.segment_count.fetch_add(1, Ordering::Relaxed);
        Some(slab)
    }

    /// Moves half of a full segment's hints to a new one, unless another thread holds the lock.
    fn split(&self, memory: &Memory, _pinned: &Pinned<'_>, place: usize) {
        let Ok(_changing) = self.changing.try_lock() else { return };
        let Some(old) = self.segment(place).filter(|old| old.depth < self.directory_bits) else {
            return;
        };
        let first = self.first_place(place, old.depth);
        if self.filled[first].load(Ordering::Relaxed) < FULL_FROM {
            return;
        }
        let Some(slab) = self.take_slab(memory) else {
            // Without memory, new hints replace others, and a split is not retried each time.
            self.filled[first].store(FULL_FROM / 2, Ordering::Relaxed);
            return;
        };
        let depth = old.depth + 1;
        let moved = move_half(memory, old.slab, slab, 1 << (32 - BUCKET_BITS - depth));
        let half = 1 << (self.directory_bits - depth);
        let kept = self.filled[first].load(Ordering::Relaxed).saturating_sub(moved);
        self.filled[first].store(kept, Ordering::Relaxed);
        self.filled[first + half].store(moved, Ordering::Relaxed);
        self.point_at(first + half..first + 2 * half, Segment { slab, depth });
        self.point_at(first..first + half, Segment { slab: old.slab, depth });
    }
}

/// Moves the hints whose tag has `bit` set to the same buckets of another segment.
fn move_half(memory: &Memory, from_slab: u32, to_slab: u32, bit: u64) -> u32 {
    let (from, to) = (memory.layout.slab(from_slab), memory.layout.slab(to_slab));
    let mut moved = 0;
    for offset in (0..SLAB_BYTES).step_by(8) {
        let word = memory.region.word_to_store(from + offset);
        let hint = word.load(Ordering::Relaxed);
        if hint & PRESENT != 0 && tag_of(hint) & bit != 0 {
            memory.region.word_to_store(to + offset).store(hint, Ordering::Relaxed);
            word.store(0, Ordering::Relaxed);
            moved += 1;
        }
    }
    moved
}

fn unpack_segment(entry: u64) -> Option<Segment> {
    let slab = u32::try_from(entry & u64::from(u32::MAX)).expect("32 bits were kept");
    let depth = u32::try_from(entry >> DEPTH_SHIFT).expect("32 bits were kept");
    Some(Segment { slab: slab.checked_sub(1)?, depth })
}

/// Returns whether a slot's page can be shared and its fingerprint has this tag.
fn can_share_tag(memory: &Memory, at: Slot, wanted: u64) -> bool {
    if !memory.layout.has(at) || !memory.is_named(at) {
        return false;
    }
    let word = memory.slot_word(at, Ordering::Relaxed);
    (1..counted::SHARED_MAX).contains(&counted::count_of(word))
        && Description::in_word(word).hint().is_some_and(|fingerprint| tag(fingerprint) == wanted)
}

fn tag(fingerprint: Fingerprint) -> u64 {
    u64::from(fingerprint.bits() >> BUCKET_BITS)
}

fn has_tag(hint: u64, fingerprint: Fingerprint) -> bool {
    hint & PRESENT != 0 && tag_of(hint) == tag(fingerprint)
}

fn tag_of(hint: u64) -> u64 {
    (hint >> TAG_SHIFT) & TAG_MASK
}

/// Returns the offset of the bucket of a fingerprint.
fn bucket(memory: &Memory, segment: Segment, fingerprint: Fingerprint) -> u64 {
    let index = u64::from(fingerprint.bits()) % BUCKET_COUNT;
    memory.layout.slab(segment.slab) + index * BUCKET_BYTES
}

fn words(memory: &Memory, segment: Segment, fingerprint: Fingerprint) -> &[AtomicU64] {
    memory.region.words_to_store(bucket(memory, segment, fingerprint), WORDS_A_BUCKET)
}
