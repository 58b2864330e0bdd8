//! The pool as a whole: opening and closing it, and what its parts share.

use std::cell::Cell;
use std::sync::{Mutex, TryLockError};

use codec::{Block, DecodeError};
use region::Region;
use sync::atomic::{AtomicUsize, Ordering};
use sync::{Grace, Pinned, Striped, counted};

use crate::contents::PageBytes;
use crate::dedup::{Fingerprinter, described_fingerprint};
use crate::entry::{Entry, EntryKind};
use crate::error::OpenError;
use crate::index::DedupIndex;
use crate::lane::{Lane, LaneState};
use crate::layout::{CLASS_COUNT, Class, Layout, Slot};
use crate::retire::RETIRED_MAX;
use crate::slabs::{BookContext, SlabBook};
use crate::superblock::Superblock;
use crate::sweep::{self, Excess};

/// Readers pinned at once before further ones wait for a place.
const PIN_PLACES: usize = 64;

/// References that a batch may retire: lanes are drained while there is less room than this.
const BATCH_REFERENCES_MAX: usize = 2048;

/// How often closing a pool tries to lower what is retired before it leaves that to a sweep.
const CLOSE_TRIES_MAX: usize = 16;

/// What the owner of a pool decides.
#[derive(Clone, Copy, Debug)]
pub struct StoreOptions {
    /// Writers that work without waiting for each other.
    pub lane_count: usize,
    /// The secret of a new pool; an existing one keeps its own.
    pub fresh_secret: [u8; 32],
}

/// What all parts of a pool work on.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) region: Region,
    pub(crate) layout: Layout,
    pub(crate) grace: Grace,
    pub(crate) book: SlabBook,
    pub(crate) index: DedupIndex,
    pub(crate) fingerprinter: Fingerprinter,
    /// Live slots by class, in a part for each lane.
    pub(crate) live: Box<[Striped]>,
}

/// A pool in a region.
#[derive(Debug)]
pub struct PageStore {
    pub(crate) core: Core,
    lanes: Box<[Mutex<LaneState>]>,
    superblock: Mutex<Superblock>,
}

impl PageStore {
    /// Opens the pool in `region`, or makes one in a region of zeros. After an unclean end the
    /// second value counts, for each slot, the references that no map has been seen to hold yet.
    pub fn open(
        region: Region,
        options: StoreOptions,
    ) -> Result<(Self, Option<Excess>), OpenError> {
        assert!(options.lane_count > 0, "somebody must be able to write");
        let layout = Layout::of(region.size_bytes());
        let found = Superblock::load(&region, &layout)?;
        let mut superblock = found.unwrap_or_else(|| Superblock::new(options.fresh_secret));
        let was_closed_cleanly = superblock.closed_cleanly;
        superblock.closed_cleanly = false;
        superblock.run_epoch += 1;
        superblock.save(&region, &layout);
        let core = Core {
            layout,
            grace: Grace::new(PIN_PLACES),
            book: SlabBook::new(layout.slab_count),
            index: DedupIndex::new(layout.slab_count),
            fingerprinter: Fingerprinter::new(&superblock.secret),
            live: (0..CLASS_COUNT).map(|_| Striped::new(options.lane_count)).collect(),
            region,
        };
        let excess = sweep::take_census(&core, !was_closed_cleanly);
        let lanes = (0..options.lane_count).map(|index| Mutex::new(LaneState::new(index)));
        let store = Self { core, lanes: lanes.collect(), superblock: Mutex::new(superblock) };
        Ok((store, excess))
    }

    /// Marks the pool as left in order, for the next open to skip the search for leaks. Nobody may
    /// use it any more.
    pub fn close(&self) {
        // A reader that came in between may hold references back once more.
        let is_settled = (0..CLOSE_TRIES_MAX).any(|_| {
            self.reclaim();
            self.retired_count() == 0
        });
        if !is_settled {
            return;
        }
        let mut superblock = self.superblock.lock().expect("nobody panics with it locked");
        superblock.closed_cleanly = true;
        superblock.save(&self.core.region, &self.core.layout);
    }

