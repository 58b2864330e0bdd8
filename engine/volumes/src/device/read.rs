//! Reads: they take no lock, and store nothing to shared memory except the pin.

use std::io::IoSlice;
use std::ops::Range;

use block_device::{Action, ByteRange, DeviceError, DeviceErrorKind, Extent, ExtentKind};
use codec::{BLOCK_BYTES, Block, DecodeError};
use page_store::{PageBytes, PageRef, PageRefKind};
use sync::Pinned;

use crate::blocks::{LEAF_BYTES, Piece, data_range, index_in_leaf, leaf_of, pieces};
use crate::device::absent::read_slowly;
use crate::device::volume::Volume;
use crate::map::runs::Runs;
use crate::map::volume_map::{EntryCursor, VolumeMap};
use crate::pool::shared::Pool;

/// Maximum number of bytes read under one pin, which delays the freeing of pages dropped meanwhile.
const PINNED_BYTES_MAX: usize = 256 << 10;

/// Maximum length of a range for [`read_in_place`].
const SHOWN_BYTES_MAX: u64 = 1 << 20;
const SLICES_MAX: usize = 258;

/// Maximum length of a short range, and the number of blocks that it can touch.
const SHORT_BYTES_MAX: u64 = 16 << 10;
const SHORT_SLICES_MAX: usize = 5;

static ZEROS: Block = [0; BLOCK_BYTES];

/// Reads a range of any length.
pub(super) fn read(volume: &Volume, offset: u64, into: &mut [u8]) -> Result<(), DeviceError> {
    if let Ok(block) = <&mut Block>::try_from(&mut *into)
        && offset.is_multiple_of(BLOCK_BYTES as u64)
    {
        return read_block(volume, offset, block);
    }
    let range = data_range(Action::Read, offset, into.len())?;
    let mut at = offset;
    // The first chunk ends on a block boundary, so that no block is split between chunks.
    let first = PINNED_BYTES_MAX - usize::try_from(at % BLOCK_BYTES as u64).expect("small");
    let (head, rest) = into.split_at_mut(first.min(into.len()));
    for chunk in std::iter::once(head).chain(rest.chunks_mut(PINNED_BYTES_MAX)) {
        let pinned = volume.map.pool.store.pin();
        volume.admit(&pinned, Action::Read, range)?;
        let length = chunk.len() as u64;
        if read_chunk(&volume.map, &pinned, at, chunk).is_err() {
            // Damaged or absent: must not be waited for while pinned.
            drop(pinned);
            read_slowly(volume, ByteRange::new(at, length), chunk)?;
        }
        at += length;
    }
    Ok(())
}

/// Reads one whole block: the common case, without the overhead of longer ranges.
fn read_block(volume: &Volume, offset: u64, into: &mut Block) -> Result<(), DeviceError> {
    let range = ByteRange::new(offset, BLOCK_BYTES as u64);
    let block = offset / BLOCK_BYTES as u64;
    let map = &*volume.map;
    let (pool, store) = (&*map.pool, &map.pool.store);
    let pinned = store.pin();
    // The lookup precedes the bounds check: any block index may be looked up, and the result is not
    // followed before the check.
    let leaf = map.find_leaf(&pinned, leaf_of(block));
    let entry = leaf.map_or(PageRef::HOLE, |leaf| store.entry(&pinned, leaf, index_in_leaf(block)));
    volume.admit(&pinned, Action::Read, range)?;
    match pool.read_page(&pinned, entry, into) {
        Ok(()) => {
            if entry.is_dense() {
                map.note_dense_read(block);
            }
            Ok(())
        }
        Err(_) => {
            drop(pinned);
            read_slowly(volume, range, into)
        }
    }
}

fn read_chunk(
    map: &VolumeMap,
    pinned: &Pinned<'_>,
    offset: u64,
    mut into: &mut [u8],
) -> Result<(), DecodeError> {
    let mut cursor = EntryCursor::new(map);
    for piece in pieces(ByteRange::new(offset, into.len() as u64)) {
        let entry = cursor.entry(pinned, piece.block);
        let (part, rest) = into.split_at_mut(piece.length);
        into = rest;
        if !into.is_empty() {
            cursor.prefetch_page(pinned, piece.block + 1);
        }
        read_piece(map, pinned, entry, (piece, part))?;
    }
    Ok(())
}

fn read_piece(
    map: &VolumeMap,
    pinned: &Pinned<'_>,
    entry: PageRef,
    (piece, into): (Piece, &mut [u8]),
) -> Result<(), DecodeError> {
    if entry.is_dense() {
        map.note_dense_read(piece.block);
    }
    if let Ok(block) = <&mut Block>::try_from(&mut *into) {
        return map.pool.read_page(pinned, entry, block);
    }
    let mut block = [0; BLOCK_BYTES];
    map.pool.read_page(pinned, entry, &mut block)?;
    into.copy_from_slice(&block[piece.start..piece.start + piece.length]);
    Ok(())
}

