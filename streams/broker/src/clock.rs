//! The time of day, as records have it, and time that goes on evenly.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970.
pub(crate) fn unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Milliseconds that begin with the time of day and go on evenly, whoever sets the host's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SteadyClock {
    began: Instant,
    began_unix_ms: i64,
}

impl SteadyClock {
    pub(crate) fn begin() -> Self {
        Self { began: Instant::now(), began_unix_ms: unix_ms() }
    }

    pub(crate) fn now_ms(&self) -> i64 {
        self.at_ms(Instant::now())
    }

    /// What it said, or says, at an instant after it began.
    pub(crate) fn at_ms(&self, instant: Instant) -> i64 {
        let passed = instant.saturating_duration_since(self.began);
        let passed_ms = i64::try_from(passed.as_millis()).unwrap_or(i64::MAX);
        self.began_unix_ms.saturating_add(passed_ms)
    }

    /// By how much the time of day is ahead of this clock: 0 until it is set.
    pub(crate) fn host_ahead_ms(&self) -> i64 {
        unix_ms() - self.now_ms()
    }
}
