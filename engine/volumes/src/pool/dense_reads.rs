//! Blocks that readers found in the dense form, to be restored to a form that is read faster.
//!
//! A bounded list: if it is full, a later read notes the block.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Mutex;

use sync::atomic::{AtomicUsize, Ordering};

/// Maximum number of noted blocks. Readers of more idle data read it in the dense form.
const BLOCKS_MAX: usize = 4096;

/// Set of blocks, identified by the id of their map and their index.
#[derive(Debug, Default)]
pub(crate) struct DenseReads {
    noted: Mutex<Noted>,
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct Noted {
    blocks: BTreeSet<(u64, u64)>,
    /// Last block taken. The next one follows it, so that every block gets its turn.
    last: (u64, u64),
}

impl DenseReads {
    /// Notes a block, unless the list is locked or full.
    pub(crate) fn push(&self, map_id: u64, block: u64) {
        // The common case for readers of much idle data: a load keeps the cache line shared by all
        // readers.
        if self.count.load(Ordering::Relaxed) >= BLOCKS_MAX {
            return;
        }
        let Ok(mut noted) = self.noted.try_lock() else { return };
        if noted.blocks.len() < BLOCKS_MAX && noted.blocks.insert((map_id, block)) {
            self.count.store(noted.blocks.len(), Ordering::Relaxed);
        }
    }

    /// Returns whether any block is noted. Costs one load.
    pub(crate) fn has_any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Takes up to `count_max` blocks, starting after the last one taken.
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
