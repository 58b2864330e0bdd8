//! Estimate of the memory of data in a pool: fill blocks, duplicates, compression and metadata.

use anyhow::Result;
use codec::{BLOCK_BYTES, Block, Encoder, fill_pattern, is_worth_encoding};
use page_store::{
    NODE_ENTRY_COUNT, encoding_bytes_max, index_footprint_bytes, node_footprint_bytes,
    page_footprint_bytes,
};
use serde::Serialize;
use twox_hash::XxHash3_64;

use super::distinct::{BYTES_A_FINGERPRINT, Distinct};

/// Result of the estimate. Sizes are in the pool unless stated otherwise.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Estimate {
    /// Bytes read, in whole blocks.
    pub(crate) data_bytes: u64,
    /// Total memory.
    pub(crate) used_bytes: u64,
    /// 95 % error bound of `used_bytes`. 0 without sampling.
    pub(crate) used_bytes_error: u64,
    /// Ratio of `data_bytes` to `used_bytes`.
    pub(crate) reduction: f64,
    /// Share of blocks that repeat one word.
    pub(crate) fill_share: f64,
    /// Share of blocks with contents seen before, excluding fill blocks.
    pub(crate) duplicate_share: f64,
    pub(crate) duplicate_share_error: f64,
    /// Ratio of the bytes of distinct blocks to the memory of their pages.
    pub(crate) compression: f64,
    pub(crate) page_bytes: u64,
    /// Leaves with anything but zeros, and their ancestors.
    pub(crate) map_bytes: u64,
    pub(crate) index_bytes: u64,
    /// Inverse of the share of distinct blocks that were encoded.
    pub(crate) one_in: f64,
}

/// Estimator that processes blocks in order.
pub(crate) struct Estimator {
    distinct: Distinct,
    encoder: Encoder,
    seed: u64,
    block_count: u64,
    fill_count: u64,
    leaf_count: u64,
    leaf_in_hand: Option<u64>,
}

impl Estimator {
    /// Creates an estimator with about this much memory, and fingerprints seeded by `seed`.
    pub(crate) fn new(memory_bytes: u64, seed: u64) -> Self {
        let limit = memory_bytes / BYTES_A_FINGERPRINT as u64;
        Self {
            distinct: Distinct::new(usize::try_from(limit).unwrap_or(usize::MAX)),
            encoder: Encoder::new(),
            seed,
            block_count: 0,
            fill_count: 0,
            leaf_count: 0,
            leaf_in_hand: None,
        }
    }

    /// Processes the next blocks. An incomplete last block is padded with zeros.
    pub(crate) fn note(&mut self, bytes: &[u8]) {
        let (blocks, rest) = bytes.as_chunks::<BLOCK_BYTES>();
        blocks.iter().for_each(|block| self.note_block(block));
        if !rest.is_empty() {
            let mut block = [0; BLOCK_BYTES];
            block[..rest.len()].copy_from_slice(rest);
            self.note_block(&block);
        }
    }

    fn note_block(&mut self, block: &Block) {
        let leaf = self.block_count / NODE_ENTRY_COUNT as u64;
        self.block_count += 1;
        let fill = fill_pattern(block);
        if fill != Some(0) && self.leaf_in_hand != Some(leaf) {
            self.leaf_in_hand = Some(leaf);
            self.leaf_count += 1;
        }
        if fill.is_some() {
            self.fill_count += 1;
            return;
        }
        let fingerprint = XxHash3_64::oneshot_with_seed(self.seed, block);
        let encoder = &mut self.encoder;
        self.distinct.note(fingerprint, || {
            let encoded = is_worth_encoding(block)
                .then(|| encoder.encode_thoroughly(block, encoding_bytes_max()).map(<[u8]>::len));
            page_footprint_bytes(encoded.flatten())
        });
    }

