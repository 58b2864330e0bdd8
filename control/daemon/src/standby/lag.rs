//! Time since an image was saved, or a part of the journal was shipped.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use standby::Progress;

/// Seconds since a time of whole seconds, never fewer than have passed. `None`: it is to come.
pub(super) fn lag_seconds(saved_unix_seconds: u64) -> Option<f64> {
    lag_seconds_since(Duration::from_secs(saved_unix_seconds))
}

/// Seconds whose writes are in neither the newest image nor what was shipped after it. The younger of
/// the two counts, as far as it is not to come.
pub(super) fn lag_of(progress: &Progress) -> Option<f64> {
    let image = progress.saved_unix_seconds.map(lag_seconds);
    let shipped = progress.shipped_unix_micros.map(Duration::from_micros).map(lag_seconds_since);
    match (image?, shipped) {
        (Some(image), Some(Some(shipped))) => Some(image.min(shipped)),
        (image, None) => image,
        _ => None,
    }
}

/// Seconds since a time after 1970. `None`: it is to come.
pub(super) fn lag_seconds_since(time: Duration) -> Option<f64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    now.checked_sub(time).map(|lag| lag.as_secs_f64())
}
