//! Sums of the numbers of blocks over all volumes, so that reading one takes the same time for any
//! number of volumes.

use sync::Striped;

/// Numbers of blocks of all maps of one kind, with a part for each lane, and one that all threads
/// without a lane share.
#[derive(Debug)]
pub(crate) struct Totals {
    /// Blocks that were written and not discarded.
    pub(crate) written: Total,
    /// Part of `written`: blocks that a fill pattern describes.
    pub(crate) filled: Total,
    /// Blocks whose page is stored uncompressed until compression is tried.
    pub(crate) untried: Total,
    /// Blocks whose contents are in an image and not in memory yet.
    pub(crate) absent: Total,
    /// Blocks whose contents are lost.
    pub(crate) damaged: Total,
}

/// One of the sums.
#[derive(Debug)]
pub(crate) struct Total {
    parts: Striped,
    shared_part: usize,
}

impl Totals {
    pub(crate) fn new(lane_count: usize) -> Self {
        let new = || Total { parts: Striped::new(lane_count + 1), shared_part: lane_count };
        Self { written: new(), filled: new(), untried: new(), absent: new(), damaged: new() }
    }

    /// Number of blocks that refer to a page in memory.
    pub(crate) fn pages(&self) -> u64 {
        let others = [&self.filled, &self.absent, &self.damaged].map(Total::sum);
        self.written.sum().saturating_sub(others.iter().sum())
    }
}

impl Total {
    /// Adds to the part of a lane that the caller holds, or to the part without a lane.
    #[inline]
    pub(crate) fn add(&self, part: usize, amount: i64) {
        match part == self.shared_part {
            true => self.parts.add_shared(part, amount),
            false => self.parts.add(part, amount),
        }
    }

    pub(crate) fn sum(&self) -> u64 {
        self.parts.sum()
    }
}