    /// How often the pool was opened, this time included.
    pub fn run_epoch(&self) -> u64 {
        self.superblock.lock().expect("nobody panics with it locked").run_epoch
    }

    /// Writers that work without waiting for each other.
    pub fn lane_count(&self) -> usize {
        self.lanes.len()
    }

    /// The region that the pool is in.
    pub fn region(&self) -> &Region {
        &self.core.region
    }

    /// Keeps what the maps name from being reused until the result is dropped.
    #[inline]
    pub fn pin(&self) -> Pinned<'_> {
        self.core.grace.pin(thread_number())
    }

    /// Waits until everybody who is pinned now has let go. Not to be called while pinned.
    pub fn wait_for_readers(&self) {
        let epoch = self.core.grace.retire_epoch();
        while self.core.grace.advance() < epoch {
            sync::atomic_yield();
        }
    }

    /// Takes a lane: this thread's own, another free one, or its own when all are taken. Not to be
    /// called while pinned.
    pub fn lane(&self) -> Lane<'_> {
        let own = thread_number() % self.lanes.len();
        let (before, from) = self.lanes.split_at(own);
        let free = from.iter().chain(before).find_map(|lane| match lane.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(_)) => unreachable!("a panic in a lane ends the process"),
        });
        let state = free
            .unwrap_or_else(|| self.lanes[own].lock().expect("a panic in a lane ends the process"));
        let mut lane = Lane::new(self, state);
        if lane.is_worth_draining() {
            lane.drain();
        }
        while lane.retired_count() > RETIRED_MAX - BATCH_REFERENCES_MAX {
            sync::atomic_yield();
            lane.drain();
        }
        lane
    }

    /// Returns everything that is retired to the free slots and slabs, and the slots that lanes
    /// keep. Not to be called while pinned or with a lane.
    pub fn reclaim(&self) {
        self.wait_for_readers();
        for state in &self.lanes {
            let state = state.lock().expect("a panic in a lane ends the process");
            let mut lane = Lane::new(self, state);
            lane.drain();
            lane.close_slabs();
        }
        self.wait_for_readers();
        self.core.book.free_count(&self.core.grace);
    }

    /// Lowers what idle lanes have retired. Not to be called while pinned or with a lane.
    pub fn drain_idle_lanes(&self) {
        for state in &self.lanes {
            if let Ok(state) = state.try_lock() {
                Lane::new(self, state).drain();
            }
        }
    }

    fn retired_count(&self) -> usize {
        let count = |state: &Mutex<LaneState>| {
            let state = state.lock().expect("a panic in a lane ends the process");
            Lane::new(self, state).retired_count()
        };
        self.lanes.iter().map(count).sum()
    }

    pub(crate) fn lane_free_slots(&self, class: Class) -> usize {
        let count = |state: &Mutex<LaneState>| {
            state.try_lock().map_or(0, |state| Lane::new(self, state).free_slots(class))
        };
        self.lanes.iter().map(count).sum()
    }

    /// A word of the layer above.
    pub fn root_word(&self, index: usize) -> u64 {
        self.core.region.word(Layout::root_word(index)).load(Ordering::Acquire)
    }

    /// Stores a word of the layer above.
    pub fn set_root_word(&self, index: usize, value: u64) {
        let word = self.core.region.word_to_store(Layout::root_word(index));
        word.store(value, Ordering::Release);
    }

    /// What an entry names, where it is stored. The entry was read under this pin.
    #[inline]
    pub fn page<'seen>(
        &'seen self,
        pinned: &'seen Pinned<'_>,
        entry: Entry,
    ) -> Result<PageBytes<'seen>, DecodeError> {
        match entry.kind() {
            EntryKind::Hole => Ok(PageBytes::Fill(0)),
            EntryKind::Fill(pattern) => Ok(PageBytes::Fill(pattern)),
            EntryKind::Page => self.core.stored_page(pinned, entry),
        }
    }

    /// Copies the contents that an entry names. The entry was read under this pin.
    #[inline]
    pub fn read_page(
        &self,
        pinned: &Pinned<'_>,
        entry: Entry,
        into: &mut Block,
    ) -> Result<(), DecodeError> {
        match self.page(pinned, entry)? {
            PageBytes::Fill(pattern) => codec::write_fill(pattern, into),
            PageBytes::Raw(bytes) => into.copy_from_slice(bytes),
            PageBytes::Encoded(bytes) => codec::decode(bytes, into)?,
        }
        Ok(())
    }
}

