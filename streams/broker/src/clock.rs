//! The time of day, as records have it, and time that goes on evenly.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970.
pub(crate) fn unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// The seconds at which [`epoch_now`] begins to count: the start of 2025.
const EPOCHS_SINCE_UNIX_SECONDS: i64 = 1_735_689_600;

/// Epoch in which a topic that is made or opened now begins at least. Clients never go back to an
/// epoch below one that they know: a topic that was opened often, and was then set back to a
/// snapshot or to its last image, or deleted and made again, would otherwise begin one below it,
/// and wait for them to believe it.
/// Openings that follow each other within a second are ahead of the clock for a while.
pub(crate) fn epoch_now() -> i32 {
    let seconds = unix_ms() / 1000 - EPOCHS_SINCE_UNIX_SECONDS;
    // In 2059 they stand still, and each opening adds one as before.
    i32::try_from(seconds.clamp(0, i64::from(i32::MAX / 2))).expect("it fits")
}

/// Milliseconds that begin with the time of day and go on evenly, whoever sets the host's clock,
/// while their owner looks: it stands still for as long as its owner could not, such as when the
/// whole process was stopped, so that nobody who could not be heard meanwhile is late.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SteadyClock {
    /// When its owner looked last, and what it said.
    looked: Instant,
    looked_ms: i64,
    /// The owner looks more often than this.
    pause_max: Duration,
}

impl SteadyClock {
    pub(crate) fn begin(pause_max: Duration) -> Self {
        Self { looked: Instant::now(), looked_ms: unix_ms(), pause_max }
    }

    /// Moves it to an instant. Returns how long the owner did not look, if that was too long and
    /// does not count.
    pub(crate) fn look(&mut self, now: Instant) -> Option<Duration> {
        let passed = now.saturating_duration_since(self.looked);
        let has_stalled = passed > self.pause_max;
        if !has_stalled {
            let passed_ms = u32::try_from(passed.as_millis()).expect("a pause is short");
            // Parts of milliseconds are not lost, however often its owner looks.
            self.looked += Duration::from_millis(u64::from(passed_ms));
            self.looked_ms += i64::from(passed_ms);
            return None;
        }
        self.looked = now;
        Some(passed)
    }

    /// Time that it told when its owner looked last.
    pub(crate) fn now_ms(&self) -> i64 {
        self.looked_ms
    }

    /// Time that it told at an instant, or would have told if it had not stood still since.
    pub(crate) fn at_ms(&self, instant: Instant) -> i64 {
        let before = self.looked.saturating_duration_since(instant);
        self.looked_ms.saturating_sub(i64::try_from(before.as_millis()).unwrap_or(i64::MAX))
    }

    /// By how much the time of day is ahead of this clock: 0 until it is set.
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
