//! Schedule of idle compression.

use std::time::{Duration, Instant};

use volumes::Engine;

use crate::pace::Pace;

/// Interval after which a postponed step is tried again.
const WAITING_INTERVAL: Duration = Duration::from_millis(200);

/// Maximum length of a period, with which no clock overflows.
const PERIOD_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// Settings of idle compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleCompression {
    /// Time without a read or write after which pages are compressed. Up to twice this time may
    /// pass before that.
    pub after: Duration,
    /// Limit on processor time, in percent of one processor: 1 to 100.
    pub core_percent: u32,
}

/// Idle compression, performed in steps.
#[derive(Debug)]
pub(crate) struct IdleWork {
    settings: IdleCompression,
    period_ends: Instant,
    /// True if more work may be pending in this period.
    has_more: bool,
    rests_until: Instant,
}

impl IdleWork {
    pub(crate) fn new(settings: IdleCompression, now: Instant) -> Self {
        let settings = IdleCompression { after: settings.after.min(PERIOD_MAX), ..settings };
        Self {
            settings,
            period_ends: now + settings.after,
            // Uses before the first period began are unknown.
            has_more: false,
            rests_until: now,
        }
    }

    /// Performs a step if it is due. Returns the time until the next step, or `None` if no work is
    /// left in this period.
    pub(crate) fn step(
        &mut self,
        engine: &Engine,
        pace: impl FnOnce(Instant) -> Pace,
    ) -> Option<Duration> {
        let now = Instant::now();
        if now >= self.period_ends {
            engine.begin_idle_period();
            self.period_ends = now + self.settings.after;
            self.has_more = true;
        }
        if !self.has_more {
            return None;
        }
        let rest = self.rests_until.saturating_duration_since(now);
        if !rest.is_zero() {
            return Some(rest);
        }
        if pace(now) == Pace::Rest {
            return Some(WAITING_INTERVAL);
        }
        let begun = Instant::now();
        self.has_more = engine.compress_idle();
        let rest = self.rest_after(begun.elapsed());
        self.rests_until = Instant::now() + rest;
        self.has_more.then_some(rest)
    }

    /// Returns the pause after a step that limits the steps to their share of a processor.
    fn rest_after(&self, took: Duration) -> Duration {
        let share = self.settings.core_percent.clamp(1, 100);
        took * (100 - share) / share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_may_be_of_any_length() {
        let settings = IdleCompression { after: Duration::MAX, core_percent: 25 };
        let now = Instant::now();
        assert!(IdleWork::new(settings, now).period_ends > now);
    }

    #[test]
    fn steps_take_their_share_of_a_processor() {
        let rest_after_4_ms = |core_percent| {
            let settings = IdleCompression { after: Duration::from_secs(60), core_percent };
            IdleWork::new(settings, Instant::now()).rest_after(Duration::from_millis(4))
        };
        assert_eq!(rest_after_4_ms(25), Duration::from_millis(12));
        assert_eq!(rest_after_4_ms(100), Duration::ZERO);
        assert_eq!(rest_after_4_ms(1), Duration::from_millis(396));
        assert_eq!(rest_after_4_ms(0), rest_after_4_ms(1));
    }
}
