//! Rules of a topic for all records, regardless of their source: a producer, SQL's INSERT or a
//! query. The rules are those of Kafka's `LogValidator`.

use std::ops::RangeInclusive;

use super::settings::TopicSettings;

/// Reason for rejecting a record of a compacted topic.
pub(crate) const WITHOUT_KEY: &str = "compacted topic cannot accept message without key";

/// Timestamp of a record without one.
const NO_TIME: i64 = -1;

/// Rules of a topic at a given time.
#[derive(Debug)]
pub(crate) struct RecordRules {
    /// Set for compacted topics, in which a record without a key would be removed.
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

    /// Returns the reason for rejecting a timestamp.
    pub(crate) fn bad_time(&self, time_ms: i64) -> String {
        format!(
            "timestamp {time_ms} is out of range {} to {} (message.timestamp.before.max.ms, \
             message.timestamp.after.max.ms)",
            self.times.start(),
            self.times.end()
        )
    }
}