/// Passes a range to `visit` where it lies in memory, or decoded in `scratch`.
pub(super) fn read_in_place(
    volume: &Volume,
    range: ByteRange,
    scratch: &mut [u8],
    visit: &mut dyn FnMut(&[IoSlice<'_>]),
) -> Result<(), DeviceError> {
    if range.length > SHOWN_BYTES_MAX {
        return Err(DeviceError::new(DeviceErrorKind::TooLong, Action::Read, range));
    }
    let pinned = volume.map.pool.store.pin();
    volume.admit(&pinned, Action::Read, range)?;
    // The initialization of a long list takes longer than the lookup of a block.
    let is_short = range.length <= SHORT_BYTES_MAX;
    let shown = match is_short {
        true => show_pages::<SHORT_SLICES_MAX>(&volume.map, &pinned, (range, scratch), visit),
        false => show_pages::<SLICES_MAX>(&volume.map, &pinned, (range, scratch), visit),
    };
    if shown.is_ok() {
        return Ok(());
    }
    // Damaged or absent: must not be waited for while pinned.
    drop(pinned);
    let length = usize::try_from(range.length).expect("it is not too long");
    read_slowly(volume, range, &mut scratch[..length])?;
    visit(&[IoSlice::new(&scratch[..length])]);
    Ok(())
}

/// Visits the pages of a range. If a page cannot be read, `visit` is not called. The range lies in
/// at most `SLICES` blocks.
fn show_pages<const SLICES: usize>(
    map: &VolumeMap,
    pinned: &Pinned<'_>,
    (range, scratch): (ByteRange, &mut [u8]),
    visit: &mut dyn FnMut(&[IoSlice<'_>]),
) -> Result<(), DecodeError> {
    let mut slices = [IoSlice::new(&[]); SLICES];
    let mut count = 0;
    let mut cursor = EntryCursor::new(map);
    let mut blocks = scratch.as_chunks_mut::<BLOCK_BYTES>().0.iter_mut();
    for piece in pieces(range) {
        let entry = cursor.entry(pinned, piece.block);
        map.pool.store.prefetch_page(entry);
        let spare = blocks.next().expect("the scratch is as long as the range");
        let bytes = show_page(&map.pool, pinned, entry, spare)?;
        if entry.is_dense() {
            map.note_dense_read(piece.block);
        }
        slices[count] = IoSlice::new(&bytes[piece.start..piece.start + piece.length]);
        count += 1;
    }
    visit(&slices[..count]);
    Ok(())
}

/// Returns a page where it is stored, or decoded into `spare`.
fn show_page<'seen>(
    pool: &'seen Pool,
    pinned: &'seen Pinned<'_>,
    entry: PageRef,
    spare: &'seen mut Block,
) -> Result<&'seen Block, DecodeError> {
    match pool.store.page(pinned, entry)? {
        PageBytes::Fill(0) => Ok(&ZEROS),
        PageBytes::Fill(pattern) => {
            codec::write_fill(pattern, spare);
            Ok(spare)
        }
        PageBytes::Raw(bytes) => pool.verified(entry, bytes),
        PageBytes::Encoded(bytes) => {
            codec::decode(bytes, spare)?;
            pool.verified(entry, spare)
        }
        PageBytes::Dense(bytes) => {
            codec::decode_dense(bytes, spare)?;
            pool.verified(entry, spare)
        }
    }
}

/// Lists the extents of a range, at most `count_max`.
pub(super) fn list_extents(
    volume: &Volume,
    range: ByteRange,
    count_max: usize,
) -> Result<Vec<Extent>, DeviceError> {
    let mut extents = Runs::new(count_max);
    let mut at = range.start;
    let end = range.start.saturating_add(range.length);
    // At least once, because an empty range must be checked against the volume too.
    loop {
        let pinned = volume.map.pool.store.pin();
        volume.admit(&pinned, Action::ListExtents, range)?;
        if at >= end || extents.is_full() {
            break;
        }
        at = list_leaf(&volume.map, &pinned, at..end, &mut extents);
    }
    Ok(extents.into_list(|range, kind| Extent { range, kind }))
}

/// Adds the extents of `bytes` up to the end of the next leaf. Returns that position.
fn list_leaf(
    map: &VolumeMap,
    pinned: &Pinned<'_>,
    bytes: Range<u64>,
    extents: &mut Runs<ExtentKind>,
) -> u64 {
    let Range { start: at, end } = bytes;
    let block_bytes = BLOCK_BYTES as u64;
    let Some((leaf, node)) = map.next_leaf_node(pinned, at / LEAF_BYTES) else {
        extents.add(at, end, ExtentKind::Hole);
        return end;
    };
    let first = (leaf * LEAF_BYTES).clamp(at, end);
    let last = ((leaf + 1) * LEAF_BYTES).clamp(at, end);
    extents.add(at, first, ExtentKind::Hole);
    let mut from = first;
    while from < last {
        let block = from / block_bytes;
        let until = ((block + 1) * block_bytes).min(last);
        let entry = map.pool.store.entry(pinned, node, index_in_leaf(block));
        extents.add(from, until, extent_kind(entry));
        from = until;
    }
    last
}

fn extent_kind(entry: PageRef) -> ExtentKind {
    match entry.kind() {
        PageRefKind::Hole => ExtentKind::Hole,
        PageRefKind::Fill(0) => ExtentKind::Zero,
        PageRefKind::Fill(_)
        | PageRefKind::Page
        | PageRefKind::Absent(_)
        | PageRefKind::Damaged => ExtentKind::Data,
    }
}
