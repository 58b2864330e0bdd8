//! The quick encoder: one candidate for each position, and the first match is taken.
//!
//! A table holds the last position of each hash of five bytes. Matches of only four bytes seldom
//! share that hash: they save one byte each and cost as much time as long ones. The table is
//! cleared for each block. Recognizing positions of earlier blocks by their distance, instead, was
//! measured to take longer than zeroing 16 KiB.

use crate::Block;
use crate::sequence::{
    MATCH_BYTES_MIN, MATCH_START_MAX, Match, Output, REPEATED_BEFORE_MAX, TooLong, long_word,
    place_number, repeated_before, repeated_bytes, word,
};

const TABLE_BITS: u32 = 13;

/// Binary logarithm of the number of misses after which the search step grows.
const MISSES_SHIFT: u32 = 6;

/// Last position of each hash, or the start of the block if there is none.
pub(crate) struct Places(Box<[u16; 1 << TABLE_BITS]>);

impl Places {
    pub(crate) fn new() -> Self {
        Self(Box::new([0; 1 << TABLE_BITS]))
    }

    /// Records a position in the table. Returns the previous position of its hash, as a candidate.
    #[inline]
    fn exchange(&mut self, block: &Block, place: usize) -> usize {
        let entry = &mut self.0[hash(long_word(block, place))];
        usize::from(std::mem::replace(entry, place_number(place)))
    }
}

pub(crate) fn encode(
    block: &Block,
    places: &mut Places,
    output: &mut Output,
) -> Result<(), TooLong> {
    places.0.fill(0);
    // Position 0 is in the table already, for every hash.
    let mut place = 1;
    while let Some(found) = find(block, places, place, output)? {
        output.push(block, found)?;
        place = found.start + found.length;
        if place > MATCH_START_MAX {
            break;
        }
        places.exchange(block, place - 2);
    }
    Ok(())
}

/// Returns the next match from `place` on.
#[inline]
fn find(
    block: &Block,
    places: &mut Places,
    mut place: usize,
    output: &Output,
) -> Result<Option<Match>, TooLong> {
    let begin = output.encoded();
    // A match that begins later cannot compensate for the literals before it.
    let hopeless = begin + output.literal_count_max() + REPEATED_BEFORE_MAX;
    let end = hopeless.min(MATCH_START_MAX);
    let mut misses = 1 << MISSES_SHIFT;
    while place <= end {
        let before = places.exchange(block, place);
        if word(block, before) == word(block, place) {
            return Ok(Some(whole_match(block, begin, before, place)));
        }
        place += misses >> MISSES_SHIFT;
        misses += 1;
    }
    if place <= MATCH_START_MAX { Err(TooLong) } else { Ok(None) }
}

/// Returns the match around the four bytes at `place` that also occur at `before`.
#[inline]
fn whole_match(block: &Block, begin: usize, before: usize, place: usize) -> Match {
    let beyond = MATCH_BYTES_MIN;
    let length = beyond + repeated_bytes(block, before + beyond, place + beyond);
    let back = repeated_before(block, before, place).min(place - begin);
    Match { start: place - back, from: before - back, length: length + back }
}

/// Hashes the word's first five bytes.
#[inline]
fn hash(word: u64) -> usize {
    let hash = (word << 24).wrapping_mul(0x9E37_79B1_85EB_CA87) >> (u64::BITS - TABLE_BITS);
    usize::try_from(hash).expect("13 bits")
}
