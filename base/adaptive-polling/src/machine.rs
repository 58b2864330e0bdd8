//! Services of the machine that a waiter runs on: the time, and a way to offer its core.

use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{sched_getaffinity, sched_getcpu, sched_setaffinity};

/// Time and the scheduler, as seen by one thread. Tests replace it.
pub trait Machine {
    /// Time since an arbitrary fixed moment. Never goes back.
    fn now(&self) -> Duration;

    /// Lets another thread run on this core if one is ready to.
    fn offer_core(&self);

    /// Moves this thread to another of the cores that it may run on, if there is one.
    fn change_core(&self);
}

/// The machine that the process really runs on.
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
        // The thread is elsewhere now; what it may do later is as before. The kernel has granted
        // these cores already: it refuses only if they were taken away meanwhile.
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
        // On a busy machine the scheduler may have moved the thread back by now.
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
