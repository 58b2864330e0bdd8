//! Taking the pool's memory while the pool is used, from its beginning to its end.
//!
//! ```text
//!  slab 0           `Layout::slab_count`        `Pieces::next`           end of the pool
//!  ├─ have memory ────────┼─ pieces being taken ─────┼─ holes ───────────────┤
//! ```
//!
//! A pool is served as soon as its first slabs have memory. Threads of its owner take the rest in
//! pieces, several at once, and a writer that finds no slab with memory takes the next piece
//! itself. A piece counts when all in front of it have memory: the superblock is told first, then
//! its slabs are free for anybody. So slabs in use always have memory, also after a kill, and a
//! lack of memory is an error of whoever takes some, never a signal to whoever touches it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard};

use region::RegionError;

use crate::error::NoSpace;
use crate::layout::SLAB_BYTES;
use crate::memory::Memory;
use crate::store::PageStore;

/// Slabs that are taken at once: few enough that no writer waits long for one piece.
pub(crate) const PIECE_SLABS: u32 = 32;

/// The pieces that are being taken.
#[derive(Debug, Default)]
pub(crate) struct Taking {
    pieces: Mutex<Pieces>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Pieces {
    /// Slabs from here on nobody is at.
    next: u32,
    in_flight: u32,
    /// Pieces that have memory behind one that has none yet, by their first slab.
    done: BTreeMap<u32, u32>,
    /// Pieces that could not be taken, to be tried again.
    failed: BTreeMap<u32, u32>,
    /// The pool's end is about to change: nobody begins a piece.
    is_held: bool,
}

impl Pieces {
    fn begin(&mut self, end: u32) -> Option<Range<u32>> {
        if self.is_held {
            return None;
        }
        let piece = match self.failed.pop_first() {
            Some((first, end)) => first..end,
            None if self.next < end => self.next..end.min(self.next + PIECE_SLABS),
            None => return None,
        };
        self.next = self.next.max(piece.end);
        self.in_flight += 1;
        Some(piece)
    }
}

impl Taking {
    /// Goes on behind the first `taken` slabs, which have memory.
    pub(crate) fn new(taken: u32) -> Self {
        Self { pieces: Mutex::new(Pieces { next: taken, ..Pieces::default() }), ..Self::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Pieces> {
        self.pieces.lock().expect("nobody panics with the pieces locked")
    }

    fn wait<'taking>(&self, pieces: MutexGuard<'taking, Pieces>) -> MutexGuard<'taking, Pieces> {
        self.changed.wait(pieces).expect("nobody panics with the pieces locked")
    }
}

impl Memory {
    /// Slabs of the pool that have no memory yet.
    pub(crate) fn untaken(&self) -> u32 {
        self.book.untaken(&self.layout)
    }

    /// Takes a piece that nobody is at. `false`: there is none now.
    fn take_piece(&self) -> Result<bool, RegionError> {
        let piece = self.taking.lock().begin(self.book.end());
        piece.map_or(Ok(false), |piece| self.take(piece).map(|()| true))
    }

    /// Returns when more slabs have memory than the `seen` ones: takes a piece, or waits for others
    /// who do. `false`: all have it.
    pub(crate) fn await_more(&self, seen: u32) -> Result<bool, RegionError> {
        let mut pieces = self.taking.lock();
        loop {
            if self.layout.slab_count() > seen {
                return Ok(true);
            }
            if self.untaken() == 0 {
                return Ok(false);
            }
            pieces = match pieces.begin(self.book.end()) {
                Some(piece) => {
                    drop(pieces);
                    self.take(piece)?;
                    self.taking.lock()
                }
                None => self.taking.wait(pieces),
            };
        }
    }

    /// The same for somebody who looks for a free slab.
    pub(crate) fn find_more(&self, seen: u32) -> Result<(), NoSpace> {
        // Whoever takes memory in the background tells why there is none.
        match self.await_more(seen) {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(NoSpace),
        }
    }

    fn take(&self, piece: Range<u32>) -> Result<(), RegionError> {
        let expected_bytes = self.layout.memory_bytes_of(self.book.end());
        let result = self.region.take_memory(&self.layout.memory_between(&piece), expected_bytes);
        let mut pieces = self.taking.lock();
        pieces.in_flight -= 1;
        let ended = if result.is_ok() { &mut pieces.done } else { &mut pieces.failed };
        ended.insert(piece.start, piece.end);
        let before = self.layout.slab_count();
        let mut taken = before;
        while let Some(end) = pieces.done.remove(&taken) {
            taken = end;
        }
        if taken > before {
            let untaken_slabs = self.layout.pool_slabs() - taken;
            self.change_superblock(|superblock| superblock.untaken_slabs = untaken_slabs);
            self.layout.set_slab_count(taken);
            self.book.admit_taken(before..taken);
        }
        self.taking.changed.notify_all();
        result
    }

    /// Calls `change`, which may change how many slabs the pool has and which of them have memory,
    /// while nobody takes any.
    pub(crate) fn while_nobody_takes<T>(&self, change: impl FnOnce() -> T) -> T {
        let mut pieces = self.taking.lock();
        // A resize of the pool is one at a time.
        pieces.is_held = true;
        while pieces.in_flight > 0 {
            pieces = self.taking.wait(pieces);
        }
        let result = change();
        *pieces = Pieces { next: self.layout.slab_count(), ..Pieces::default() };
        self.taking.changed.notify_all();
        result
    }
}

impl PageStore {
    /// Takes some of the memory that the pool is to have and has not. `false`: there is none that
    /// nobody else is taking. Fails when the host has too little; to be tried again then. Any
    /// number of threads may call it.
    pub fn take_memory(&self) -> Result<bool, RegionError> {
        self.core.memory.take_piece()
    }

    /// Memory that the pool is to have and has not.
    pub fn untaken_bytes(&self) -> u64 {
        u64::from(self.core.memory.untaken()) * SLAB_BYTES
    }

    /// Memory that the pool has and nobody uses: a guess that costs one load.
    pub fn ready_bytes(&self) -> u64 {
        self.core.memory.book.free_soon() as u64 * SLAB_BYTES
    }
}
