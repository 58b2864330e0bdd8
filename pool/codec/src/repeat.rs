//! Copies inside a block, including overlapping ones that repeat a pattern.
//!
//! A pattern shorter than a word is repeated by a multiplication, because a copy would have to wait
//! for the bytes that the previous copy has just written.

use std::ops::Range;

use crate::Block;
use crate::sequence::long_word;

pub(crate) const WORD_BYTES: usize = 8;
pub(crate) const PIECE_BYTES: usize = 16;

/// Parameters for the repetition of a word's first bytes.
#[derive(Clone, Copy)]
struct Pattern {
    /// Number of bits by which a word is shifted left and right to clear the bytes past the
    /// pattern.
    shift: usize,
    /// Factor that repeats the pattern over the whole word.
    factor: u64,
    /// Distance between the written words: a multiple of the pattern's length.
    step: usize,
}

/// Parameters for patterns of each length. Those for length 0 are unused.
const PATTERNS: [Pattern; WORD_BYTES] = patterns();

const fn patterns() -> [Pattern; WORD_BYTES] {
    let mut patterns = [Pattern { shift: 0, factor: 0, step: 0 }; WORD_BYTES];
    let mut length = 1;
    while length < WORD_BYTES {
        let mut factor = 0;
        let mut byte = 0;
        while byte < WORD_BYTES {
            factor |= 1 << (8 * byte);
            byte += length;
        }
        let shift = 8 * (WORD_BYTES - length);
        patterns[length] = Pattern { shift, factor, step: WORD_BYTES / length * length };
        length += 1;
    }
    patterns
}

/// Copies two bytes. All of these functions read the bytes before they write them.
#[inline(always)]
pub(crate) fn copy_pair(block: &mut Block, from: usize, start: usize) {
    copy_chunk::<2>(block, from, start);
}

#[inline(always)]
pub(crate) fn copy_word(block: &mut Block, from: usize, start: usize) {
    copy_chunk::<WORD_BYTES>(block, from, start);
}

#[inline(always)]
pub(crate) fn copy_piece(block: &mut Block, from: usize, start: usize) {
    copy_chunk::<PIECE_BYTES>(block, from, start);
}

#[inline(always)]
fn copy_chunk<const BYTES: usize>(block: &mut Block, from: usize, start: usize) {
    let chunk: [u8; BYTES] = *block[from..].first_chunk().expect("the end is far away");
    block[start..start + BYTES].copy_from_slice(&chunk);
}

/// Repeats the last `offset` bytes before `start`, fewer than a word, for at least 18 and at most
/// 24 bytes. Returns `None` if there are no such bytes.
#[inline]
pub(crate) fn repeat_near(block: &mut Block, offset: usize, start: usize) -> Option<()> {
    let from = start.checked_sub(offset).filter(|&from| from < start)?;
    let Pattern { shift, factor, step } = PATTERNS[offset];
    let word = ((long_word(block, from) << shift) >> shift).wrapping_mul(factor).to_le_bytes();
    for at in [start, start + step, start + 2 * step] {
        block[at..at + WORD_BYTES].copy_from_slice(&word);
    }
    Some(())
}

/// Fills a range with repetitions of the last `offset` bytes before it. `offset` must be above zero
/// and at most the start of the range.
pub(crate) fn repeat(block: &mut Block, offset: usize, range: Range<usize>) {
    let from = range.start - offset;
    if offset == 1 {
        let byte = block[from];
        block[range].fill(byte);
        return;
    }
    // The length that can be copied doubles with each copy, and stays a multiple of the pattern.
    let mut at = range.start;
    while at < range.end {
        let count = (at - from).min(range.end - at);
        block.copy_within(from..from + count, at);
        at += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BLOCK_BYTES;

    fn numbered() -> Block {
        std::array::from_fn(|index| u8::try_from(index % 251).expect("below 251"))
    }

    fn check_repeated(block: &Block, offset: usize, range: Range<usize>) {
        for at in range {
            assert_eq!(block[at], block[at - offset], "byte {at}, offset {offset}");
        }
    }

    #[test]
    fn each_short_pattern_is_repeated_for_as_long_as_a_short_match() {
        for offset in 1..WORD_BYTES {
            let mut block = numbered();
            assert_eq!(repeat_near(&mut block, offset, 100), Some(()));
            check_repeated(&block, offset, 100..118);
            assert_eq!(block[..100], numbered()[..100]);
            assert_eq!(block[124..], numbered()[124..]);
        }
    }

    #[test]
    fn what_lies_before_the_block_is_not_repeated() {
        let mut block = numbered();
        assert_eq!(repeat_near(&mut block, 0, 100), None);
        assert_eq!(repeat_near(&mut block, 3, 2), None);
        assert!(block == numbered());
    }

    #[test]
    fn a_range_is_filled_to_its_end_and_no_further() {
        for offset in [1, 2, 7, 8, 15, 16, 100, 500] {
            for end in [501, 518, 700, BLOCK_BYTES] {
                let mut block = numbered();
                repeat(&mut block, offset, 500..end);
                check_repeated(&block, offset, 500..end);
                assert_eq!(block[end..], numbered()[end..]);
            }
        }
    }
}
