//! Removal of contents: discards, zeroes, and trimming past the end of a volume.

use block_device::{Action, ByteRange, DeviceError, Zeroes};
use codec::BLOCK_BYTES;
use page_store::{DirtyBits, LinkError, OwnedPageRef, PageRef, PageRefKind, Writer};
use sync::Pinned;

use crate::blocks::{
    LEAF_BLOCKS, LEAF_BYTES, Piece, block_range, blocks_in_leaf, leaf_of, pieces, whole_blocks,
};
use crate::device::volume::Volume;
use crate::device::write::{PartError, change_part, holds};
use crate::error::refusal;
use crate::map::volume_map::VolumeMap;
use crate::space::find::Space;

impl Volume {
    /// Declares the contents of a block lost: reads of it fail until it is overwritten.
    pub fn declare_lost(&self, block: u64) -> Result<(), DeviceError> {
        let range = block_range(block);
        let fail = |error| DeviceError::new(refusal(error), Action::WriteZeroes, range);
        // Filled with zeros first, so that the block has an entry that no other map shares.
        let fill = || {
            let mut writer = self.map.pool.store.writer();
            self.admit(&writer.pinned, Action::WriteZeroes, range)?;
            publish_zeros(&self.map, &mut writer, block).map_err(fail)
        };
        self.space.find(&self.map, || false, fill)?;
        let is_filled = |entry: PageRef| entry.kind() == PageRefKind::Fill(0);
        self.map.lose_own_if(block, is_filled).map(drop).map_err(fail)
    }
}

/// Makes a range read as zeros. Holes stay holes, and need no memory for a map.
pub(super) fn write_zeroes(
    volume: &Volume,
    range: ByteRange,
    zeroes: Zeroes,
) -> Result<(), DeviceError> {
    match zeroes {
        Zeroes::Unmap => {
            discard(volume, Action::WriteZeroes, range)?;
            cut_pieces(range).try_for_each(|piece| zero_piece(volume, piece))
        }
        Zeroes::KeepAllocated => zero_leaves(volume, range),
    }
}

/// Writes zeros to the leaves of the range that exist.
fn zero_leaves(volume: &Volume, range: ByteRange) -> Result<(), DeviceError> {
    let (map, store) = (&volume.map, &volume.map.pool.store);
    volume.admit(&store.pin(), Action::WriteZeroes, range)?;
    let end = range.start + range.length;
    let mut at = range.start;
    while at < end {
        let from = leaf_of(at / BLOCK_BYTES as u64);
        let Some((leaf, _)) = map.tree.next_leaf(store, &store.pin(), from) else { break };
        let start = at.max(leaf * LEAF_BYTES);
        at = (leaf + 1) * LEAF_BYTES;
        let inside = ByteRange::new(start, at.min(end).saturating_sub(start));
        pieces(inside).try_for_each(|piece| zero_piece(volume, piece))?;
    }
    Ok(())
}

fn zero_piece(volume: &Volume, piece: Piece) -> Result<(), DeviceError> {
    let zero = || loop {
        let Err(error) = zero_present_piece(volume, piece) else { return Ok(()) };
        error.prepare(volume, Action::WriteZeroes, piece.range(), piece.block)?;
    };
    let is_overwrite = || holds(&volume.map, piece.block);
    volume.space.find(&volume.map, is_overwrite, zero)
}

fn zero_present_piece(volume: &Volume, piece: Piece) -> Result<(), PartError> {
    let map = &*volume.map;
    let mut writer = map.pool.store.writer();
    let admitted = volume.admit(&writer.pinned, Action::WriteZeroes, piece.range());
    admitted.map_err(|error| PartError::Device(error.kind))?;
    let entry = map.entry(&writer.pinned, piece.block);
    // All zeros already: unchanged, also in a leaf that other maps share.
    if entry.is_hole() || entry.kind() == PageRefKind::Fill(0) {
        return Ok(());
    }
    match piece.is_whole() {
        true => Ok(publish_zeros(map, &mut writer, piece.block)?),
        false => change_part(map, &mut writer, piece, |part| part.fill(0)),
    }
}

fn publish_zeros(map: &VolumeMap, writer: &mut Writer<'_>, block: u64) -> Result<(), LinkError> {
    let _held = map.hold_own_block(writer, block)?;
    map.publish(writer, block, OwnedPageRef::fill(0))
}

/// Discards the whole blocks in `range` of a volume that serves requests. Their memory is free on
/// return, unless a reader still uses it or a copy of the map shares it. Stops if the volume is
/// shrunk or deleted meanwhile, because its record in the table may soon belong to another volume.
pub(super) fn discard(
    volume: &Volume,
    action: Action,
    range: ByteRange,
) -> Result<(), DeviceError> {
    let map = &volume.map;
    volume.admit(&map.pool.store.pin(), action, range)?;
    discard_leaves(&volume.space, map, (action, range), |pinned| {
        volume.admit(pinned, action, range)?;
        // A hole that the journal lacks stays dirty until the journal contains it. The class is
        // read under the pin, as by writers: a change of class waits for requests that saw the old
        // one.
        Ok(match map.is_journaled() {
            true => PageRef::HOLE.with(DirtyBits::JOURNAL),
            false => PageRef::HOLE,
        })
    })
}

/// Discards the whole blocks in `range`, which lies past the volume's end, so that no request
/// reaches it. Fails only if copies of shared nodes find no memory.
pub(crate) fn trim(space: &Space, map: &VolumeMap, range: ByteRange) -> Result<(), DeviceError> {
    discard_leaves(space, map, (Action::Discard, range), |_| Ok(PageRef::HOLE))
}

/// Discards the whole blocks in `range`, leaf by leaf. `hole` is called for each leaf, under the
/// pin of the change.
fn discard_leaves(
    space: &Space,
    map: &VolumeMap,
    (action, range): (Action, ByteRange),
    hole: impl Fn(&Pinned<'_>) -> Result<PageRef, DeviceError>,
) -> Result<(), DeviceError> {
    let store = &map.pool.store;
    let blocks = whole_blocks(range);
    let fail = |error| DeviceError::new(refusal(error), action, range);
    let mut from = blocks.start;
    while from < blocks.end {
        let Some((leaf, _)) = map.tree.next_leaf(store, &store.pin(), leaf_of(from)) else { break };
        let in_leaf = blocks_in_leaf(&(from..blocks.end), leaf);
        if !in_leaf.is_empty() {
            space.find(
                map,
                || false,
                || {
                    let mut writer = store.writer();
                    let hole = hole(&writer.pinned)?;
                    map.clear(&mut writer, in_leaf.clone(), hole).map_err(fail)?;
                    writer.unpin().drain();
                    Ok(())
                },
            )?;
        }
        from = (leaf + 1) * LEAF_BLOCKS;
    }
    Ok(())
}

/// Returns the pieces at both ends of a range that do not cover their block.
fn cut_pieces(range: ByteRange) -> impl Iterator<Item = Piece> {
    let blocks = whole_blocks(range);
    let end = range.start + range.length;
    let head_end = (blocks.start * BLOCK_BYTES as u64).min(end);
    let tail_start = (blocks.end * BLOCK_BYTES as u64).clamp(head_end, end);
    let head = ByteRange::new(range.start, head_end - range.start);
    let tail = ByteRange::new(tail_start, end - tail_start);
    pieces(head).chain(pieces(tail))
}
