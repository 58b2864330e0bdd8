//! Contents of a volume that are not in the journal: captured for it, and settled when it has them.
//!
//! An entry records whether its contents are in the journal ([`DirtyBits::JOURNAL`]), so this is
//! known after a kill too. A walk takes the leaves that may have such entries, and captures them in
//! batches: a reference keeps the contents unchanged. Once the journal has them, entries that still
//! refer to the same contents lose the dirty bit. Blocks that were overwritten meanwhile keep it.

use std::sync::Arc;

use codec::{BLOCK_BYTES, Block, DecodeError};
use page_store::{DirtyBits, NODE_ENTRY_COUNT, OwnedPageRef, PageBytes, PageRef, PageRefKind};
use sync::Pinned;

use crate::blocks::{LEAF_BLOCKS, leaves_in};
use crate::map::leaf_bits::LeafSet;
use crate::map::stored::Known;
use crate::map::view::StoredBytes;
use crate::map::volume_map::VolumeMap;
use crate::walks::integrity::Integrity;

/// A walk over the blocks of one volume that are not in the journal. Blocks that it does not settle
/// are found by the next walk.
#[derive(Debug)]
pub struct CaptureWalk {
    map: Arc<VolumeMap>,
    integrity: Arc<Integrity>,
    set: LeafSet,
    next_leaf: u64,
    next_index: usize,
    /// The last block whose page was found damaged, and healed if possible.
    mended: Option<u64>,
    is_settled: bool,
}

/// Blocks that were not in the journal when they were captured. Their contents stay unchanged until
/// this is settled or dropped.
#[derive(Debug)]
pub struct Capture {
    map: Arc<VolumeMap>,
    /// Generation of the map before the first block was captured.
    generation: u64,
    blocks: Vec<CapturedBlock>,
}

/// A block and its captured contents.
#[derive(Debug)]
struct CapturedBlock {
    block: u64,
    entry: PageRef,
    held: Held,
}

#[derive(Debug)]
enum Held {
    /// The entry contains the contents.
    Nothing,
    Page(OwnedPageRef),
    /// A copy, because the reference count of the page is at its maximum, or because the page is in
    /// the dense form, which the journal does not use.
    Copy(Box<Block>),
    /// The page is damaged, and could not be declared lost in its entry: it stays dirty.
    Damaged,
}

/// Contents of a captured block.
#[derive(Clone, Copy, Debug)]
pub enum CapturedContents<'capture> {
    Hole,
    Fill(u32),
    Page(CapturedPage<'capture>),
    /// The contents are lost.
    Lost,
}

/// A captured page.
#[derive(Clone, Copy, Debug)]
pub struct CapturedPage<'capture> {
    /// Position of the page in memory. Two pages with the same number in one capture are the same
    /// page. So are two of different captures if the later one has `is_journaled`. `None`: unknown.
    pub number: Option<u64>,
    /// The page that now has this number is in the journal already.
    pub is_journaled: bool,
    pub bytes: StoredBytes<'capture>,
}

impl CaptureWalk {
    /// Begins a walk over the blocks of a map that are not in the journal, or returns `None` if
    /// there are none. It finds everything that was acknowledged before.
    pub(crate) fn begin(map: &Arc<VolumeMap>, integrity: &Arc<Integrity>) -> Option<Self> {
        let leaf_count = || leaves_in(map.settled_size_bytes());
        let set = map.dirty_leaves.take(leaf_count)?;
        Some(Self {
            map: Arc::clone(map),
            integrity: Arc::clone(integrity),
            set,
            next_leaf: 0,
            next_index: 0,
            mended: None,
            is_settled: false,
        })
    }

    /// Captures the next blocks, at most `count_max`. Returns `None` after the last.
    pub fn capture(&mut self, count_max: usize) -> Option<Capture> {
        assert!(count_max > 0, "something is wanted");
        let mut blocks = Vec::new();
        let generation = self.map.generation();
        while blocks.len() < count_max && self.capture_in_leaf(&mut blocks, count_max) {}
        let map = Arc::clone(&self.map);
        (!blocks.is_empty()).then_some(Capture { map, generation, blocks })
    }

    /// Ends the walk after all captures were settled: its leaves need not be visited again.
    pub fn end(mut self) {
        self.is_settled = true;
    }

    /// Captures blocks of the next leaf. Returns whether there may be more.
    fn capture_in_leaf(&mut self, blocks: &mut Vec<CapturedBlock>, count_max: usize) -> bool {
        let map = Arc::clone(&self.map);
        let Some(leaf) = map.next_leaf_in(&self.set, self.next_leaf) else { return false };
        if leaf != self.next_leaf {
            (self.next_leaf, self.next_index) = (leaf, 0);
        }
        if self.next_index == 0 {
            // A thread that published an entry in the leaf before the set was taken has unlocked it
            // from here on. All others see the bit cleared and set it again.
            drop(map.pool.locks.lock_leaf(map.id(), leaf));
        }
        if let Some(block) = self.capture_until_damage(&map, leaf, blocks, count_max) {
            self.integrity.mend_block(&map, block);
            self.mended = Some(block);
        }
        true
    }

