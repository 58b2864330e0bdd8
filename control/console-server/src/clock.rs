//! Wall clock, and a steady clock that nobody can set.

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// Current time by the wall clock, in seconds since 1970.
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |it| it.as_secs())
}

/// Current time by both clocks. Timeouts and delays use the steady clock. The wall clock is for
/// times that are shown, stored, or compared with those of other hosts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// Time since the boot, also while the host was suspended.
    pub(crate) steady_seconds: u64,
    pub(crate) unix_seconds: u64,
}

impl Now {
    pub(crate) fn read() -> Self {
        let steady_seconds = clock_gettime(ClockId::Boottime).tv_sec.unsigned_abs();
        Self { steady_seconds, unix_seconds: unix_seconds() }
    }

    /// Converts a time of the steady clock to Unix seconds, by the wall clock as it is set now.
    pub(crate) fn unix_of(self, steady_seconds: u64) -> u64 {
        let ahead = steady_seconds.saturating_sub(self.steady_seconds);
        let ago = self.steady_seconds.saturating_sub(steady_seconds);
        (self.unix_seconds + ahead).saturating_sub(ago)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_shown_by_the_wall_clock_as_it_is_set_now() {
        let at = |unix_seconds| Now { steady_seconds: 100, unix_seconds };
        assert_eq!(at(5_000).unix_of(100), 5_000);
        assert_eq!(at(5_000).unix_of(40), 4_940);
        assert_eq!(at(9_000).unix_of(130), 9_030);
        assert_eq!(at(7).unix_of(40), 0, "the clock was never set");
        let (first, second) = (Now::read(), Now::read());
        assert!(first.steady_seconds <= second.steady_seconds && first.unix_seconds > 0);
    }
}
