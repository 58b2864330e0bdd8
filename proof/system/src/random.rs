//! Numbers that look random and come again from the same seed.

use std::fs::File;
use std::io::Read;

use anyhow::{Context, Result};

/// A stream of numbers: SplitMix64.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is not zero.
    pub fn below(&mut self, end: u64) -> u64 {
        assert!(end > 0, "there is no number below zero");
        self.next_u64() % end
    }

    /// Below `end`, for indices.
    pub fn index_below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).expect("an index fits 64 bits");
        usize::try_from(self.below(end)).expect("it is below an index")
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }
}

/// The seed in the environment variable `MEMLANE_SEED`, or a fresh one.
pub fn seed() -> Result<u64> {
    if let Ok(text) = std::env::var("MEMLANE_SEED") {
        return text.parse().with_context(|| format!("MEMLANE_SEED is no number: {text}"));
    }
    let mut bytes = [0; 4];
    File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .context("cannot draw a seed")?;
    Ok(u64::from(u32::from_le_bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let draw = |seed| {
            let mut random = Random::new(seed);
            [random.next_u64(), random.next_u64()]
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn a_number_stays_below_its_end() {
        let mut random = Random::new(1);
        assert!((0..1000).all(|_| random.below(3) < 3));
    }
}
