//! How much of a processor compression may take, decided by the clock and the traffic.
//!
//! Clients get the processor first: compression waits until they rest, unless memory runs short.

use std::time::{Duration, Instant};

use volume::PoolUsage;

/// Fewer requests a second than this are no traffic to speak of.
const QUIET_REQUESTS_A_SECOND: u64 = 1000;

/// The shortest time that a rate is taken over.
const WINDOW: Duration = Duration::from_millis(20);

/// With less than this share of the pool free, in percent, compression goes on beside traffic.
/// Below 25 % writers compress themselves.
const SHORT_OF_MEMORY_PERCENT: u64 = 40;

/// Of the time beside traffic, compression takes one part in so many.
const PART_BESIDE_TRAFFIC: u32 = 4;

/// What compression may do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Wait for a quieter time.
    Rest,
    /// Work a part of the time.
    Part,
    /// Work all the time.
    Full,
}

impl Pace {
    /// How long to wait after a piece of compression that took some time.
    pub(crate) fn pause_after(self, took: Duration) -> Duration {
        match self {
            Self::Rest | Self::Part => took * (PART_BESIDE_TRAFFIC - 1),
            Self::Full => Duration::ZERO,
        }
    }
}

/// Follows the traffic.
#[derive(Debug)]
pub(crate) struct Pacer {
    window_began: Instant,
    requests_before: u64,
    is_quiet: bool,
}

impl Pacer {
    pub(crate) fn new(now: Instant, request_count: u64) -> Self {
        Self { window_began: now, requests_before: request_count, is_quiet: false }
    }

    /// Takes note of the requests that there have been up to now.
    pub(crate) fn observe(&mut self, now: Instant, request_count: u64) {
        let window = now.saturating_duration_since(self.window_began);
        if window < WINDOW {
            return;
        }
        let requests = request_count.saturating_sub(self.requests_before);
        let limit = u128::from(QUIET_REQUESTS_A_SECOND) * window.as_micros() / 1_000_000;
        self.is_quiet = u128::from(requests) <= limit;
        self.window_began = now;
        self.requests_before = request_count;
    }

    pub(crate) fn pace(&self, usage: &PoolUsage) -> Pace {
        let free_bytes = usage.size_bytes.saturating_sub(usage.used_bytes);
        if self.is_quiet {
            Pace::Full
        } else if free_bytes < usage.size_bytes / 100 * SHORT_OF_MEMORY_PERCENT {
            Pace::Part
        } else {
            Pace::Rest
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets `requests` come in during `milliseconds`, in a pool of which so many percent are free.
    #[track_caller]
    fn check((requests, milliseconds): (u64, u64), free_percent: u64, expected: Pace) {
        let begin = Instant::now();
        let mut pacer = Pacer::new(begin, 500);
        pacer.observe(begin + Duration::from_millis(milliseconds), 500 + requests);
        let used_bytes = 1000 - free_percent * 10;
        let usage = PoolUsage { size_bytes: 1000, used_bytes, ..PoolUsage::default() };
        assert_eq!(pacer.pace(&usage), expected);
    }

    #[test]
    fn compression_waits_for_quiet_times() {
        check((0, 500), 90, Pace::Full);
        check((20, 20), 90, Pace::Full);
        check((21, 20), 90, Pace::Rest);
        check((30_000, 1000), 90, Pace::Rest);
    }

    #[test]
    fn compression_goes_on_beside_traffic_when_memory_is_short() {
        check((30_000, 1000), 39, Pace::Part);
        check((30_000, 1000), 0, Pace::Part);
        check((0, 500), 0, Pace::Full);
    }

    #[test]
    fn a_moment_is_too_short_to_tell() {
        check((0, 19), 90, Pace::Rest);
    }

    #[test]
    fn beside_traffic_three_quarters_of_the_time_are_left() {
        let took = Duration::from_millis(2);
        assert_eq!(Pace::Part.pause_after(took), Duration::from_millis(6));
        assert_eq!(Pace::Full.pause_after(took), Duration::ZERO);
    }
}
