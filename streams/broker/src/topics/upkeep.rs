//! Periodic maintenance of topics: retention, compaction, expiry of producers.
//!
//! A topic whose disk does not respond delays no others.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use record_log::{CompactionOptions, LogError, Retention};
use tokio::sync::watch;
use uuid::Uuid;

use super::rounds::{Item, Rounds, Waits};
use super::{OpenPartition, OpenTopic, Topics};
use crate::clock;

/// Interval of maintenance.
const INTERVAL: Duration = Duration::from_secs(5);

/// Interval of checks of the volumes' classes, in rounds. The list of volumes is long.
const LOOK_ROUNDS: u32 = 6;

/// Time without writes after which producers without an open transaction are removed (Kafka's
/// `producer.id.expiration.ms`).
const PRODUCER_LIFE_MS: i64 = 24 * 3600 * 1000;

/// Time after the last append for which records that were expired on arrival are retained (Kafka's
/// `log.retention.check.interval.ms`).
const OLD_RECORDS_MS: i64 = 5 * 60 * 1000;

/// Maximum memory of compaction's key map (Kafka's `log.cleaner.dedupe.buffer.size`).
const KEY_MAP_BYTES: usize = 64 << 20;

/// Ids for work that belongs to no topic.
const OF_NONE: Uuid = Uuid::nil();
const OF_UNSERVED: Uuid = Uuid::max();

const RETENTION: Rounds = Rounds::new(Duration::from_secs(1), 64);

/// A pass over a large topic takes long, and needs memory for the key map.
const COMPACTION: Rounds = Rounds::new(Duration::from_secs(60), 4);

/// Deletes expired records of topics until `stop` is true.
pub(crate) async fn retain(topics: Arc<Topics>, mut stop: watch::Receiver<bool>) {
    let mut rounds = RETENTION;
    let mut round = 0_u32;
    while is_time(&mut stop).await {
        let settling = Arc::clone(&topics);
        let looks = round.is_multiple_of(LOOK_ROUNDS);
        round = round.wrapping_add(1);
        let beside = move || {
            let looks = looks || settling.is_a_class_unsure.load(Ordering::Relaxed);
            if looks && let Err(error) = settling.look_at_classes() {
                tracing::debug!(%error, "cannot check the durability of volumes");
            }
            settling.settle_beside();
        };
        rounds.run(OF_NONE, beside).await;
        let serving = Arc::clone(&topics);
        rounds.run(OF_UNSERVED, move || serving.serve_beside()).await;
        let work = |topic: &Arc<OpenTopic>| {
            if let Err(error) = retain_one(topic) {
                topic.warn("cannot delete old records", &error);
            }
        };
        rounds.run_all(items(&topics), &stop, work).await;
    }
}

/// Compacts topics with that policy, one at a time, until `stop` is true.
pub(crate) async fn compact(topics: Arc<Topics>, mut stop: watch::Receiver<bool>) {
    let hash_secret = super::random_id();
    let mut rounds = COMPACTION;
    while is_time(&mut stop).await {
        let work = move |topic: &Arc<OpenTopic>| {
            if let Err(error) = compact_one(topic, hash_secret) {
                topic.warn("cannot compact", &error);
            }
        };
        rounds.run_all(items(&topics), &stop, work).await;
    }
}

/// Waits for the next round. Returns `false` if the broker stops.
async fn is_time(stop: &mut watch::Receiver<bool>) -> bool {
    tokio::select! {
        _ = stop.wait_for(|stops| *stops) => false,
        () = tokio::time::sleep(INTERVAL) => true,
    }
}

/// Returns all topics for a round of work.
fn items(topics: &Topics) -> Vec<Item<Arc<OpenTopic>>> {
    let waits = |topic: &OpenTopic| match topic.waits_for_disk() {
        true => Waits::Perhaps,
        false => Waits::Never,
    };
    let item = |topic: Arc<OpenTopic>| Item { id: topic.id, waits: waits(&topic), subject: topic };
    topics.all().into_iter().map(item).collect()
}

/// Flushes the topics with appends or deletions since their last flush. All others are left alone,
/// because a flush takes a connection to the volume. Returns the number of topics. May block.
pub(crate) fn flush_all(topics: &Topics) -> usize {
    let unflushed: Vec<_> =
        topics.all().into_iter().filter(|topic| topic.log.has_to_flush()).collect();
    for topic in &unflushed {
        if let Err(error) = topic.flush() {
            topic.warn("cannot flush the topic at shutdown", &error);
        }
    }
    unflushed.len()
}

pub(super) fn retain_one(topic: &OpenTopic) -> Result<(), LogError> {
    topic.settle()?;
    let settings = topic.settings();
    let now_ms = clock::unix_ms();
    let oldest_unix_ms = settings.retention_ms.map(|time| now_ms.saturating_sub(time));
    let partitions: Vec<Arc<OpenPartition>> = topic.partitions().to_vec();
    for partition in &partitions {
        let is_expired = settings.deletes
            && oldest_unix_ms
                .zip(partition.log.newest_unix_ms(now_ms))
                .is_some_and(|(oldest, newest)| newest < oldest);
        let quiet_ms = partition.quiet_ms(now_ms);
        let is_left = settings.retention_ms.is_some_and(|it| quiet_ms >= it.min(OLD_RECORDS_MS));
        let begun_ms = partition.segment_since_ms.load(Ordering::Relaxed);
        if is_expired || now_ms.saturating_sub(begun_ms) >= settings.segment_ms() {
            match is_expired && is_left {
                // Deletes the last segment too, without waiting for the next batch.
                true => partition.log.roll_now()?,
                false => partition.log.roll(),
            }
            partition.segment_since_ms.store(now_ms, Ordering::Relaxed);
        }
        if settings.deletes {
            let (bytes_max, empties_last) = (settings.retention_bytes, is_expired && is_left);
            partition.log.retain(Retention { bytes_max, oldest_unix_ms, empties_last })?;
        }
        // If no memory is free for a new segment, the present one is truncated at its start.
        partition.log.cut()?;
        partition.log.forget_idle_producers(now_ms, PRODUCER_LIFE_MS);
    }
    // The next flush frees the slots of deleted segments.
    flush_changed(topic)
}

/// Flushes a topic with changes. Unused topics are not flushed, because that requires a connection
/// to each.
fn flush_changed(topic: &OpenTopic) -> Result<(), LogError> {
    if topic.log.has_to_flush() {
        return topic.flush();
    }
    topic.wake_all();
    Ok(())
}

pub(super) fn compact_one(topic: &OpenTopic, hash_secret: [u8; 16]) -> Result<(), LogError> {
    let settings = topic.settings();
    if !settings.compacts {
        return Ok(());
    }
    let partitions: Vec<Arc<OpenPartition>> = topic.partitions().to_vec();
    for partition in &partitions {
        let done = partition.log.compact(&CompactionOptions {
            now_ms: clock::unix_ms(),
            delete_retention_ms: settings.delete_retention_ms,
            min_compaction_lag_ms: settings.min_compaction_lag_ms,
            max_compaction_lag_ms: settings.max_wait_ms(),
            min_dirty_ratio: settings.min_dirty_ratio,
            map_bytes_max: KEY_MAP_BYTES,
            hash_secret,
        })?;
        if let Some(outcome) = done {
            let (topic, partition) = (&topic.name, partition.log.number());
            tracing::debug!(%topic, partition, ?outcome, "compacted");
        }
    }
    flush_changed(topic)
}
