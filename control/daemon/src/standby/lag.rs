//! Age of an image or of a shipped part of the journal.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Changes by the writer of a store, in the time of this host's monotonic clock. Timestamps in the
/// store are of the writer's clock, which may be wrong, as may be the clock of this host.
#[derive(Clone, Debug, Default)]
pub(super) struct Changes {
    /// The newest image, and the time until which the journal was shipped after it.
    seen: Option<(Option<u32>, Option<u64>)>,
    last: Option<Instant>,
}

impl Changes {
    /// Notes what a look at the store has found that began at `now`.
    pub(super) fn note(&mut self, image: Option<u32>, shipped: Option<u64>, now: Instant) {
        let before = self.seen.replace((image, shipped));
        if before.is_some_and(|before| before != (image, shipped)) {
            self.last = Some(now);
        }
    }

    /// Seconds since the last change. `None`: there was none since the first look.
    pub(super) fn seconds_since(&self, now: Instant) -> Option<f64> {
        self.last.map(|last| now.saturating_duration_since(last).as_secs_f64())
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_first_look_finds_is_no_change_and_each_later_difference_is() {
        let begun = Instant::now();
        let at = |second| begun + Duration::from_secs(second);
        let mut changes = Changes::default();
        for (second, image, shipped, expected) in [
            (0, Some(7), None, None),
            (5, Some(7), None, None),
            (6, Some(7), Some(1_000), Some(0.0)),
            (9, Some(7), Some(1_000), Some(3.0)),
            // The writer's clock was set back.
            (20, Some(7), Some(10), Some(0.0)),
            (21, Some(8), Some(10), Some(0.0)),
            (40, Some(8), Some(10), Some(19.0)),
        ] {
            changes.note(image, shipped, at(second));
            assert_eq!(changes.seconds_since(at(second)), expected, "at {second} s");
        }
    }
}
