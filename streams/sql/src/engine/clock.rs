//! The time by which values expire.

use std::time::{SystemTime, UNIX_EPOCH};

/// Unix milliseconds.
pub(super) fn unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
