//! State of a map relative to stable storage: leaves filled from an image, and dirty bits cleared
//! once stable storage has the contents of entries.

use codec::{BLOCK_BYTES, Block};
use page_store::{DirtyBits, LinkError, NODE_ENTRY_COUNT, PageRef, PageRefKind, Writer};

use crate::blocks::{LEAF_BLOCKS, leaf_of};
use crate::error::{VolumeError, VolumeErrorKind};
use crate::map::entries::Update;
use crate::map::volume_map::VolumeMap;

/// Contents of a block of a volume that is restored from an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilledBlock {
    Hole,
    Fill(u32),
    /// Contents that the page source has with this number.
    Absent(u64),
    /// The contents that the block already has, which the page source has with this number. An
    /// absent block gets this number. A block lost in memory becomes absent.
    Kept(u64),
    /// Contents that were lost before the image was saved.
    Damaged,
}

impl FilledBlock {
    /// Returns the new entry of a block whose current entry is `now`.
    fn entry(self, now: PageRef) -> PageRef {
        match self {
            Self::Kept(number) => match now.kind() {
                PageRefKind::Page | PageRefKind::Fill(_) => now,
                PageRefKind::Absent(_) | PageRefKind::Hole | PageRefKind::Damaged => {
                    PageRef::absent(number)
                }
            },
            Self::Hole => PageRef::HOLE,
            Self::Fill(pattern) => PageRef::filled(pattern),
            Self::Absent(number) => PageRef::absent(number),
            Self::Damaged => PageRef::DAMAGED,
        }
    }
}

/// State that stable storage has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    /// Dirty bits that it settles.
    pub(crate) bits: DirtyBits,
    /// [`VolumeMap::generation`] of that state.
    pub(crate) generation: u64,
}

/// Treatment of a shared leaf when dirty bits are to be cleared.
#[derive(Clone, Copy, Debug)]
enum Sharing {
    /// The leaf stays shared, with its bits.
    Left,
    /// The volume gets its own copy.
    Ended,
}

impl VolumeMap {
    /// Sets the entries of a leaf, in a volume that is not in use yet. The first block of `blocks`
    /// is the leaf's first, and those past the last stay unchanged.
    pub fn fill_leaf(&self, leaf: u64, blocks: &[FilledBlock]) -> Result<(), VolumeError> {
        assert!(blocks.len() as u64 <= LEAF_BLOCKS, "a leaf has {LEAF_BLOCKS} blocks");
        let is_empty = || self.next_leaf(leaf) != Some(leaf);
        if blocks.iter().all(|block| *block == FilledBlock::Hole) && is_empty() {
            return Ok(());
        }
        let result = {
            let store = &self.pool.store;
            let mut writer = store.writer();
            let entry = |index: usize, now| match blocks.get(index) {
                Some(block) => block.entry(now),
                None => now,
            };
            self.fill(&mut writer, leaf, entry)
        };
        result.map_err(|error| {
            let kind = match error {
                LinkError::NoSpace(_) => VolumeErrorKind::NoSpace,
                LinkError::Damaged => VolumeErrorKind::Damaged,
            };
            VolumeError::new(kind, self.name())
        })
    }

    /// Records that stable storage has the contents of `saved`, a copy of the volume. Blocks in
    /// unshared leaves that still have the same contents lose these dirty bits.
    pub(crate) fn note_stored(&self, saved: &Self, bits: DirtyBits) {
        let store = &self.pool.store;
        let known = Known { bits, generation: saved.generation() };
        let mut from = 0;
        loop {
            // The copy is given up only between two leaves, so equal references mean equal
            // contents.
            let _kept = self.pool.frozen.keep();
            let (leaf, entries): (u64, Vec<(u64, PageRef)>) = {
                let pinned = store.pin();
                let Some((leaf, node)) = saved.next_leaf_node(&pinned, from) else { return };
                let own = self.tree.find_leaf(store, &pinned, leaf);
                let is_dirty = |index| {
                    let now = own.map(|own| store.entry(&pinned, own, index));
                    now.is_some_and(|now| now.is_dirty(bits))
                };
                let dirty = (0..NODE_ENTRY_COUNT).filter(|&index| is_dirty(index));
                let entry = |index| store.entry(&pinned, node, index);
                let blocks = dirty.map(|index| (leaf * LEAF_BLOCKS + index as u64, entry(index)));
                (leaf, blocks.collect())
            };
            self.clean_leaf(leaf, entries.into_iter(), known, Sharing::Left);
            from = leaf + 1;
        }
    }

    /// Clears dirty bits of blocks of one leaf that are still unchanged, unless the generation of
    /// the volume has changed. The caller keeps the pages of the entries, so equal references mean
    /// equal contents.
    pub(crate) fn clean_blocks(
        &self,
        leaf: u64,
        blocks: impl Iterator<Item = (u64, PageRef)>,
        known: Known,
    ) {
        self.clean_leaf(leaf, blocks, known, Sharing::Ended);
    }

    fn clean_leaf(
        &self,
        leaf: u64,
        blocks: impl Iterator<Item = (u64, PageRef)>,
        known: Known,
        sharing: Sharing,
    ) {
        let store = &self.pool.store;
        let mut has_empty = false;
        {
            let mut writer = store.writer();
            for (block, entry) in blocks {
                has_empty |= self.clean_block(&mut writer, (block, entry), known, sharing);
            }
        }
        if has_empty {
            self.drop_leaf_if_empty(leaf);
        }
    }

    /// Clears dirty bits of a block that still has these contents. Compares contents, because no
    /// reference kept the page, which may have been reused.
    pub(crate) fn clean_equal_block(&self, block: u64, contents: &Block, known: Known) {
        let mut writer = self.pool.store.writer();
        let updated = self.update_own(&mut writer, block, |writer, now| {
            let mut held = [0; BLOCK_BYTES];
            let is_equal = self.generation() == known.generation
                && now.is_dirty(known.bits)
                && self.pool.store.read_verified(&writer.pinned, now, &mut held).is_ok()
                && held == *contents;
            Ok(is_equal.then_some(Update::Clean(known.bits)))
        });
        if !updated.unwrap_or(false) {
            self.dirty_leaves.set(leaf_of(block));
        }
    }

    /// Returns whether the block is now a hole without dirty bits.
    fn clean_block(
        &self,
        writer: &mut Writer<'_>,
        (block, entry): (u64, PageRef),
        Known { bits, generation }: Known,
        sharing: Sharing,
    ) -> bool {
        let (mut is_empty, mut is_other) = (false, false);
        let clean = |_: &mut Writer<'_>, now: PageRef| {
            // A restore of a snapshot holds all block locks, and sets the bits of all leaves.
            if self.generation() != generation {
                return Ok(None);
            }
            // Another reference means that the block was overwritten, and is dirty again, or that
            // the same contents are in another page.
            is_other = now.is_dirty(bits) && now.name() != entry.name();
            is_empty = !is_other && now.without(bits) == PageRef::HOLE;
            Ok((now.is_dirty(bits) && !is_other).then_some(Update::Clean(bits)))
        };
        let updated = match sharing {
            Sharing::Ended => self.update_own(writer, block, clean),
            Sharing::Left => self.update_alone(writer, block, clean),
        };
        // Without memory for a copy of a shared leaf, the next walk finds the block.
        if (is_other || updated.is_err()) && bits == DirtyBits::JOURNAL {
            self.dirty_leaves.set(leaf_of(block));
        }
        is_empty
    }
}
