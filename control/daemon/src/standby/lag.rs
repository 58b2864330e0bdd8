//! Time since an image was saved, or a part of the journal was shipped.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Seconds since a time of whole seconds, never fewer than have passed. `None`: it is to come.
pub(super) fn lag_seconds(saved_unix_seconds: u64) -> Option<f64> {
    since(Duration::from_secs(saved_unix_seconds))
}

/// Seconds since a time in microseconds. `None`: it is to come.
pub(super) fn journal_lag_seconds(shipped_unix_micros: u64) -> Option<f64> {
    since(Duration::from_micros(shipped_unix_micros))
}

fn since(time: Duration) -> Option<f64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    now.checked_sub(time).map(|lag| lag.as_secs_f64())
}
