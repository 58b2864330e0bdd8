//! Writes: the contents are stored as a page, which then becomes the page of the block.

use std::cell::Cell;

use block_device::{Action, ByteRange, DeviceError, DeviceErrorKind};
use codec::{BLOCK_BYTES, Block};
use page_store::{LinkError, PageRef, PageRefKind, Purpose, Writer};

use crate::blocks::{Piece, data_range, pieces};
use crate::device::absent::{bring_in_block, mend_before_change};
use crate::device::volume::Volume;
use crate::error::refusal;
use crate::map::volume_map::{EntryCursor, VolumeMap};

/// Maximum number of blocks written with one lane and under one pin.
const BATCH_BLOCKS_MAX: usize = 64;

/// Writes a range of any length.
pub(super) fn write(volume: &Volume, offset: u64, from: &[u8]) -> Result<(), DeviceError> {
    let range = data_range(Action::Write, offset, from.len())?;
    if let Ok(contents) = <&Block>::try_from(from)
        && offset.is_multiple_of(BLOCK_BYTES as u64)
    {
        let is_overwrite = || holds(&volume.map, range.start / BLOCK_BYTES as u64);
        let write = || write_whole(volume, range, contents);
        return volume.space.find(&volume.map, is_overwrite, write);
    }
    let at = Cell::new(range.start / BLOCK_BYTES as u64);
    let is_overwrite = || holds(&volume.map, at.get());
    let mut rest = from;
    let mut todo = pieces(range).peekable();
    // At least once, because an empty range must be checked against the volume too.
    loop {
        let write = || write_batch(volume, (range, &at), &mut todo, &mut rest);
        volume.space.find(&volume.map, is_overwrite, write)?;
        if todo.peek().is_none() {
            return Ok(());
        }
    }
}

/// Returns whether a block is not a hole.
pub(super) fn holds(map: &VolumeMap, block: u64) -> bool {
    let pinned = map.pool.store.pin();
    !map.is_gone() && !map.entry(&pinned, block).is_hole()
}

/// Writes one whole block: the common case, without the overhead of longer ranges.
fn write_whole(volume: &Volume, range: ByteRange, contents: &Block) -> Result<(), DeviceError> {
    let store = &volume.map.pool.store;
    let mut writer = store.writer();
    volume.admit(&writer.pinned, Action::Write, range)?;
    let block = range.start / BLOCK_BYTES as u64;
    write_block(&volume.map, &mut writer, block, contents)
        .map_err(|error| DeviceError::new(refusal(error), Action::Write, range))
}

/// Writes the next pieces with one lane. Completed pieces are removed from `todo` and `from`.
fn write_batch(
    volume: &Volume,
    (range, at): (ByteRange, &Cell<u64>),
    todo: &mut std::iter::Peekable<impl Iterator<Item = Piece>>,
    from: &mut &[u8],
) -> Result<(), DeviceError> {
    let map = &*volume.map;
    let mut writer = map.pool.store.writer();
    volume.admit(&writer.pinned, Action::Write, range)?;
    for _ in 0..BATCH_BLOCKS_MAX {
        let Some(&piece) = todo.peek() else { break };
        at.set(piece.block);
        let bytes = &from[..piece.length];
        let result = match <&Block>::try_from(bytes) {
            Ok(block) => {
                let written = write_block(map, &mut writer, piece.block, block);
                written.map_err(PartError::from)
            }
            Err(_) => change_part(map, &mut writer, piece, |part| part.copy_from_slice(bytes)),
        };
        if let Err(error) = result {
            drop(writer);
            return error.prepare(volume, Action::Write, range, piece.block);
        }
        *from = &from[piece.length..];
        todo.next();
    }
    Ok(())
}

/// Stores the contents of a whole block and publishes them.
fn write_block(
    map: &VolumeMap,
    writer: &mut Writer<'_>,
    block: u64,
    contents: &Block,
) -> Result<(), LinkError> {
    let mut cursor = EntryCursor::new(map);
    cursor.prefetch_entry(&writer.pinned, block);
    // Locked before the contents are streamed: a locked instruction after streaming stores would
    // wait until they have reached memory.
    let _held = map.hold_own_block(writer, block)?;
    let purpose = || purpose_of(map, cursor.entry(&writer.pinned, block));
    let page = writer.lane.store_page(&writer.pinned, contents, map.policy(), purpose)?;
    map.publish(writer, block, page)
}

/// Changes a part of a block. No other thread writes the block between the read and the write. The
/// rest is verified, because the new page gets a new fingerprint.
pub(super) fn change_part(
    map: &VolumeMap,
    writer: &mut Writer<'_>,
    piece: Piece,
    change: impl FnOnce(&mut [u8]),
) -> Result<(), PartError> {
    let _held = map.hold_own_block(writer, piece.block)?;
    let old = map.entry(&writer.pinned, piece.block);
    if let PageRefKind::Absent(_) = old.kind() {
        return Err(PartError::Absent);
    }
    let mut contents = [0; BLOCK_BYTES];
    let read = map.pool.store.read_verified(&writer.pinned, old, &mut contents);
    read.map_err(|_| PartError::Damaged)?;
    change(&mut contents[piece.start..piece.start + piece.length]);
    let purpose = || purpose_of(map, old);
    let stored = writer.lane.store_page(&writer.pinned, &contents, map.policy(), purpose);
    Ok(map.publish(writer, piece.block, stored.map_err(LinkError::from)?)?)
}

/// Returns the purpose for which a write of a block with this entry allocates memory. Overwrites
/// may use memory that is reserved for them. Those that free as much as they take may use almost
/// all of it.
#[inline]
fn purpose_of(map: &VolumeMap, old: PageRef) -> Purpose {
    if map.claims.is_claimed() {
        Purpose::Claimed
    } else if old.is_hole() {
        Purpose::NewData
    } else if map.pool.is_short_of_memory() && map.pool.store.is_raw_of_one(old) {
        Purpose::Replacement
    } else {
        Purpose::Overwrite
    }
}

/// Reason for which a part of a block cannot be changed.
#[derive(Clone, Copy, Debug)]
pub(super) enum PartError {
    /// The rest of the block must be fetched first.
    Absent,
    /// The rest of the block must be healed first.
    Damaged,
    Device(DeviceErrorKind),
}

impl PartError {
    /// Performs the preparation for the next attempt, if one can help. The caller must hold neither
    /// a pin nor a lane.
    pub(super) fn prepare(
        self,
        volume: &Volume,
        action: Action,
        range: ByteRange,
        block: u64,
    ) -> Result<(), DeviceError> {
        match self {
            Self::Absent => bring_in_block(volume, action, block),
            Self::Damaged => mend_before_change(volume, action, block),
            Self::Device(kind) => Err(DeviceError::new(kind, action, range)),
        }
    }
}

impl From<LinkError> for PartError {
    fn from(error: LinkError) -> Self {
        Self::Device(refusal(error))
    }
}
