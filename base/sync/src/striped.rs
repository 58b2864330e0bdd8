//! A sum that many threads add to without sharing a cache line.

#[cfg(not(loom))]
mod sum {
    use crate::Padded;
    use crate::atomic::{AtomicI64, Ordering};

    /// A signed sum, kept in as many parts as there are writers at a time.
    #[derive(Debug)]
    pub struct Striped {
        parts: Box<[Padded<AtomicI64>]>,
    }

    impl Striped {
        pub fn new(part_count: usize) -> Self {
            Self { parts: (0..part_count).map(|_| Padded::default()).collect() }
        }

        /// Adds to part `part`, which no other thread adds to meanwhile: a load and a store, no
        /// locked instruction. Two that do add to one part at a time may lose an amount.
        #[inline]
        pub fn add(&self, part: usize, amount: i64) {
            let part = &self.parts[part];
            // Relaxed: the parts are statistics; no other memory is published with them.
            part.store(part.load(Ordering::Relaxed) + amount, Ordering::Relaxed);
        }

        /// The sum now, zero at least: parts are read one after the other.
        pub fn sum(&self) -> u64 {
            let sum: i64 = self.parts.iter().map(|part| part.load(Ordering::Relaxed)).sum();
            u64::try_from(sum).unwrap_or(0)
        }
    }
}

#[cfg(not(loom))]
pub use sum::Striped;

/// Not explored by loom: the sum takes part in no protocol.
#[cfg(loom)]
#[derive(Debug)]
pub struct Striped;
