//! What topics need from time to time: retention, compaction, producers that are gone.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use record_log::{CompactionOptions, LogError, Retention};
use tokio::sync::watch;

use super::{OpenPartition, OpenTopic, Topics};
use crate::clock;

/// How often topics are looked at.
const INTERVAL: Duration = Duration::from_secs(5);

/// Producers without a transaction that wrote nothing for so long are forgotten (Kafka's
/// `producer.id.expiration.ms`).
const PRODUCER_LIFE_MS: i64 = 24 * 3600 * 1000;

/// Records that were too old when they came are there for so long after the last one (Kafka's
/// `log.retention.check.interval.ms`).
const OLD_RECORDS_MS: i64 = 5 * 60 * 1000;

/// What compaction notes keys in (Kafka's `log.cleaner.dedupe.buffer.size`).
const KEY_MAP_BYTES: usize = 64 << 20;

/// Deletes what topics are not to keep, until `stop` says so.
pub(crate) async fn retain(topics: Arc<Topics>, stop: watch::Receiver<bool>) {
    let settling = Arc::clone(&topics);
    let before = move || settling.settle_beside();
    each_time(topics, stop, before, |topic| {
        if let Err(error) = retain_one(topic) {
            tracing::warn!(topic = %topic.name, %error, "cannot delete old records");
        }
    })
    .await;
}

/// Compacts the topics that ask for it, one at a time, until `stop` says so.
pub(crate) async fn compact(topics: Arc<Topics>, stop: watch::Receiver<bool>) {
    let hash_secret = super::random_id();
    each_time(
        topics,
        stop,
        || {},
        move |topic| {
            if let Err(error) = compact_one(topic, hash_secret) {
                tracing::warn!(topic = %topic.name, %error, "cannot compact");
            }
        },
    )
    .await;
}

async fn each_time(
    topics: Arc<Topics>,
    mut stop: watch::Receiver<bool>,
    before: impl Fn() + Clone + Send + 'static,
    work: impl Fn(&OpenTopic) + Clone + Send + 'static,
) {
    loop {
        tokio::select! {
            _ = stop.wait_for(|stops| *stops) => return,
            () = tokio::time::sleep(INTERVAL) => {}
        }
        tokio::task::spawn_blocking(before.clone()).await.expect("the thread does not panic");
        for topic in topics.all() {
            let work = work.clone();
            let worked = tokio::task::spawn_blocking(move || work(&topic));
            worked.await.expect("the thread does not panic");
        }
    }
}

fn retain_one(topic: &OpenTopic) -> Result<(), LogError> {
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
        if is_expired || now_ms.saturating_sub(begun_ms) >= settings.segment_ms {
            match is_expired && is_left {
                // Retention deletes the last segment too, and not only with the next batch.
                true => partition.log.roll_now()?,
                false => partition.log.roll(),
            }
            partition.segment_since_ms.store(now_ms, Ordering::Relaxed);
        }
        if settings.deletes {
            let (bytes_max, empties_last) = (settings.retention_bytes, is_expired && is_left);
            partition.log.retain(Retention { bytes_max, oldest_unix_ms, empties_last })?;
        }
        // Where there was no room for a new segment, the one that is there makes some.
        partition.log.cut()?;
        partition.log.forget_idle_producers(now_ms, PRODUCER_LIFE_MS);
    }
    // Slots of what was deleted are given back with the next flush.
    topic.flush()
}

fn compact_one(topic: &OpenTopic, hash_secret: [u8; 16]) -> Result<(), LogError> {
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
            min_dirty_ratio: settings.min_dirty_ratio,
            map_bytes_max: KEY_MAP_BYTES,
            hash_secret,
        })?;
        if let Some(outcome) = done {
            let (topic, partition) = (&topic.name, partition.log.number());
            tracing::debug!(%topic, partition, ?outcome, "compacted");
        }
    }
    topic.flush()
}