    /// Captures blocks of a leaf up to the first whose page is damaged, and returns that block, to
    /// be captured again.
    fn capture_until_damage(
        &mut self,
        map: &VolumeMap,
        leaf: u64,
        blocks: &mut Vec<CapturedBlock>,
        count_max: usize,
    ) -> Option<u64> {
        let store = &map.pool.store;
        let pinned = store.pin();
        if let Some(node) = map.tree.find_leaf(store, &pinned, leaf) {
            for index in self.next_index..NODE_ENTRY_COUNT {
                let entry = store.entry(&pinned, node, index);
                if !entry.is_dirty(DirtyBits::JOURNAL) {
                    continue;
                }
                let block = leaf * LEAF_BLOCKS + index as u64;
                if blocks.len() == count_max {
                    self.next_index = index;
                    return None;
                }
                let held = match hold(map, &pinned, entry) {
                    Ok(Some(held)) => held,
                    Ok(None) => continue,
                    Err(_) if self.mended == Some(block) => Held::Damaged,
                    Err(_) => {
                        self.next_index = index;
                        return Some(block);
                    }
                };
                blocks.push(CapturedBlock { block, entry, held });
            }
        }
        (self.next_leaf, self.next_index) = (leaf + 1, 0);
        None
    }
}

impl Drop for CaptureWalk {
    fn drop(&mut self) {
        if !self.is_settled {
            self.map.dirty_leaves.put_back(&self.set);
        }
    }
}

/// Keeps the contents of an entry unchanged. Returns `None` if an image has them. An error means
/// that the page is damaged and must not be taken for the written contents.
fn hold(map: &VolumeMap, pinned: &Pinned<'_>, entry: PageRef) -> Result<Option<Held>, DecodeError> {
    let store = &map.pool.store;
    match entry.kind() {
        PageRefKind::Hole | PageRefKind::Fill(_) | PageRefKind::Damaged => Ok(Some(Held::Nothing)),
        PageRefKind::Absent(_) => Ok(None),
        PageRefKind::Page => {
            let mut scratch = [0; BLOCK_BYTES];
            let bytes = store.verified_page(pinned, entry, &mut scratch)?;
            // The journal does not use the dense form.
            let is_dense = matches!(bytes, PageBytes::Dense(_));
            if !is_dense && let Some(page) = store.hold(pinned, entry) {
                return Ok(Some(Held::Page(page)));
            }
            let mut copy = Box::new([0; BLOCK_BYTES]);
            store.read_verified(pinned, entry, &mut copy)?;
            Ok(Some(Held::Copy(copy)))
        }
    }
}

impl Capture {
    pub fn map(&self) -> &VolumeMap {
        &self.map
    }

    /// Number of captured blocks.
    pub fn block_count(&self) -> usize {
        self.blocks.len()
    }

    /// Captured blocks by ascending index, with their contents.
    pub fn blocks(&self) -> impl Iterator<Item = (u64, CapturedContents<'_>)> {
        let contents = |captured| self.contents(captured).unwrap_or(CapturedContents::Lost);
        self.blocks.iter().map(move |captured| (captured.block, contents(captured)))
    }

    /// Returns `None` for a page that cannot be read.
    fn contents<'capture>(
        &'capture self,
        captured: &'capture CapturedBlock,
    ) -> Option<CapturedContents<'capture>> {
        let store = &self.map.pool.store;
        let page = match &captured.held {
            Held::Nothing => {
                return match captured.entry.kind() {
                    PageRefKind::Fill(pattern) => Some(CapturedContents::Fill(pattern)),
                    PageRefKind::Damaged => Some(CapturedContents::Lost),
                    _ => Some(CapturedContents::Hole),
                };
            }
            Held::Damaged => return Some(CapturedContents::Lost),
            Held::Copy(copy) => {
                let bytes = StoredBytes::Raw(copy);
                CapturedPage { number: None, is_journaled: false, bytes }
            }
            Held::Page(page) => {
                let bytes = match store.held_page(page).ok()? {
                    PageBytes::Raw(block) => StoredBytes::Raw(block),
                    PageBytes::Encoded(bytes) => StoredBytes::Encoded(bytes),
                    PageBytes::Dense(_) => return None,
                    PageBytes::Fill(pattern) => return Some(CapturedContents::Fill(pattern)),
                };
                CapturedPage {
                    number: page.slot_number(),
                    is_journaled: store.is_journaled(page),
                    bytes,
                }
            }
        };
        Some(CapturedContents::Page(page))
    }

    /// Settles the blocks before `end`, which the journal has on stable storage. Those that still
    /// have the same contents are not dirty any more, and their pages are marked as journaled.
    /// Blocks from `end` on are left to the next walk.
    pub fn settle(self, end: u64) {
        let map = &self.map;
        let written = self.blocks.partition_point(|captured| captured.block < end);
        let (written, left) = self.blocks.split_at(written);
        for captured in written {
            if let Held::Page(page) = &captured.held {
                map.pool.store.note_journaled(page);
            }
        }
        for captured in left {
            map.dirty_leaves.set(captured.block / LEAF_BLOCKS);
        }
        let mut rest = written;
        while let Some(first) = rest.first() {
            let leaf = first.block / LEAF_BLOCKS;
            let count = rest.partition_point(|captured| captured.block / LEAF_BLOCKS == leaf);
            let (of_leaf, others) = rest.split_at(count);
            if of_leaf.iter().any(|captured| matches!(captured.held, Held::Damaged)) {
                map.dirty_leaves.set(leaf);
            }
            let known = Known { bits: DirtyBits::JOURNAL, generation: self.generation };
            let is_kept = |it: &&CapturedBlock| matches!(it.held, Held::Nothing | Held::Page(_));
            let wanted = of_leaf.iter().filter(is_kept).map(|it| (it.block, it.entry));
            map.clean_blocks(leaf, wanted, known);
            for captured in of_leaf {
                if let Held::Copy(copy) = &captured.held {
                    map.clean_equal_block(captured.block, copy, known);
                }
            }
            rest = others;
        }
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let mut lane = self.map.pool.store.lane();
        for captured in self.blocks.drain(..) {
            if let Held::Page(page) = captured.held {
                lane.give_back(page);
            }
        }
    }
}
