//! Lock that is tried instead of waited for, because hooks can use the kernel meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};

/// Number of attempts of callers that need the lock.
const TRIES_MAX: u32 = 10_000;

pub(crate) struct TryLock {
    is_locked: AtomicBool,
}

/// The held lock; dropping it releases the lock.
pub(crate) struct Locked<'lock> {
    lock: &'lock TryLock,
}

impl TryLock {
    pub(crate) const fn new() -> Self {
        Self { is_locked: AtomicBool::new(false) }
    }

    pub(crate) fn try_lock(&self) -> Option<Locked<'_>> {
        // PAIRS-WITH: Locked::drop, "what was done under the lock"
        let was_locked = self.is_locked.swap(true, Ordering::Acquire);
        (!was_locked).then_some(Locked { lock: self })
    }

    /// Tries for a bounded time, and yields the CPU between attempts.
    pub(crate) fn lock_for_a_while(&self) -> Option<Locked<'_>> {
        (0..TRIES_MAX).find_map(|_| {
            let locked = self.try_lock();
            if locked.is_none() {
                rustix::thread::sched_yield();
            }
            locked
        })
    }

    /// Releases the lock in a forked child, where the thread that held it does not exist.
    pub(crate) fn force_open(&self) {
        self.is_locked.store(false, Ordering::Relaxed);
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // PAIRS-WITH: TryLock::try_lock, "what was done under the lock"
        self.lock.is_locked.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holds_the_lock_until_it_is_dropped() {
        let lock = TryLock::new();
        let locked = lock.try_lock();
        assert!(locked.is_some());
        assert!(lock.try_lock().is_none());
        drop(locked);
        assert!(lock.lock_for_a_while().is_some());
    }

    #[test]
    fn a_child_opens_what_its_parent_held() {
        let lock = TryLock::new();
        let locked = lock.try_lock();
        lock.force_open();
        assert!(lock.try_lock().is_some());
        std::mem::forget(locked);
    }
}
