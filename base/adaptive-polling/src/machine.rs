//! Services of the host for a waiter: the clock, yielding, and changing the core.

use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{sched_getaffinity, sched_getcpu, sched_setaffinity};

/// Clock and scheduler, from the view of one thread. Tests replace it.
pub trait Machine {
    /// Monotonic time since an arbitrary fixed moment.
    fn now(&self) -> Duration;

    /// Yields the core to another thread that is ready to run.
    fn offer_core(&self);

    /// Moves this thread to another of its allowed cores, if there is one.
    fn change_core(&self);
}

/// The real host.
#[derive(Clone, Copy, Debug)]
pub struct ThisMachine {
    start: Instant,
}

impl ThisMachine {
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }
}

impl Default for ThisMachine {
    fn default() -> Self {
        Self::new()
    }
}

impl Machine for ThisMachine {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn offer_core(&self) {
        thread::yield_now();
    }

    fn change_core(&self) {
        let Ok(allowed) = sched_getaffinity(None) else { return };
        let mut others = allowed;
        others.unset(sched_getcpu());
        if others.count() == 0 || sched_setaffinity(None, &others).is_err() {
            return;
        }
        // Restores the former affinity; the thread has moved already. The kernel had allowed these
        // cores, so this fails only if they were removed meanwhile.
        let _refused = sched_setaffinity(None, &allowed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_core_is_found_and_none_is_lost() {
        let allowed = sched_getaffinity(None).expect("the cores can be asked for");
        let before = sched_getcpu();
        ThisMachine::new().change_core();
        // On a busy host the scheduler may have moved the thread back already.
        assert!(allowed.is_set(sched_getcpu()), "from core {before}");
        assert!(sched_getaffinity(None).expect("the cores can be asked for") == allowed);
    }

    #[test]
    fn time_on_this_machine_passes() {
        let machine = ThisMachine::default();
        let before = machine.now();
        while machine.now() == before {
            machine.offer_core();
        }
        assert!(machine.now() > before);
    }
}
