//! Distinct blocks in bounded memory.
//!
//! All blocks' fingerprints are kept while there is room. Then only those of a part of the space of
//! fingerprints, half of it, a quarter, and so on: a sample of the distinct blocks that does not
//! depend on how often each occurs, or when. What is summed over the sample stands for
//! `2^halvings` times as much.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};

/// Bytes that the table takes for each fingerprint when it has just grown.
pub(crate) const BYTES_A_FINGERPRINT: usize = 64;

/// How far a normal distribution's middle 95 % reach, in standard errors.
const REACH_OF_95_PERCENT: f64 = 1.96;

/// A sample of distinct blocks, with what each would take.
pub(crate) struct Distinct {
    /// What each would take as a page.
    seen: HashMap<u64, f32, BuildHasherDefault<Fingerprint>>,
    limit: usize,
    halvings: u32,
}

/// A sum over all distinct blocks, from the sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sum {
    pub(crate) value: f64,
    /// Error of the value, in 95 of 100 cases. 0 where everything was kept.
    pub(crate) error: f64,
}

impl Distinct {
    /// Keeps `limit` fingerprints at most.
    pub(crate) fn new(limit: usize) -> Self {
        Self { seen: HashMap::default(), limit: limit.max(1), halvings: 0 }
    }

    /// Takes note of a block. What it would take is asked for once, and only if it is kept.
    pub(crate) fn note(&mut self, fingerprint: u64, footprint_bytes: impl FnOnce() -> f64) {
        if !is_kept(fingerprint, self.halvings) {
            return;
        }
        if let Entry::Vacant(place) = self.seen.entry(fingerprint) {
            #[expect(clippy::cast_possible_truncation, reason = "some thousands, to a 24th bit")]
            place.insert(footprint_bytes() as f32);
        }
        while self.seen.len() > self.limit {
            self.halvings += 1;
            let halvings = self.halvings;
            self.seen.retain(|&fingerprint, _| is_kept(fingerprint, halvings));
        }
    }

    /// Distinct blocks.
    pub(crate) fn blocks(&self) -> Sum {
        self.sum(|_| 1.0)
    }

    /// Pages that all of them take.
    pub(crate) fn footprint(&self) -> Sum {
        self.sum(f64::from)
    }

    /// One in so many distinct blocks was kept.
    pub(crate) fn one_in(&self) -> f64 {
        2_f64.powi(i32::try_from(self.halvings).expect("at most 64"))
    }

    /// Each distinct block is in the sample with the same probability, whatever the others do.
    fn sum(&self, of: impl Fn(f32) -> f64) -> Sum {
        let one_in = self.one_in();
        let (mut sum, mut squares) = (0.0, 0.0);
        for value in self.seen.values().copied().map(of) {
            sum += value;
            squares += value * value;
        }
        let variance = squares * one_in * (one_in - 1.0);
        Sum { value: sum * one_in, error: REACH_OF_95_PERCENT * variance.sqrt() }
    }
}

/// The upper bits decide; the table takes the lower ones.
fn is_kept(fingerprint: u64, halvings: u32) -> bool {
    fingerprint.leading_zeros() >= halvings
}

/// Fingerprints are spread evenly already.
#[derive(Default)]
struct Fingerprint(u64);

impl Hasher for Fingerprint {
    fn finish(&self) -> u64 {
        // The table takes its tag from the upper bits, which a sample has in common.
        self.0.rotate_left(32)
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("fingerprints are written as one number");
    }

    fn write_u64(&mut self, fingerprint: u64) {
        self.0 = fingerprint;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use system::Random;

    /// `count` distinct blocks, of which each second occurs twice.
    fn noted(count: u64, limit: usize) -> Distinct {
        let mut distinct = Distinct::new(limit);
        let mut random = Random::new(7);
        for number in 0..count {
            let fingerprint = random.number();
            for _ in 0..=number % 2 {
                distinct.note(fingerprint, || 1000.0);
            }
        }
        distinct
    }

    #[test]
    fn what_fits_is_counted_exactly() {
        let distinct = noted(1000, 1000);
        assert_eq!(distinct.blocks(), Sum { value: 1000.0, error: 0.0 });
        assert_eq!(distinct.footprint(), Sum { value: 1e6, error: 0.0 });
    }

    #[test]
    fn a_sample_stays_within_its_limit_and_near_the_truth() {
        let distinct = noted(200_000, 4000);
        assert!(distinct.seen.len() <= 4000);
        let Sum { value, error } = distinct.blocks();
        // Three times the reach of 95 %: it does not happen, and the seed is fixed.
        assert!((value - 200_000.0).abs() < 3.0 * error, "{value} ± {error}");
        assert!(error < 10_000.0, "{error}");
    }

    #[test]
    fn a_block_that_is_not_kept_costs_no_encoding() {
        let mut distinct = Distinct::new(1);
        distinct.note(1, || 1.0);
        distinct.note(2, || 1.0);
        distinct.note(u64::MAX, || panic!("it was not asked for"));
    }
}
