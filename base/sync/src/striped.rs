//! A sum to which many threads add without sharing a cache line.

#[cfg(not(loom))]
mod sum {
    use crate::Padded;
    use crate::atomic::{AtomicI64, Ordering};

    /// A signed sum, with one part for each concurrent writer.
    #[derive(Debug)]
    pub struct Striped {
        parts: Box<[Padded<AtomicI64>]>,
    }

    impl Striped {
        pub fn new(part_count: usize) -> Self {
            Self { parts: (0..part_count).map(|_| Padded::default()).collect() }
        }

        /// Adds to part `part`, without an atomic read-modify-write. If two threads add to one part
        /// at the same time, an amount may be lost.
        #[inline]
        pub fn add(&self, part: usize, amount: i64) {
            let part = &self.parts[part];
            // Relaxed: the parts are statistics; no other memory is published with them.
            part.store(part.load(Ordering::Relaxed) + amount, Ordering::Relaxed);
        }

        /// Adds to part `part`, to which other threads may add by this function at the same time.
        pub fn add_shared(&self, part: usize, amount: i64) {
            self.parts[part].fetch_add(amount, Ordering::Relaxed);
        }

        /// Current sum, at least zero. The parts are read one after another.
        pub fn sum(&self) -> u64 {
            let sum: i64 = self.parts.iter().map(|part| part.load(Ordering::Relaxed)).sum();
            u64::try_from(sum).unwrap_or(0)
        }
    }
}

#[cfg(not(loom))]
pub use sum::Striped;

/// Not modelled by loom, because the sum is part of no protocol.
#[cfg(loom)]
#[derive(Debug)]
pub struct Striped;
