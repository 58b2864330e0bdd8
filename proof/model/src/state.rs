//! Blocks of a volume without locks, and the effects of requests on them.

use std::collections::BTreeMap;
use std::ops::Range;

use block_device::{BLOCK_BYTES, ByteRange, Extent, ExtentKind, Zeroes};

use crate::Block;

/// Blocks that were written and not discarded, by index.
#[derive(Clone, Debug, Default)]
pub(crate) struct Blocks {
    written: BTreeMap<u64, Box<Block>>,
}

impl Blocks {
    pub(crate) fn get(&self, block: u64) -> Option<&Block> {
        self.written.get(&block).map(|contents| &**contents)
    }

    pub(crate) fn set(&mut self, block: u64, contents: Option<Block>) {
        match contents {
            Some(contents) => self.written.insert(block, Box::new(contents)),
            None => self.written.remove(&block),
        };
    }

    pub(crate) fn count(&self) -> u64 {
        self.written.len() as u64
    }

    pub(crate) fn indices(&self) -> impl Iterator<Item = u64> {
        self.written.keys().copied()
    }

    /// Number of blocks filled with a pattern of four bytes.
    pub(crate) fn fill_count(&self) -> u64 {
        let is_fill = |block: &Block| block.chunks(4).all(|word| *word == block[..4]);
        self.written.values().filter(|block| is_fill(block)).count() as u64
    }

    pub(crate) fn read(&self, range: ByteRange, into: &mut [u8]) {
        let mut rest = into;
        for part in parts(range) {
            let (now, later) = rest.split_at_mut(part.length);
            match self.get(part.block) {
                Some(contents) => now.copy_from_slice(&contents[part.start..][..part.length]),
                None => now.fill(0),
            }
            rest = later;
        }
    }

    pub(crate) fn write(&mut self, offset: u64, from: &[u8]) {
        let mut rest = from;
        for part in parts(ByteRange::new(offset, from.len() as u64)) {
            let (now, later) = rest.split_at(part.length);
            self.materialize(part.block)[part.start..][..part.length].copy_from_slice(now);
            rest = later;
        }
    }

    pub(crate) fn write_zeroes(&mut self, range: ByteRange, zeroes: Zeroes) {
        if zeroes == Zeroes::Unmap {
            self.discard(range);
        }
        // Holes read as zeros already.
        for part in edges(range) {
            if let Some(contents) = self.written.get_mut(&part.block) {
                contents[part.start..][..part.length].fill(0);
            }
        }
        for (_, contents) in self.written.range_mut(whole_blocks(range)) {
            contents.fill(0);
        }
    }

    /// Removes the blocks that lie completely in the range.
    pub(crate) fn discard(&mut self, range: ByteRange) {
        let whole = whole_blocks(range);
        let mut after = self.written.split_off(&whole.start);
        self.written.append(&mut after.split_off(&whole.end));
    }

    pub(crate) fn extents(&self, range: ByteRange, count_max: usize) -> Vec<Extent> {
        let mut list: Vec<Extent> = Vec::new();
        let end = range.start + range.length;
        let mut at = range.start;
        while at < end {
            let block = at / BLOCK_BYTES as u64;
            let (kind, next_block) = match self.get(block) {
                Some(contents) if contents.iter().all(|&byte| byte == 0) => {
                    (ExtentKind::Zero, block + 1)
                }
                Some(_) => (ExtentKind::Data, block + 1),
                None => {
                    let next = self.written.range(block..).next();
                    (ExtentKind::Hole, next.map_or(u64::MAX, |(&next, _)| next))
                }
            };
            let until = next_block.saturating_mul(BLOCK_BYTES as u64).min(end);
            let is_full = list.len() == count_max;
            match list.last_mut() {
                Some(last) if last.kind == kind => last.range.length += until - at,
                _ if is_full => break,
                _ => list.push(Extent { range: ByteRange::new(at, until - at), kind }),
            }
            at = until;
        }
        list
    }

    fn materialize(&mut self, block: u64) -> &mut Block {
        self.written.entry(block).or_insert_with(|| Box::new([0; BLOCK_BYTES]))
    }
}

/// Returns the blocks that lie completely in a range.
fn whole_blocks(range: ByteRange) -> Range<u64> {
    let block_bytes = BLOCK_BYTES as u64;
    let first = range.start.div_ceil(block_bytes);
    let end = range.start.saturating_add(range.length) / block_bytes;
    first..end.max(first)
}

/// Part of one block that a range covers.
struct Part {
    block: u64,
    start: usize,
    length: usize,
}

fn parts(range: ByteRange) -> impl Iterator<Item = Part> {
    let end = range.start + range.length;
    let mut at = range.start;
    std::iter::from_fn(move || {
        let part = (at < end).then(|| part_at(at, end))?;
        at += part.length as u64;
        Some(part)
    })
}

/// Returns the partial blocks at both ends of a range.
fn edges(range: ByteRange) -> impl Iterator<Item = Part> {
    let end = range.start + range.length;
    let head = (range.length > 0).then(|| part_at(range.start, end));
    let last_start =
        (end.saturating_sub(1) / BLOCK_BYTES as u64 * BLOCK_BYTES as u64).max(range.start);
    let tail = (last_start > range.start).then(|| part_at(last_start, end));
    head.into_iter().chain(tail).filter(|part| part.length < BLOCK_BYTES)
}

fn part_at(at: u64, end: u64) -> Part {
    let block_bytes = BLOCK_BYTES as u64;
    let start = at % block_bytes;
    let length = (block_bytes - start).min(end - at);
    Part {
        block: at / block_bytes,
        start: usize::try_from(start).expect("below a block"),
        length: usize::try_from(length).expect("a block at most"),
    }
}
