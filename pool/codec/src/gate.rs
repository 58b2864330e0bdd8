//! A cheap estimate of whether encoding can shrink a block.
//!
//! Random and encrypted data use all byte values evenly, unlike data that LZ4 can compress. Of four
//! sampled bytes in each 64-byte line, 256 in all, random data has 162 ± 5 distinct values, text
//! and code mostly fewer than 110. A block above the limit is stored uncompressed: a wrong estimate
//! costs memory, never correctness.

use crate::Block;

/// Number of distinct sampled values from which on a block counts as random: three standard
/// deviations below the mean of random data.
const DISTINCT_LIMIT: u32 = 147;

/// Returns whether the block should be encoded.
pub fn is_worth_encoding(block: &Block) -> bool {
    // Bytes, not bits: plain stores are cheaper than bits that must be read first.
    let mut seen = [0_u8; 256];
    let (lines, _) = block.as_chunks::<64>();
    for line in lines {
        for offset in [20, 21, 22, 23] {
            seen[usize::from(line[offset])] = 1;
        }
    }
    let distinct: u32 = seen.iter().map(|&is_seen| u32::from(is_seen)).sum();
    distinct < DISTINCT_LIMIT
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BLOCK_BYTES;

    /// Returns a block of a fixed pseudo-random sequence (xorshift64).
    fn random_block(mut state: u64) -> Block {
        let mut block = [0; BLOCK_BYTES];
        for bytes in block.as_chunks_mut::<8>().0 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *bytes = state.to_le_bytes();
        }
        block
    }

    #[test]
    fn random_blocks_are_turned_away() {
        let tried = (1..=1000).filter(|&seed| is_worth_encoding(&random_block(seed))).count();
        assert!(tried < 20, "{tried} of 1000 random blocks would be encoded");
    }

    #[test]
    fn text_passes() {
        let text = b"A volume is a thin array of blocks with a name. ".iter().cycle();
        let mut block = [0; BLOCK_BYTES];
        block.iter_mut().zip(text).for_each(|(byte, &letter)| *byte = letter);
        assert!(is_worth_encoding(&block));
    }
}
