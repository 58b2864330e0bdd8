//! Wall clock.

use std::time::{SystemTime, UNIX_EPOCH};

/// Current time in seconds since 1970.
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |it| it.as_secs())
}
