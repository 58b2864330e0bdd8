//! End of a measurement, and waiting between its threads.

use std::hint;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use system::Interruption;

use super::meter::Window;

/// Polling interval for an interruption by the user.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// Stop flag of a measurement's threads.
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

    /// Does the work of a thread, then stops the others, because the mix is lost without it.
    pub(crate) fn ask_after<T>(
        &self,
        ended: Sender<()>,
        work: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let result = work();
        self.ask();
        drop(ended);
        result
    }

    /// Waits until all threads have ended. Stops them at the end of the window, or when the user
    /// interrupts the measurement.
    pub(crate) fn wait_for_end(&self, window: Window, all_ended: &Receiver<()>) {
        let end = window.begin + window.length;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || Interruption::is_asked_for() {
                self.ask();
            }
            let look = left.clamp(Duration::from_millis(1), LOOK_INTERVAL);
            if all_ended.recv_timeout(look) == Err(RecvTimeoutError::Disconnected) {
                return;
            }
        }
    }
}

/// Waiting strategy of a thread: spins briefly, then yields between checks, because there may be
/// more threads than cores.
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
