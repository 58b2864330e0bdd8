//! Durations of requests: many of them, in little memory.

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use results::LatencyKind;

/// Longer than any wait that a request is given; what takes longer counts as this.
const LATENCY_NS_MAX: u64 = 600_000_000_000;

/// Digits that are kept of each latency.
const DIGITS: u8 = 3;

/// Latencies in nanoseconds, to three digits.
#[derive(Clone, Debug)]
pub(crate) struct Latencies(Histogram<u64>);

impl Latencies {
    pub(crate) fn new() -> Self {
        Self(Histogram::new_with_max(LATENCY_NS_MAX, DIGITS).expect("the range is a good one"))
    }

    #[inline]
    pub(crate) fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.0.add(&other.0).expect("histograms of one kind add up");
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.len()
    }

    pub(crate) fn mean(&self) -> f64 {
        self.0.mean()
    }

    /// Duration that `share` of the requests stayed below or met.
    pub(crate) fn quantile(&self, share: f64) -> u64 {
        self.0.value_at_quantile(share)
    }

    pub(crate) fn max(&self) -> u64 {
        self.0.max()
    }

    /// Form for the record; fails when nothing was recorded.
    pub(crate) fn recorded(&self, kind: LatencyKind) -> Result<results::Latency> {
        (self.count() > 0).then_some(()).context("no request was made in the time given")?;
        Ok(results::Latency {
            kind,
            mean: self.mean(),
            p50: self.quantile(0.5),
            p90: self.quantile(0.9),
            p99: self.quantile(0.99),
            p999: self.quantile(0.999),
            p9999: self.quantile(0.9999),
            max: self.max(),
            submission_mean: None,
            completion_mean: None,
            histogram: self.buckets(),
        })
    }

    /// Ten for each power of two at most, those without requests left out.
    fn buckets(&self) -> Vec<(u64, u64)> {
        let mut buckets: Vec<(u64, u64)> = Vec::new();
        for value in self.0.iter_recorded() {
            let bound = bound_above(value.value_iterated_to());
            match buckets.last_mut() {
                Some((last, count)) if *last == bound => {
                    *count += value.count_since_last_iteration();
                }
                _ => buckets.push((bound, value.count_since_last_iteration())),
            }
        }
        buckets
    }
}

/// The next larger of the numbers that have three significant bits.
fn bound_above(value: u64) -> u64 {
    let bits = 64 - value.leading_zeros();
    let step = 1_u64 << bits.saturating_sub(4);
    (value + 1).next_multiple_of(step)
}

/// Number of requests that took at least so long, give or take an eighth: what tests of drivers
/// ask.
#[cfg(test)]
pub(crate) fn count_from(latency: &results::Latency, least: std::time::Duration) -> u64 {
    let is_long = |(bound, _): &&(u64, u64)| u128::from(*bound) > least.as_nanos();
    latency.histogram.iter().filter(is_long).map(|(_, count)| count).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_every_request_below_their_bounds() {
        let mut latencies = Latencies::new();
        for ns in [3, 100, 101, 5_000, 5_001, 1_000_000_000] {
            latencies.record(ns);
        }
        let recorded = latencies.recorded(LatencyKind::Service).expect("there are requests");
        let bounds: Vec<u64> = recorded.histogram.iter().map(|(bound, _)| *bound).collect();
        assert!(bounds.is_sorted_by(|a, b| a < b), "{bounds:?}");
        assert_eq!(recorded.histogram.iter().map(|(_, count)| count).sum::<u64>(), 6);
        assert!(bounds[0] > 3);
    }

    #[test]
    fn nothing_recorded_is_no_latency() {
        assert!(Latencies::new().recorded(LatencyKind::Service).is_err());
    }
}
