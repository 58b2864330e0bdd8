//! When a pool will be full, as far as its recent growth tells, and which volumes that comes from.
//!
//! Whoever owns the engine notes samples with the time that they were taken at, as often as it
//! likes; nothing here reads a clock. The history keeps a bounded number of them, of the time that
//! a forecast looks back.

use std::collections::VecDeque;
use std::time::Duration;

/// How far back a forecast looks.
const WINDOW: Duration = Duration::from_secs(3600);

/// Samples kept. Those that come sooner after the last one than an even share of the window take
/// its place, but for the first few.
const SAMPLES_MAX: usize = 64;
const SPACING: Duration = Duration::from_secs(WINDOW.as_secs() / SAMPLES_MAX as u64);

/// Less than this says nothing about growth.
const SPAN_MIN: Duration = Duration::from_secs(10);

/// Forecasts do not reach further than this.
const HORIZON: Duration = Duration::from_secs(30 * 24 * 3600);

/// Volumes named as causes, at most.
const CAUSES_MAX: usize = 5;

/// What was in use at a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Since any moment that is the same for all samples.
    pub at: Duration,
    /// Memory that new data does not get: used or claimed.
    pub used_bytes: u64,
    /// Bytes written and not discarded, by the id of the volume.
    pub volumes: Vec<(u64, u64)>,
}

/// The samples of late.
#[derive(Debug, Default)]
pub struct History {
    samples: VecDeque<Sample>,
}

/// What is to be expected if growth goes on.
#[derive(Clone, Debug, PartialEq)]
pub struct Forecast {
    /// How fast use grows; below zero when it shrinks.
    pub growth_bytes_a_second: f64,
    /// Time until the pool is full. `None` when it does not grow, or that is a month away.
    pub full_in: Option<Duration>,
    /// Volumes that have grown most in the time looked back at: id and bytes, the largest first.
    pub causes: Vec<(u64, u64)>,
}

impl History {
    /// Notes a sample. Those from before `sample.at`, which must not run backwards, are kept as far
    /// as they are of use.
    pub fn note(&mut self, mut sample: Sample) {
        sample.volumes.sort_unstable();
        let replaces_last = self.samples.len() > 1
            && self
                .samples
                .iter()
                .nth_back(1)
                .is_some_and(|before| sample.at.saturating_sub(before.at) < self.spacing());
        if replaces_last {
            self.samples.pop_back();
        }
        self.samples.push_back(sample);
        let now = self.samples.back().map_or(Duration::ZERO, |last| last.at);
        let is_old = |first: &Sample| now.saturating_sub(first.at) > WINDOW;
        while self.samples.len() > SAMPLES_MAX || self.samples.front().is_some_and(is_old) {
            self.samples.pop_front();
        }
    }

    /// What is to be expected of a pool of this size; `None` while too little is known.
    pub fn forecast(&self, size_bytes: u64) -> Option<Forecast> {
        let (first, last) = (self.samples.front()?, self.samples.back()?);
        if last.at.saturating_sub(first.at) < SPAN_MIN {
            return None;
        }
        let growth_bytes_a_second = self.slope()?;
        let left_bytes = size_bytes.saturating_sub(last.used_bytes);
        Some(Forecast {
            growth_bytes_a_second,
            full_in: time_for(left_bytes, growth_bytes_a_second),
            causes: grown(&first.volumes, &last.volumes),
        })
    }

    /// While the history is young, samples lie closer together.
    fn spacing(&self) -> Duration {
        let span = match (self.samples.front(), self.samples.back()) {
            (Some(first), Some(last)) => last.at.saturating_sub(first.at),
            _ => Duration::ZERO,
        };
        SPACING.min(span / 4)
    }

    /// The slope of the straight line that lies closest to the samples.
    #[expect(clippy::cast_precision_loss, reason = "a forecast needs no more than 53 bits")]
    fn slope(&self) -> Option<f64> {
        let first = self.samples.front()?;
        let points: Vec<(f64, f64)> = self
            .samples
            .iter()
            .map(|sample| {
                let seconds = sample.at.saturating_sub(first.at).as_secs_f64();
                (seconds, sample.used_bytes as f64 - first.used_bytes as f64)
            })
            .collect();
        let count = points.len() as f64;
        let mean = |sum: f64| sum / count;
        let mean_x = mean(points.iter().map(|(x, _)| x).sum());
        let mean_y = mean(points.iter().map(|(_, y)| y).sum());
        let covariance: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
        let variance: f64 = points.iter().map(|(x, _)| (x - mean_x) * (x - mean_x)).sum();
        (variance > 0.0).then(|| covariance / variance)
    }
}

