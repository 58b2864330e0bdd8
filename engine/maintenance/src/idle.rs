//! When what nobody reads is compressed once more.

use std::time::{Duration, Instant};

use volumes::Engine;

use crate::pace::Pace;

/// How long to wait for a quieter time.
const WAITING_INTERVAL: Duration = Duration::from_millis(200);

/// The longest period, which no clock overflows with.
const PERIOD_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// Compression of what is idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleCompression {
    /// Time without a read or write after which pages are compressed; they may be idle for twice as
    /// long before.
    pub after: Duration,
    /// The most that it takes of one processor, in percent: 1 to 100.
    pub core_percent: u32,
}

/// The compression of what is idle, a step at a time.
#[derive(Debug)]
pub(crate) struct IdleWork {
    settings: IdleCompression,
    period_ends: Instant,
    /// There may be more to do in this period.
    has_more: bool,
    rests_until: Instant,
}

impl IdleWork {
    pub(crate) fn new(settings: IdleCompression, now: Instant) -> Self {
        let settings = IdleCompression { after: settings.after.min(PERIOD_MAX), ..settings };
        Self {
            settings,
            period_ends: now + settings.after,
            // What was used before the first period began is not known.
            has_more: false,
            rests_until: now,
        }
    }

    /// Does a step if it is time. Returns how long to wait before the next, if there is more in
    /// this period.
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

    /// Rest after a step, so that all steps take no more than their share.
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
