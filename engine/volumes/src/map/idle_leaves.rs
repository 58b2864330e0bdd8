//! Leaves of a map that were not used recently.
//!
//! Time is divided into periods. Each use of a leaf that is not in the leaf cache sets the leaf's
//! bit there, and each period begins with an empty cache. Therefore the first use of a leaf in a
//! period is recorded, and later uses cost nothing. A leaf is idle if it was used neither in the
//! previous period nor in the current one.

use crate::map::leaf_bits::{LeafBits, LeafSet};
use crate::map::leaf_cache::LeafCache;

/// Known uses of the leaves of one map.
#[derive(Debug)]
pub(crate) struct IdleLeaves {
    /// Leaves used in the previous period.
    recent: LeafBits,
    /// Leaves processed since their last use.
    settled: LeafBits,
}

impl IdleLeaves {
    pub(crate) fn new() -> Self {
        Self { recent: LeafBits::new(), settled: LeafBits::new() }
    }

    /// Begins a period. `used` are the leaves used in the previous one.
    pub(crate) fn begin_period(&self, used: &[u64]) {
        self.recent.set_words(used);
        self.settled.clear_words(used);
    }

    /// Returns whether a leaf is idle.
    pub(crate) fn is_idle(&self, cache: &LeafCache, leaf: u64) -> bool {
        !self.recent.has(leaf) && !cache.used().has(leaf)
    }

    /// Returns the idle leaves that have not been processed.
    pub(crate) fn waiting(&self, cache: &LeafCache, leaf_count: u64) -> LeafSet {
        LeafSet::outside_of(&[&self.recent, &self.settled, cache.used()], leaf_count)
    }

    /// Marks all leaves as unprocessed, because pages that could not be compressed may be
    /// compressible now.
    pub(crate) fn look_again(&self) {
        self.settled.take_words();
    }

    /// Marks these leaves as processed until they are used.
    pub(crate) fn settle(&self, leaves: &LeafSet) {
        self.settled.put_back(leaves);
    }
}
