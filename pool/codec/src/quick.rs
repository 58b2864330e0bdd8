//! The quick encoder: one guess for each place, and the first match is taken.
//!
//! A table holds the last place of each hash of five bytes, which matches of four bytes seldom
//! share: those save one byte each and cost as much time as long ones. The table is cleared for
//! each block. Telling places of earlier blocks by their distance, instead, was measured to take
//! longer than 16 KiB of zeros do.

use crate::Block;
use crate::sequence::{
    MATCH_BYTES_MIN, MATCH_START_MAX, Match, Output, REPEATED_BEFORE_MAX, TooLong, long_word,
    place_number, repeated_before, repeated_bytes, word,
};

const TABLE_BITS: u32 = 13;

/// After this many misses, by its binary logarithm, the search goes on in longer steps.
const MISSES_SHIFT: u32 = 6;

/// The last place of each hash; the block's begin where there was none.
pub(crate) struct Places(Box<[u16; 1 << TABLE_BITS]>);

impl Places {
    pub(crate) fn new() -> Self {
        Self(Box::new([0; 1 << TABLE_BITS]))
    }

    /// Notes that what is at `place` is there. Returns where it may have been before: a guess.
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
    // The first place is in the table already, for every hash.
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

/// The next match from `place` on.
#[inline]
fn find(
    block: &Block,
    places: &mut Places,
    mut place: usize,
    output: &Output,
) -> Result<Option<Match>, TooLong> {
    let begin = output.encoded();
    // A match that begins later can no longer make up for the literals before it.
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

/// The match around the four bytes at `place` that are also at `before`.
#[inline]
fn whole_match(block: &Block, begin: usize, before: usize, place: usize) -> Match {
    let beyond = MATCH_BYTES_MIN;
    let length = beyond + repeated_bytes(block, before + beyond, place + beyond);
    let back = repeated_before(block, before, place).min(place - begin);
    Match { start: place - back, from: before - back, length: length + back }
}

/// A hash of the word's first five bytes.
#[inline]
fn hash(word: u64) -> usize {
    let hash = (word << 24).wrapping_mul(0x9E37_79B1_85EB_CA87) >> (u64::BITS - TABLE_BITS);
    usize::try_from(hash).expect("13 bits")
}
