//! Lookup of current values for a join with a stream.
//!
//! The values include at least everything that was committed in their topic before the stream's
//! records. Later changes of the values do not produce new records.

use std::sync::Arc;

use live_queries::{Fields, Header, Paths, Record, Row};
use sql::SqlError;
use values::{Follower, Secret};

use crate::clock;
use crate::topics::{KeptRecord, OpenTopic, random_id};

/// Maximum bytes per partition and turn.
const READ_BYTES: usize = 1 << 20;

pub(super) struct Lookup {
    topic: Arc<OpenTopic>,
    /// Followers by partition.
    followers: Vec<Follower>,
}

/// Value found for a key.
pub(super) struct FoundValue {
    pub(super) partition: u32,
    pub(super) record: KeptRecord,
}

impl Lookup {
    pub(super) fn new(topic: Arc<OpenTopic>) -> Self {
        Self { topic, followers: Vec::new() }
    }

    /// Follows a limited part. Returns whether the values include everything committed before the
    /// call.
    pub(super) fn catch_up(&mut self, is_look: bool) -> Result<bool, SqlError> {
        let partitions = Arc::clone(&self.topic.partitions());
        for partition in partitions.iter().skip(self.followers.len()) {
            let log = Arc::clone(&partition.log);
            self.followers.push(Follower::open(log, Secret(random_id()))?.0);
        }
        let mut is_there = true;
        for (follower, partition) in self.followers.iter_mut().zip(partitions.iter()) {
            let end = partition.log.last_stable_offset();
            follower.follow(READ_BYTES, None)?;
            if follower.values().applied() < end {
                is_there = false;
                continue;
            }
            if is_look {
                follower.values().set_ttl(self.topic.settings().values_ttl_ms);
                // Expired values are ignored by lookups. This frees their memory incrementally.
                follower.sweep(clock::unix_ms(), None)?;
            }
        }
        Ok(is_there)
    }

    /// Returns the value of a key. If several partitions have one, the newest timestamp wins, and
    /// of equal ones the lowest partition.
    pub(super) fn find(&self, key: &[u8]) -> Result<Option<FoundValue>, SqlError> {
        let (mut best, mut buffer): (Option<FoundValue>, _) = (None, Vec::new());
        let now_ms = clock::unix_ms();
        for (follower, partition) in self.followers.iter().zip(0..) {
            let record = follower.values().get(key, now_ms, &mut buffer, KeptRecord::of)?;
            let Some(record) = record else { continue };
            if best.as_ref().is_none_or(|it| it.record.timestamp_ms < record.timestamp_ms) {
                best = Some(FoundValue { partition, record });
            }
        }
        Ok(best)
    }
}

impl FoundValue {
    /// Calls `look` with the value as a row.
    pub(super) fn with_row<T>(&self, paths: &Paths, look: impl FnOnce(&Row<'_>) -> T) -> T {
        let headers = self.record.headers.iter();
        let headers = headers.map(|it| Header { name: &it.name, value: it.value.as_deref() });
        let headers: Vec<Header<'_>> = headers.collect();
        let record = Record {
            partition: i32::try_from(self.partition).expect("partitions have a limit"),
            offset: self.record.offset,
            timestamp_ms: self.record.timestamp_ms,
            key: self.record.key.as_deref(),
            value: self.record.value.as_deref(),
            headers: &headers,
        };
        let mut fields = Fields::default();
        look(&Row::read(record, paths, &mut fields))
    }
}
