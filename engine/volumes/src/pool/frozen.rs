//! Signals between writers and readers of frozen copies: how many copies there are, whether they
//! are being read, and whether they may go now.

use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// How often a writer that waits for copies looks whether they are still being read.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// How often it finds that none was read on before they are given up: 3 seconds.
const IDLE_LOOKS_MAX: usize = 30;

/// How often it looks at all before they are given up: 60 seconds.
const LOOKS_MAX: usize = 600;

/// The frozen copies of one pool.
#[derive(Debug, Default)]
pub(crate) struct FrozenCopies {
    /// Copies whose maps have not been given back.
    count: Mutex<usize>,
    /// The same, for those that do not wait.
    count_now: AtomicUsize,
    /// Told when some go.
    gone: Condvar,
    /// Groups of copies that are held on to.
    held_on: AtomicUsize,
    /// Leaves of copies that were looked at, modulo 2^64.
    looks: AtomicU64,
    /// Held while copies go that another thread reads, and while one relies on their pages.
    giving_way: Mutex<()>,
}

impl FrozenCopies {
    pub(crate) fn is_empty(&self) -> bool {
        self.count_now.load(Ordering::Relaxed) == 0
    }

    /// So many copies were made.
    pub(crate) fn note_made(&self, made: usize) {
        self.set_count(|count| count + made);
    }

    /// The maps of so many copies are on their way to be free.
    pub(crate) fn note_gone(&self, gone: usize) {
        self.set_count(|count| count - gone);
        self.gone.notify_all();
    }

    /// A thread reads on in a copy.
    #[inline]
    pub(crate) fn note_look(&self) {
        self.looks.fetch_add(1, Ordering::Relaxed);
    }

    /// No copy is given up until the result is dropped.
    pub(crate) fn keep(&self) -> MutexGuard<'_, ()> {
        self.giving_way.lock().expect("a panic in a request ends the process")
    }

    /// Writers wait for readers of a group of copies from now on.
    pub(crate) fn hold_on(&self) {
        self.held_on.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end_holding_on(&self) {
        self.held_on.fetch_sub(1, Ordering::Relaxed);
    }

    /// Waits until no copy is left, or none should be waited for.
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
