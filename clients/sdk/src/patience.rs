//! Waiting for a daemon that has gone: for how long, and how often to try.

use std::thread;
use std::time::{Duration, Instant};

/// Between two attempts to connect.
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
        // A time that no clock can tell is as good as a century.
        let end = now.checked_add(time_max).unwrap_or(now + Duration::from_secs(3_000_000_000));
        Self { end, pause: PAUSE_MIN }
    }

    pub(crate) fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// Pauses before another attempt, longer each time. False when the time is over.
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
