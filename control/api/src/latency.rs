//! Latency of requests to volumes.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Time that the requests to a volume took since the daemon started, inside the volume: without the
/// way to the client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct VolumeLatencies {
    pub volume: String,
    /// Unique id of the volume, which is never reused in the pool.
    pub id: u64,
    /// Upper bounds of `counts`, in microseconds.
    pub bounds_us: Vec<u64>,
    pub reads: Latency,
    pub writes: Latency,
    pub flushes: Latency,
}

/// Time that requests of one kind took. One in 32 reads and writes of each thread is timed, and
/// each flush.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Latency {
    /// Number of requests that were timed.
    pub timed: u64,
    /// Null while none was timed.
    #[schema(required)]
    #[schema(minimum = 0)]
    pub mean_us: Option<f64>,
    /// Half of them took no longer.
    #[schema(required)]
    #[schema(minimum = 0)]
    pub p50_us: Option<f64>,
    /// 99 % of them took no longer.
    #[schema(required)]
    #[schema(minimum = 0)]
    pub p99_us: Option<f64>,
    #[schema(required)]
    #[schema(minimum = 0)]
    pub max_us: Option<f64>,
    /// Numbers of those that took up to each bound and longer than the one before; the last entry
    /// counts those beyond all bounds. Empty while none was timed.
    pub counts: Vec<u64>,
}

impl Latency {
    /// Computes percentiles from a histogram. `counts` has one entry more than `bounds_us`.
    /// Percentiles are interpolated within a bucket, and never exceed the maximum.
    pub fn of(bounds_us: &[u64], counts: &[u64], sum_ns: u64, max_ns: u64) -> Self {
        let timed = counts.iter().sum();
        if timed == 0 {
            return Self::default();
        }
        let max_us = max_ns as f64 / 1e3;
        let reached = reached(bounds_us, counts.iter().copied());
        let share = |share| quantile(&reached, share).map(|it| it.min(max_us));
        Self {
            timed,
            mean_us: Some(sum_ns as f64 / 1e3 / timed as f64),
            p50_us: share(0.5),
            p99_us: share(0.99),
            max_us: Some(max_us),
            counts: counts.to_vec(),
        }
    }
}

/// Returns the cumulative histogram: each bound with the number of requests at or below it. The
/// last bound is infinity.
pub fn reached(bounds_us: &[u64], counts: impl IntoIterator<Item = u64>) -> Vec<(f64, f64)> {
    let bounds = bounds_us.iter().map(|it| *it as f64).chain([f64::INFINITY]);
    let mut sum = 0;
    let pair = |(bound, count): (f64, u64)| {
        sum += count;
        (bound, sum as f64)
    };
    bounds.zip(counts).map(pair).collect()
}

/// Estimates a quantile of a cumulative histogram such as [`reached`] returns. `share` is between 0
/// and 1. Interpolates linearly within a bucket, and returns the last finite bound beyond it.
/// Returns `None` if there were no requests.
pub fn quantile(reached: &[(f64, f64)], share: f64) -> Option<f64> {
    let total = reached.last().map(|it| it.1).filter(|total| *total > 0.0)?;
    let wanted = share * total;
    let (mut bound_below, mut count_below) = (0.0, 0.0);
    for &(bound, count) in reached {
        if count >= wanted {
            let inside = (wanted - count_below) / (count - count_below);
            let is_beyond = bound.is_infinite();
            let bound = if is_beyond { bound_below } else { bound };
            return Some(bound_below + (bound - bound_below) * inside);
        }
        (bound_below, count_below) = (bound, count);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS_US: [u64; 3] = [1, 5, 10];

    #[test]
    fn percentiles_lie_within_the_bounds_of_the_counts() {
        // 50 requests took 1 to 5 us, 50 took 5 to 10 us.
        let latency = Latency::of(&BOUNDS_US, &[0, 50, 50, 0], 400_000, 9_950);
        assert_eq!((latency.timed, latency.mean_us, latency.max_us), (100, Some(4.0), Some(9.95)));
        assert_eq!((latency.p50_us, latency.p99_us), (Some(5.0), Some(9.9)));
    }

    #[test]
    fn no_percentile_is_above_the_longest_time_or_beyond_the_last_bound() {
        let short = Latency::of(&BOUNDS_US, &[0, 0, 4, 0], 24_000, 6_000);
        assert_eq!((short.p50_us, short.p99_us, short.max_us), (Some(6.0), Some(6.0), Some(6.0)));
        let long = Latency::of(&BOUNDS_US, &[0, 0, 0, 2], 4_000_000, 3_000_000);
        assert_eq!((long.p50_us, long.p99_us), (Some(10.0), Some(10.0)));
        assert_eq!(long.max_us, Some(3_000.0));
    }

    #[test]
    fn nothing_is_said_where_nothing_was_timed() {
        assert_eq!(Latency::of(&BOUNDS_US, &[0; 4], 0, 0), Latency::default());
        assert_eq!(quantile(&[], 0.5), None);
    }
}
