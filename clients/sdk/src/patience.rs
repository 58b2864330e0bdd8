//! Waiting for the restart of the daemon, with increasing pauses between attempts.

use std::thread;
use std::time::{Duration, Instant};

/// Minimum and maximum pause between two attempts to connect.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// One wait for the daemon.
pub(crate) struct Patience {
    end: Instant,
    pause: Duration,
}

impl Patience {
    pub(crate) fn new(time_max: Duration) -> Self {
        let now = Instant::now();
        // A deadline beyond the range of the clock is replaced by one in about a century.
        let end = now.checked_add(time_max).unwrap_or(now + Duration::from_secs(3_000_000_000));
        Self { end, pause: PAUSE_MIN }
    }

    pub(crate) fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// Pauses before another attempt. Each pause is longer than the last. Returns false after the
    /// deadline.
    pub(crate) fn pause(&mut self) -> bool {
        let left = self.left();
        if left.is_zero() {
            return false;
        }
        thread::sleep(self.pause.min(left));
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        true
    }
}
