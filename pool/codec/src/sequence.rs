//! Encoder's view of LZ4's block format: sequences of literals and a match.
//!
//! ```text
//! token │ more of the literal count │ literals │ offset, 2 bytes │ more of the match length
//! ```
//!
//! The token's upper four bits are the count of literals, its lower four the match length less
//! four. A value of 15 is continued by bytes that are added to it, up to the first that is not 255.
//! The last sequence ends after its literals. Decoders rely on two rules: no match begins in the
//! block's last 12 bytes, and none reaches into its last 5.

use crate::{BLOCK_BYTES, Block};

/// Minimum length of a match.
pub(crate) const MATCH_BYTES_MIN: usize = 4;

/// Last position at which a match may begin.
pub(crate) const MATCH_START_MAX: usize = BLOCK_BYTES - 12;

/// Last position at which a match may end.
pub(crate) const MATCH_END_MAX: usize = BLOCK_BYTES - 5;

/// Smallest count of literals, or match length less four, that needs more than the token.
pub(crate) const TOKEN_LIMIT: usize = 15;

/// Maximum length of an encoding: a token, 4096 literals, 17 bytes for their count.
pub(crate) const ENCODED_BYTES_MAX: usize = BLOCK_BYTES + 1 + (BLOCK_BYTES - TOKEN_LIMIT) / 255 + 1;

/// Maximum length of a sequence without its literals: a token, an offset, two lengths.
const SEQUENCE_BYTES_MAX: usize = 3 + 2 * (BLOCK_BYTES / 255 + 1);

/// Size of the pieces in which literals are copied. Bytes past their end are overwritten later.
const PIECE_BYTES: usize = 16;

/// Limit on the backward extension of a match.
pub(crate) const REPEATED_BEFORE_MAX: usize = 8;

const OUTPUT_BYTES: usize = ENCODED_BYTES_MAX + SEQUENCE_BYTES_MAX + PIECE_BYTES;

/// Match: bytes from `start` on that repeat those from `from` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Match {
    pub(crate) start: usize,
    pub(crate) from: usize,
    pub(crate) length: usize,
}

/// Error of an encoding that would exceed the limit.
#[derive(Debug)]
pub(crate) struct TooLong;

/// An encoding under construction.
pub(crate) struct Output {
    bytes: Box<[u8; OUTPUT_BYTES]>,
    length: usize,
    length_max: usize,
    /// Number of encoded bytes of the block.
    encoded: usize,
}

impl Output {
    pub(crate) fn new() -> Self {
        Self { bytes: Box::new([0; OUTPUT_BYTES]), length: 0, length_max: 0, encoded: 0 }
    }

    /// Begins another encoding, of at most `length_max` bytes.
    pub(crate) fn begin(&mut self, length_max: usize) {
        self.length = 0;
        self.length_max = length_max.min(ENCODED_BYTES_MAX);
        self.encoded = 0;
    }

    /// Position in the block at which the next sequence begins.
    #[inline]
    pub(crate) fn encoded(&self) -> usize {
        self.encoded
    }

    /// Maximum number of literals after the last match, beyond which the encoding is too long.
    #[inline]
    pub(crate) fn literal_count_max(&self) -> usize {
        self.length_max - self.length
    }

    /// Appends the literals up to the match, and the match.
    #[inline]
    pub(crate) fn push(&mut self, block: &Block, found: Match) -> Result<(), TooLong> {
        let token = self.length;
        let literal_nibble = self.push_literals(block, found.start)?;
        let at = self.length;
        let offset = place_number(found.start - found.from);
        self.bytes[at..at + 2].copy_from_slice(&offset.to_le_bytes());
        self.length = at + 2;
        let length = found.length - MATCH_BYTES_MIN;
        let length_nibble = self.push_count(length);
        self.bytes[token] = literal_nibble << 4 | length_nibble;
        self.encoded = found.start + found.length;
        if self.length > self.length_max { Err(TooLong) } else { Ok(()) }
    }

