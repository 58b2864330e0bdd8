//! Monitor of a leader that does slow work without having unparked another worker.
//!
//! With serial requests, no request arrives while the only client waits for its flush, and waking
//! another worker would cost more than the rest of this crate's work for the flush. Therefore the
//! leader steps aside without unparking a worker. If the disk takes long, this thread replaces the
//! leader within two ticks.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

/// Interval of checks while leaders step aside.
const TICK: Duration = Duration::from_millis(1);

/// Number of ticks without a step aside after which the thread sleeps.
const TICKS_AWAKE: u32 = 1000;

/// Value of `solitude` from which on requests count as serial.
const SOLITUDE_TRUSTED: u32 = 8;

/// Maximum of `solitude`.
const SOLITUDE_MAX: u32 = 16;

/// Number of flushes without other requests that outweigh one with others. A request right after a
/// flush may appear to have arrived during it.
const FLUSHES_PER_COMPANY: u32 = 4;

#[derive(Debug)]
pub(super) struct Watch {
    /// Number of steps aside and returns: odd while a worker is aside.
    steps: AtomicU64,
    is_asleep: AtomicBool,
    thread: OnceLock<Thread>,
    /// Score that grows with flushes during which no other request arrived.
    solitude: AtomicU32,
}

impl Watch {
    pub(super) fn new() -> Self {
        Self {
            steps: AtomicU64::new(0),
            is_asleep: AtomicBool::new(false),
            thread: OnceLock::new(),
            solitude: AtomicU32::new(0),
        }
    }

    /// Returns whether requests appear to be serial.
    pub(super) fn is_alone(&self) -> bool {
        self.solitude.load(Ordering::Relaxed) >= SOLITUDE_TRUSTED
    }

    /// Records whether other requests arrived or were served during a flush.
    pub(super) fn saw_company(&self, was_there: bool) {
        let now = self.solitude.load(Ordering::Relaxed);
        let next = match was_there {
            true => now.saturating_sub(FLUSHES_PER_COMPANY),
            false => (now + 1).min(SOLITUDE_MAX),
        };
        // Relaxed and without an atomic addition, because a lost sample is harmless.
        self.solitude.store(next, Ordering::Relaxed);
    }

    /// Makes the thread monitor the caller, a leader about to step aside. Returns false if another
    /// worker is already aside.
    pub(super) fn step_aside(&self) -> bool {
        let steps = self.steps.load(Ordering::Relaxed);
        // SeqCst: either the watch sees this step before it sleeps, or we see that it sleeps.
        let (seen, lost) = (Ordering::SeqCst, Ordering::Relaxed);
        let has_stepped = steps.is_multiple_of(2)
            && self.steps.compare_exchange(steps, steps + 1, seen, lost).is_ok();
        if has_stepped {
            self.wake();
        }
        has_stepped
    }

    /// Records that the worker that stepped aside is back.
    pub(super) fn come_back(&self) {
        self.steps.fetch_add(1, Ordering::SeqCst);
    }

    /// Wakes the thread if it sleeps, for example at the end.
    pub(super) fn wake(&self) {
        if self.is_asleep.load(Ordering::SeqCst)
            && self.is_asleep.swap(false, Ordering::SeqCst)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    /// Runs the thread until `is_over`. Calls `replace` at a tick if the same worker was already
    /// aside at the previous tick.
    pub(super) fn run(&self, replace: impl Fn(), is_over: impl Fn() -> bool) {
        let signed = self.thread.set(thread::current());
        assert!(signed.is_ok(), "one thread watches");
        let (mut seen, mut quiet_ticks) = (self.steps.load(Ordering::SeqCst), 0);
        while !is_over() {
            thread::sleep(TICK);
            let steps = self.steps.load(Ordering::SeqCst);
            quiet_ticks = if steps == seen { quiet_ticks + 1 } else { 0 };
            if !steps.is_multiple_of(2) {
                if steps == seen {
                    replace();
                }
            } else if quiet_ticks >= TICKS_AWAKE {
                self.sleep(steps, &is_over);
                quiet_ticks = 0;
            }
            seen = steps;
        }
    }

    fn sleep(&self, steps: u64, is_over: impl Fn() -> bool) {
        self.is_asleep.store(true, Ordering::SeqCst);
        if self.steps.load(Ordering::SeqCst) != steps || is_over() {
            self.is_asleep.store(false, Ordering::SeqCst);
        }
        while self.is_asleep.load(Ordering::SeqCst) {
            thread::park();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `test` with a watch and its thread, and counts the calls of `replace`.
    fn with_watch(test: impl FnOnce(&Watch, &AtomicU32)) {
        let (watch, calls, is_over) = (Watch::new(), AtomicU32::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                let call = || _ = calls.fetch_add(1, Ordering::SeqCst);
                watch.run(call, || is_over.load(Ordering::SeqCst));
            });
            test(&watch, &calls);
            is_over.store(true, Ordering::SeqCst);
            watch.wake();
        });
    }

    fn wait_until(is_so: impl Fn() -> bool) {
        while !is_so() {
            thread::sleep(TICK);
        }
    }

    #[test]
    fn a_worker_that_stays_aside_has_another_called_and_again() {
        with_watch(|watch, calls| {
            assert!(watch.step_aside());
            wait_until(|| calls.load(Ordering::SeqCst) > 1);
            watch.come_back();
        });
    }

    #[test]
    fn one_worker_is_aside_at_a_time() {
        let watch = Watch::new();
        assert!(watch.step_aside());
        assert!(!watch.step_aside());
        watch.come_back();
        assert!(watch.step_aside());
    }

    #[test]
    fn it_sleeps_when_no_worker_steps_aside_and_wakes_for_the_next() {
        with_watch(|watch, calls| {
            wait_until(|| watch.is_asleep.load(Ordering::SeqCst));
            assert_eq!(calls.load(Ordering::SeqCst), 0);
            assert!(watch.step_aside());
            wait_until(|| calls.load(Ordering::SeqCst) > 0);
            watch.come_back();
        });
    }

    #[test]
    fn company_is_noticed_soon_and_solitude_after_some_flushes() {
        let watch = Watch::new();
        (1..SOLITUDE_TRUSTED).for_each(|_| watch.saw_company(false));
        assert!(!watch.is_alone());
        (0..100).for_each(|_| watch.saw_company(false));
        watch.saw_company(true);
        assert!(watch.is_alone(), "once may be a mistake");
        (0..2).for_each(|_| watch.saw_company(true));
        assert!(!watch.is_alone());
    }
}
