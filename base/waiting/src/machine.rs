//! What a waiter needs of the machine that it runs on: the time, and a way to offer its core.

use std::thread;
use std::time::{Duration, Instant};

/// Time and the scheduler, as seen by one thread. Tests replace it.
pub trait Machine {
    /// Time since an arbitrary fixed moment. Never goes back.
    fn now(&self) -> Duration;

    /// Lets another thread run on this core if one is ready to.
    fn offer_core(&self);
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
}

#[cfg(test)]
mod tests {
    use super::*;

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
