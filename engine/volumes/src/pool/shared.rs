//! State that all maps of one pool share.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

use codec::Block;
use page_store::{DecodeError, PageRef, PageStore};
use sync::Pinned;
use sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::pool::dense_reads::DenseReads;
use crate::pool::frozen::FrozenCopies;
use crate::pool::leak_check::LeakCheck;
use crate::pool::level::PoolLevel;
use crate::pool::locks::BlockLocks;
use crate::pool::totals::Totals;
use crate::spec::place_of;

/// While less than a tenth of the pool is free, writers compress before they store. That ends when
/// the pool's recorded level falls.
const SHORT_OF_MEMORY_SHARE: u64 = 10;

/// Number of unreferenced nodes freed in one turn, and limit on the number of turns.
const NODES_A_TURN: usize = 256;
const TURNS_MAX: usize = 1 << 16;

/// Number of deferred trees beyond which a thread that deletes one helps to free them.
const DEFERRED_MAX: usize = 4096;

/// Pages and their locks, the leak check, and the fill level.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) store: PageStore,
    pub(crate) locks: BlockLocks,
    pub(crate) leaks: LeakCheck,
    pub(crate) frozen: FrozenCopies,
    pub(crate) dense_reads: DenseReads,
    /// Sums over the maps of volumes, and over those of snapshots.
    pub(crate) volume_totals: Arc<Totals>,
    pub(crate) snapshot_totals: Arc<Totals>,
    /// Root words of maps that may have pages to compress, since they were last taken.
    untried: Mutex<Vec<usize>>,
    /// Numbers of free records of the volume table, and possibly of others.
    free_records: Mutex<BTreeSet<usize>>,
    /// True while any map may share nodes with others.
    is_sharing: AtomicBool,
    /// Last recorded fill level, as its index among all levels.
    level: AtomicU8,
    /// Held while contents move to other pages in leaves that volumes may share.
    moves: Mutex<()>,
    verifies_reads: AtomicBool,
}

impl Pool {
    pub(crate) fn new(store: PageStore, leaks: LeakCheck) -> Self {
        let totals = || Arc::new(Totals::new(store.lane_count()));
        Self {
            volume_totals: totals(),
            snapshot_totals: totals(),
            untried: Mutex::default(),
            free_records: Mutex::default(),
            is_sharing: AtomicBool::new(false),
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

    /// Returns whether so little memory is free that compressible contents must not be stored
    /// uncompressed.
    #[inline]
    pub(crate) fn is_short_of_memory(&self) -> bool {
        let size_bytes = self.store.size_bytes();
        self.store.unclaimed_bytes_soon() < size_bytes / SHORT_OF_MEMORY_SHARE
            || self.level() >= PoolLevel::Short
    }

    /// Adds a map, by its root word, to those that may have pages to compress.
    pub(crate) fn note_untried(&self, root_word: usize) {
        self.lock_untried().push(root_word);
    }

    /// Takes the root words of all maps that may have pages to compress, in order. A word may be
    /// that of another map by now.
    pub(crate) fn take_untried(&self) -> BTreeSet<usize> {
        std::mem::take(&mut *self.lock_untried()).into_iter().collect()
    }

    fn lock_untried(&self) -> MutexGuard<'_, Vec<usize>> {
        self.untried.lock().expect("nothing panics with the list locked")
    }

    /// Locks the numbers of free records.
    pub(crate) fn lock_free_records(&self) -> MutexGuard<'_, BTreeSet<usize>> {
        self.free_records.lock().expect("nothing panics with the free records locked")
    }

    /// Returns whether any map may share nodes with others. Exact if the caller holds all block
    /// locks, otherwise a hint.
    pub(crate) fn is_sharing(&self) -> bool {
        self.is_sharing.load(Ordering::Relaxed)
    }

    /// Sets whether any map may share nodes. The caller holds all block locks, or loads the pool.
    pub(crate) fn set_sharing(&self, is_sharing: bool) {
        self.is_sharing.store(is_sharing, Ordering::Relaxed);
    }

    fn level(&self) -> PoolLevel {
        PoolLevel::ALL[usize::from(self.level.load(Ordering::Relaxed))]
    }

    /// Records the fill level of the pool.
    pub(crate) fn note_level(&self, used_bytes: u64, size_bytes: u64) -> PoolLevel {
        let level = self.level().after(used_bytes, size_bytes);
        self.level.store(place_of(&PoolLevel::ALL, level), Ordering::Relaxed);
        level
    }

    /// Locks moves of contents to other pages, where other volumes may move the same leaf.
    pub(crate) fn hold_moves(&self) -> MutexGuard<'_, ()> {
        self.moves.lock().expect("a panic while pages move ends the process")
    }

    pub(crate) fn set_verify_reads(&self, verifies: bool) {
        self.verifies_reads.store(verifies, Ordering::Relaxed);
    }

    /// Reads the contents of an entry that was read under this pin, and verifies them if the policy
    /// requires it.
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

    /// Verifies contents that were read through an entry, if the policy requires it.
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

    /// Frees some of the unreferenced nodes, and reclaims what that releases.
    pub(crate) fn reclaim_some_deferred(&self) {
        self.store.reclaim_deferred(NODES_A_TURN);
        self.store.reclaim();
    }

    /// Frees unreferenced nodes if too many deferred trees are waiting.
    pub(crate) fn limit_deferred(&self) {
        while self.store.deferred_count() > DEFERRED_MAX {
            self.store.reclaim_deferred(NODES_A_TURN);
        }
    }

    /// Frees all unreferenced nodes.
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
