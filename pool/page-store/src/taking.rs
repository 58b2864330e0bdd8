//! Takes the pool's memory while the pool is in use, from its beginning to its end.
//!
//! ```text
//!  slab 0           `Layout::slab_count`        `Pieces::next`           end of the pool
//!  ├─ have memory ────────┼─ pieces being taken ─────┼─ holes ───────────────┤
//! ```
//!
//! A pool is served as soon as its first slabs have memory. Threads of its owner take the rest in
//! pieces, several at once. A writer that finds no slab with memory takes the next piece itself. A
//! piece becomes valid when all pieces before it have memory: first the superblock is updated, then
//! its slabs are free for any lane. Therefore slabs in use always have memory, also after a kill,
//! and a lack of memory is an error of the thread that takes some, never a signal to one that
//! accesses it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard};

use region::{Region, RegionError};

use crate::error::{OpenError, OpenErrorKind};
use crate::layout::Layout;
use crate::superblock::Superblock;

/// Number of slabs in a piece: so few that no writer waits long for one.
const PIECE_SLABS: u32 = 32;

/// Pieces that are being taken.
#[derive(Debug, Default)]
pub(crate) struct Taking {
    pieces: Mutex<Pieces>,
    changed: Condvar,
}

#[derive(Debug, Default)]
pub(crate) struct Pieces {
    /// First slab that no thread is taking.
    next: u32,
    in_flight: u32,
    /// Pieces that have memory behind a piece without memory, by their first slab.
    done: BTreeMap<u32, u32>,
    /// Pieces that could not be taken, to be retried.
    failed: BTreeMap<u32, u32>,
    /// The pool's end is about to change: no piece may begin.
    is_held: bool,
}

impl Pieces {
    /// State in which the first `taken` slabs have memory, and no others.
    pub(crate) fn from(taken: u32) -> Self {
        Self { next: taken, ..Self::default() }
    }

    /// Assigns a piece of the slabs up to `end` to the caller.
    pub(crate) fn begin(&mut self, end: u32) -> Option<Range<u32>> {
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

    /// Ends a piece, which has memory now or failed. Returns the number of first slabs that have
    /// memory, which was `taken` before.
    pub(crate) fn end(&mut self, piece: Range<u32>, has_memory: bool, mut taken: u32) -> u32 {
        self.in_flight -= 1;
        let ended = if has_memory { &mut self.done } else { &mut self.failed };
        ended.insert(piece.start, piece.end);
        while let Some(end) = self.done.remove(&taken) {
            taken = end;
        }
        taken
    }
}

impl Taking {
    pub(crate) fn new(taken: u32) -> Self {
        Self { pieces: Mutex::new(Pieces::from(taken)), changed: Condvar::new() }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Pieces> {
        self.pieces.lock().expect("no thread panics with the pieces locked")
    }

    pub(crate) fn wait<'taking>(
        &self,
        pieces: MutexGuard<'taking, Pieces>,
    ) -> MutexGuard<'taking, Pieces> {
        self.changed.wait(pieces).expect("no thread panics with the pieces locked")
    }

    /// Prevents new pieces, and waits until none is in flight. The caller replaces the pieces. Only
    /// one caller at a time.
    pub(crate) fn hold(&self) -> MutexGuard<'_, Pieces> {
        let mut pieces = self.lock();
        pieces.is_held = true;
        while pieces.in_flight > 0 {
            pieces = self.wait(pieces);
        }
        pieces
    }

    pub(crate) fn notify(&self) {
        self.changed.notify_all();
    }
}

/// Takes memory for the first slabs of a pool that is opened, and sets the number of slabs with
/// memory. Fails for a new pool if the host does not have the memory for all of it.
pub(crate) fn take_first(
    region: &Region,
    layout: &Layout,
    superblock: &mut Superblock,
) -> Result<(), OpenError> {
    let needed_bytes = layout.size_bytes_min();
    let too_small = || OpenError::new(OpenErrorKind::TooSmall { needed_bytes });
    let pool_slabs = layout.slabs_in(superblock.size_bytes).ok_or_else(too_small)?;
    let taken = take_first_slabs(region, layout, superblock, pool_slabs)
        .map_err(|source| OpenError { kind: OpenErrorKind::Memory, source: Some(source) })?;
    superblock.untaken_slabs = pool_slabs - taken;
    layout.set_pool_slabs(pool_slabs);
    layout.set_slab_count(taken);
    Ok(())
}

/// Takes memory for the first slabs. Returns the number of slabs that have memory.
fn take_first_slabs(
    region: &Region,
    layout: &Layout,
    superblock: &Superblock,
    pool_slabs: u32,
) -> Result<u32, RegionError> {
    // Memory left by an interrupted resize would count as memory of slabs.
    give_back_holes(region, layout, pool_slabs)?;
    let expected_bytes = layout.memory_bytes_of(pool_slabs);
    if region.held_bytes()? >= expected_bytes {
        return Ok(pool_slabs);
    }
    if superblock.is_new() {
        region.reserve_memory(&layout.memory_of(pool_slabs))?;
    }
    let before = pool_slabs.saturating_sub(superblock.untaken_slabs);
    let taken = before.max(PIECE_SLABS.min(pool_slabs));
    let missing = match region.held_bytes()? < layout.memory_bytes_of(taken) {
        // A new pool, or one whose file was copied without its memory.
        true => layout.memory_of(taken),
        false => Vec::new(),
    };
    region.take_memory(&missing, expected_bytes)?;
    Ok(taken)
}

/// Frees memory that the first `slab_count` slabs do not need.
pub(crate) fn give_back_holes(
    region: &Region,
    layout: &Layout,
    slab_count: u32,
) -> Result<(), RegionError> {
    layout.holes_beside(slab_count).into_iter().try_for_each(|hole| region.give_back_memory(hole))
}
