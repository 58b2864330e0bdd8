//! Contents of writes: unique blocks of a given kind.

use crate::clock::Random;
use crate::corpus::{Corpus, Kind};

const BLOCK_BYTES: usize = block_device::BLOCK_BYTES;

/// Number of prepared blocks. They fit into the second-level cache, like a buffer just received. A
/// stamp makes each use unique.
const READY_BLOCKS: usize = 64;

/// Relation of a block's bytes to each other and to other blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Data {
    Random,
    Compressible,
    Duplicate,
    Zero,
    Mixed,
}

impl Data {
    pub(crate) const ALL: [Self; 5] =
        [Self::Random, Self::Compressible, Self::Duplicate, Self::Zero, Self::Mixed];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Compressible => "compressible",
            Self::Duplicate => "duplicate",
            Self::Zero => "zero",
            Self::Mixed => "mixed",
        }
    }
}

/// Default number of distinct contents of duplicates: 256 MiB, so that comparisons access main
/// memory.
const ORIGINALS: u64 = 65_536;

/// A generator of request contents.
pub(crate) struct Contents {
    data: Data,
    ready: Vec<u8>,
    request_bytes: usize,
    next: usize,
    stamp: u64,
    originals: u64,
    choice: Random,
}

impl Contents {
    /// Creates a generator for requests of `request_bytes`. Different seeds give different
    /// contents, except for duplicates: all generators repeat the same originals.
    pub(crate) fn new(data: Data, request_bytes: usize, seed: u64) -> Self {
        let blocks = READY_BLOCKS.max(request_bytes / BLOCK_BYTES * 2);
        let mut random = Random::new(seed);
        let mut corpus = Corpus::new(seed);
        let mut ready = vec![0; blocks * BLOCK_BYTES];
        for (index, block) in ready.as_chunks_mut::<BLOCK_BYTES>().0.iter_mut().enumerate() {
            match kind_of(data, index) {
                Data::Zero => block.fill(0),
                Data::Compressible => corpus.fill(KINDS[index % KINDS.len()], block),
                Data::Duplicate => fill_with_noise(block, &mut Random::new(original_seed(index))),
                Data::Random | Data::Mixed => fill_with_noise(block, &mut random),
            }
        }
        let choice = Random::new(!seed);
        Self {
            data,
            ready,
            request_bytes,
            next: 0,
            stamp: seed << 40,
            originals: ORIGINALS,
            choice,
        }
    }

    /// Sets the number of originals that duplicates repeat, a multiple of 64.
    pub(crate) fn with_originals(mut self, count: u64) -> Self {
        let ready = READY_BLOCKS as u64;
        assert!(count >= ready, "there are {ready} originals at least");
        assert!(count.is_multiple_of(ready), "originals come in sets of {ready}");
        self.originals = count;
        self
    }

    /// Returns the next request's contents. They are unique unless the kind is duplicates or zeros.
    /// A duplicate repeats one of the originals.
    pub(crate) fn next(&mut self) -> &[u8] {
        if self.next + self.request_bytes > self.ready.len() {
            self.next = 0;
        }
        let range = self.next..self.next + self.request_bytes;
        let first = self.next / BLOCK_BYTES;
        self.next = range.end;
        let request = &mut self.ready[range];
        for (index, block) in request.as_chunks_mut::<BLOCK_BYTES>().0.iter_mut().enumerate() {
            match kind_of(self.data, first + index) {
                Data::Zero => {}
                Data::Duplicate => {
                    let set = self.choice.below(self.originals / READY_BLOCKS as u64);
                    stamp(block, original(set, first + index));
                }
                Data::Random | Data::Compressible | Data::Mixed => {
                    self.stamp += 1;
                    stamp(block, self.stamp);
                }
            }
        }
        request
    }

