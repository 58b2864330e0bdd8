//! Cell for the state of a lane, accessed by one thread at a time.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};

use sync::{Latch, LatchGuard};

/// A value with a latch. The unlock of a mutex is a locked instruction, which would make the thread
/// wait until the page that it has just streamed has reached memory.
#[derive(Debug)]
pub(crate) struct LaneCell<T> {
    latch: Latch,
    value: UnsafeCell<T>,
}

// SAFETY:
// - exclusive: the value is only reached through a `LaneGuard`, and the latch gives out one at a
//   time, each of which happens before the next (`sync::Latch`).
// - any thread: the value may go from thread to thread (`T: Send`).
unsafe impl<T: Send> Sync for LaneCell<T> {}

impl<T> LaneCell<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { latch: Latch::new(), value: UnsafeCell::new(value) }
    }

    /// Waits until no thread holds the lane.
    pub(crate) fn lock(&self) -> LaneGuard<'_, T> {
        LaneGuard { value: &self.value, _held: self.latch.lock() }
    }

    #[inline]
    pub(crate) fn try_lock(&self) -> Option<LaneGuard<'_, T>> {
        Some(LaneGuard { _held: self.latch.try_lock()?, value: &self.value })
    }
}

/// Guard of a lane.
#[derive(Debug)]
pub(crate) struct LaneGuard<'cell, T> {
    value: &'cell UnsafeCell<T>,
    _held: LatchGuard<'cell>,
}

impl<T> Deref for LaneGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY:
        // - exclusive: this guard is the latch's only one, and it is borrowed for the result.
        // - alive: the cell outlives its guard.
        unsafe { &*self.value.get() }
    }
}

impl<T> DerefMut for LaneGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY:
        // - exclusive: this guard is the latch's only one, and it is borrowed mutably.
        // - alive: the cell outlives its guard.
        unsafe { &mut *self.value.get() }
    }
}
