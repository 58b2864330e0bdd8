//! Stock of generated pages of every kind, from which unique blocks are derived.

use crate::clock::Random;

use super::page::{BLOCK_BYTES, Mark, Page};
use super::words::Vocabulary;
use super::{code, database, log, text};

/// Number of generated pages per kind. Together they fit into a second-level cache, like a buffer
/// just received.
const STOCK: usize = 32;

/// Kind of data imitated by a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Heap and B-tree pages in PostgreSQL's layout.
    Database,
    /// Prose of English-like words.
    Text,
    /// Sections of programs: machine code, unwind tables, relocations, strings.
    Code,
    /// One JSON object per line.
    Log,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::Database, Self::Text, Self::Code, Self::Log];

    fn index(self) -> usize {
        Self::ALL.iter().position(|&kind| kind == self).expect("every kind is listed")
    }
}

/// A generator of pages. The same seed gives the same pages in the same order.
pub(crate) struct Corpus {
    stock: [Vec<Page>; Kind::ALL.len()],
    served: u64,
}

impl Corpus {
    /// Generates the stock, which takes several milliseconds.
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0xC0_4B05);
        let words = Vocabulary::new(&mut random);
        let stock = Kind::ALL.map(|kind| {
            let mut pages = Vec::with_capacity(STOCK + 1);
            while pages.len() < STOCK {
                let number = pages.len();
                match kind {
                    Kind::Database => {
                        pages.extend(database::pages(number / 2, &words, &mut random));
                    }
                    Kind::Text => pages.push(text::page(&words, &mut random)),
                    Kind::Code => pages.push(code::page(number, &words, &mut random)),
                    Kind::Log => pages.push(log::page(&words, &mut random)),
                }
            }
            pages
        });
        Self { stock, served: 0 }
    }

    /// Fills `block` with the next page of a kind. Costs one copy. All blocks are unique, although
    /// the stock repeats after 32.
    pub(crate) fn fill(&mut self, kind: Kind, block: &mut [u8; BLOCK_BYTES]) {
        let stock = &self.stock[kind.index()];
        let turn = usize::try_from(self.served % stock.len() as u64).expect("below the stock");
        let page = &stock[turn];
        *block = page.bytes;
        self.served += 1;
        match page.mark {
            Mark::Binary(at) => block[at..at + 8].copy_from_slice(&self.served.to_le_bytes()),
            Mark::Letters(at) => write_letters(self.served, &mut block[at..at + 12]),
        }
    }
}

/// Writes a number in base 26, lowest digit first.
fn write_letters(mut number: u64, into: &mut [u8]) {
    for letter in into {
        *letter = b'a' + u8::try_from(number % 26).expect("below 26");
        number /= 26;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};

    use super::*;

    fn blocks(seed: u64, kind: Kind, count: usize) -> Vec<[u8; BLOCK_BYTES]> {
        let mut corpus = Corpus::new(seed);
        let mut block = [0; BLOCK_BYTES];
        let next = |_| {
            corpus.fill(kind, &mut block);
            block
        };
        (0..count).map(next).collect()
    }

    /// Returns the compression ratio of LZ4's block format at level 1, per block.
    fn ratio(kind: Kind) -> f64 {
        let mut table = CompressTable::small();
        let mut output = vec![0; get_maximum_output_size(BLOCK_BYTES)];
        let mut lengths = 0;
        let seeds = 1..=8;
        let count = STOCK * seeds.clone().count();
        for block in seeds.flat_map(|seed| blocks(seed, kind, STOCK)) {
            lengths += compress_into_with_table(&block, &mut output, &mut table)
                .expect("the buffer is as long as the worst case");
        }
        (count * BLOCK_BYTES) as f64 / lengths as f64
    }

    #[track_caller]
    fn check_ratio(kind: Kind, expected: std::ops::RangeInclusive<f64>) {
        let ratio = ratio(kind);
        eprintln!("{kind:?}: LZ4 makes 4 KiB blocks {ratio:.2} times smaller");
        assert!(expected.contains(&ratio), "{kind:?}: {ratio:.2}");
    }

    /// For comparison, whole programs and libraries have about 1.7, and licence texts 1.6, measured
    /// the same way.
    #[test]
    fn pages_compress_as_the_data_does_that_they_imitate() {
        check_ratio(Kind::Database, 2.0..=3.0);
        check_ratio(Kind::Text, 1.6..=2.0);
        check_ratio(Kind::Code, 1.6..=2.2);
        check_ratio(Kind::Log, 2.5..=5.0);
    }

    #[test]
    fn no_two_blocks_are_equal() {
        for kind in Kind::ALL {
            let blocks = blocks(7, kind, 10 * STOCK);
            let different: HashSet<_> = blocks.iter().collect();
            assert_eq!(different.len(), blocks.len(), "{kind:?}");
        }
    }

    #[test]
    fn a_seed_gives_the_same_pages_again_and_another_seed_gives_others() {
        for kind in Kind::ALL {
            let first = blocks(7, kind, STOCK);
            assert!(first == blocks(7, kind, STOCK), "{kind:?}");
            let others: HashSet<_> = blocks(8, kind, STOCK).into_iter().collect();
            assert!(first.iter().all(|block| !others.contains(block)), "{kind:?}");
        }
    }
}
