//! Age of an image or of a shipped part of the journal.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Age in seconds of a timestamp in whole seconds, rounded up. `None`: it is in the future.
pub(super) fn lag_seconds(saved_unix_seconds: u64) -> Option<f64> {
    since(Duration::from_secs(saved_unix_seconds))
}

/// Age in seconds of a timestamp in microseconds. `None`: it is in the future.
pub(super) fn journal_lag_seconds(shipped_unix_micros: u64) -> Option<f64> {
    since(Duration::from_micros(shipped_unix_micros))
}

fn since(time: Duration) -> Option<f64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    now.checked_sub(time).map(|lag| lag.as_secs_f64())
}
