//! Blocks that readers found in the dense form, to be brought back to a form that is read faster.
//!
//! A list of limited length: what does not fit is noted by a later read.

use std::sync::{Mutex, MutexGuard};

use sync::atomic::{AtomicBool, Ordering};

/// The most blocks noted. A reader of much cold data goes on reading it as it is.
const BLOCKS_MAX: usize = 4096;

/// Blocks by the id of their map.
#[derive(Debug, Default)]
pub(crate) struct DenseReads {
    blocks: Mutex<Vec<(u64, u64)>>,
    has_any: AtomicBool,
}

impl DenseReads {
    /// Notes a block, unless another thread is at the list or it is full.
    pub(crate) fn push(&self, map_id: u64, block: u64) {
        let Ok(mut blocks) = self.blocks.try_lock() else { return };
        if blocks.len() < BLOCKS_MAX {
            blocks.push((map_id, block));
            self.has_any.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether blocks are noted. Costs one load.
    pub(crate) fn has_any(&self) -> bool {
        self.has_any.load(Ordering::Relaxed)
    }

    /// Takes up to `count_max` blocks, of those that were noted last.
    pub(crate) fn take(&self, count_max: usize) -> Vec<(u64, u64)> {
        let mut blocks = self.lock();
        let left = blocks.len().saturating_sub(count_max);
        let taken = blocks.split_off(left);
        self.has_any.store(left > 0, Ordering::Relaxed);
        taken
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(u64, u64)>> {
        self.blocks.lock().expect("nothing panics with the blocks locked")
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
        let last = BLOCKS_MAX as u64 - 1;
        assert_eq!(reads.take(2), [(1, last - 1), (1, last)]);
        assert_eq!(reads.take(usize::MAX).len(), BLOCKS_MAX - 2);
        assert_eq!(reads.take(2), []);
    }
}
