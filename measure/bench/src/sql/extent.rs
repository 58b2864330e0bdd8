//! Extents of all parts, by profile.

use std::time::Duration;

use crate::run::Profile;

/// Extents of the parts' measurements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    /// Number of turns of each system per repeat.
    pub(super) turns: usize,
    /// Number of keys for lookups.
    pub(super) looked_up_keys: u64,
    /// Duration of a turn of lookups. pgbench counts in whole seconds.
    pub(super) lookup_time: Duration,
    /// Number of records scanned by queries.
    pub(super) scanned_records: u64,
    /// Number of records followed by a live query.
    pub(super) followed_records: u64,
    /// Number of concurrent live queries.
    pub(super) live_queries: u64,
    /// Number of records produced while each live query matches one in a thousand, or in a hundred
    /// thousand.
    pub(super) often_records: u64,
    pub(super) seldom_records: u64,
    /// Duration of the delivery measurement.
    pub(super) delivery_time: Duration,
    /// Number of keys with a current value at a restart of the broker.
    pub(super) kept_keys: u64,
    /// Number of records per turn of a producer.
    pub(super) produced_records: u64,
}

impl Extent {
    pub(super) fn of(profile: Profile) -> Self {
        match profile {
            Profile::Quick => Self::QUICK,
            Profile::Standard => Self::STANDARD,
            Profile::Full => Self::FULL,
        }
    }

    const QUICK: Self = Self {
        turns: 2,
        looked_up_keys: 100_000,
        lookup_time: Duration::from_secs(1),
        scanned_records: 200_000,
        followed_records: 200_000,
        live_queries: 10_000,
        often_records: 40_000,
        seldom_records: 400_000,
        delivery_time: Duration::from_secs(2),
        kept_keys: 100_000,
        produced_records: 100_000,
    };

    const STANDARD: Self = Self {
        turns: 3,
        looked_up_keys: 1_000_000,
        lookup_time: Duration::from_secs(3),
        scanned_records: 5_000_000,
        followed_records: 1_000_000,
        live_queries: 10_000,
        often_records: 500_000,
        seldom_records: 4_000_000,
        delivery_time: Duration::from_secs(10),
        kept_keys: 10_000_000,
        produced_records: 1_000_000,
    };

    const FULL: Self = Self {
        turns: 5,
        lookup_time: Duration::from_secs(20),
        followed_records: 4_000_000,
        often_records: 2_000_000,
        delivery_time: Duration::from_secs(60),
        produced_records: 4_000_000,
        ..Self::STANDARD
    };
}
