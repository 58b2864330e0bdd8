//! Share of a processor that compression may use, depending on traffic and idle processors.
//!
//! Clients have priority: compression waits until traffic is low or a processor is idle, unless
//! memory runs short.

use std::time::{Duration, Instant};

use volumes::PoolUsage;

/// Threshold of activity per second below which traffic is low: some hundred requests.
const QUIET_ACTIVITY_A_SECOND: u64 = 1000;

/// Minimum interval over which a rate is measured.
const WINDOW: Duration = Duration::from_millis(20);

/// Percentage of free memory below which compression also runs beside traffic that leaves no
/// processor idle. Below 10 % writers compress themselves.
const SHORT_OF_MEMORY_PERCENT: u64 = 25;

/// Numbers of idle processors with which compression runs beside traffic for a part of the time,
/// and continuously.
const IDLE_CORES_FOR_PART: f64 = 0.7;
const IDLE_CORES_FOR_FULL: f64 = 2.0;

/// Divisor of the share of time that compression takes beside traffic.
const PART_BESIDE_TRAFFIC: u32 = 4;

/// Pace at which compression may run now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Wait for lower traffic or idle processors.
    Rest,
    /// Work for a part of the time.
    Part,
    /// Work continuously.
    Full,
}

impl Pace {
    /// Returns the pause after a compression step of this duration.
    pub(crate) fn pause_after(self, took: Duration) -> Duration {
        match self {
            Self::Rest | Self::Part => took * (PART_BESIDE_TRAFFIC - 1),
            Self::Full => Duration::ZERO,
        }
    }
}

/// Measures the traffic.
#[derive(Debug)]
pub(crate) struct Pacer {
    window_began: Instant,
    activity_before: u32,
    is_quiet: bool,
}

impl Pacer {
    /// Creates a pacer. `activity` is the counter of other threads' work on the pool, modulo 2^32.
    pub(crate) fn new(now: Instant, activity: u32) -> Self {
        Self { window_began: now, activity_before: activity, is_quiet: false }
    }

    /// Measures the activity since the last call.
    pub(crate) fn observe(&mut self, now: Instant, activity: u32) {
        let window = now.saturating_duration_since(self.window_began);
        if window < WINDOW {
            return;
        }
        let change = activity.wrapping_sub(self.activity_before);
        let limit = u128::from(QUIET_ACTIVITY_A_SECOND) * window.as_micros() / 1_000_000;
        self.is_quiet = u128::from(change) <= limit;
        self.window_began = now;
        self.activity_before = activity;
    }

    /// Returns the current pace. `idle_cores` is called only if the result depends on it.
    pub(crate) fn pace(&self, usage: &PoolUsage, idle_cores: impl FnOnce() -> f64) -> Pace {
        if self.is_quiet {
            return Pace::Full;
        }
        let free_bytes = usage.size_bytes.saturating_sub(usage.used_bytes);
        let is_short = free_bytes < usage.size_bytes / 100 * SHORT_OF_MEMORY_PERCENT;
        match idle_cores() {
            idle if idle >= IDLE_CORES_FOR_FULL => Pace::Full,
            idle if idle >= IDLE_CORES_FOR_PART || is_short => Pace::Part,
            _ => Pace::Rest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the pace after `activity` has grown during `milliseconds`, with this many idle
    /// processors and this percentage of free memory.
    #[track_caller]
    fn check(
        (activity, milliseconds): (u32, u64),
        (idle_cores, free_percent): (f64, u64),
        expected: Pace,
    ) {
        let begin = Instant::now();
        // The counter may wrap around meanwhile.
        for before in [500, u32::MAX - 10] {
            let mut pacer = Pacer::new(begin, before);
            let later = begin + Duration::from_millis(milliseconds);
            pacer.observe(later, before.wrapping_add(activity));
            let used_bytes = 1000 - free_percent * 10;
            let usage = PoolUsage { size_bytes: 1000, used_bytes, ..PoolUsage::default() };
            assert_eq!(pacer.pace(&usage, || idle_cores), expected);
        }
    }

    #[test]
    fn compression_waits_for_quiet_times() {
        check((0, 500), (0.0, 90), Pace::Full);
        check((20, 20), (0.0, 90), Pace::Full);
        check((21, 20), (0.0, 90), Pace::Rest);
        check((30_000, 1000), (0.0, 90), Pace::Rest);
    }

    #[test]
    fn compression_takes_what_traffic_leaves_idle() {
        check((30_000, 1000), (0.6, 90), Pace::Rest);
        check((30_000, 1000), (0.9, 90), Pace::Part);
        check((30_000, 1000), (2.5, 90), Pace::Full);
    }

    #[test]
    fn compression_goes_on_beside_any_traffic_when_memory_is_short() {
        check((30_000, 1000), (0.0, 24), Pace::Part);
        check((30_000, 1000), (0.0, 0), Pace::Part);
        check((0, 500), (0.0, 0), Pace::Full);
    }

    #[test]
    fn a_moment_is_too_short_to_tell() {
        check((0, 19), (0.0, 90), Pace::Rest);
    }

    #[test]
    fn beside_traffic_three_quarters_of_the_time_are_left() {
        let took = Duration::from_millis(2);
        assert_eq!(Pace::Part.pause_after(took), Duration::from_millis(6));
        assert_eq!(Pace::Full.pause_after(took), Duration::ZERO);
    }
}
