//! Forecast of the time when the pool will be full, from its recent growth.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use api::{FillState, Forecast, Growth};

/// Time span of the samples.
const WINDOW: Duration = Duration::from_secs(600);

/// Minimum time span for a forecast.
const WINDOW_MIN: Duration = Duration::from_secs(30);

/// Minimum time span for a forecast of any length.
const WINDOW_LONG: Duration = Duration::from_secs(300);

/// Maximum time to full, in multiples of a time span below [`WINDOW_LONG`]. The growth of one
/// minute, such as at a start, does not continue for hours.
const REACH_MAX: u128 = 20;

/// Recent part of the window. A pool that grew only before it is not filling.
const LATELY: Duration = Duration::from_secs(120);

/// Growth in the recent part must be at least the expected growth at the average rate, divided by
/// this. Idle pools also grow a little.
const SHARE_LATELY_MIN: u128 = 10;

/// Maximum time to full that is reported. A pool that takes a year or more is not filling.
const TIME_TO_FULL_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// Maximum number of volumes named in a forecast.
const VOLUME_COUNT_MAX: usize = 3;

/// Usage of pool and volumes at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) at: Instant,
    /// Memory that new data cannot use.
    pub(crate) used_bytes: u64,
    /// Written bytes by volume id, in ascending order of ids.
    pub(crate) written_bytes: Vec<(u64, u64)>,
}

/// Recent samples of the pool's usage.
#[derive(Debug, Default)]
pub(crate) struct Filling {
    samples: Mutex<VecDeque<Sample>>,
}

impl Filling {
    /// Adds a sample. Called every few seconds.
    pub(crate) fn observe(&self, sample: Sample) {
        let mut samples = self.samples.lock().expect(NO_PANIC);
        let now = sample.at;
        while samples.front().is_some_and(|old| now.saturating_duration_since(old.at) > WINDOW) {
            samples.pop_front();
        }
        samples.push_back(sample);
    }

    /// Forecasts when a pool that may hold `limit_bytes` will be full, if it is filling. `last` is
    /// the current usage, so that a deletion since the last sample counts. `name_of` returns the
    /// name of a volume that still exists.
    pub(crate) fn forecast(
        &self,
        mut last: Sample,
        limit_bytes: u64,
        name_of: impl Fn(u64) -> Option<String>,
    ) -> (FillState, Option<Forecast>) {
        let samples = self.samples.lock().expect(NO_PANIC);
        // The caller read the clock before it waited for the lock.
        last.at = samples.back().map_or(last.at, |newest| newest.at.max(last.at));
        let last = &last;
        let course: Vec<&Sample> = samples.iter().chain([last]).collect();
        let first = beginning(&course).unwrap_or(last);
        let window = last.at.saturating_duration_since(first.at);
        let known =
            samples.front().map_or(window, |oldest| last.at.saturating_duration_since(oldest.at));
        let grown = last.used_bytes - first.used_bytes;
        if known < WINDOW_MIN || (grown > 0 && window < WINDOW_MIN) {
            return (FillState::Unknown, None);
        }
        let window_ms = window.as_millis();
        let is_recent = |sample: &&Sample| last.at.saturating_duration_since(sample.at) <= LATELY;
        let recent = samples.iter().find(is_recent).unwrap_or(last);
        let lately_ms = last.at.saturating_duration_since(recent.at).as_millis();
        let grown_lately = u128::from(last.used_bytes.saturating_sub(recent.used_bytes));
        let expected_lately = u128::from(grown) * lately_ms / window_ms.max(1);
        let has_stopped = window > LATELY && grown_lately * SHARE_LATELY_MIN < expected_lately;
        if grown == 0 || has_stopped {
            return (FillState::Steady, None);
        }
        let free = limit_bytes.saturating_sub(last.used_bytes);
        let full_in_ms = u128::from(free) * window_ms / u128::from(grown);
        if full_in_ms > TIME_TO_FULL_MAX.as_millis() {
            return (FillState::Steady, None);
        }
        if window < WINDOW_LONG && full_in_ms > window_ms * REACH_MAX {
            return (FillState::Unknown, None);
        }
        let rate = |bytes: u64| {
            u64::try_from(u128::from(bytes) * 1000 / window_ms.max(1)).unwrap_or(u64::MAX)
        };
        let volumes = fastest(first, last).into_iter().filter_map(|(id, bytes)| {
            Some(Growth { volume: name_of(id)?, bytes_per_second: rate(bytes) })
        });
        let forecast = Forecast {
            full_in_seconds: u64::try_from(full_in_ms / 1000).unwrap_or(u64::MAX),
            bytes_per_second: rate(grown),
            window_seconds: window.as_secs(),
            volumes: volumes.take(VOLUME_COUNT_MAX).collect(),
        };
        (FillState::Filling, Some(forecast))
    }
}

