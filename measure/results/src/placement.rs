//! Database placement on fast storage: shares of the performance gain and of the memory.
//!
//! The gain is the increase of the rate over a database entirely on slow storage. Shares are
//! relative to the gain of the whole database on fast storage. If that gain is negligible, shares
//! are meaningless and omitted.

use crate::row::{NOPM, REPORTS_PER_MINUTE};

/// Part of a database on fast storage. The rest is on slow storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Placement {
    None,
    Whole,
    /// Transaction log only.
    Logs,
    /// Temporary tables, and files for sorts and joins.
    Temporary,
}

impl Placement {
    pub const ALL: [Self; 4] = [Self::None, Self::Whole, Self::Logs, Self::Temporary];

    /// Returns the name used in row parameters.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Whole => "whole",
            Self::Logs => "logs",
            Self::Temporary => "temporary",
        }
    }

    /// Returns the description for people.
    pub fn words(self) -> &'static str {
        match self {
            Self::None => "nothing",
            Self::Whole => "whole database",
            Self::Logs => "logs only",
            Self::Temporary => "temporary tables only",
        }
    }
}

/// Workload of the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Workload {
    /// Transactions derived from TPC-C.
    Orders,
    /// Sorts and joins that exceed memory.
    Reports,
}

impl Workload {
    pub const ALL: [Self; 2] = [Self::Orders, Self::Reports];

    /// Returns the name used in row parameters.
    pub fn name(self) -> &'static str {
        match self {
            Self::Orders => "orders",
            Self::Reports => "reports",
        }
    }

    /// Returns the figure with the workload's rate.
    pub fn rate(self) -> &'static str {
        match self {
            Self::Orders => NOPM,
            Self::Reports => REPORTS_PER_MINUTE,
        }
    }
}

/// Figure for the memory used on fast storage.
pub const FAST_USED_BYTES: &str = "fast_used_bytes";

/// Gains below this share of the slow rate are within measurement noise.
pub const GAIN_MIN: f64 = 0.05;

/// Returns the share of the whole database's gain that a part achieves. Negative if it reduces the
/// rate.
pub fn gain_share(none: f64, whole: f64, part: f64) -> Option<f64> {
    let is_gain = none > 0.0 && whole >= none * (1.0 + GAIN_MIN);
    is_gain.then(|| (part - none) / (whole - none)).filter(|share| share.is_finite())
}

/// Returns the share of the memory.
pub fn memory_share(whole_bytes: f64, part_bytes: f64) -> Option<f64> {
    (whole_bytes > 0.0).then(|| part_bytes / whole_bytes).filter(|share| share.is_finite())
}

/// Formats `61 % of the gain for 3 % of the memory`.
pub fn sentence(gain_share: f64, memory_share: f64) -> String {
    let (gain, memory) = (gain_share * 100.0, memory_share * 100.0);
    let digits = usize::from(memory < 10.0);
    format!("{gain:.0} % of the gain for {memory:.digits$} % of the memory")
}

/// Minimum growth of the rate for doubling the number of users again.
pub const GROWTH_MIN: f64 = 0.05;

/// Next step after a number of users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Users(u32),
    /// Doubling the users gained too little.
    Saturated,
    /// The maximum number of users was reached without saturation.
    Limited,
}

/// Search for the saturation point: doubles the number of users until the rate grows by at most
/// [`GROWTH_MIN`].
#[derive(Clone, Debug)]
pub struct Climb {
    users: u32,
    users_max: u32,
    best: Option<(u32, f64)>,
}

impl Climb {
    /// Starts with one user.
    pub fn new(users_max: u32) -> Self {
        Self { users: 1, users_max, best: None }
    }

    pub fn users(&self) -> u32 {
        self.users
    }

    /// Returns the best rate with its number of users.
    pub fn best(&self) -> Option<(u32, f64)> {
        self.best
    }

    /// Records the rate for the current number of users.
    pub fn note(&mut self, rate: f64) -> Next {
        let before = self.best.map_or(0.0, |(_, best)| best);
        if rate > before {
            self.best = Some((self.users, rate));
        }
        if rate <= before * (1.0 + GROWTH_MIN) {
            return Next::Saturated;
        }
        match self.users.checked_mul(2).filter(|users| *users <= self.users_max) {
            Some(users) => {
                self.users = users;
                Next::Users(users)
            }
            None => Next::Limited,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(rates: (f64, f64, f64), expected: Option<f64>) {
        assert_eq!(gain_share(rates.0, rates.1, rates.2), expected);
    }

    #[test]
    fn a_gain_is_what_is_above_nothing_on_fast_storage() {
        check((1_000.0, 3_000.0, 2_220.0), Some(0.61));
        check((1_000.0, 3_000.0, 1_000.0), Some(0.0));
        check((1_000.0, 3_000.0, 3_000.0), Some(1.0));
        check((1_000.0, 3_000.0, 3_500.0), Some(1.25));
        check((1_000.0, 3_000.0, 900.0), Some(-0.05));
    }

    #[test]
    fn where_the_whole_gains_nothing_there_are_no_shares() {
        check((1_000.0, 1_049.0, 1_020.0), None);
        check((1_000.0, 900.0, 1_020.0), None);
        check((0.0, 900.0, 100.0), None);
        check((f64::NAN, 900.0, 100.0), None);
        assert_eq!(memory_share(0.0, 5.0), None);
        assert_eq!(memory_share(200.0, 6.0), Some(0.03));
    }

    #[test]
    fn shares_are_told_in_a_sentence() {
        assert_eq!(sentence(0.61, 0.03), "61 % of the gain for 3.0 % of the memory");
        assert_eq!(sentence(-0.05, 0.25), "-5 % of the gain for 25 % of the memory");
    }

    #[track_caller]
    fn climb(users_max: u32, rates: &[f64]) -> (Vec<u32>, Option<(u32, f64)>, Next) {
        let (mut climb, mut users) = (Climb::new(users_max), Vec::new());
        for rate in rates {
            users.push(climb.users());
            let next = climb.note(*rate);
            if !matches!(next, Next::Users(_)) {
                return (users, climb.best(), next);
            }
        }
        panic!("it goes on after {users:?}");
    }

    #[test]
    fn users_double_until_the_rate_hardly_grows() {
        let rates = [100.0, 180.0, 300.0, 312.0, 900.0];
        assert_eq!(climb(64, &rates), (vec![1, 2, 4, 8], Some((8, 312.0)), Next::Saturated));
        let falling = [100.0, 180.0, 150.0];
        assert_eq!(climb(64, &falling), (vec![1, 2, 4], Some((2, 180.0)), Next::Saturated));
    }

    #[test]
    fn users_are_never_more_than_allowed() {
        let rates = [100.0, 200.0, 400.0];
        assert_eq!(climb(6, &rates), (vec![1, 2, 4], Some((4, 400.0)), Next::Limited));
        assert_eq!(climb(1, &rates), (vec![1], Some((1, 100.0)), Next::Limited));
    }

    #[test]
    fn nothing_at_all_is_no_growth() {
        assert_eq!(climb(64, &[0.0, 0.0]).1, None);
    }
}
