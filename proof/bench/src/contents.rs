//! What is written: blocks of a known kind, fresh each time.

use crate::clock::Random;

const BLOCK_BYTES: usize = 4096;

/// Blocks kept ready. Together they fit the second-level cache, as a request's buffer does that
/// was just received; a stamp makes each use of one different.
const READY_BLOCKS: usize = 64;

/// How the bytes of a block relate to each other and to other blocks.
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

/// A source of requests' contents.
pub(crate) struct Contents {
    data: Data,
    ready: Vec<u8>,
    request_bytes: usize,
    next: usize,
    stamp: u64,
}

impl Contents {
    /// For requests of `request_bytes`. Different seeds give different contents.
    pub(crate) fn new(data: Data, request_bytes: usize, seed: u64) -> Self {
        let blocks = READY_BLOCKS.max(request_bytes / BLOCK_BYTES * 2);
        let mut random = Random::new(seed);
        let mut ready = vec![0; blocks * BLOCK_BYTES];
        for (index, block) in ready.as_chunks_mut::<BLOCK_BYTES>().0.iter_mut().enumerate() {
            fill(block, kind_of(data, index), &mut random);
        }
        Self { data, ready, request_bytes, next: 0, stamp: seed << 40 }
    }

    /// The next request's contents: never seen before, unless duplicates or zeros are asked for.
    pub(crate) fn next(&mut self) -> &[u8] {
        if self.next + self.request_bytes > self.ready.len() {
            self.next = 0;
        }
        let range = self.next..self.next + self.request_bytes;
        let first = self.next / BLOCK_BYTES;
        self.next = range.end;
        let request = &mut self.ready[range];
        for (index, block) in request.as_chunks_mut::<BLOCK_BYTES>().0.iter_mut().enumerate() {
            if !matches!(kind_of(self.data, first + index), Data::Zero | Data::Duplicate) {
                self.stamp += 1;
                block[1024..1032].copy_from_slice(&self.stamp.to_le_bytes());
            }
        }
        request
    }
}

/// Mixed data: half random, a quarter compressible, an eighth each of duplicates and zeros.
fn kind_of(data: Data, index: usize) -> Data {
    match (data, index % 8) {
        (Data::Mixed, 0 | 2 | 4 | 6) => Data::Random,
        (Data::Mixed, 1 | 5) => Data::Compressible,
        (Data::Mixed, 3) => Data::Duplicate,
        (Data::Mixed, _) => Data::Zero,
        (data, _) => data,
    }
}

fn fill(block: &mut [u8; BLOCK_BYTES], kind: Data, random: &mut Random) {
    match kind {
        Data::Zero => block.fill(0),
        Data::Compressible => fill_with_rows(block, random),
        Data::Random | Data::Duplicate | Data::Mixed => {
            for bytes in block.as_chunks_mut::<8>().0 {
                *bytes = random.next().to_le_bytes();
            }
        }
    }
}

/// A database page of sorts: rows of a key, a number, a date and a name, half of it shrinking.
fn fill_with_rows(block: &mut [u8; BLOCK_BYTES], random: &mut Random) {
    const NAMES: [&str; 8] =
        ["amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heath"];
    let mut at = 0;
    while at < BLOCK_BYTES {
        let name = NAMES[usize::try_from(random.below(8)).expect("below eight")];
        let row = format!(
            "{:08x}|{:05}|2026-{:02}-{:02}|{name}-{:04}|active|",
            random.next() >> 32,
            random.below(100_000),
            1 + random.below(12),
            1 + random.below(28),
            random.below(10_000),
        );
        let length = row.len().min(BLOCK_BYTES - at);
        block[at..at + length].copy_from_slice(&row.as_bytes()[..length]);
        at += length;
    }
}