impl Core {
    pub(crate) fn book_context(&self) -> BookContext<'_> {
        BookContext { region: &self.region, layout: &self.layout, grace: &self.grace }
    }

    /// Makes the slab table say what a formatted slab is for.
    pub(crate) fn name_slab(&self, slab: u32, class: Class) {
        let word = self.region.word_to_store(self.layout.table_word(slab));
        word.store(u64::from(class.id()) + 1, Ordering::Release);
    }

    /// The bytes of a page, if what the entry says of it can be.
    #[inline]
    pub(crate) fn stored_page<'seen>(
        &'seen self,
        pinned: &'seen Pinned<'_>,
        entry: Entry,
    ) -> Result<PageBytes<'seen>, DecodeError> {
        let at = entry.slot().filter(|&at| self.layout.has(at)).ok_or(DecodeError)?;
        let length = entry.length_bytes();
        if length as u64 > at.class.shape().slot_bytes {
            return Err(DecodeError);
        }
        if length != 0 {
            return Ok(PageBytes::Encoded(self.slot_bytes(pinned, at, length)));
        }
        if at.class != Class::RAW {
            return Err(DecodeError);
        }
        let bytes = self.slot_bytes(pinned, at, codec::BLOCK_BYTES);
        Ok(PageBytes::Raw(bytes.try_into().expect("a block was asked for")))
    }

    /// Gives a reference back that no map holds.
    pub(crate) fn release(&self, at: Slot) {
        self.release_in_lane(at, thread_number());
    }

    /// Brings near what releasing a reference looks at first.
    pub(crate) fn prefetch_word(&self, at: Slot) {
        self.region.prefetch(self.layout.slot_word(at));
    }

    /// Brings near what releasing the last reference looks at next. The word is near already.
    pub(crate) fn prefetch_hint(&self, at: Slot) {
        let word = self.region.word(self.layout.slot_word(at)).load(Ordering::Relaxed);
        let fingerprint = described_fingerprint(counted::description_of(word));
        if counted::count_of(word) == 1 && fingerprint != 0 {
            self.index.prefetch(self, fingerprint);
        }
    }

    pub(crate) fn release_in_lane(&self, at: Slot, lane: usize) {
        self.release_many(at, 1, lane);
    }

    /// Entries in a damaged region may name what is not there: that is left alone.
    pub(crate) fn release_many(&self, at: Slot, references: u64, lane: usize) {
        if !self.is_named(at) {
            return;
        }
        let word = self.region.word_to_store(self.layout.slot_word(at));
        if let Some(description) = counted::drop_many(word, references) {
            let fingerprint = described_fingerprint(description);
            if fingerprint != 0 {
                self.index.remove(self, &self.grace.pin(lane), fingerprint, at);
            }
            self.live[at.class.index()].add(lane, -1);
            self.book.credit(at.slab, at.class, self.book_context());
        }
    }
}

/// A small number that differs between threads: the place where one looks first.
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static OWN: Cell<Option<usize>> = const { Cell::new(None) };
    }
    OWN.with(|own| {
        own.get().unwrap_or_else(|| {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            own.set(Some(number));
            number
        })
    })
}