/// Sample from which growth is measured: the lowest one, because data written before a later
/// deletion does not count. If more than half of the growth since then was deleted again, the
/// lowest one after that deletion.
fn beginning<'a>(course: &[&'a Sample]) -> Option<&'a Sample> {
    let lowest = |course: &[&Sample]| {
        course.iter().enumerate().rev().min_by_key(|(_, it)| it.used_bytes).map(|(index, _)| index)
    };
    let first = lowest(course)?;
    let (peak, highest) =
        course.iter().enumerate().skip(first).max_by_key(|(_, it)| it.used_bytes)?;
    let trough = course[peak + lowest(&course[peak..])?];
    let deleted = highest.used_bytes - trough.used_bytes;
    let has_restarted = deleted > trough.used_bytes - course[first].used_bytes;
    Some(if has_restarted { trough } else { course[first] })
}

/// Volumes and their growth in bytes, the fastest first.
fn fastest(first: &Sample, last: &Sample) -> Vec<(u64, u64)> {
    let before = |id: u64| {
        let found = first.written_bytes.binary_search_by_key(&id, |&(id, _)| id);
        found.map_or(0, |index| first.written_bytes[index].1)
    };
    let growth = |&(id, bytes): &(u64, u64)| (id, bytes.saturating_sub(before(id)));
    let mut grown: Vec<_> = last.written_bytes.iter().map(growth).collect();
    grown.retain(|&(_, bytes)| bytes > 0);
    grown.sort_by_key(|&(id, bytes)| (std::cmp::Reverse(bytes), id));
    grown
}

const NO_PANIC: &str = "no thread panics with this lock";

#[cfg(test)]
mod tests {
    use super::*;