    /// Passes the originals of duplicates to `store`, a set at a time, to be stored beforehand.
    pub(crate) fn each_original(
        &self,
        mut store: impl FnMut(&[u8]) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut blocks = vec![0; READY_BLOCKS * BLOCK_BYTES];
        let blocks_of = |bytes: &mut Vec<u8>, each: &mut dyn FnMut(usize, &mut Block)| {
            let blocks = bytes.as_chunks_mut::<BLOCK_BYTES>().0;
            blocks.iter_mut().enumerate().for_each(|(index, block)| each(index, block));
        };
        blocks_of(&mut blocks, &mut |index, block| {
            fill_with_noise(block, &mut Random::new(original_seed(index)));
        });
        for set in 0..self.originals / READY_BLOCKS as u64 {
            blocks_of(&mut blocks, &mut |index, block| stamp(block, original(set, index)));
            store(&blocks)?;
        }
        Ok(())
    }

    /// Returns the prepared blocks.
    pub(crate) fn ready_blocks(&self) -> &[Block] {
        self.ready.as_chunks::<BLOCK_BYTES>().0
    }
}

type Block = [u8; BLOCK_BYTES];

/// Kinds of compressible pages, in equal shares.
const KINDS: [Kind; 4] = Kind::ALL;

/// Makes a block unique by a number.
fn stamp(block: &mut Block, number: u64) {
    block[1024..1032].copy_from_slice(&number.to_le_bytes());
}

fn original(set: u64, index: usize) -> u64 {
    let ready = READY_BLOCKS as u64;
    set * ready + index as u64 % ready
}

fn original_seed(index: usize) -> u64 {
    0x0D15_EA5E + (index % READY_BLOCKS) as u64
}

/// Returns the kind of a block. Mixed data is half random, a quarter compressible, and an eighth
/// each of duplicates and zeros.
fn kind_of(data: Data, index: usize) -> Data {
    match (data, index % 8) {
        (Data::Mixed, 0 | 2 | 4 | 6) => Data::Random,
        (Data::Mixed, 1 | 5) => Data::Compressible,
        (Data::Mixed, 3) => Data::Duplicate,
        (Data::Mixed, _) => Data::Zero,
        (data, _) => data,
    }
}

fn fill_with_noise(block: &mut Block, random: &mut Random) {
    for bytes in block.as_chunks_mut::<8>().0 {
        *bytes = random.next().to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn draw(data: Data, seed: u64, count: usize) -> Vec<Vec<u8>> {
        let mut contents = Contents::new(data, BLOCK_BYTES, seed).with_originals(128);
        (0..count).map(|_| contents.next().to_vec()).collect()
    }

    #[test]
    fn fresh_contents_are_never_equal() {
        for data in [Data::Random, Data::Compressible] {
            let (first, second) = (draw(data, 1, 500), draw(data, 2, 500));
            let all: HashSet<_> = first.into_iter().chain(second).collect();
            assert_eq!(all.len(), 1_000, "{}", data.name());
        }
    }

    #[test]
    fn duplicates_repeat_the_originals_whatever_the_seed() {
        let source = Contents::new(Data::Duplicate, BLOCK_BYTES, 1).with_originals(128);
        let mut originals = HashSet::new();
        let keep = |set: &[u8]| {
            originals.extend(set.as_chunks::<BLOCK_BYTES>().0.iter().map(|it| it.to_vec()));
            Ok(())
        };
        source.each_original(keep).expect("nothing fails");
        assert_eq!(originals.len(), 128);
        let drawn: HashSet<_> = draw(Data::Duplicate, 1, 500)
            .into_iter()
            .chain(draw(Data::Duplicate, 9, 500))
            .collect();
        assert!(drawn.is_subset(&originals));
        assert!(drawn.len() > 100, "{}", drawn.len());
        let mixed: Vec<_> = draw(Data::Mixed, 3, 80);
        assert_eq!(mixed.iter().filter(|block| originals.contains(*block)).count(), 10);
    }
}
