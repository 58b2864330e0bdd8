//! Parts of a database that are worth fast storage: shares of the gain and of the memory.
//!
//! A gain is what the rate is above that with nothing on fast storage. Shares are of what the whole
//! database gains there; where that gains next to nothing they mean nothing, and there are none.

use crate::row::{NOPM, REPORTS_PER_MINUTE};

/// Part of a database that is on fast storage; the rest is on slow storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Placement {
    None,
    Whole,
    /// The log of transactions alone.
    Logs,
    /// Temporary tables, and files of sorts and joins.
    Temporary,
}

impl Placement {
    pub const ALL: [Self; 4] = [Self::None, Self::Whole, Self::Logs, Self::Temporary];

    /// Name in the parameters of rows.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Whole => "whole",
            Self::Logs => "logs",
            Self::Temporary => "temporary",
        }
    }

    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Self::None => "nothing",
            Self::Whole => "whole database",
            Self::Logs => "logs only",
            Self::Temporary => "temporary tables only",
        }
    }
}

/// Load on the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Workload {
    /// Transactions derived from TPC-C.
    Orders,
    /// Sorts and joins that do not fit in memory.
    Reports,
}

impl Workload {
    pub const ALL: [Self; 2] = [Self::Orders, Self::Reports];

    /// Name in the parameters of rows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Orders => "orders",
            Self::Reports => "reports",
        }
    }

    /// The figure that is its rate.
    pub fn rate(self) -> &'static str {
        match self {
            Self::Orders => NOPM,
            Self::Reports => REPORTS_PER_MINUTE,
        }
    }
}

/// The figure of the memory that fast storage takes.
pub const FAST_USED_BYTES: &str = "fast_used_bytes";

/// Gains below this share of the slow rate are lost in the noise of measurements.
pub const GAIN_MIN: f64 = 0.05;

/// The share of the whole database's gain that one part of it brings. Below zero where it costs.
pub fn gain_share(none: f64, whole: f64, part: f64) -> Option<f64> {
    let is_gain = none > 0.0 && whole >= none * (1.0 + GAIN_MIN);
    is_gain.then(|| (part - none) / (whole - none)).filter(|share| share.is_finite())
}

/// The share of the memory.
pub fn memory_share(whole_bytes: f64, part_bytes: f64) -> Option<f64> {
    (whole_bytes > 0.0).then(|| part_bytes / whole_bytes).filter(|share| share.is_finite())
}

/// `61 % of the gain for 3 % of the memory`.
pub fn sentence(gain_share: f64, memory_share: f64) -> String {
    let (gain, memory) = (gain_share * 100.0, memory_share * 100.0);
    let digits = usize::from(memory < 10.0);
    format!("{gain:.0} % of the gain for {memory:.digits$} % of the memory")
}

/// Growth of the rate for which the number of users is doubled again.
pub const GROWTH_MIN: f64 = 0.05;

/// Step that follows a number of users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Users(u32),
    /// Twice the users brought too little.
    Saturated,
    /// More users were not allowed, and might have brought more.
    Limited,
}

/// Numbers of users that double until the rate grows by [`GROWTH_MIN`] or less.
#[derive(Clone, Debug)]
pub struct Climb {
    users: u32,
    users_max: u32,
    best: Option<(u32, f64)>,
}

impl Climb {
    /// Begins with one user.
    pub fn new(users_max: u32) -> Self {
        Self { users: 1, users_max, best: None }
    }

    pub fn users(&self) -> u32 {
        self.users
    }

    /// The best rate, and how many users reached it.
    pub fn best(&self) -> Option<(u32, f64)> {
        self.best
    }

    /// Takes note of the rate that the users reached.
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
