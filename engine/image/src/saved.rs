//! Result of a save.

use std::time::Duration;

use crate::names::{ImageId, PackName};
use crate::watch::bytes_a_second;

/// Result of a save, with metrics.
#[derive(Clone, Debug)]
pub struct Saved {
    pub id: ImageId,
    /// Number of volumes and snapshots in the image.
    pub volume_count: u64,
    /// Bytes written to packs and the manifest.
    pub bytes_written: u64,
    pub chunks_new: u64,
    /// Chunks that were built but found in the store already.
    pub chunks_reused: u64,
    pub pages_written: u64,
    /// Blocks that refer to pages of earlier images, plus pages of chunks that were already in the
    /// store.
    pub pages_reused: u64,
    /// Blocks whose contents are lost. The image records them.
    pub lost_blocks: u64,
    pub took: Duration,
    /// Base images that were missing or damaged. Their volumes were saved in full.
    pub bases_missing: Vec<ImageId>,
    /// Packs that were missing when the save began, but that the image refers to for blocks found
    /// nowhere else. They may reappear.
    pub packs_missing: Vec<PackName>,
}

impl Saved {
    /// Creates an empty result.
    pub(crate) fn nothing(id: ImageId) -> Self {
        Self {
            id,
            volume_count: 0,
            bytes_written: 0,
            chunks_new: 0,
            chunks_reused: 0,
            pages_written: 0,
            pages_reused: 0,
            lost_blocks: 0,
            took: Duration::ZERO,
            bases_missing: Vec::new(),
            packs_missing: Vec::new(),
        }
    }

    /// Returns the mean rate of the whole save, in bytes written per second.
    pub fn bytes_a_second(&self) -> u64 {
        bytes_a_second(self.bytes_written, self.took)
    }
}
