//! Fill levels of a pool, with hysteresis.

use std::fmt;

/// Hysteresis: a level ends when usage is this far below its threshold, in thousandths of the pool.
const HYSTERESIS_PERMILLE: u64 = 20;

/// Fill level of a pool. Claimed memory counts as used, because new data does not get it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PoolLevel {
    /// Below 80 %.
    #[default]
    Roomy,
    /// From 80 % on: time to add memory or delete data.
    Filling,
    /// From 90 % on: compressible contents are compressed before they are stored, which takes
    /// longer.
    Short,
    /// From 95 % on: new data will soon be rejected.
    Critical,
}

impl PoolLevel {
    pub const ALL: [Self; 4] = [Self::Roomy, Self::Filling, Self::Short, Self::Critical];

    /// Name in events, the command line and the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Roomy => "roomy",
            Self::Filling => "filling",
            Self::Short => "short",
            Self::Critical => "critical",
        }
    }

    /// Threshold of the level: the used share of the pool, in thousandths.
    pub const fn begins_at_permille(self) -> u64 {
        match self {
            Self::Roomy => 0,
            Self::Filling => 800,
            Self::Short => 900,
            Self::Critical => 950,
        }
    }

    /// Returns the level that follows this one when `used_bytes` of `size_bytes` are in use.
    #[must_use]
    pub fn after(self, used_bytes: u64, size_bytes: u64) -> Self {
        let begins = Self::ALL.map(Self::begins_at_permille);
        Self::ALL[steps_after(&begins[1..], self as usize, used_bytes, size_bytes)]
    }
}

/// Number of steps reached when `used_bytes` of `size_bytes` are in use, after `before` of them.
/// Each step begins at a share of the pool, in thousandths, in ascending order.
pub fn steps_after(
    begins_at_permille: &[u64],
    before: usize,
    used_bytes: u64,
    size_bytes: u64,
) -> usize {
    let share = u128::from(used_bytes) * 1000 / u128::from(size_bytes.max(1));
    let permille = u64::try_from(share).unwrap_or(u64::MAX);
    let begun = |margin| {
        let reached = permille.saturating_add(margin);
        begins_at_permille.iter().filter(|&&begin| begin <= reached).count()
    };
    // Downwards only when the share is well below the threshold of a step.
    before.clamp(begun(0), begun(HYSTERESIS_PERMILLE))
}

impl fmt::Display for PoolLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks levels for a sequence of shares in percent.
    #[track_caller]
    fn check(shares: &[(u64, PoolLevel)]) {
        let mut level = PoolLevel::Roomy;
        for &(percent, expected) in shares {
            level = level.after(percent * 10, 1000);
            assert_eq!(level, expected, "at {percent} % of {shares:?}");
        }
    }

    #[test]
    fn steps_begin_at_80_and_90_and_95_percent() {
        use PoolLevel::{Critical, Filling, Roomy, Short};
        check(&[(0, Roomy), (79, Roomy), (80, Filling), (89, Filling), (90, Short)]);
        check(&[(94, Short), (95, Critical), (100, Critical)]);
    }

    #[test]
    fn a_step_is_left_two_percent_below_where_it_begins() {
        use PoolLevel::{Critical, Filling, Roomy, Short};
        check(&[(95, Critical), (94, Critical), (93, Critical), (92, Short), (95, Critical)]);
        check(&[(91, Short), (89, Short), (88, Short), (87, Filling), (88, Filling)]);
        check(&[(80, Filling), (78, Filling), (77, Roomy), (79, Roomy)]);
    }

    #[test]
    fn a_pool_that_empties_at_once_falls_through_all_steps() {
        check(&[(99, PoolLevel::Critical), (10, PoolLevel::Roomy)]);
        check(&[(99, PoolLevel::Critical), (79, PoolLevel::Filling)]);
    }

    #[test]
    fn a_pool_without_memory_is_full() {
        assert_eq!(PoolLevel::Roomy.after(5, 0), PoolLevel::Critical);
    }
}
