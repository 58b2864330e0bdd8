//! Deterministic pseudo-random numbers, for tests and for random-looking contents.
//!
//! The numbers are not suitable for secrets. The caller provides the seed.
#![forbid(unsafe_code)]

/// SplitMix64 generator (Steele, Lea and Flood, 2014): small, uniform, and the same on all
/// platforms.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    pub fn number(&mut self) -> u64 {
        let number = scramble(self.state);
        self.state = self.state.wrapping_add(STEP);
        number
    }

    /// Returns a number below `limit`, which must not be zero.
    pub fn below(&mut self, limit: u64) -> u64 {
        assert!(limit > 0, "no number is below zero");
        self.number() % limit
    }

    /// Returns an index below `limit`.
    pub fn index(&mut self, limit: usize) -> usize {
        usize::try_from(self.below(limit as u64)).expect("below an index")
    }

    /// Returns true with a probability of one in `count`.
    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    /// Returns one of the choices.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.index(choices.len())]
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.number().to_le_bytes()[..chunk.len()]);
        }
    }
}

const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// Mixes a number into one that depends on all of its bits: the first number of the sequence with
/// that seed.
pub fn scramble(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(STEP);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_the_published_one() {
        let mut random = Random::new(1_234_567);
        assert_eq!(random.number(), 6_457_827_717_110_365_317);
        assert_eq!(random.number(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn a_number_stays_below_its_limit() {
        let mut random = Random::new(1);
        assert!((0..1000).all(|_| random.below(3) < 3));
    }

    #[test]
    fn bytes_beside_whole_words_are_filled_too() {
        let mut bytes = [0; 11];
        Random::new(1).fill(&mut bytes);
        assert_ne!(bytes[8..], [0; 3]);
    }
}
