//! What the volumes of one pool share.

use std::sync::{Arc, Mutex, OnceLock, RwLock, Weak};

use block_device::{DeviceError, DeviceErrorKind};
use codec::Block;
use page_store::{DecodeError, Entry, PageStore};
use sync::Pinned;
use sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::compress::{Compression, Progress};
use crate::hooks::{
    FlushTarget, HookError, NotConnected, PageSource, SourceError, SourceErrorKind,
};
use crate::integrity::Integrity;
use crate::level::PoolLevel;
use crate::locks::BlockLocks;
use crate::sweep::Sweep;
use crate::volume::Volume;

/// How often a request that finds no memory tries again after collecting what is on its way to be
/// freed.
const SPACE_TRIES_MAX: usize = 2;

/// Nodes that such a request takes apart at a time, of those that nobody names any more.
const NODES_FOR_SPACE: usize = 256;

/// How often it does so and tries again.
const DROPS_MAX: usize = 1 << 16;

/// How often one tries that has claimed memory.
const CLAIMED_TRIES_MAX: usize = 4096;

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
    pub(crate) sweep: Sweep,
    pub(crate) compression: Compression,
    /// How full the pool was of late, as its place among all levels.
    level: AtomicU8,
    /// Held while contents move to other pages in leaves that volumes may share.
    pub(crate) moves: Mutex<()>,
    /// The pool is being made smaller: other evacuations would work against it.
    pub(crate) is_shrinking: AtomicBool,
    is_closed: AtomicBool,
    /// Frozen copies, some of which are gone.
    frozen: Mutex<Vec<Weak<Volume>>>,
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
    pub(crate) fn new(store: PageStore, sweep: Sweep) -> Self {
        Self {
            store,
            locks: BlockLocks::new(),
            sweep,
            compression: Compression::new(),
            level: AtomicU8::new(0),
            moves: Mutex::new(()),
            is_shrinking: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            frozen: Mutex::default(),
            shortage: Mutex::new(()),
            integrity: Integrity::default(),
            flush_target: OnceLock::new(),
            is_journal_failing: AtomicBool::new(false),
            page_source: RwLock::new(None),
        }
    }

    /// The frozen copies that there are.
    pub(crate) fn frozen(&self) -> Vec<Arc<Volume>> {
        let frozen = self.frozen.lock().expect("nobody panics with the list locked");
        frozen.iter().filter_map(Weak::upgrade).filter(|volume| !volume.is_gone()).collect()
    }

    pub(crate) fn add_frozen(&self, volume: &Arc<Volume>) {
        let mut frozen = self.frozen.lock().expect("nobody panics with the list locked");
        frozen.retain(|volume| volume.strong_count() > 0);
        frozen.push(Arc::downgrade(volume));
    }

    /// The pool is left in order: nothing is to be stored any more.
    pub(crate) fn note_closed(&self) {
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
        entry: Entry,
        into: &mut Block,
    ) -> Result<(), DecodeError> {
        self.store.read_page(pinned, entry, into)?;
        self.verified(entry, into).map(|_| ())
    }

    /// Contents that were read through an entry, verified if that is the policy.
    #[inline]
    pub(crate) fn verified<'read>(
        &self,
        entry: Entry,
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
    /// there, though others may be about to give it back.
    pub(crate) fn find_claimed_space(
        &self,
        mut attempt: impl FnMut() -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let mut result = attempt();
        for _ in 0..CLAIMED_TRIES_MAX {
            if !result.as_ref().is_err_and(|error| error.kind == DeviceErrorKind::NoSpace) {
                break;
            }
            let _turn = self.shortage.lock().expect("a panic in a request ends the process");
            self.store.reclaim();
            result = attempt();
        }
        result
    }

    /// Makes an attempt, and a few more if it finds no memory. Not to be called while pinned or
    /// with a lane.
    pub(crate) fn find_space(
        &self,
        mut attempt: impl FnMut() -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let is_short = |result: &Result<(), DeviceError>| {
            result.as_ref().is_err_and(|error| error.kind == DeviceErrorKind::NoSpace)
        };
        let mut result = attempt();
        if !is_short(&result) {
            return result;
        }
        let _turn = self.shortage.lock().expect("a panic in a request ends the process");
        for _ in 0..SPACE_TRIES_MAX {
            self.store.reclaim();
            result = attempt();
            if !is_short(&result) {
                return result;
            }
        }
        for _ in 0..DROPS_MAX {
            if self.store.dying_count() == 0 {
                break;
            }
            self.store.drop_dying(NODES_FOR_SPACE);
            self.store.reclaim();
            result = attempt();
            if !is_short(&result) {
                return result;
            }
        }
        for _ in 0..COMPRESSIONS_MAX {
            if self.compression.shrink_some(self) != Progress::Made {
                break;
            }
            self.store.reclaim();
            result = attempt();
            if !is_short(&result) {
                break;
            }
        }
        result
    }
}
