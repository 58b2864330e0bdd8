//! Time, as the measurements see it.

use std::time::Instant;

/// Nanoseconds that `work` takes.
pub(crate) fn nanoseconds(work: impl FnOnce()) -> u64 {
    let begun = Instant::now();
    work();
    u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Small pseudo-random numbers (xorshift64*), the same for the same seed.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        let product = u128::from(self.next()) * u128::from(limit);
        u64::try_from(product >> 64).expect("below the limit")
    }
}
