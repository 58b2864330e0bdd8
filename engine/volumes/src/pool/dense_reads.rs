//! Blocks that readers found in the dense form, to be brought back to a form that is read faster.
//!
//! A list of limited length: what does not fit is noted by a later read.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Mutex;

use sync::atomic::{AtomicUsize, Ordering};

/// The most blocks noted. A reader of much cold data goes on reading it as it is.
const BLOCKS_MAX: usize = 4096;

/// Blocks by the id of their map.
#[derive(Debug, Default)]
pub(crate) struct DenseReads {
    noted: Mutex<Noted>,
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct Noted {
    blocks: BTreeSet<(u64, u64)>,
    /// The block after which the next is taken: each gets its turn.
    last: (u64, u64),
}

impl DenseReads {
    /// Notes a block, unless another thread is at the list or it is full.
    pub(crate) fn push(&self, map_id: u64, block: u64) {
        // Most of the time of a reader of much cold data: a load leaves the line with all readers.
        if self.count.load(Ordering::Relaxed) >= BLOCKS_MAX {
            return;
        }
        let Ok(mut noted) = self.noted.try_lock() else { return };
        if noted.blocks.len() < BLOCKS_MAX && noted.blocks.insert((map_id, block)) {
            self.count.store(noted.blocks.len(), Ordering::Relaxed);
        }
    }

    /// Returns whether blocks are noted. Costs one load.
    pub(crate) fn has_any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Takes up to `count_max` blocks, those that follow what was taken last.
    pub(crate) fn take(&self, count_max: usize) -> Vec<(u64, u64)> {
        let mut noted = self.noted.lock().expect("nothing panics with the blocks locked");
        let mut taken = Vec::new();
        while taken.len() < count_max {
            let after = (Bound::Excluded(noted.last), Bound::Unbounded);
            let next = noted.blocks.range(after).next().or_else(|| noted.blocks.first());
            let Some(&next) = next else { break };
            noted.blocks.remove(&next);
            noted.last = next;
            taken.push(next);
        }
        self.count.store(noted.blocks.len(), Ordering::Relaxed);
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_blocks_that_fit_are_taken_once() {
        let reads = DenseReads::default();
        assert_eq!(reads.take(2), []);
        for block in 0..BLOCKS_MAX as u64 + 5 {
            reads.push(1, block);
        }
        assert_eq!(reads.take(2), [(1, 0), (1, 1)]);
        assert_eq!(reads.take(usize::MAX).len(), BLOCKS_MAX - 2);
        assert_eq!(reads.take(2), []);
    }

    #[test]
    fn a_block_that_is_read_often_is_noted_once_and_waits_for_its_turn() {
        let reads = DenseReads::default();
        for block in [7, 7, 8, 7] {
            reads.push(1, block);
        }
        assert_eq!(reads.take(1), [(1, 7)]);
        reads.push(1, 7);
        assert_eq!(reads.take(1), [(1, 8)]);
        assert_eq!(reads.take(2), [(1, 7)]);
        assert!(!reads.has_any());
    }
}