/// How long `bytes` last at a rate.
#[expect(clippy::cast_precision_loss, reason = "a forecast needs no more than 53 bits")]
fn time_for(bytes: u64, bytes_a_second: f64) -> Option<Duration> {
    let seconds = bytes as f64 / bytes_a_second;
    let is_in_sight = bytes_a_second > 0.0 && seconds <= HORIZON.as_secs_f64();
    is_in_sight.then(|| Duration::from_secs_f64(seconds))
}

/// By how much volumes have grown, those that have most first. Both lists are in order of ids.
fn grown(before: &[(u64, u64)], after: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let growth = |&(id, bytes): &(u64, u64)| {
        let place = before.binary_search_by_key(&id, |&(id, _)| id);
        let old_bytes = place.map_or(0, |place| before[place].1);
        let more = bytes.checked_sub(old_bytes).filter(|&more| more > 0)?;
        Some((id, more))
    };
    let mut grown: Vec<(u64, u64)> = after.iter().filter_map(growth).collect();
    grown.sort_unstable_by_key(|&(id, bytes)| (std::cmp::Reverse(bytes), id));
    grown.truncate(CAUSES_MAX);
    grown
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn history(samples: impl IntoIterator<Item = (u64, u64)>) -> History {
        let mut history = History::default();
        for (seconds, used_bytes) in samples {
            let at = Duration::from_secs(seconds);
            history.note(Sample { at, used_bytes, volumes: vec![(7, used_bytes)] });
        }
        history
    }

    #[track_caller]
    fn check_full_in(history: &History, size_bytes: u64, expected_seconds: Option<u64>) {
        let forecast = history.forecast(size_bytes).expect("enough is known");
        let seconds = forecast.full_in.map(|time| time.as_secs_f64().round());
        let expected = expected_seconds.map(|seconds| Duration::from_secs(seconds).as_secs_f64());
        assert_eq!(seconds, expected, "{forecast:?}");
    }

    #[test]
    fn steady_growth_tells_when_the_pool_is_full() {
        let steady = history((0..100).map(|second| (second, second << 20)));
        check_full_in(&steady, 1099 << 20, Some(1000));
        check_full_in(&steady, 99 << 20, Some(0));
    }

    #[test]
    fn a_pool_that_does_not_grow_is_never_full() {
        check_full_in(&history((0..100).map(|second| (second, GIB))), 2 * GIB, None);
        check_full_in(&history((0..100).map(|second| (second, GIB - second))), 2 * GIB, None);
        let slow = history((0..100).map(|second| (second * 30, GIB + second)));
        check_full_in(&slow, 1 << 50, None);
    }

    #[test]
    fn one_sample_or_a_moment_says_nothing() {
        assert_eq!(history([]).forecast(GIB), None);
        assert_eq!(history([(5, 5)]).forecast(GIB), None);
        assert_eq!(history([(5, 5), (6, 50), (7, 500)]).forecast(GIB), None);
    }

    #[test]
    fn the_past_is_forgotten_and_the_history_stays_short() {
        let risen = (0..20_000).map(|second| (second, second << 10));
        let flat = (20_000..24_000).map(|second| (second, 20_000 << 10));
        let history = history(risen.chain(flat));
        assert!(history.samples.len() <= SAMPLES_MAX, "{} samples", history.samples.len());
        let span = history.samples.back().expect("there are some").at - history.samples[0].at;
        assert!(span > WINDOW / 2, "only {span:?} are remembered");
        check_full_in(&history, GIB, None);
    }

    #[test]
    fn the_volumes_that_have_grown_are_the_causes() {
        let mut history = History::default();
        let mut note = |seconds, volumes: &[(u64, u64)]| {
            let at = Duration::from_secs(seconds);
            let used_bytes = volumes.iter().map(|(_, bytes)| bytes).sum();
            history.note(Sample { at, used_bytes, volumes: volumes.to_vec() });
        };
        note(0, &[(3, 100), (1, 500), (2, 900)]);
        note(30, &[(3, 150), (1, 500), (2, 300), (9, 80)]);
        note(60, &[(3, 170), (1, 501), (2, 300), (9, 90)]);
        let forecast = history.forecast(GIB).expect("enough is known");
        assert_eq!(forecast.causes, [(9, 90), (3, 70), (1, 1)]);
        assert!(forecast.growth_bytes_a_second < 0.0);
    }
}
