//! A steady rate that does not care how long anything takes.

use std::hint;
use std::thread;
use std::time::{Duration, Instant};

/// Before something is due a thread no longer sleeps: it would wake too late.
const AWAKE: Duration = Duration::from_micros(120);

pub(crate) struct Pace {
    begun: Instant,
    interval_ns: f64,
    count: u64,
}

impl Pace {
    pub(crate) fn new(per_s: f64) -> Self {
        assert!(per_s > 0.0, "nothing is ever due at no rate");
        Self { begun: Instant::now(), interval_ns: 1e9 / per_s, count: 0 }
    }

    /// Waits until the next one is due and tells when that was; none when `is_over`.
    pub(crate) fn wait_unless(&mut self, is_over: impl Fn() -> bool) -> Option<Instant> {
        let due = self.begun + Duration::from_secs_f64(self.count as f64 * self.interval_ns / 1e9);
        self.count += 1;
        loop {
            let left = due.saturating_duration_since(Instant::now());
            if is_over() {
                return None;
            }
            if left.is_zero() {
                return Some(due);
            }
            if left > AWAKE {
                thread::sleep((left - AWAKE).min(Duration::from_millis(20)));
            }
            hint::spin_loop();
        }
    }
}
