//! Number of distinct blocks, counted in bounded memory.
//!
//! All blocks' fingerprints are stored while they fit. Beyond that only those in half of the
//! fingerprint space are kept, then a quarter, and so on. The result is a sample of distinct blocks
//! that is independent of their frequency and order. Sums over the sample are multiplied by
//! `2^halvings`.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};

/// Memory of the table per fingerprint just after it has grown.
pub(crate) const BYTES_A_FINGERPRINT: usize = 64;

/// Half-width of a normal distribution's central 95 %, in standard errors.
const REACH_OF_95_PERCENT: f64 = 1.96;

/// A sample of distinct blocks with their sizes.
pub(crate) struct Distinct {
    /// Size of each block's page, by fingerprint.
    seen: HashMap<u64, f32, BuildHasherDefault<Fingerprint>>,
    limit: usize,
    halvings: u32,
}

/// A sum over all distinct blocks, estimated from the sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sum {
    pub(crate) value: f64,
    /// 95 % error bound of the value. 0 if everything was kept.
    pub(crate) error: f64,
}

impl Distinct {
    /// Creates a sample of at most `limit` fingerprints.
    pub(crate) fn new(limit: usize) -> Self {
        Self { seen: HashMap::default(), limit: limit.max(1), halvings: 0 }
    }

    /// Adds a block. Its size is computed only once, and only if it is kept.
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

    /// Returns the number of distinct blocks.
    pub(crate) fn blocks(&self) -> Sum {
        self.sum(|_| 1.0)
    }

    /// Returns the size of their pages.
    pub(crate) fn footprint(&self) -> Sum {
        self.sum(f64::from)
    }

    /// Returns the inverse of the sampling rate.
    pub(crate) fn one_in(&self) -> f64 {
        2_f64.powi(i32::try_from(self.halvings).expect("at most 64"))
    }

    /// Estimates a sum. All distinct blocks are sampled independently with the same probability.
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

/// Returns whether a fingerprint is in the sample. Uses the upper bits, because the table uses the
/// lower ones.
fn is_kept(fingerprint: u64, halvings: u32) -> bool {
    fingerprint.leading_zeros() >= halvings
}

/// Identity hash for fingerprints, which are already uniform.
#[derive(Default)]
struct Fingerprint(u64);

impl Hasher for Fingerprint {
    fn finish(&self) -> u64 {
        // The table takes its tag from the upper bits, which are equal within a sample.
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

    /// A sample of `count` distinct blocks, every second one of which occurs twice.
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
        // Three times the 95 % bound is practically never exceeded, and the seed is fixed.
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