    pub(crate) fn finish(&self) -> Estimate {
        let (blocks, pages) = (self.distinct.blocks(), self.distinct.footprint());
        let all = (self.block_count as f64).max(1.0);
        let contents = (self.block_count - self.fill_count) as f64;
        // The number of distinct blocks cannot exceed the number of blocks.
        let distinct_count = blocks.value.min(contents);
        let map_bytes = node_count(self.leaf_count) as f64 * node_footprint_bytes();
        let index_bytes = index_footprint_bytes(whole(distinct_count));
        let used = pages.value + map_bytes + index_bytes as f64;
        let data_bytes = self.block_count * BLOCK_BYTES as u64;
        let ratio = |of: f64, to: f64| if to > 0.0 { of / to } else { 0.0 };
        Estimate {
            data_bytes,
            used_bytes: whole(used),
            used_bytes_error: whole(pages.error),
            reduction: ratio(data_bytes as f64, used),
            fill_share: self.fill_count as f64 / all,
            duplicate_share: (contents - distinct_count) / all,
            duplicate_share_error: blocks.error / all,
            compression: ratio(blocks.value * BLOCK_BYTES as f64, pages.value),
            page_bytes: whole(pages.value),
            map_bytes: whole(map_bytes),
            index_bytes,
            one_in: self.distinct.one_in(),
        }
    }
}

/// Returns the number of leaves and their ancestors.
fn node_count(leaf_count: u64) -> u64 {
    let (mut count, mut level) = (leaf_count, leaf_count);
    while level > 1 {
        level = level.div_ceil(NODE_ENTRY_COUNT as u64);
        count += level;
    }
    count
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "sizes are positive")]
fn whole(bytes: f64) -> u64 {
    bytes.round() as u64
}

/// Reads the whole source, and reports progress after each piece.
pub(crate) fn estimate(
    source: &mut super::source::Opened,
    (memory_bytes, seed): (u64, u64),
    mut progress: impl FnMut(u64) -> Result<()>,
) -> Result<Estimate> {
    let mut estimator = Estimator::new(memory_bytes, seed);
    let mut done_bytes = 0;
    while let Some(bytes) = source.next()? {
        estimator.note(bytes);
        done_bytes += bytes.len() as u64;
        progress(done_bytes)?;
    }
    Ok(estimator.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use system::Random;

    const ROOM: u64 = 64 << 20;

    fn random_blocks(count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count * BLOCK_BYTES];
        Random::new(3).fill(&mut bytes);
        bytes
    }

    fn estimate_of(bytes: &[u8]) -> Estimate {
        let mut estimator = Estimator::new(ROOM, 1);
        bytes.chunks(1 << 20).for_each(|piece| estimator.note(piece));
        estimator.finish()
    }

    #[test]
    fn random_data_takes_all_its_bytes_and_some_more() {
        let estimate = estimate_of(&random_blocks(2048));
        assert_eq!(estimate.data_bytes, 8 << 20);
        assert_eq!((estimate.fill_share, estimate.duplicate_share), (0.0, 0.0));
        assert!(estimate.used_bytes > estimate.data_bytes, "{estimate:?}");
        assert!(estimate.reduction > 0.95, "{estimate:?}");
    }

    #[test]
    fn zeros_take_nothing() {
        let estimate = estimate_of(&vec![0; 8 << 20]);
        assert_eq!((estimate.used_bytes, estimate.fill_share), (0, 1.0));
    }

    #[test]
    fn duplicates_are_stored_once() {
        let mut bytes = random_blocks(1024);
        bytes.extend_from_within(..);
        let estimate = estimate_of(&bytes);
        assert_eq!(estimate.duplicate_share, 0.5);
        assert!((1.9..2.0).contains(&estimate.reduction), "{estimate:?}");
    }

    #[test]
    fn a_rest_counts_as_a_block() {
        assert_eq!(estimate_of(&[1; 5]).data_bytes, BLOCK_BYTES as u64);
    }

    #[test]
    fn little_memory_makes_an_estimate_with_an_error_and_not_a_wrong_one() {
        let mut bytes = random_blocks(4096);
        bytes.extend_from_within(..8 << 20);
        let exact = estimate_of(&bytes);
        let mut estimator = Estimator::new(512 * BYTES_A_FINGERPRINT as u64, 1);
        estimator.note(&bytes);
        let sampled = estimator.finish();
        assert!(sampled.one_in > 1.0);
        let off = sampled.used_bytes.abs_diff(exact.used_bytes);
        assert!(off < 2 * sampled.used_bytes_error, "{exact:?} {sampled:?}");
    }
}
