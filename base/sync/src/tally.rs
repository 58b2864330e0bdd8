//! Sums that one thread adds to.

use crate::atomic::{AtomicU64, Ordering};

/// A number that one thread raises and others look at, as a statistic. It takes no locked
/// instruction; additions of several threads would be lost.
#[derive(Debug, Default)]
pub struct Tally(AtomicU64);

impl Tally {
    /// For the one thread that counts. Wraps around.
    pub fn add(&self, count: u64) {
        // Relaxed, and no atomic addition: no other thread writes.
        self.0.store(self.get().wrapping_add(count), Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
