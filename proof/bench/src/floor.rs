//! Bare memory: what a copy costs when nothing else is done.

use std::hint::black_box;

use region::Region;

use crate::clock::{Random, nanoseconds};
use crate::contents::Contents;

/// Random or sequential places of `block_bytes` in `size_bytes`.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    random: Option<Random>,
    next: u64,
    count: u64,
    block_bytes: u64,
}

impl Places {
    pub(crate) fn random(size_bytes: u64, block_bytes: usize, seed: u64) -> Self {
        let mut places = Self::sequential(size_bytes, block_bytes);
        places.random = Some(Random::new(seed));
        places
    }

    pub(crate) fn sequential(size_bytes: u64, block_bytes: usize) -> Self {
        let block_bytes = block_bytes as u64;
        Self { random: None, next: 0, count: size_bytes / block_bytes, block_bytes }
    }

    pub(crate) fn next(&mut self) -> u64 {
        let place = match &mut self.random {
            Some(random) => random.below(self.count),
            None => {
                self.next = (self.next + 1) % self.count;
                self.next
            }
        };
        place * self.block_bytes
    }
}

/// Copies from `memory` to a buffer in the cache: the floor of reads.
pub(crate) fn copy_out(
    memory: &mut Region,
    places: &mut Places,
    into: &mut [u8],
    count: u64,
) -> u64 {
    let bytes = memory.bytes_mut();
    nanoseconds(|| {
        for _ in 0..count {
            let at = usize::try_from(places.next()).expect("memory is addressable");
            into.copy_from_slice(&bytes[at..at + into.len()]);
            black_box(&mut *into);
        }
    })
}

/// Copies fresh contents from the cache to `memory`: the floor of writes.
pub(crate) fn copy_in(
    memory: &mut Region,
    places: &mut Places,
    contents: &mut Contents,
    count: u64,
) -> u64 {
    let bytes = memory.bytes_mut();
    nanoseconds(|| {
        for _ in 0..count {
            let from = contents.next();
            let at = usize::try_from(places.next()).expect("memory is addressable");
            bytes[at..at + from.len()].copy_from_slice(from);
        }
        black_box(&mut *bytes);
    })
}
