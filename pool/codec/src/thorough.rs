//! The thorough encoder: it compares several candidates for each match, and drops a match for a
//! longer one that begins a byte later.
//!
//! First every position is linked to the previous one with the same four bytes, as far as a small
//! hash table knows it. Then matches are searched along these chains. A position without a previous
//! one is linked to itself.

use std::hint::select_unpredictable;

use crate::sequence::{
    MATCH_BYTES_MIN, MATCH_END_MAX, MATCH_START_MAX, Match, Output, TooLong, place_number,
    repeated_bytes, word,
};
use crate::{BLOCK_BYTES, Block};

const HEAD_BITS: u32 = 12;

/// Maximum number of candidates for a position.
const DEPTH: usize = 8;

/// Length from which on a match is taken without a search for a longer one.
const GOOD_LENGTH: usize = 32;

pub(crate) struct Chains {
    /// Last two positions of each hash, with different contents, the later one first.
    heads: Box<[[u16; 2]; 1 << HEAD_BITS]>,
    links: Box<[u16; BLOCK_BYTES]>,
}

impl Chains {
    pub(crate) fn new() -> Self {
        Self { heads: Box::new([[0; 2]; 1 << HEAD_BITS]), links: Box::new([0; BLOCK_BYTES]) }
    }

    fn link(&mut self, block: &Block) {
        self.heads.fill([0; 2]);
        for place in 0..=MATCH_START_MAX {
            let bytes = word(block, place);
            let number = place_number(place);
            let head = &mut self.heads[hash(bytes)];
            let [newer, older] = *head;
            let is_newer = word(block, usize::from(newer) % BLOCK_BYTES) == bytes;
            let is_older = word(block, usize::from(older) % BLOCK_BYTES) == bytes;
            let link = select_unpredictable(is_older, older, number);
            self.links[place] = select_unpredictable(is_newer, newer, link);
            *head = [number, select_unpredictable(is_newer, older, newer)];
        }
    }

    /// Returns the previous position with the same four bytes.
    #[inline]
    fn before(&self, place: usize) -> Option<usize> {
        let before = usize::from(self.links[place]);
        (before < place).then_some(before)
    }
}

pub(crate) fn encode(
    block: &Block,
    chains: &mut Chains,
    output: &mut Output,
) -> Result<(), TooLong> {
    chains.link(block);
    let mut place = 1;
    while place <= MATCH_START_MAX {
        if chains.before(place).is_none() {
            place += 1;
            continue;
        }
        let mut found = longest(block, chains, place, MATCH_BYTES_MIN - 1);
        let next = place + 1;
        if found.length < GOOD_LENGTH && next <= MATCH_START_MAX && chains.before(next).is_some() {
            let later = longest(block, chains, next, found.length);
            if later.length > found.length {
                found = later;
            }
        }
        let found = extend_back(block, output.encoded(), found);
        output.push(block, found)?;
        place = found.start + found.length;
    }
    Ok(())
}

/// Returns the longest match at `place` of more than `length` bytes. If there is none, the result
/// has that length and refers to itself.
#[inline]
fn longest(block: &Block, chains: &Chains, place: usize, length: usize) -> Match {
    let mut best = Match { start: place, from: place, length };
    let mut from = place;
    for _ in 0..DEPTH {
        let Some(before) = chains.before(from) else { break };
        from = before;
        if place + best.length >= MATCH_END_MAX {
            break;
        }
        // A longer match agrees in these four bytes, in which most others differ.
        let tail = best.length + 1 - MATCH_BYTES_MIN;
        if word(block, from + tail) == word(block, place + tail) {
            let length = repeated_bytes(block, from, place);
            if length > best.length {
                best = Match { start: place, from, length };
            }
        }
    }
    best
}

fn extend_back(block: &Block, begin: usize, found: Match) -> Match {
    let room = found.from.min(found.start - begin);
    let repeated = |back: &usize| block[found.from - back - 1] == block[found.start - back - 1];
    let back = (0..room).take_while(repeated).count();
    Match { start: found.start - back, from: found.from - back, length: found.length + back }
}

#[inline]
fn hash(bytes: u32) -> usize {
    let hash = bytes.wrapping_mul(0x9E37_79B1) >> (u32::BITS - HEAD_BITS);
    usize::try_from(hash).expect("12 bits")
}
