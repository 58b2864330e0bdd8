//! Medians with confidence intervals, and steady-state detection.
//!
//! An interval contains the true median in 95 of 100 runs. With six or more repeats it is between
//! two of the measured values (order statistics, independent of the distribution). With three to
//! five repeats these do not reach 95 %, and Student's t around the median is used, which assumes a
//! roughly symmetric distribution. With fewer repeats there is no interval, and no difference is
//! significant.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use statrs::distribution::{Binomial, ContinuousCDF, DiscreteCDF, StudentsT};

const CONFIDENCE: f64 = 0.95;

/// Minimum number of values for an interval.
const COUNT_MIN: usize = 3;

/// Minimum number of values for which order statistics reach the confidence.
const ORDER_COUNT_MIN: usize = 6;

/// Ratio of the standard errors of median and mean for normal distributions: sqrt(pi / 2). With few
/// values the factor is smaller, so intervals are slightly too wide.
const MEDIAN_ERROR_FACTOR: f64 = 1.2533;

/// Number of rounds that determine steadiness.
const STEADY_ROUNDS: usize = 5;

/// Maximum difference between the largest and smallest of these rounds, relative to their mean.
const STEADY_RANGE_MAX: f64 = 0.20;

/// Maximum change of their linear trend from first to last, relative to their mean.
const STEADY_SLOPE_MAX: f64 = 0.10;

/// A median of repeats.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Estimate {
    /// Repeats.
    pub n: u64,
    pub median: f64,
    /// The lower and upper end of the interval.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ci95: Option<(f64, f64)>,
}

impl Estimate {
    /// Computes statistics of the finite values. Returns `None` if there are none.
    pub fn new(values: &[f64]) -> Option<Self> {
        let mut sorted: Vec<f64> = values.iter().copied().filter(|it| it.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let median = median_of_sorted(&sorted)?;
        Some(Self { n: sorted.len() as u64, median, ci95: interval(&sorted, median) })
    }

    /// Returns whether both have intervals and these are disjoint.
    pub fn differs_from(&self, other: &Self) -> bool {
        match (self.ci95, other.ci95) {
            (Some((low, high)), Some((other_low, other_high))) => {
                high < other_low || other_high < low
            }
            _ => false,
        }
    }
}

/// Returns the median of the finite values.
pub fn median(values: &[f64]) -> Option<f64> {
    Estimate::new(values).map(|estimate| estimate.median)
}

fn median_of_sorted(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        count if count % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

fn interval(sorted: &[f64], median: f64) -> Option<(f64, f64)> {
    match sorted.len() {
        0..COUNT_MIN => None,
        COUNT_MIN..ORDER_COUNT_MIN => Some(students_interval(sorted, median)),
        _ => Some(order_interval(sorted)),
    }
}

fn students_interval(sorted: &[f64], median: f64) -> (f64, f64) {
    let count = sorted.len() as f64;
    let mean = sorted.iter().sum::<f64>() / count;
    let squares: f64 = sorted.iter().map(|value| (value - mean).powi(2)).sum();
    let mean_error = (squares / (count - 1.0) / count).sqrt();
    let student = StudentsT::new(0.0, 1.0, count - 1.0).expect("there are two values at least");
    let reach = student.inverse_cdf(f64::midpoint(1.0, CONFIDENCE));
    let half = reach * mean_error * MEDIAN_ERROR_FACTOR;
    (median - half, median + half)
}

/// Returns the innermost symmetric pair of order statistics that reaches the confidence. The number
/// of values below the true median is binomial with probability 1/2.
fn order_interval(sorted: &[f64]) -> (f64, f64) {
    let coin = Binomial::new(0.5, sorted.len() as u64).expect("a half is a probability");
    let tail = (1.0 - CONFIDENCE) / 2.0;
    let from_end = (0..sorted.len() / 2)
        .take_while(|&from_end| coin.cdf(from_end as u64) <= tail)
        .last()
        .unwrap_or(0);
    (sorted[from_end], sorted[sorted.len() - 1 - from_end])
}

/// Steadiness of the last rounds of a measurement, after the SNIA's test for solid state storage.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SteadyState {
    pub is_steady: bool,
    /// From the smallest to the largest round, as a share of their mean.
    pub range: f64,
    /// From the first to the last round along the line that fits best, as a share of their mean.
    pub slope: f64,
}

impl SteadyState {
    /// Determines the steadiness of the last five rounds. Returns `None` if there are fewer.
    pub fn new(rounds: &[f64]) -> Option<Self> {
        let last = rounds.get(rounds.len().checked_sub(STEADY_ROUNDS)?..)?;
        let count = last.len() as f64;
        let mean = last.iter().sum::<f64>() / count;
        if !mean.is_finite() || mean == 0.0 {
            return None;
        }
        let largest = last.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let smallest = last.iter().copied().fold(f64::INFINITY, f64::min);
        let middle = (count - 1.0) / 2.0;
        let places = || (0..last.len()).map(|place| place as f64 - middle);
        let rise: f64 = places().zip(last).map(|(place, value)| place * value).sum();
        let spread: f64 = places().map(|place| place * place).sum();
        let range = (largest - smallest) / mean;
        let slope = (rise / spread * (count - 1.0) / mean).abs();
        let is_steady = range <= STEADY_RANGE_MAX && slope <= STEADY_SLOPE_MAX;
        Some(Self { is_steady, range, slope })
    }
}

#[cfg(test)]
mod tests {
    use model::Random;

