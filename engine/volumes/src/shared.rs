//! What the volumes of one pool share.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock};

use block_device::{DeviceError, DeviceErrorKind};
use codec::Block;
use page_store::{DecodeError, PageRef, PageStore};
use sync::Pinned;
use sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::compress::{Compression, Progress};
use crate::evacuate::Evacuation;
use crate::frozen::FrozenCopies;
use crate::hooks::{
    FlushTarget, HookError, NotConnected, PageSource, SourceError, SourceErrorKind,
};
use crate::integrity::Integrity;
use crate::leak_check::LeakCheck;
use crate::level::PoolLevel;
use crate::locks::BlockLocks;
use crate::volume::Volume;

/// How often a request that finds no memory tries again after collecting what is on its way to be
/// freed.
const SPACE_TRIES_MAX: usize = 2;

/// How often one does so that overwrites something: what it finds others may take first.
const OVERWRITE_TRIES_MAX: usize = 64;

/// Nodes that such a request takes apart at a time, of those that nobody names any more.
const NODES_FOR_SPACE: usize = 256;

/// How often it does so and tries again.
const DROPS_MAX: usize = 1 << 16;

/// How often one tries that has claimed memory.
const CLAIMED_TRIES_MAX: usize = 4096;

/// How often it tries before it has frozen copies give way again, which others may have made.
const GIVING_WAY_TRIES: usize = 64;

/// How often it then compresses some pages and tries again.
const COMPRESSIONS_MAX: usize = 64;

/// While less than this share of the pool is free, writers compress before they store, and until
/// the pool is noted to be less full.
const SHORT_OF_MEMORY_SHARE: u64 = 10;

/// The pool, the block locks, and the search for leaks while it runs.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) store: PageStore,
    pub(crate) locks: BlockLocks,
    pub(crate) leak_check: LeakCheck,
    pub(crate) compression: Compression,
    /// How full the pool was of late, as its place among all levels.
    level: AtomicU8,
    /// Held while contents move to other pages in leaves that volumes may share.
    pub(crate) moves: Mutex<()>,
    /// The walk that empties slabs, if there is one.
    evacuation: Mutex<Option<Evacuation>>,
    /// The pool is being made smaller: other evacuations would work against it.
    pub(crate) is_shrinking: AtomicBool,
    is_closed: AtomicBool,
    pub(crate) frozen: FrozenCopies,
    /// Held by a request that collects memory for itself: what it finds is not for the next one
    /// that is short of it.
    shortage: Mutex<()>,
    pub(crate) integrity: Integrity,
    pub(crate) flush_target: OnceLock<Arc<dyn FlushTarget>>,
    /// Volumes of class `journal` take no changes.
    pub(crate) is_journal_failing: AtomicBool,
    pub(crate) page_source: RwLock<Option<Arc<dyn PageSource>>>,
}

impl Shared {
    pub(crate) fn new(store: PageStore, leak_check: LeakCheck) -> Self {
        Self {
            store,
            locks: BlockLocks::new(),
            leak_check,
            compression: Compression::new(),
            level: AtomicU8::new(0),
            moves: Mutex::new(()),
            evacuation: Mutex::default(),
            is_shrinking: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            frozen: FrozenCopies::default(),
            shortage: Mutex::new(()),
            integrity: Integrity::default(),
            flush_target: OnceLock::new(),
            is_journal_failing: AtomicBool::new(false),
            page_source: RwLock::new(None),
        }
    }

    /// The pool is left in order: nothing is to be stored any more, nor is a copy given up.
    pub(crate) fn note_closed(&self) {
        let _keep = self.frozen.keep();
        self.is_closed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// Whether so little is free that what can shrink must not be stored as it is.
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
        let place = PoolLevel::ALL.iter().position(|&known| known == level);
        let place = u8::try_from(place.expect("all levels are listed")).expect("there are few");
        self.level.store(place, Ordering::Relaxed);
        level
    }

    /// Has the journal make a volume's contents durable. Not to be called while pinned or with a
    /// lane.
    pub(crate) fn flush_durably(&self, volume: &Volume) -> Result<(), HookError> {
        match self.flush_target.get() {
            Some(target) => target.flush(volume),
            None => Err(Box::new(NotConnected { what: "journal" })),
        }
    }

    /// As [`Shared::flush_durably`], without its promise.
    pub(crate) fn write_back(&self, volume: &Volume) {
        if let Some(target) = self.flush_target.get() {
            target.write_back(volume);
        }
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
        if self.integrity.verifies_reads() {
            self.store.verify(entry, contents)?;
        }
        Ok(contents)
    }

    /// Where absent pages are.
    pub(crate) fn page_source(&self) -> Result<Arc<dyn PageSource>, SourceError> {
        let source = self.page_source.read().expect("nobody panics with the source locked");
        source.clone().ok_or_else(|| SourceError {
            kind: SourceErrorKind::Unreachable,
            source: Some(Box::new(NotConnected { what: "image" })),
        })
    }

