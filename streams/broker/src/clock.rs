//! Wall-clock time for records, and a steady clock for timeouts.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Returns the Unix time in milliseconds.
pub(crate) fn unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Returns the Unix time in seconds.
pub(crate) fn unix_seconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_secs()
}

/// Start of [`epoch_now`] in Unix seconds: the beginning of 2025.
const EPOCHS_SINCE_UNIX_SECONDS: i64 = 1_735_689_600;

/// Returns the minimum leader epoch of a topic that is created or opened now. Clients reject epochs
/// below the one that they know. Therefore a counter alone is insufficient: a topic that was opened
/// often, and was then restored from a snapshot or image, or deleted and created again, would start
/// with a lower epoch.
pub(crate) fn epoch_now() -> i32 {
    let seconds = unix_ms() / 1000 - EPOCHS_SINCE_UNIX_SECONDS;
    // From 2059 on the result is constant, and only openings increment epochs.
    i32::try_from(seconds.clamp(0, i64::from(i32::MAX / 2))).expect("it fits")
}

/// Steady clock in milliseconds. It starts with the time of day and is independent of changes of
/// the host's clock. It advances only while its owner calls it regularly: a stall, for example of
/// the whole process, is not counted, so that peers which could not be heard do not time out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SteadyClock {
    /// Instant and time of the last call.
    looked: Instant,
    looked_ms: i64,
    /// Maximum interval of calls that is not a stall.
    pause_max: Duration,
}

impl SteadyClock {
    pub(crate) fn begin(pause_max: Duration) -> Self {
        Self { looked: Instant::now(), looked_ms: unix_ms(), pause_max }
    }

    /// Advances the clock to an instant. Returns the length of a stall, which is not counted.
    pub(crate) fn look(&mut self, now: Instant) -> Option<Duration> {
        let passed = now.saturating_duration_since(self.looked);
        let has_stalled = passed > self.pause_max;
        if !has_stalled {
            let passed_ms = u32::try_from(passed.as_millis()).expect("a pause is short");
            // The rest below a millisecond is retained for the next call.
            self.looked += Duration::from_millis(u64::from(passed_ms));
            self.looked_ms += i64::from(passed_ms);
            return None;
        }
        self.looked = now;
        Some(passed)
    }

    /// Returns the time of the last call.
    pub(crate) fn now_ms(&self) -> i64 {
        self.looked_ms
    }

    /// Returns the time at an earlier instant, without stalls since then.
    pub(crate) fn at_ms(&self, instant: Instant) -> i64 {
        let before = self.looked.saturating_duration_since(instant);
        self.looked_ms.saturating_sub(i64::try_from(before.as_millis()).unwrap_or(i64::MAX))
    }

    /// Returns the offset of the time of day from this clock: 0 until the host's clock is set.
    pub(crate) fn host_ahead_ms(&self) -> i64 {
        unix_ms() - self.now_ms()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_clock_goes_on_while_it_is_looked_at_and_stands_still_else() {
        let ms = Duration::from_millis;
        let mut clock = SteadyClock::begin(ms(2_000));
        let (begin, begin_ms) = (clock.looked, clock.now_ms());
        for step in 1..=1_000 {
            assert_eq!(clock.look(begin + step * Duration::from_micros(2_500)), None);
        }
        let now = begin + ms(2_500);
        assert_eq!(clock.now_ms(), begin_ms + 2_500);
        assert_eq!(clock.look(now + ms(2_000)), None, "as long as it may be");
        assert_eq!(clock.now_ms(), begin_ms + 4_500);
        assert_eq!(clock.look(now), None, "an instant before");
        assert_eq!(clock.now_ms(), begin_ms + 4_500);

        let stopped = now + ms(2_000);
        assert_eq!(clock.look(stopped + ms(90_000)), Some(ms(90_000)));
        assert_eq!(clock.now_ms(), begin_ms + 4_500, "the stop does not count");
        assert_eq!(clock.at_ms(stopped + ms(90_000)), begin_ms + 4_500);
        assert!(clock.at_ms(stopped) < begin_ms + 4_500, "what came before is no later");
        assert_eq!(clock.look(stopped + ms(90_100)), None);
        assert_eq!(clock.now_ms(), begin_ms + 4_600);
    }
}
