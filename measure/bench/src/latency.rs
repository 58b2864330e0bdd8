//! Latency histograms with low memory use.

use std::time::Duration;

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use results::LatencyKind;

/// Maximum latency, above all time limits. Longer ones are clamped.
const LATENCY_NS_MAX: u64 = 600_000_000_000;

/// Number of significant digits.
const DIGITS: u8 = 3;

/// Latencies in nanoseconds, with three digits.
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

    pub(crate) fn record_time(&mut self, time: Duration) {
        self.record(nanoseconds_in(time));
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

    /// Returns the latency that `share` of the requests did not exceed.
    pub(crate) fn quantile(&self, share: f64) -> u64 {
        self.0.value_at_quantile(share)
    }

    pub(crate) fn max(&self) -> u64 {
        self.0.max()
    }

    /// Converts to the recorded form. Fails if nothing was recorded.
    pub(crate) fn recorded(&self, kind: LatencyKind) -> Result<results::Latency> {
        (self.count() > 0)
            .then_some(())
            .context("no request completed in the given time; increase --seconds")?;
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

    /// Returns at most ten nonempty buckets per power of two.
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

/// Returns the whole nanoseconds, or the largest number for a time of centuries.
pub(crate) fn nanoseconds_in(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the next larger number with three significant bits.
fn bound_above(value: u64) -> u64 {
    let bits = 64 - value.leading_zeros();
    let step = 1_u64 << bits.saturating_sub(4);
    (value + 1).next_multiple_of(step)
}

/// Returns the number of requests that took at least this long, accurate to an eighth. Used by
/// tests.
#[cfg(test)]
pub(crate) fn count_from(latency: &results::Latency, least: Duration) -> u64 {
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