    use super::*;

    /// Approximately normal: a sum of twelve uniform numbers.
    fn normal(random: &mut Random) -> f64 {
        let even = |random: &mut Random| random.below(1 << 32) as f64 / (1_u64 << 32) as f64;
        (0..12).map(|_| even(random)).sum::<f64>() - 6.0
    }

    #[track_caller]
    fn check_coverage(count: usize, draw: impl Fn(&mut Random) -> f64, true_median: f64) {
        const TRIALS: u32 = 2_000;
        let mut random = Random::new(7);
        let covers = |random: &mut Random| {
            let values: Vec<f64> = (0..count).map(|_| draw(random)).collect();
            let estimate = Estimate::new(&values).expect("there are values");
            let (low, high) = estimate.ci95.expect("there are enough values");
            (low..=high).contains(&true_median)
        };
        let covered = (0..TRIALS).filter(|_| covers(&mut random)).count();
        let share = covered as f64 / f64::from(TRIALS);
        assert!(share >= 0.94, "the interval of {count} covers {share} of the runs");
    }

    #[test]
    fn intervals_cover_the_median_of_even_values() {
        for count in [3, 5, 6, 10, 31] {
            check_coverage(count, |random| 100.0 + normal(random), 100.0);
        }
    }

    #[test]
    fn intervals_of_six_or_more_cover_the_median_of_latencies_with_a_long_tail() {
        for count in [6, 10, 31] {
            check_coverage(count, |random| normal(random).exp(), 1.0);
        }
    }

    #[test]
    fn intervals_are_not_so_wide_that_they_say_nothing() {
        let values: Vec<f64> = (0..=100).map(f64::from).collect();
        let estimate = Estimate::new(&values).expect("there are values");
        assert_eq!(estimate.median, 50.0);
        assert_eq!(estimate.ci95, Some((40.0, 60.0)));
    }

    #[test]
    fn one_repeat_differs_from_nothing() {
        let one = Estimate::new(&[1.0]).expect("there is a value");
        let many = Estimate::new(&[100.0; 10]).expect("there are values");
        assert_eq!(one.ci95, None);
        assert!(!one.differs_from(&many));
    }

    #[test]
    fn intervals_that_do_not_touch_differ() {
        let low = Estimate::new(&[1.0, 1.1, 1.2, 1.1, 1.0, 1.1]).expect("there are values");
        let high = Estimate::new(&[1.3, 1.4, 1.4, 1.3, 1.4, 1.3]).expect("there are values");
        let wide = Estimate::new(&[0.5, 1.1, 1.9, 1.1, 1.0, 1.3]).expect("there are values");
        assert!(low.differs_from(&high));
        assert!(!low.differs_from(&wide));
    }

    #[track_caller]
    fn check_steady(rounds: &[f64], expected: Option<bool>) {
        assert_eq!(SteadyState::new(rounds).map(|steady| steady.is_steady), expected);
    }

    #[test]
    fn a_ramp_is_not_steady_even_when_its_range_is_small() {
        check_steady(&[100.0, 103.0, 106.0, 109.0, 112.0], Some(false));
        check_steady(&[112.0, 109.0, 106.0, 103.0, 100.0], Some(false));
    }

    #[test]
    fn rounds_without_a_trend_are_steady_unless_they_scatter() {
        check_steady(&[100.0, 104.0, 98.0, 101.0, 100.0], Some(true));
        check_steady(&[100.0, 130.0, 100.0, 130.0, 100.0], Some(false));
    }

    #[test]
    fn a_ramp_that_ended_before_the_last_five_rounds_does_not_count() {
        check_steady(&[10.0, 50.0, 90.0, 100.0, 100.0, 101.0, 100.0, 99.0], Some(true));
    }

    #[test]
    fn four_rounds_say_nothing() {
        check_steady(&[100.0; 4], None);
    }
}
