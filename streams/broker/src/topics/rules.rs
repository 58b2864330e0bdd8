//! Rules of a topic for each record, whoever brings it: a producer, SQL's INSERT, or the query that
//! fills it. The rules are those of Kafka's `LogValidator`.

use std::ops::RangeInclusive;

use super::settings::TopicSettings;

/// Why a compacted topic refuses a record.
pub(crate) const WITHOUT_KEY: &str = "records of a compacted topic need a key";

/// The time of a record that has none.
const NO_TIME: i64 = -1;

/// The rules of a topic at one time of day.
#[derive(Debug)]
pub(crate) struct RecordRules {
    /// Compaction would erase a record without a key.
    needs_keys: bool,
    times: RangeInclusive<i64>,
}

impl RecordRules {
    pub(crate) fn of(settings: &TopicSettings, now_ms: i64) -> Self {
        Self { needs_keys: settings.compacts, times: settings.timestamps(now_ms) }
    }

    pub(crate) fn take_key(&self, has_key: bool) -> bool {
        has_key || !self.needs_keys
    }

    pub(crate) fn take_time(&self, time_ms: i64) -> bool {
        time_ms == NO_TIME || self.times.contains(&time_ms)
    }

    /// Says why a time is refused.
    pub(crate) fn bad_time(&self, time_ms: i64) -> String {
        format!(
            "timestamp {time_ms} is out of range {} to {} (message.timestamp.before.max.ms, \
             message.timestamp.after.max.ms)",
            self.times.start(),
            self.times.end()
        )
    }
}
