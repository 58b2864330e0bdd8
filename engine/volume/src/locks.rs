//! Locks that keep writers of one block apart, and let writers of different blocks pass.
//!
//! A lock is private memory and lasts for one exchange of a map word, or for the
//! read-modify-write of a block. The blocks of a leaf share a group of locks, so that taking all
//! of them keeps everybody out of the leaf.

use std::sync::{Mutex, MutexGuard};

use sync::Padded;

use crate::map::leaf_of;

const GROUP_COUNT: u64 = 512;
const LOCKS_A_GROUP: u64 = 8;
const LEAF_LOCKS: usize = 8;

const _: () = assert!(LEAF_LOCKS as u64 == LOCKS_A_GROUP);

/// The block locks of one pool.
#[derive(Debug)]
pub(crate) struct BlockLocks {
    locks: Box<[Padded<Mutex<()>>]>,
}

/// Holds one block, and at most the few that share its lock.
pub(crate) type BlockGuard<'locks> = MutexGuard<'locks, ()>;

/// Holds all blocks of a leaf.
#[derive(Debug)]
pub(crate) struct LeafGuard<'locks> {
    _guards: [MutexGuard<'locks, ()>; LEAF_LOCKS],
}

impl BlockLocks {
    pub(crate) fn new() -> Self {
        Self { locks: (0..GROUP_COUNT * LOCKS_A_GROUP).map(|_| Padded::default()).collect() }
    }

    pub(crate) fn lock_block(&self, volume_id: u64, block: u64) -> BlockGuard<'_> {
        self.lock(first_of_group(volume_id, leaf_of(block)) + block % LOCKS_A_GROUP)
    }

    pub(crate) fn lock_leaf(&self, volume_id: u64, leaf: u64) -> LeafGuard<'_> {
        let first = first_of_group(volume_id, leaf);
        let mut next = first;
        // From the first to the last: two that want one group meet at its first lock.
        let guards = std::array::from_fn(|_| {
            next += 1;
            self.lock(next - 1)
        });
        LeafGuard { _guards: guards }
    }

    fn lock(&self, index: u64) -> MutexGuard<'_, ()> {
        let index = usize::try_from(index).expect("the locks fit memory");
        self.locks[index].lock().expect("a panic with a block locked ends the process")
    }
}

/// Neighbouring leaves, and equal leaves of different volumes, have different groups.
fn first_of_group(volume_id: u64, leaf: u64) -> u64 {
    let mixed = (volume_id << 32 ^ leaf).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 32) % GROUP_COUNT * LOCKS_A_GROUP
}
