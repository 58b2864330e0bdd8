//! Coordination between writers and readers of frozen copies: the number of copies, whether they
//! are being read, and whether they may be given up.

use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Interval at which a waiting writer checks whether copies are still being read.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Number of consecutive checks without progress of a reader before copies are given up: 3 seconds.
const IDLE_LOOKS_MAX: usize = 30;

/// Number of checks before copies are given up in any case: 60 seconds.
const LOOKS_MAX: usize = 600;

/// State of the frozen copies of one pool.
#[derive(Debug, Default)]
pub(crate) struct FrozenCopies {
    /// Number of copies whose maps have not been freed.
    count: Mutex<usize>,
    /// Copy of `count` for threads that must not block on its lock.
    count_now: AtomicUsize,
    /// Signalled when copies are freed.
    gone: Condvar,
    /// Number of groups of copies that writers wait for.
    held_on: AtomicUsize,
    /// Number of leaf reads in copies, modulo 2^64.
    looks: AtomicU64,
    /// Held while copies of another thread's reader are given up, and while a thread relies on
    /// their pages.
    giving_way: Mutex<()>,
}

impl FrozenCopies {
    pub(crate) fn is_empty(&self) -> bool {
        self.count_now.load(Ordering::Relaxed) == 0
    }

    /// Adds new copies to the count.
    pub(crate) fn note_made(&self, made: usize) {
        self.set_count(|count| count + made);
    }

    /// Subtracts copies whose maps are being freed from the count.
    pub(crate) fn note_gone(&self, gone: usize) {
        self.set_count(|count| count - gone);
        self.gone.notify_all();
    }

    /// Records that a reader of a copy makes progress.
    #[inline]
    pub(crate) fn note_look(&self) {
        self.looks.fetch_add(1, Ordering::Relaxed);
    }

    /// Prevents copies from being given up until the result is dropped.
    pub(crate) fn keep(&self) -> MutexGuard<'_, ()> {
        self.giving_way.lock().expect("a panic in a request ends the process")
    }

    /// Lets writers wait for readers of a group of copies from now on.
    pub(crate) fn hold_on(&self) {
        self.held_on.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end_holding_on(&self) {
        self.held_on.fetch_sub(1, Ordering::Relaxed);
    }

    /// Waits until no copy is left, or readers have exceeded a limit.
    pub(crate) fn wait_while_read(&self) {
        let mut count = self.lock();
        let mut looks = self.looks.load(Ordering::Relaxed);
        let mut idle_looks = 0;
        for _ in 0..LOOKS_MAX {
            let is_held_on = self.held_on.load(Ordering::Relaxed) > 0;
            if !is_held_on || idle_looks == IDLE_LOOKS_MAX || *count == 0 {
                return;
            }
            let waited = self.gone.wait_timeout(count, LOOK_INTERVAL);
            count = waited.expect("nothing panics with the count locked").0;
            let now = self.looks.load(Ordering::Relaxed);
            idle_looks = if now == looks { idle_looks + 1 } else { 0 };
            looks = now;
        }
    }

    fn set_count(&self, change: impl FnOnce(usize) -> usize) {
        let mut count = self.lock();
        *count = change(*count);
        self.count_now.store(*count, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        self.count.lock().expect("nothing panics with the count locked")
    }
}
