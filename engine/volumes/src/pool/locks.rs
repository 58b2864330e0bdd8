//! Block locks: they serialize writers of one block, and not writers of different blocks.
//!
//! A lock is in private memory. It is held for one exchange of a map word, or for the
//! read-modify-write of a block. The blocks of a leaf share a group of locks, so holding all of
//! them excludes every other thread from the leaf.

use std::collections::BTreeSet;

use sync::{Latch, LatchGuard, Padded};

use crate::blocks::leaf_of;

const GROUP_COUNT: u64 = 512;
const LOCKS_A_GROUP: u64 = 8;
const LEAF_LOCKS: usize = 8;

const _: () = assert!(LEAF_LOCKS as u64 == LOCKS_A_GROUP);

/// The block locks of one pool.
#[derive(Debug)]
pub(crate) struct BlockLocks {
    locks: Box<[Padded<Latch>]>,
}

/// Guard of one block lock, which a few other blocks may share.
pub(crate) type BlockGuard<'locks> = LatchGuard<'locks>;

/// Guard of all blocks of a leaf.
#[derive(Debug)]
pub(crate) struct LeafGuard<'locks> {
    _guards: [LatchGuard<'locks>; LEAF_LOCKS],
}

/// Guard of all blocks of leaves of several volumes.
#[derive(Debug)]
pub(crate) struct LeavesGuard<'locks> {
    _guards: Vec<LeafGuard<'locks>>,
}

/// Guard of all blocks of all volumes.
#[derive(Debug)]
pub(crate) struct AllGuard<'locks> {
    _guards: Box<[LatchGuard<'locks>]>,
}

impl BlockLocks {
    pub(crate) fn new() -> Self {
        Self { locks: (0..GROUP_COUNT * LOCKS_A_GROUP).map(|_| Padded::default()).collect() }
    }

    #[inline]
    pub(crate) fn lock_block(&self, volume_id: u64, block: u64) -> BlockGuard<'_> {
        self.latch_of(volume_id, block).lock()
    }

    /// Locks a block, unless another thread holds it or a block that shares its lock.
    pub(crate) fn try_lock_block(&self, volume_id: u64, block: u64) -> Option<BlockGuard<'_>> {
        self.latch_of(volume_id, block).try_lock()
    }

    pub(crate) fn lock_leaf(&self, volume_id: u64, leaf: u64) -> LeafGuard<'_> {
        self.lock_group(first_of_group(volume_id, leaf))
    }

    /// Locks the leaf of one number in each of some volumes.
    pub(crate) fn lock_leaf_of_all(
        &self,
        volume_ids: impl Iterator<Item = u64>,
        leaf: u64,
    ) -> LeavesGuard<'_> {
        // Each group once and in ascending order, like all threads that lock more than one.
        let groups: BTreeSet<u64> = volume_ids.map(|id| first_of_group(id, leaf)).collect();
        LeavesGuard { _guards: groups.into_iter().map(|first| self.lock_group(first)).collect() }
    }

    fn lock_group(&self, first: u64) -> LeafGuard<'_> {
        let mut next = first;
        // In ascending order: two threads that lock one group meet at its first lock.
        let guards = std::array::from_fn(|_| {
            next += 1;
            self.latch(next - 1).lock()
        });
        LeafGuard { _guards: guards }
    }

    /// Locks every block of every volume: for an instant, and only by a thread that waits for
    /// nothing meanwhile.
    pub(crate) fn lock_all(&self) -> AllGuard<'_> {
        AllGuard { _guards: self.locks.iter().map(|latch| latch.lock()).collect() }
    }

    fn latch_of(&self, volume_id: u64, block: u64) -> &Latch {
        self.latch(first_of_group(volume_id, leaf_of(block)) + block % LOCKS_A_GROUP)
    }

    fn latch(&self, index: u64) -> &Latch {
        &self.locks[usize::try_from(index).expect("the locks fit memory")]
    }
}

/// Returns the first lock of a leaf's group. Neighbouring leaves, and equal leaves of different
/// volumes, have different groups.
fn first_of_group(volume_id: u64, leaf: u64) -> u64 {
    let mixed = (volume_id << 32 ^ leaf).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 32) % GROUP_COUNT * LOCKS_A_GROUP
}
