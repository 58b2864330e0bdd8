//! A lane's state, for one thread at a time.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};

use sync::{Latch, LatchGuard};

use crate::lane::LaneState;

/// A lane's state behind a latch: a mutex lets go with a locked instruction, which would make the
/// thread wait until the page that it has just streamed has reached memory.
#[derive(Debug)]
pub(crate) struct LaneCell {
    latch: Latch,
    state: UnsafeCell<LaneState>,
}

/// What threads take from each other must be fit for any of them.
const fn must_be_send<T: Send>() {}
const _: () = must_be_send::<LaneState>();

// SAFETY:
// - exclusive: the state is only reached through a `LaneGuard`, and the latch gives out one at a
//   time, each of which happens before the next (`sync::Latch`).
// - any thread: the state may go from thread to thread (`must_be_send`).
unsafe impl Sync for LaneCell {}

impl LaneCell {
    pub(crate) fn new(state: LaneState) -> Self {
        Self { latch: Latch::new(), state: UnsafeCell::new(state) }
    }

    /// Waits until nobody holds the lane.
    pub(crate) fn lock(&self) -> LaneGuard<'_> {
        LaneGuard { state: &self.state, _held: self.latch.lock() }
    }

    #[inline]
    pub(crate) fn try_lock(&self) -> Option<LaneGuard<'_>> {
        Some(LaneGuard { _held: self.latch.try_lock()?, state: &self.state })
    }
}

/// Holds a lane.
#[derive(Debug)]
pub(crate) struct LaneGuard<'cell> {
    state: &'cell UnsafeCell<LaneState>,
    _held: LatchGuard<'cell>,
}

impl Deref for LaneGuard<'_> {
    type Target = LaneState;

    #[inline]
    fn deref(&self) -> &LaneState {
        // SAFETY:
        // - exclusive: this guard is the latch's only one, and it is borrowed for the result.
        // - alive: the cell outlives its guard.
        unsafe { &*self.state.get() }
    }
}

impl DerefMut for LaneGuard<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut LaneState {
        // SAFETY:
        // - exclusive: this guard is the latch's only one, and it is borrowed mutably.
        // - alive: the cell outlives its guard.
        unsafe { &mut *self.state.get() }
    }
}
