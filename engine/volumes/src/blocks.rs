//! Blocks, the leaves that map them, and the parts of blocks that requests cover.

use std::ops::Range;

use block_device::{Action, ByteRange, DeviceError, DeviceErrorKind, IO_BYTES_MAX};
use codec::BLOCK_BYTES;
use page_store::NODE_ENTRY_COUNT;

/// Number of bits of a block index that select an entry of one node.
pub(crate) const NODE_BITS: u32 = NODE_ENTRY_COUNT.trailing_zeros();

/// Number of blocks that one leaf maps.
pub(crate) const LEAF_BLOCKS: u64 = NODE_ENTRY_COUNT as u64;

/// Number of bytes that one leaf maps.
pub(crate) const LEAF_BYTES: u64 = LEAF_BLOCKS * BLOCK_BYTES as u64;

/// Returns the number of the leaf that maps `block`.
pub(crate) const fn leaf_of(block: u64) -> u64 {
    block >> NODE_BITS
}

/// Returns the index of the entry of `block` in its leaf.
pub(crate) fn index_in_leaf(block: u64) -> usize {
    usize::try_from(block % LEAF_BLOCKS).expect("a leaf fits memory")
}

/// Returns the number of leaves that a volume of this size can have.
pub(crate) fn leaves_in(size_bytes: u64) -> u64 {
    size_bytes.div_ceil(LEAF_BYTES)
}

/// Returns the byte range of one block.
pub(crate) fn block_range(block: u64) -> ByteRange {
    ByteRange::new(block * BLOCK_BYTES as u64, BLOCK_BYTES as u64)
}

/// Returns the blocks that lie completely in a range.
pub(crate) fn whole_blocks(range: ByteRange) -> Range<u64> {
    let block_bytes = BLOCK_BYTES as u64;
    let first = range.start.div_ceil(block_bytes);
    let end = range.start.saturating_add(range.length) / block_bytes;
    first..end.max(first)
}

/// Returns those of `blocks` that one leaf maps.
pub(crate) fn blocks_in_leaf(blocks: &Range<u64>, leaf: u64) -> Range<u64> {
    blocks.start.max(leaf * LEAF_BLOCKS)..blocks.end.min((leaf + 1) * LEAF_BLOCKS)
}

/// Part of a block that a request covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) block: u64,
    /// Offset of the part in the block.
    pub(crate) start: usize,
    pub(crate) length: usize,
}

impl Piece {
    pub(crate) fn is_whole(self) -> bool {
        self.length == BLOCK_BYTES
    }

    pub(crate) fn range(self) -> ByteRange {
        let start = self.block * BLOCK_BYTES as u64 + self.start as u64;
        ByteRange::new(start, self.length as u64)
    }
}

/// Returns the parts of blocks that a range covers, in order.
pub(crate) fn pieces(range: ByteRange) -> impl Iterator<Item = Piece> {
    // An end beyond `u64::MAX` fits no volume: the request is rejected before it uses any piece.
    let end = range.start.saturating_add(range.length);
    let mut at = range.start;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let block_bytes = BLOCK_BYTES as u64;
        let start = at % block_bytes;
        let length = (block_bytes - start).min(end - at);
        let piece = Piece {
            block: at / block_bytes,
            start: usize::try_from(start).expect("below a block"),
            length: usize::try_from(length).expect("a block at most"),
        };
        at += length;
        Some(piece)
    })
}

/// Returns the range of a request of `length` bytes. Fails if it overflows or exceeds the I/O
/// limit.
pub(crate) fn data_range(
    action: Action,
    start: u64,
    length: usize,
) -> Result<ByteRange, DeviceError> {
    let range = ByteRange::new(start, length as u64);
    if range.end().is_none() {
        return Err(DeviceError::new(DeviceErrorKind::OutOfRange, action, range));
    }
    if length > IO_BYTES_MAX {
        return Err(DeviceError::new(DeviceErrorKind::TooLong, action, range));
    }
    Ok(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(start: u64, length: u64, expected: &[(u64, usize, usize)]) {
        let found: Vec<_> = pieces(ByteRange::new(start, length))
            .map(|piece| (piece.block, piece.start, piece.length))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_range_is_cut_at_block_boundaries() {
        check(0, 8192, &[(0, 0, 4096), (1, 0, 4096)]);
        check(512, 512, &[(0, 512, 512)]);
        check(4095, 4098, &[(0, 4095, 1), (1, 0, 4096), (2, 0, 1)]);
        check(7, 0, &[]);
    }
}
