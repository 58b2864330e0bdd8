//! A lock that costs one atomic read-modify-write: it is released by a plain store.
//!
//! For locks that are held for at most a microsecond and rarely contended. A mutex is released by
//! an atomic read-modify-write, which waits until all previous stores have left the core. After
//! non-temporal stores of a page, that would be most of a write's time.

use crate::atomic::{AtomicBool, Ordering};

/// Number of polls of a held latch before the thread yields, and before it sleeps. The holder was
/// preempted then.
#[cfg(not(loom))]
const SPINS: u32 = 100;
#[cfg(not(loom))]
const SLEEP_FROM: u32 = SPINS + 20;
#[cfg(not(loom))]
const SLEEP: std::time::Duration = std::time::Duration::from_micros(20);

/// A lock that one thread holds at a time.
#[derive(Debug)]
pub struct Latch(AtomicBool);

/// Guard of a latch. Dropping it releases the latch.
#[derive(Debug)]
#[must_use = "a latch that is not kept is let go of at once"]
pub struct LatchGuard<'latch>(&'latch Latch);

impl Latch {
    pub fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    #[inline]
    pub fn lock(&self) -> LatchGuard<'_> {
        self.try_lock().unwrap_or_else(|| self.wait())
    }

    /// Acquires the latch unless any thread holds it, including this one.
    #[inline]
    pub fn try_lock(&self) -> Option<LatchGuard<'_>> {
        // PAIRS-WITH: LatchGuard::drop, "what was done under the latch".
        let taken = self.0.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok().then(|| LatchGuard(self))
    }

    #[cfg(not(loom))]
    #[cold]
    fn wait(&self) -> LatchGuard<'_> {
        let mut looks = 0;
        loop {
            match looks {
                0..SPINS => std::hint::spin_loop(),
                SPINS..SLEEP_FROM => std::thread::yield_now(),
                _ => std::thread::sleep(SLEEP),
            }
            looks += 1;
            if !self.0.load(Ordering::Relaxed)
                && let Some(guard) = self.try_lock()
            {
                return guard;
            }
        }
    }

    #[cfg(loom)]
    fn wait(&self) -> LatchGuard<'_> {
        loop {
            crate::atomic_yield();
            if let Some(guard) = self.try_lock() {
                return guard;
            }
        }
    }
}

impl Default for Latch {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for LatchGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        // PAIRS-WITH: Latch::try_lock, "what was done under the latch".
        self.0.0.store(false, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_held_latch_is_not_given_twice() {
        let latch = Latch::new();
        let guard = latch.lock();
        assert!(latch.try_lock().is_none());
        drop(guard);
        assert!(latch.try_lock().is_some());
    }

    #[test]
    fn threads_that_want_one_latch_get_it_in_turn() {
        let latch = Latch::new();
        let count = crate::atomic::AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        let _held = latch.lock();
                        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(count.into_inner(), 40_000);
    }
}