    /// Time in seconds, used bytes, and written bytes by volume id.
    type Moment<'a> = (u64, u64, &'a [(u64, u64)]);

    /// Adds a sample for each moment, and forecasts for a pool of 1000 bytes.
    fn look_ahead(course: &[Moment<'_>]) -> (FillState, Option<Forecast>) {
        let begin = Instant::now();
        let filling = Filling::default();
        let mut last = Sample { at: begin, used_bytes: 0, written_bytes: Vec::new() };
        for &(second, used_bytes, written) in course {
            let at = begin + Duration::from_secs(second);
            last = Sample { at, used_bytes, written_bytes: written.to_vec() };
            filling.observe(last.clone());
        }
        filling.forecast(last, 1000, |id| (id != 9).then(|| format!("v{id}")))
    }

    fn forecast(course: &[Moment<'_>]) -> Option<Forecast> {
        look_ahead(course).1
    }

    /// Checks the state of a pool with a sample every ten seconds. `course` has the used bytes of
    /// each sample.
    #[track_caller]
    fn check_state(course: impl IntoIterator<Item = u64>, expected: FillState) {
        let moments: Vec<_> =
            (0..).step_by(10).zip(course).map(|(second, used)| (second, used, &[][..])).collect();
        let (state, forecast) = look_ahead(&moments);
        assert_eq!(state, expected, "{moments:?}");
        assert_eq!(forecast.is_some(), state == FillState::Filling);
    }

    #[test]
    fn a_pool_that_fills_steadily_is_full_when_its_rate_says() {
        let found = forecast(&[(0, 100, &[]), (50, 300, &[]), (100, 500, &[])]);
        let found = found.expect("it fills");
        assert_eq!((found.full_in_seconds, found.bytes_per_second), (125, 4));
        assert_eq!(found.window_seconds, 100);
    }

    #[test]
    fn a_pool_that_does_not_fill_has_no_forecast() {
        check_state([100; 2], FillState::Unknown);
        check_state([100; 20], FillState::Steady);
        check_state([500, 500, 500, 400, 300, 100], FillState::Steady);
        assert_eq!(look_ahead(&[]), (FillState::Unknown, None));
        let (state, _) = look_ahead(&[(0, 100, &[]), (10, 500, &[])]);
        assert_eq!(state, FillState::Unknown, "too little is known");
    }

    #[test]
    fn a_short_growth_does_not_forecast_hours() {
        let (state, _) = look_ahead(&[(0, 100, &[]), (30, 110, &[]), (40, 110, &[])]);
        assert_eq!(state, FillState::Unknown, "ten bytes in 40 s, and 890 are free");
        let (state, found) = look_ahead(&[(0, 100, &[]), (40, 110, &[]), (300, 175, &[])]);
        assert_eq!(state, FillState::Filling, "the same rate for five minutes");
        assert_eq!(found.expect("it fills").full_in_seconds, 3300);
    }

    #[test]
    fn a_pool_that_was_filled_and_is_idle_since_does_not_fill() {
        let burst = [100, 200, 300, 400];
        check_state(burst, FillState::Filling);
        check_state(burst.into_iter().chain([400; 13]), FillState::Steady);
        let drifting = (0..20).map(|step| 400 + step / 10);
        check_state(burst.into_iter().chain(drifting), FillState::Steady);
    }

    #[test]
    fn a_pool_that_fills_again_after_much_was_deleted_fills() {
        let refilled = [900, 900, 900, 900, 100, 120, 140, 160, 180];
        check_state(refilled, FillState::Filling);
        let found = forecast(&[(0, 900, &[]), (60, 100, &[]), (100, 180, &[])]);
        assert_eq!(found.expect("it fills").bytes_per_second, 2);
        check_state([900, 900, 900, 900, 100, 120], FillState::Unknown);
    }

    #[test]
    fn what_a_deletion_left_behind_is_no_growth() {
        check_state([100, 300, 500, 700, 900, 102], FillState::Steady);
        check_state([100, 300, 500, 700, 900, 102, 102, 102, 102, 102], FillState::Steady);
        let found = forecast(&[(0, 100, &[]), (60, 900, &[]), (70, 200, &[]), (110, 280, &[])]);
        assert_eq!(found.expect("it fills").bytes_per_second, 2);
        check_state([100, 300, 500, 700, 900, 800, 950], FillState::Filling);
    }

    #[test]
    fn a_pool_that_fills_in_bursts_fills() {
        let bursts = (0..60).map(|step| 100 + step / 6 * 10);
        check_state(bursts, FillState::Filling);
    }

    #[test]
    fn only_the_last_minutes_count() {
        let found = forecast(&[(0, 900, &[]), (1000, 100, &[]), (1100, 200, &[])]);
        assert_eq!(found.expect("it fills").bytes_per_second, 1);
    }

    #[test]
    fn the_volumes_that_grow_fastest_are_named() {
        let before: &[(u64, u64)] = &[(1, 100), (2, 500), (3, 0), (9, 0)];
        let after: &[(u64, u64)] = &[(1, 300), (2, 400), (3, 50), (4, 100), (5, 10), (9, 900)];
        let found = forecast(&[(0, 100, before), (100, 200, after)]).expect("it fills");
        let names: Vec<_> = found.volumes.iter().map(|it| it.volume.as_str()).collect();
        assert_eq!(names, ["v1", "v4", "v3"]);
        assert_eq!(found.volumes[0].bytes_per_second, 2);
    }
}
