//! Waiting for requests of a lane without holding the lane.

use std::hint;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::task::Poll;
use std::time::Duration;

use adaptive_polling::Waiter;
use shared_ring::LaneWatch;

use crate::process::ClientMachine;

/// Interval between attempts to reconnect.
pub(crate) const ATTEMPT_INTERVAL: Duration = Duration::from_millis(2);

/// Maximum duration of one sleep, after which the connection is checked.
pub(crate) const PULSE: Duration = Duration::from_millis(20);

/// Number of polls in a row, with pauses in between, for each call of the waiter.
const LOOKS_PER_POLL: u32 = 8;

/// Requests of a lane that were in flight at one moment.
pub struct Watch {
    /// `None` while there is no connection.
    lane: Option<LaneWatch>,
    has_ended: bool,
    waiter: SharedWaiter,
}

impl Watch {
    pub(crate) fn new(lane: Option<LaneWatch>, has_ended: bool, waiter: SharedWaiter) -> Self {
        Self { lane, has_ended, waiter }
    }

    /// Waits until one of the requests may have completed, for at most `time_max` or 20 ms.
    /// Afterwards the caller must poll the lane, which also detects that the daemon has exited.
    pub fn wait(&self, time_max: Duration) {
        if self.has_ended {
            return;
        }
        match &self.lane {
            Some(lane) => self.waiter.wait(lane, PULSE.min(time_max)),
            None => self.sleep(time_max),
        }
    }

    /// Waits as [`Watch::wait`] does, without spinning.
    pub(crate) fn sleep(&self, time_max: Duration) {
        if self.has_ended {
            return;
        }
        match &self.lane {
            Some(lane) => lane.sleep(PULSE.min(time_max)),
            None => std::thread::sleep(ATTEMPT_INTERVAL.min(time_max)),
        }
    }
}

/// Adaptive waiter of a lane, used by one thread at a time; other threads sleep.
#[derive(Clone)]
pub(crate) struct SharedWaiter(Arc<Mutex<Waiter<ClientMachine>>>);

impl SharedWaiter {
    pub(crate) fn new(waiter: Waiter<ClientMachine>) -> Self {
        Self(Arc::new(Mutex::new(waiter)))
    }

    fn wait(&self, lane: &LaneWatch, time_max: Duration) {
        let mut waiter = match self.0.try_lock() {
            Ok(waiter) => waiter,
            Err(TryLockError::Poisoned(poisoned)) => PoisonError::into_inner(poisoned),
            Err(TryLockError::WouldBlock) => return lane.sleep(time_max),
        };
        let poll = || {
            for _ in 0..LOOKS_PER_POLL {
                if lane.has_answer() {
                    return Poll::Ready(());
                }
                hint::spin_loop();
            }
            Poll::Pending
        };
        waiter.wait(poll, || lane.sleep(time_max));
    }
}
