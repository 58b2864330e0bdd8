//! Time since an image was saved.

use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since a time of whole seconds, never fewer than have passed. `None`: it is to come.
pub(super) fn lag_seconds(saved_unix_seconds: u64) -> Option<f64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    let lag = now.as_secs_f64() - saved_unix_seconds as f64;
    (lag >= 0.0).then_some(lag)
}
