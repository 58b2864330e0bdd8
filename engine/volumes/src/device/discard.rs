//! Taking contents away: discards, zeroes, and the end of a volume.

use block_device::{Action, ByteRange, DeviceError, Zeroes};
use codec::BLOCK_BYTES;
use page_store::{DirtyBits, OwnedPageRef, PageRef, PageRefKind};
use sync::Pinned;

use crate::blocks::{
    LEAF_BLOCKS, Piece, block_range, blocks_in_leaf, leaf_of, pieces, whole_blocks,
};
use crate::device::volume::Volume;
use crate::device::write::{PartError, change_part};
use crate::error::refusal;
use crate::map::volume_map::VolumeMap;
use crate::space::find::Space;

impl Volume {
    /// What a block holds cannot be had any more: reads of it fail until it is overwritten.
    pub fn declare_lost(&self, block: u64) -> Result<(), DeviceError> {
        // A pattern first, so that the block has an entry of the volume's own.
        write_zeroes(self, block_range(block), Zeroes::KeepAllocated)?;
        let range = block_range(block);
        let is_filled = |entry: PageRef| entry.kind() == PageRefKind::Fill(0);
        let lost = self.map.lose_own_if(block, is_filled);
        let fail = |error| DeviceError::new(refusal(error), Action::WriteZeroes, range);
        lost.map(drop).map_err(fail)
    }
}

/// Makes a range read as zeros.
pub(super) fn write_zeroes(
    volume: &Volume,
    range: ByteRange,
    zeroes: Zeroes,
) -> Result<(), DeviceError> {
    let zero =
        |piece| volume.space.find(&volume.map, || false, || zero_piece(volume, piece, zeroes));
    match zeroes {
        Zeroes::Unmap => {
            discard(volume, Action::WriteZeroes, range)?;
            cut_pieces(range).try_for_each(zero)
        }
        Zeroes::KeepAllocated => {
            volume.admit(&volume.map.pool.store.pin(), Action::WriteZeroes, range)?;
            pieces(range).try_for_each(zero)
        }
    }
}

fn zero_piece(volume: &Volume, piece: Piece, zeroes: Zeroes) -> Result<(), DeviceError> {
    loop {
        let Err(error) = zero_present_piece(volume, piece, zeroes) else { return Ok(()) };
        error.prepare(volume, Action::WriteZeroes, piece.range(), piece.block)?;
    }
}

fn zero_present_piece(volume: &Volume, piece: Piece, zeroes: Zeroes) -> Result<(), PartError> {
    let map = &*volume.map;
    let mut writer = map.pool.store.writer();
    let admitted = volume.admit(&writer.pinned, Action::WriteZeroes, piece.range());
    admitted.map_err(|error| PartError::Device(error.kind))?;
    if !piece.is_whole() {
        let is_hole = map.entry(&writer.pinned, piece.block).is_hole();
        if is_hole && zeroes == Zeroes::Unmap {
            return Ok(());
        }
        return change_part(map, &mut writer, piece, |part| part.fill(0));
    }
    let _held = map.hold_own_block(&mut writer, piece.block)?;
    Ok(map.publish(&mut writer, piece.block, OwnedPageRef::fill(0))?)
}

/// Makes holes of the whole blocks in `range` of a volume that requests are served from. Their
/// memory is free when this returns, unless a reader still looks at it or a copy of the map has
/// them too. Stops where the volume is cut or deleted meanwhile: its place in the table may soon be
/// another's.
pub(super) fn discard(
    volume: &Volume,
    action: Action,
    range: ByteRange,
) -> Result<(), DeviceError> {
    let map = &volume.map;
    volume.admit(&map.pool.store.pin(), action, range)?;
    discard_leaves(&volume.space, map, (action, range), |pinned| {
        volume.admit(pinned, action, range)?;
        // A hole that the journal lacks is remembered until it has it. Asked under the pin, as by
        // writers: a change of the class waits for those that saw the old one.
        Ok(match map.is_journaled() {
            true => PageRef::HOLE.with(DirtyBits::JOURNAL),
            false => PageRef::HOLE,
        })
    })
}

/// Makes holes of the whole blocks in `range`, for the administration, which keeps requests away:
/// the range lies past the volume's end. Fails only where copies of shared nodes find no memory.
pub(crate) fn trim(space: &Space, map: &VolumeMap, range: ByteRange) -> Result<(), DeviceError> {
    discard_leaves(space, map, (Action::Discard, range), |_| Ok(PageRef::HOLE))
}

/// Makes holes of the whole blocks in `range`, leaf by leaf. What kind of hole is asked for each
/// leaf anew, under the pin that it is made in.
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

/// The pieces at both ends of a range that do not cover their block.
fn cut_pieces(range: ByteRange) -> impl Iterator<Item = Piece> {
    let blocks = whole_blocks(range);
    let end = range.start + range.length;
    let head_end = (blocks.start * BLOCK_BYTES as u64).min(end);
    let tail_start = (blocks.end * BLOCK_BYTES as u64).clamp(head_end, end);
    let head = ByteRange::new(range.start, head_end - range.start);
    let tail = ByteRange::new(tail_start, end - tail_start);
    pieces(head).chain(pieces(tail))
}
