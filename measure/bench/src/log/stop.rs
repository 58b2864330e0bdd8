//! The end of a measurement, and how its threads wait for each other until then.

use std::hint;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Tells all threads of a measurement to end.
#[derive(Debug, Default)]
pub(crate) struct Stop(AtomicBool);

impl Stop {
    pub(crate) fn ask(&self) {
        // Relaxed: the flag carries no data.
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_asked_for(&self) -> bool {
        // Relaxed: the flag carries no data.
        self.0.load(Ordering::Relaxed)
    }
}

/// Waiting time of a thread: it looks again at once for a while, then lets others run between two
/// looks, for there may be more threads than cores.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    looks: u32,
}

impl Patience {
    const QUICK_LOOKS: u32 = 200;

    pub(crate) fn pause(&mut self) {
        self.looks = self.looks.saturating_add(1);
        if self.looks <= Self::QUICK_LOOKS {
            hint::spin_loop();
        } else {
            thread::yield_now();
        }
    }
}
