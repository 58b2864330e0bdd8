//! When the operations of one thread are due: at a steady rate, however long each takes.
//!
//! For threads that do operations of several kinds and that are stopped from outside; a thread that
//! does one thing for a given time has `crate::pace`.

use std::hint;
use std::thread;
use std::time::{Duration, Instant};

/// Closer than this a wait spins: a sleeping thread would wake too late.
const AWAKE: Duration = Duration::from_micros(120);

/// The longest sleep between two looks whether the measurement is over.
const SLEEP_MAX: Duration = Duration::from_millis(20);

/// A sequence of moments. The first is when it is made.
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

    /// Waits for the next moment and tells when it was, which is in the past for a late thread;
    /// none when the measurement `is_over`.
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

    /// When an operation is due, counted from 0.
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
        // Long past, the moments stay where they were.
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