    /// Makes an attempt that takes what was claimed for it, and more if it finds nothing: memory is
    /// there, though others may be about to give it back, or have to give way.
    pub(crate) fn find_claimed_space(
        &self,
        mut attempt: impl FnMut() -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let mut result = attempt();
        for turn in 0..CLAIMED_TRIES_MAX {
            if !is_short(&result) {
                break;
            }
            let _turn = self.hold_shortage();
            if turn % GIVING_WAY_TRIES == SPACE_TRIES_MAX {
                self.end_evacuation();
                self.make_frozen_give_way();
            }
            self.store.reclaim_deferred(NODES_FOR_SPACE);
            self.store.reclaim();
            result = attempt();
        }
        result
    }

    /// Makes an attempt, and a few more if it finds no memory; many if it is one to overwrite
    /// something, for which there is some. Not to be called while pinned or with a lane.
    pub(crate) fn find_space(
        &self,
        is_overwrite: impl Fn() -> bool,
        mut attempt: impl FnMut() -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let mut result = attempt();
        if !is_short(&result) {
            return result;
        }
        let _turn = self.hold_shortage();
        result = self.attempt_with_what_comes_back(result, &mut attempt);
        match is_short(&result) && is_overwrite() {
            true => self.attempt_undisturbed(is_overwrite, attempt),
            false => result,
        }
    }

    /// Makes attempts to overwrite something while housekeeping keeps no page, so that what a
    /// block has alone is known to be its own, and to come back. Others may take that first, but
    /// give as much back in turn.
    fn attempt_undisturbed(
        &self,
        is_overwrite: impl Fn() -> bool,
        mut attempt: impl FnMut() -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        self.make_frozen_give_way();
        self.reclaim_all_deferred();
        let mut evacuation = self.hold_evacuation();
        if let Some(evacuation) = evacuation.take() {
            evacuation.end(self);
        }
        let _compression = self.compression.hold();
        let mut result = attempt();
        for _ in 0..OVERWRITE_TRIES_MAX {
            if !is_short(&result) || !is_overwrite() {
                break;
            }
            self.store.reclaim_deferred(NODES_FOR_SPACE);
            self.store.reclaim();
            result = attempt();
        }
        result
    }

    /// Makes attempts with what is on its way to be free, can be made smaller, or gives way.
    fn attempt_with_what_comes_back(
        &self,
        mut result: Result<(), DeviceError>,
        attempt: &mut impl FnMut() -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        for _ in 0..SPACE_TRIES_MAX {
            self.store.reclaim();
            result = attempt();
            if !is_short(&result) {
                return result;
            }
        }
        result = self.attempt_while_deferred(result, attempt);
        for _ in 0..COMPRESSIONS_MAX {
            if !is_short(&result) || self.compression.shrink_some(self) != Progress::Made {
                break;
            }
            self.store.reclaim();
            result = attempt();
        }
        if is_short(&result) {
            self.make_frozen_give_way();
            result = self.attempt_while_deferred(result, attempt);
        }
        result
    }

    /// Takes nodes apart that nobody names any more, until an attempt finds memory or none are
    /// left.
    fn attempt_while_deferred(
        &self,
        mut result: Result<(), DeviceError>,
        attempt: &mut impl FnMut() -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        for _ in 0..DROPS_MAX {
            if !is_short(&result) || self.store.deferred_count() == 0 {
                break;
            }
            self.store.reclaim_deferred(NODES_FOR_SPACE);
            self.store.reclaim();
            result = attempt();
        }
        result
    }

    /// Nobody else collects memory for a request until the result is dropped.
    pub(crate) fn hold_shortage(&self) -> MutexGuard<'_, ()> {
        self.shortage.lock().expect("a panic in a request ends the process")
    }

    /// The walk that empties slabs. Nobody else looks at it until the result is dropped.
    pub(crate) fn hold_evacuation(&self) -> MutexGuard<'_, Option<Evacuation>> {
        self.evacuation.lock().expect("a panic in housekeeping ends the process")
    }

    /// Lets the slabs that are being emptied work on: who is short of memory needs their slots.
    pub(crate) fn end_evacuation(&self) {
        let evacuation = self.hold_evacuation().take();
        if let Some(evacuation) = evacuation {
            evacuation.end(self);
        }
    }

    /// Takes apart all nodes that nobody names any more.
    pub(crate) fn reclaim_all_deferred(&self) {
        for _ in 0..DROPS_MAX {
            if self.store.deferred_count() == 0 {
                break;
            }
            self.store.reclaim_deferred(NODES_FOR_SPACE);
            self.store.wait_for_readers();
        }
    }
}

fn is_short(result: &Result<(), DeviceError>) -> bool {
    result.as_ref().is_err_and(|error| error.kind == DeviceErrorKind::NoSpace)
}
