//! Read-only views of the blocks of a map, for images and for memory usage.

use std::ops::Range;

use codec::{BLOCK_BYTES, Block, Encoder};
use page_store::{
    DirtyBits, NODE_ENTRY_COUNT, PageBytes, PageRef, PageRefKind, encoding_bytes_max,
};

use crate::blocks::{LEAF_BLOCKS, blocks_in_leaf, index_in_leaf, leaf_of};
use crate::map::table::Kind;
use crate::map::volume_map::VolumeMap;

/// Memory and blocks of one volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeUsage {
    /// Readable bytes that were written and not discarded.
    pub written_bytes: u64,
    /// Part of `written_bytes`: blocks that a fill pattern describes.
    pub fill_bytes: u64,
    /// Memory of the volume in bytes: its share of each node of its map and of each page (a page
    /// with two references counts half for each, and half of that if two maps share the leaf).
    pub ram_bytes: u64,
}

/// Contents of a page as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredBytes<'stored> {
    Raw(&'stored Block),
    /// LZ4 block format.
    Encoded(&'stored [u8]),
}

impl<'stored> StoredBytes<'stored> {
    /// The stored bytes: 4096, or fewer if they are encoded.
    pub fn as_stored(self) -> &'stored [u8] {
        match self {
            Self::Raw(block) => block,
            Self::Encoded(bytes) => bytes,
        }
    }
}

/// Kind of a block's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockView {
    Hole,
    Fill(u32),
    Page {
        /// The image named by [`VolumeMap::image_base`] lacks the block or has an older version of
        /// it.
        is_unsaved: bool,
        /// Other blocks, of any volume, refer to the same page.
        is_shared: bool,
    },
    /// Not loaded: the block has this number in the image [`crate::Engine::absent_image`].
    Absent(u64),
    Damaged,
}

impl VolumeMap {
    /// Returns the kinds of the 512 blocks of a leaf, for a volume that does not change. The result
    /// is valid only if [`VolumeMap::is_gone`] is false afterwards.
    pub fn view_leaf(&self, leaf: u64, into: &mut [BlockView; NODE_ENTRY_COUNT]) {
        let store = &self.pool.store;
        if self.kind == Kind::Frozen {
            self.pool.frozen.note_look();
        }
        let pinned = store.pin();
        let node = self.tree.find_leaf(store, &pinned, leaf);
        for (index, view) in into.iter_mut().enumerate() {
            let entry = node.map_or(PageRef::HOLE, |node| store.entry(&pinned, node, index));
            *view = match entry.kind() {
                PageRefKind::Hole => BlockView::Hole,
                PageRefKind::Fill(pattern) => BlockView::Fill(pattern),
                PageRefKind::Absent(number) => BlockView::Absent(number),
                PageRefKind::Damaged => BlockView::Damaged,
                PageRefKind::Page => BlockView::Page {
                    is_unsaved: entry.is_dirty(DirtyBits::IMAGE),
                    is_shared: store.is_shared(entry),
                },
            };
        }
    }

    /// Passes the pages of some blocks of a leaf (ascending indexes in it) to `give`, in that
    /// order, each with its index. The pages are verified: returns the indexes of damaged ones.
    /// Blocks without a page are skipped. `give` must not take long, because the freeing of deleted
    /// pages waits for it.
    pub fn show_leaf(
        &self,
        leaf: u64,
        wanted: &[u16],
        give: &mut dyn FnMut(u16, StoredBytes<'_>),
    ) -> Vec<u16> {
        let store = &self.pool.store;
        let mut damaged = Vec::new();
        let mut scratch = [0; BLOCK_BYTES];
        let mut encoder = None;
        let pinned = store.pin();
        let Some(node) = self.tree.find_leaf(store, &pinned, leaf) else { return damaged };
        let entry = |index: u16| store.entry(&pinned, node, usize::from(index));
        if let Some(&first) = wanted.first() {
            store.prefetch_page(entry(first));
        }
        for (place, &index) in wanted.iter().enumerate() {
            if let Some(&next) = wanted.get(place + 1) {
                store.prefetch_page(entry(next));
            }
            match store.verified_page(&pinned, entry(index), &mut scratch) {
                Ok(PageBytes::Raw(bytes)) => give(index, StoredBytes::Raw(bytes)),
                Ok(PageBytes::Encoded(bytes)) => give(index, StoredBytes::Encoded(bytes)),
                // Encoded as before it became dense, so that images have the same bytes.
                Ok(PageBytes::Dense(_)) => {
                    let encoder = encoder.get_or_insert_with(Encoder::new);
                    give(index, as_before_dense(encoder, &scratch));
                }
                Ok(PageBytes::Fill(_)) => {}
                Err(_) => damaged.push(index),
            }
        }
        damaged
    }

    /// Returns whether any of these blocks is not a hole.
    pub(crate) fn holds_data_in(&self, blocks: Range<u64>) -> bool {
        let store = &self.pool.store;
        let mut from = blocks.start;
        while from < blocks.end {
            let pinned = store.pin();
            let next = self.tree.next_leaf(store, &pinned, leaf_of(from));
            let Some((leaf, node)) = next else { return false };
            let holds = |block| !store.entry(&pinned, node, index_in_leaf(block)).is_hole();
            if blocks_in_leaf(&blocks, leaf).any(holds) {
                return true;
            }
            from = (leaf + 1) * LEAF_BLOCKS;
        }
        false
    }

    /// Walks the map: the time is proportional to the written blocks.
    pub(crate) fn usage(&self) -> VolumeUsage {
        let store = &self.pool.store;
        let mut usage = VolumeUsage {
            written_bytes: self.written_bytes(),
            fill_bytes: self.counts.filled.sum() * BLOCK_BYTES as u64,
            ram_bytes: 0,
        };
        self.tree.for_each_inner_node(store, &store.pin(), &mut |_, _, owners| {
            usage.ram_bytes += BLOCK_BYTES as u64 / owners;
        });
        let mut from = 0;
        loop {
            let pinned = store.pin();
            let Some((leaf, node)) = self.next_leaf_node(&pinned, from) else { return usage };
            let owners = self.tree.owners_of_leaf(store, &pinned, leaf);
            usage.ram_bytes += BLOCK_BYTES as u64 / owners;
            for index in 0..NODE_ENTRY_COUNT {
                let entry = store.entry(&pinned, node, index);
                usage.ram_bytes += store.share_bytes(&pinned, entry).unwrap_or(0) / owners;
            }
            from = leaf + 1;
        }
    }
}

/// Returns the form that the contents had before the dense form.
fn as_before_dense<'made>(
    encoder: &'made mut Encoder,
    contents: &'made Block,
) -> StoredBytes<'made> {
    match encoder.encode_thoroughly(contents, encoding_bytes_max()) {
        Some(encoded) => StoredBytes::Encoded(encoded),
        None => StoredBytes::Raw(contents),
    }
}
