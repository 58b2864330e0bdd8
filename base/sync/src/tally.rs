//! Counters that one thread increments.

use crate::atomic::{AtomicU64, Ordering};

/// A statistic that one thread increments and others read. It uses no atomic read-modify-write, so
/// additions of several threads would be lost.
#[derive(Debug, Default)]
pub struct Tally(AtomicU64);

impl Tally {
    /// Adds to the counter. Must be called by only one thread. Wraps around.
    pub fn add(&self, count: u64) {
        // Relaxed and without an atomic addition, because no other thread writes.
        self.0.store(self.get().wrapping_add(count), Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
