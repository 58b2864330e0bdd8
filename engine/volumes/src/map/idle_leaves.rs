//! Leaves of a map that nobody has used for a while.
//!
//! Time goes in periods. Each use of a leaf that is not in the leaf cache sets its bit there, and
//! each period begins with an empty cache: so the first use of a leaf in a period is noted, and
//! those that follow cost nothing. A leaf is idle that was used neither in the last period nor in
//! this one.

use crate::map::leaf_bits::{LeafBits, LeafSet};
use crate::map::leaf_cache::LeafCache;

/// Uses of the leaves of one map, as far as they are known.
#[derive(Debug)]
pub(crate) struct IdleLeaves {
    /// Used in the period before.
    recent: LeafBits,
    /// Dealt with since they were used last.
    settled: LeafBits,
}

impl IdleLeaves {
    pub(crate) fn new() -> Self {
        Self { recent: LeafBits::new(), settled: LeafBits::new() }
    }

    /// Begins a period, after one in which these leaves were used.
    pub(crate) fn begin_period(&self, used: &[u64]) {
        self.recent.set_words(used);
        self.settled.clear_words(used);
    }

    /// Returns whether a leaf is idle.
    pub(crate) fn is_idle(&self, cache: &LeafCache, leaf: u64) -> bool {
        !self.recent.has(leaf) && !cache.used().has(leaf)
    }

    /// The idle leaves that are not dealt with.
    pub(crate) fn waiting(&self, cache: &LeafCache, leaf_count: u64) -> LeafSet {
        LeafSet::outside_of(&[&self.recent, &self.settled, cache.used()], leaf_count)
    }

    /// No leaf is dealt with any more: what could not be made smaller may be by now.
    pub(crate) fn look_again(&self) {
        self.settled.take_words();
    }

    /// These leaves are dealt with, until they are used.
    pub(crate) fn settle(&self, leaves: &LeafSet) {
        self.settled.put_back(leaves);
    }
}
