//! State that all maps of one pool share.

use std::sync::{Mutex, MutexGuard};

use codec::Block;
use page_store::{DecodeError, PageRef, PageStore};
use sync::Pinned;
use sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::pool::dense_reads::DenseReads;
use crate::pool::frozen::FrozenCopies;
use crate::pool::leak_check::LeakCheck;
use crate::pool::level::PoolLevel;
use crate::pool::locks::BlockLocks;
use crate::spec::place_of;

/// While less than this share of the pool is free, writers compress before they store, and until
/// the pool is noted to be less full.
const SHORT_OF_MEMORY_SHARE: u64 = 10;

/// Nodes taken apart at a time, of those that no map names any more, and how often.
const NODES_A_TURN: usize = 256;
const TURNS_MAX: usize = 1 << 16;

/// Trees that wait to be taken apart before a thread that deletes one helps with it.
const DEFERRED_MAX: usize = 4096;

/// Pages and their locks, the search for leaks, and how full it all is.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) store: PageStore,
    pub(crate) locks: BlockLocks,
    pub(crate) leaks: LeakCheck,
    pub(crate) frozen: FrozenCopies,
    pub(crate) dense_reads: DenseReads,
    /// How full the pool was of late, as its place among all levels.
    level: AtomicU8,
    /// Held while contents move to other pages in leaves that volumes may share.
    moves: Mutex<()>,
    verifies_reads: AtomicBool,
}

impl Pool {
    pub(crate) fn new(store: PageStore, leaks: LeakCheck) -> Self {
        Self {
            store,
            locks: BlockLocks::new(),
            leaks,
            frozen: FrozenCopies::default(),
            dense_reads: DenseReads::default(),
            level: AtomicU8::new(0),
            moves: Mutex::new(()),
            verifies_reads: AtomicBool::new(false),
        }
    }

    /// Returns whether so little is free that what can shrink must not be stored as it is.
    #[inline]
    pub(crate) fn is_short_of_memory(&self) -> bool {
        let size_bytes = self.store.size_bytes();
        self.store.unclaimed_bytes_soon() < size_bytes / SHORT_OF_MEMORY_SHARE
            || self.level() >= PoolLevel::Short
    }

    fn level(&self) -> PoolLevel {
        PoolLevel::ALL[usize::from(self.level.load(Ordering::Relaxed))]
    }

    /// Takes note of how full the pool is.
    pub(crate) fn note_level(&self, used_bytes: u64, size_bytes: u64) -> PoolLevel {
        let level = self.level().after(used_bytes, size_bytes);
        self.level.store(place_of(&PoolLevel::ALL, level), Ordering::Relaxed);
        level
    }

    /// Held while contents move to other pages, where other volumes may do the same in the same
    /// leaf.
    pub(crate) fn hold_moves(&self) -> MutexGuard<'_, ()> {
        self.moves.lock().expect("a panic while pages move ends the process")
    }

    pub(crate) fn set_verify_reads(&self, verifies: bool) {
        self.verifies_reads.store(verifies, Ordering::Relaxed);
    }

    /// Copies the contents that an entry names, read under this pin, and verifies them if that is
    /// the policy.
    #[inline]
    pub(crate) fn read_page(
        &self,
        pinned: &Pinned<'_>,
        entry: PageRef,
        into: &mut Block,
    ) -> Result<(), DecodeError> {
        self.store.read_page(pinned, entry, into)?;
        self.verified(entry, into).map(|_| ())
    }

    /// Contents that were read through an entry, verified if that is the policy.
    #[inline]
    pub(crate) fn verified<'read>(
        &self,
        entry: PageRef,
        contents: &'read Block,
    ) -> Result<&'read Block, DecodeError> {
        if self.verifies_reads.load(Ordering::Relaxed) {
            self.store.verify(entry, contents)?;
        }
        Ok(contents)
    }

    /// Takes apart some of the nodes that no map names any more, and collects what that frees.
    pub(crate) fn reclaim_some_deferred(&self) {
        self.store.reclaim_deferred(NODES_A_TURN);
        self.store.reclaim();
    }

    /// Helps with nodes that no map names any more, if too many trees wait to be taken apart.
    pub(crate) fn limit_deferred(&self) {
        while self.store.deferred_count() > DEFERRED_MAX {
            self.store.reclaim_deferred(NODES_A_TURN);
        }
    }

    /// Takes apart all nodes that no map names any more.
    pub(crate) fn reclaim_all_deferred(&self) {
        for _ in 0..TURNS_MAX {
            if self.store.deferred_count() == 0 {
                break;
            }
            self.store.reclaim_deferred(NODES_A_TURN);
            self.store.wait_for_readers();
        }
    }
}
