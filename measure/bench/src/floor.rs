//! Bare memory: the cost of a plain copy.

use std::hint::black_box;

use codec::{BLOCK_BYTES, Block, Encoder};

use crate::clock::{Random, nanoseconds};
use crate::contents::Contents;

/// Sequence of positions of `block_bytes` in a range.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    order: Order,
    next: u64,
    count: u64,
    block_bytes: u64,
}

#[derive(Clone, Debug)]
enum Order {
    Sequential,
    Random(Random),
    /// Permutation of all positions.
    Each {
        stride: u64,
    },
}

impl Places {
    pub(crate) fn random(size_bytes: u64, block_bytes: usize, seed: u64) -> Self {
        Self::new(Order::Random(Random::new(seed)), size_bytes, block_bytes)
    }

    pub(crate) fn sequential(size_bytes: u64, block_bytes: usize) -> Self {
        Self::new(Order::Sequential, size_bytes, block_bytes)
    }

    /// Creates a cache-unfriendly order that visits each position once per turn.
    pub(crate) fn each(size_bytes: u64, block_bytes: usize) -> Self {
        let mut places = Self::new(Order::Sequential, size_bytes, block_bytes);
        // Multiples of the golden ratio are spread evenly.
        let mut stride = (places.count * 618 / 1_000).max(1);
        while greatest_common_divisor(stride, places.count) != 1 {
            stride += 1;
        }
        places.order = Order::Each { stride };
        places
    }

    fn new(order: Order, size_bytes: u64, block_bytes: usize) -> Self {
        let block_bytes = block_bytes as u64;
        let count = size_bytes / block_bytes;
        assert!(count > 0, "the stretch holds a block at least");
        Self { order, next: 0, count, block_bytes }
    }

    pub(crate) fn next(&mut self) -> u64 {
        let place = match &mut self.order {
            Order::Random(random) => random.below(self.count),
            Order::Sequential => self.step(1),
            Order::Each { stride } => {
                let stride = *stride;
                self.step(stride)
            }
        };
        place * self.block_bytes
    }

    fn step(&mut self, stride: u64) -> u64 {
        self.next += stride;
        if self.next >= self.count {
            self.next -= self.count;
        }
        self.next
    }
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// Copies from `memory` to a cached buffer: the floor of reads.
pub(crate) fn copy_out(memory: &[u8], places: &mut Places, into: &mut [u8], count: u64) -> u64 {
    nanoseconds(|| {
        for _ in 0..count {
            let at = usize::try_from(places.next()).expect("memory is addressable");
            into.copy_from_slice(&memory[at..at + into.len()]);
            black_box(&mut *into);
        }
    })
}

/// Copies new contents from the cache to `memory`: the floor of writes.
pub(crate) fn copy_in(
    memory: &mut [u8],
    places: &mut Places,
    contents: &mut Contents,
    count: u64,
) -> u64 {
    nanoseconds(|| {
        for _ in 0..count {
            let from = contents.next();
            let at = usize::try_from(places.next()).expect("memory is addressable");
            memory[at..at + from.len()].copy_from_slice(from);
        }
        black_box(&mut *memory);
    })
}

/// Encoded pages for repeated decoding: the floor of reads of compressed data.
pub(crate) struct Encoded {
    pages: Vec<Vec<u8>>,
    next: usize,
    block: Block,
}

impl Encoded {
    /// Encodes the compressible pages. Returns `None` if there are none.
    pub(crate) fn new(pages: &[Block]) -> Option<Self> {
        let mut encoder = Encoder::new();
        let mut encode = |page: &Block| Some(encoder.encode(page, BLOCK_BYTES - 1)?.to_vec());
        let pages: Vec<_> = pages.iter().filter_map(&mut encode).collect();
        (!pages.is_empty()).then_some(Self { pages, next: 0, block: [0; BLOCK_BYTES] })
    }

    /// Copies like [`copy_out`], and decodes a page per 4 KiB.
    pub(crate) fn copy_out_and_decode(
        &mut self,
        memory: &[u8],
        places: &mut Places,
        into: &mut [u8],
        count: u64,
    ) -> u64 {
        nanoseconds(|| {
            for _ in 0..count {
                let at = usize::try_from(places.next()).expect("memory is addressable");
                into.copy_from_slice(&memory[at..at + into.len()]);
                black_box(&mut *into);
                for _ in 0..into.len() / BLOCK_BYTES {
                    self.next = (self.next + 1) % self.pages.len();
                    codec::decode(&self.pages[self.next], &mut self.block)
                        .expect("it was encoded here");
                    black_box(&mut self.block);
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_place_comes_once_in_a_turn() {
        for blocks in [1, 2, 7, 64, 1_000] {
            let mut places = Places::each(blocks * 4096, BLOCK_BYTES);
            let turn: HashSet<u64> = (0..blocks).map(|_| places.next()).collect();
            assert_eq!(turn.len() as u64, blocks);
            assert!(turn.iter().all(|at| at % 4096 == 0 && *at < blocks * 4096));
        }
    }
}
