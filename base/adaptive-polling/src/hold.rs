//! Decision when to request and to withdraw low CPU latency. It has no side effects.

use std::time::Duration;

/// Interval of checks after traffic has begun.
const FIRST_LOOKS_INTERVAL: Duration = Duration::from_millis(1);

/// Number of checks with traffic before the request is made. It interrupts every idle core, which
/// is not worthwhile for less than a millisecond of traffic.
const LOOKS_UNTIL_HELD: u32 = 3;

/// Interval of checks while the request is held.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// The request outlives the traffic by less than this plus one interval.
const QUIET_AFTER: Duration = Duration::from_millis(20);

/// Action until the next check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    SleepUntilTraffic,
    LookIn(Duration),
}

/// State of the traffic, from periodic checks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Hold {
    #[default]
    Quiet,
    /// Number of checks with traffic, and the time of the last one. The traffic may be short.
    Beginning { looks: u32, last_look: Duration },
    /// The request is held.
    Held { last_traffic: Duration },
}

impl Hold {
    pub(crate) fn is_held(self) -> bool {
        matches!(self, Self::Held { .. })
    }

    /// Records whether there was traffic since the last check.
    pub(crate) fn look(&mut self, now: Duration, had_traffic: bool) -> Next {
        *self = match (*self, had_traffic) {
            (Self::Quiet, true) => Self::Beginning { looks: 1, last_look: now },
            (Self::Beginning { last_look, .. }, _)
                if now.saturating_sub(last_look) < FIRST_LOOKS_INTERVAL =>
            {
                *self
            }
            (Self::Beginning { looks, .. }, true) if looks + 1 < LOOKS_UNTIL_HELD => {
                Self::Beginning { looks: looks + 1, last_look: now }
            }
            (Self::Beginning { .. } | Self::Held { .. }, true) => Self::Held { last_traffic: now },
            (Self::Held { last_traffic }, false)
                if now.saturating_sub(last_traffic) < QUIET_AFTER =>
            {
                *self
            }
            (_, false) => Self::Quiet,
        };
        match *self {
            Self::Quiet => Next::SleepUntilTraffic,
            Self::Beginning { .. } => Next::LookIn(FIRST_LOOKS_INTERVAL),
            Self::Held { .. } => Next::LookIn(LOOK_INTERVAL),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICROSECOND: Duration = Duration::from_micros(1);
    const SECOND: Duration = Duration::from_secs(1);

    /// Time for which the request is held in one second, if traffic comes in bursts of length
    /// `burst` every `interval`.
    fn held_in_a_second(burst: Duration, interval: Duration) -> Duration {
        let (mut hold, mut held, mut seen) = (Hold::default(), Duration::ZERO, false);
        let (mut now, mut look_at) = (Duration::ZERO, None);
        while now < SECOND {
            seen |= now.as_micros() % interval.as_micros() < burst.as_micros();
            let is_due = look_at.map_or(seen, |look_at| now >= look_at);
            if is_due {
                look_at = match hold.look(now, std::mem::take(&mut seen)) {
                    Next::SleepUntilTraffic => None,
                    Next::LookIn(interval) => Some(now + interval),
                };
            }
            held += if hold.is_held() { MICROSECOND * 50 } else { Duration::ZERO };
            now += MICROSECOND * 50;
        }
        held
    }

    #[track_caller]
    fn check(burst_us: u32, interval_us: u32, held_ms: std::ops::RangeInclusive<u128>) {
        let held = held_in_a_second(MICROSECOND * burst_us, MICROSECOND * interval_us);
        assert!(held_ms.contains(&held.as_millis()), "held for {held:?} of a second");
    }

    #[test]
    fn lasting_traffic_holds_the_wish_from_its_third_millisecond_on() {
        check(1_000_000, 1_000_000, 997..=998);
    }

    #[test]
    fn silence_ends_the_wish_within_thirty_milliseconds() {
        check(100_000, 1_000_000, 98..=128);
    }

    #[test]
    fn short_bursts_make_no_wish() {
        check(950, 10_000, 0..=0);
    }

    #[test]
    fn bursts_that_follow_each_other_quickly_are_one() {
        check(5_000, 15_000, 990..=999);
    }

    #[test]
    fn a_wish_is_held_for_little_longer_than_bursts_that_are_far_apart() {
        check(10_000, 200_000, 5 * 9..=5 * 40);
    }

    #[test]
    fn looks_that_come_too_early_change_nothing() {
        let mut hold = Hold::default();
        for millisecond in 0..2 {
            let now = SECOND + Duration::from_millis(millisecond);
            assert_eq!(hold.look(now, true), Next::LookIn(FIRST_LOOKS_INTERVAL));
            assert_eq!(hold.look(now, false), Next::LookIn(FIRST_LOOKS_INTERVAL));
        }
        let now = SECOND + Duration::from_millis(2);
        assert_eq!(hold.look(now, true), Next::LookIn(LOOK_INTERVAL));
        assert_eq!(hold.look(now, false), Next::LookIn(LOOK_INTERVAL));
        assert!(hold.is_held());
    }
}