    /// Appends the rest of the block as literals. Returns the encoding.
    pub(crate) fn finish(&mut self, block: &Block) -> Result<&[u8], TooLong> {
        let token = self.length;
        let literal_nibble = self.push_literals(block, BLOCK_BYTES)?;
        self.bytes[token] = literal_nibble << 4;
        if self.length > self.length_max { Err(TooLong) } else { Ok(&self.bytes[..self.length]) }
    }

    /// Reserves the token, and appends the literals up to `end`. Returns the nibble of their count.
    #[inline]
    fn push_literals(&mut self, block: &Block, end: usize) -> Result<u8, TooLong> {
        let start = self.encoded;
        let count = end - start;
        self.length += 1;
        if count < TOKEN_LIMIT && start <= BLOCK_BYTES - PIECE_BYTES {
            copy_piece(block, start, &mut self.bytes, self.length);
            self.length += count;
            return Ok(nibble(count));
        }
        if count > self.length_max - self.length.min(self.length_max) {
            return Err(TooLong);
        }
        let literal_nibble = self.push_count(count);
        self.bytes[self.length..self.length + count].copy_from_slice(&block[start..end]);
        self.length += count;
        Ok(literal_nibble)
    }

    /// Appends the part of `count` that does not fit the token. Returns the nibble for the token.
    #[inline]
    fn push_count(&mut self, count: usize) -> u8 {
        if count < TOKEN_LIMIT {
            return nibble(count);
        }
        let mut left = count - TOKEN_LIMIT;
        while left >= 255 {
            self.bytes[self.length] = 255;
            self.length += 1;
            left -= 255;
        }
        self.bytes[self.length] = u8::try_from(left).expect("less than 255 is left");
        self.length += 1;
        15
    }
}

/// Converts a position to the type of the encoders' tables.
#[inline]
pub(crate) fn place_number(place: usize) -> u16 {
    u16::try_from(place).expect("a block is short")
}

/// Returns the four bytes from `at` on.
#[inline]
pub(crate) fn word(block: &Block, at: usize) -> u32 {
    u32::from_le_bytes(*block[at..].first_chunk().expect("no match begins near the end"))
}

/// Number of bytes from `start` on that repeat those from `from` on, limited to the end of a valid
/// match. `from` is below `start`.
#[inline]
pub(crate) fn repeated_bytes(block: &Block, from: usize, start: usize) -> usize {
    let mut length = 0;
    while start + length + PIECE_BYTES <= BLOCK_BYTES {
        let low = long_word(block, from + length) ^ long_word(block, start + length);
        let high = long_word(block, from + length + 8) ^ long_word(block, start + length + 8);
        if low | high != 0 {
            let (of, skipped) = if low != 0 { (low, 0) } else { (high, 8) };
            length += skipped + of.trailing_zeros() as usize / 8;
            return length.min(MATCH_END_MAX - start);
        }
        length += PIECE_BYTES;
    }
    while start + length < MATCH_END_MAX && block[from + length] == block[start + length] {
        length += 1;
    }
    length.min(MATCH_END_MAX - start)
}

/// Number of bytes before `start` that repeat those before `from`, up to [`REPEATED_BEFORE_MAX`].
/// `from` is below `start`.
#[inline]
pub(crate) fn repeated_before(block: &Block, from: usize, start: usize) -> usize {
    let (Some(left), Some(right)) =
        (block[..from].last_chunk::<8>(), block[..start].last_chunk::<8>())
    else {
        return 0;
    };
    let difference = u64::from_le_bytes(*left) ^ u64::from_le_bytes(*right);
    difference.leading_zeros() as usize / 8
}

/// Returns the eight bytes from `at` on.
#[inline]
pub(crate) fn long_word(block: &Block, at: usize) -> u64 {
    u64::from_le_bytes(*block[at..].first_chunk().expect("eight bytes are left"))
}

#[inline]
fn copy_piece(block: &Block, from: usize, into: &mut [u8; OUTPUT_BYTES], at: usize) {
    into[at..at + PIECE_BYTES].copy_from_slice(&block[from..from + PIECE_BYTES]);
}

#[inline]
fn nibble(count: usize) -> u8 {
    u8::try_from(count & 15).expect("four bits")
}
