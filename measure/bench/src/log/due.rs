//! Schedule of one thread's operations: due at a constant rate, regardless of their durations.
//!
//! For threads that do several kinds of operations and are stopped externally. Threads that do one
//! thing for a fixed time use `crate::pace`.

use std::hint;
use std::thread;
use std::time::{Duration, Instant};

/// Remaining wait below which the thread spins, because it would wake too late from sleep.
const AWAKE: Duration = Duration::from_micros(120);

/// Maximum sleep between checks for the end of the measurement.
const SLEEP_MAX: Duration = Duration::from_millis(20);

/// A sequence of due times, starting at creation.
#[derive(Clone)]
pub(crate) struct Schedule {
    begun: Instant,
    interval_s: f64,
    next: u64,
}

impl Schedule {
    pub(crate) fn new(per_s: f64) -> Self {
        assert!(per_s > 0.0, "nothing is ever due at no rate");
        Self { begun: Instant::now(), interval_s: 1.0 / per_s, next: 0 }
    }

    /// Waits for the next due time and returns it. It is in the past if the thread is late. Returns
    /// `None` when the measurement `is_over`.
    pub(crate) fn wait_unless(&mut self, is_over: impl Fn() -> bool) -> Option<Instant> {
        let due = self.due(self.next);
        self.next += 1;
        while !is_over() {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Some(due);
            }
            if left > AWAKE {
                thread::sleep((left - AWAKE).min(SLEEP_MAX));
            }
            hint::spin_loop();
        }
        None
    }

    /// Returns when an operation is due, counted from 0.
    pub(crate) fn due(&self, number: u64) -> Instant {
        self.begun + Duration::from_secs_f64(number as f64 * self.interval_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_follow_at_the_rate_however_late_one_is() {
        let mut schedule = Schedule::new(1e6);
        let first = schedule.wait_unless(|| false).expect("it is not over");
        // Due times do not shift when they are missed.
        while first.elapsed() < Duration::from_millis(1) {
            hint::spin_loop();
        }
        let second = schedule.wait_unless(|| false).expect("it is not over");
        assert_eq!(second - first, Duration::from_micros(1));
        let last = (0..1000).filter_map(|_| schedule.wait_unless(|| false)).last();
        assert_eq!(last.map(|last| last - first), Some(Duration::from_micros(1001)));
    }

    #[test]
    fn nobody_waits_beyond_the_end() {
        let mut schedule = Schedule::new(1e-3);
        assert!(schedule.wait_unless(|| false).is_some());
        assert!(schedule.wait_unless(|| true).is_none());
    }
}
