//! When the pool will be full, judged by how it filled lately.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use api::{Forecast, Growth};

/// How much of the past counts.
const WINDOW: Duration = Duration::from_secs(600);

/// Less than this says nothing about the time to come.
const WINDOW_MIN: Duration = Duration::from_secs(30);

/// A pool that fills more slowly than this is not said to fill: it would take a year or more.
const TIME_TO_FULL_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// How many volumes are named.
const VOLUME_COUNT_MAX: usize = 3;

/// How full pool and volumes are at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) at: Instant,
    /// Memory that new data does not get.
    pub(crate) used_bytes: u64,
    /// Written bytes by the id of the volume, ascending.
    pub(crate) written_bytes: Vec<(u64, u64)>,
}

/// The past, as far as it counts.
#[derive(Debug, Default)]
pub(crate) struct Filling {
    samples: Mutex<VecDeque<Sample>>,
}

impl Filling {
    /// Takes note. Called every few seconds.
    pub(crate) fn observe(&self, sample: Sample) {
        let mut samples = self.samples.lock().expect(NO_PANIC);
        let now = sample.at;
        while samples.front().is_some_and(|old| now.saturating_duration_since(old.at) > WINDOW) {
            samples.pop_front();
        }
        samples.push_back(sample);
    }

    /// What is to come for a pool that may hold `limit_bytes`; `None` while it does not fill, or
    /// too little is known. `name_of` finds the name of a volume that is still there.
    pub(crate) fn forecast(
        &self,
        limit_bytes: u64,
        name_of: impl Fn(u64) -> Option<String>,
    ) -> Option<Forecast> {
        let samples = self.samples.lock().expect(NO_PANIC);
        let (first, last) = (samples.front()?, samples.back()?);
        let window = last.at.saturating_duration_since(first.at);
        if window < WINDOW_MIN {
            return None;
        }
        let grown = last.used_bytes.checked_sub(first.used_bytes).filter(|&grown| grown > 0)?;
        let free = limit_bytes.saturating_sub(last.used_bytes);
        let window_ms = window.as_millis();
        let full_in_ms = u128::from(free) * window_ms / u128::from(grown);
        if full_in_ms > TIME_TO_FULL_MAX.as_millis() {
            return None;
        }
        let rate = |bytes: u64| {
            u64::try_from(u128::from(bytes) * 1000 / window_ms.max(1)).unwrap_or(u64::MAX)
        };
        let volumes = fastest(first, last).into_iter().filter_map(|(id, bytes)| {
            Some(Growth { volume: name_of(id)?, bytes_per_second: rate(bytes) })
        });
        Some(Forecast {
            full_in_seconds: u64::try_from(full_in_ms / 1000).unwrap_or(u64::MAX),
            bytes_per_second: rate(grown),
            window_seconds: window.as_secs(),
            volumes: volumes.take(VOLUME_COUNT_MAX).collect(),
        })
    }
}

/// Volumes that grew, by how much, the most first.
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

const NO_PANIC: &str = "nobody panics with this lock";

#[cfg(test)]
mod tests {
    use super::*;

    /// A second, the bytes used, and what is written by the id of the volume.
    type Moment<'a> = (u64, u64, &'a [(u64, u64)]);

    /// Observes the pool at each of the moments, and forecasts for a pool of 1000 bytes.
    fn forecast(course: &[Moment<'_>]) -> Option<Forecast> {
        let begin = Instant::now();
        let filling = Filling::default();
        for &(second, used_bytes, written) in course {
            let at = begin + Duration::from_secs(second);
            filling.observe(Sample { at, used_bytes, written_bytes: written.to_vec() });
        }
        filling.forecast(1000, |id| (id != 9).then(|| format!("v{id}")))
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
        assert_eq!(forecast(&[]), None);
        assert_eq!(forecast(&[(0, 100, &[]), (100, 100, &[])]), None);
        assert_eq!(forecast(&[(0, 500, &[]), (100, 100, &[])]), None);
        assert_eq!(forecast(&[(0, 100, &[]), (10, 500, &[])]), None, "too little is known");
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
