//! Blocks that repeat one 32-bit pattern: zeros, erased flash, test patterns.

use crate::{BLOCK_BYTES, Block};

/// Returns the pattern that fills the block, if there is one. For almost every other block the
/// first line of 64 bytes decides.
pub fn fill_pattern(block: &Block) -> Option<u32> {
    let pattern: [u8; 4] = block[..4].try_into().expect("four bytes");
    let word = u64::from_ne_bytes([pattern, pattern].concat().try_into().expect("eight bytes"));
    let (lines, _) = block.as_chunks::<64>();
    lines.iter().all(|line| line_is_filled(line, word)).then(|| u32::from_ne_bytes(pattern))
}

/// Fills a block, or a part of one that begins at a multiple of four bytes, with `pattern`.
pub fn write_fill(pattern: u32, into: &mut [u8]) {
    debug_assert!(into.len() <= BLOCK_BYTES, "one block at a time");
    if pattern == 0 {
        into.fill(0);
        return;
    }
    for (byte, &of_pattern) in into.iter_mut().zip(pattern.to_ne_bytes().iter().cycle()) {
        *byte = of_pattern;
    }
}

fn line_is_filled(line: &[u8; 64], word: u64) -> bool {
    let (words, _) = line.as_chunks::<8>();
    let difference =
        words.iter().fold(0, |different, bytes| different | (u64::from_ne_bytes(*bytes) ^ word));
    difference == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_a_fill() {
        assert_eq!(fill_pattern(&[0; BLOCK_BYTES]), Some(0));
    }

    #[test]
    fn a_repeated_word_is_a_fill_and_is_written_back() {
        let mut block = [0; BLOCK_BYTES];
        write_fill(0x1234_5678, &mut block);
        assert_eq!(fill_pattern(&block), Some(0x1234_5678));
    }

    #[test]
    fn one_differing_byte_anywhere_is_no_fill() {
        for index in [0, 3, 4, 63, 64, 2048, 4095] {
            let mut block = [7; BLOCK_BYTES];
            block[index] = 8;
            assert_eq!(fill_pattern(&block), None, "byte {index}");
        }
    }
}
