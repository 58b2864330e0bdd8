//! Upkeep of topics from time to time: retention, compaction, producers that are gone.
//!
//! A topic whose disk takes nothing holds up no other one.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use record_log::{CompactionOptions, LogError, Retention};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::{OpenPartition, OpenTopic, Topics};
use crate::clock;

/// How often topics are looked at.
const INTERVAL: Duration = Duration::from_secs(5);

/// The volumes are looked at in each of so many rounds: their list is long.
const LOOK_ROUNDS: u32 = 6;

/// Producers without a transaction that wrote nothing for so long are forgotten (Kafka's
/// `producer.id.expiration.ms`).
const PRODUCER_LIFE_MS: i64 = 24 * 3600 * 1000;

/// Records that were too old when they came are there for so long after the last one (Kafka's
/// `log.retention.check.interval.ms`).
const OLD_RECORDS_MS: i64 = 5 * 60 * 1000;

/// What compaction notes keys in (Kafka's `log.cleaner.dedupe.buffer.size`).
const KEY_MAP_BYTES: usize = 64 << 20;

/// Work that all topics want again and again: of one topic after the other, but what waits longer
/// than the patience goes on beside the others, and its topic is left out until it has ended.
struct Rounds {
    patience: Duration,
    left_max: usize,
    /// What goes on longer than the patience, and of which topic.
    left: Vec<(Uuid, JoinHandle<()>)>,
}

/// What is not of a topic.
const OF_NONE: Uuid = Uuid::nil();
const OF_UNSERVED: Uuid = Uuid::max();

const RETENTION: Rounds = Rounds::new(Duration::from_secs(1), 64);

/// A pass over a large topic takes long, and the memory for its keys.
const COMPACTION: Rounds = Rounds::new(Duration::from_secs(60), 4);

/// Deletes what topics are not to keep, until `stop` says so.
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
        rounds.run(OF_NONE, Waits::Perhaps, beside).await;
        let serving = Arc::clone(&topics);
        rounds.run(OF_UNSERVED, Waits::Perhaps, move || serving.serve_beside()).await;
        let work = |topic: &OpenTopic| {
            if let Err(error) = retain_one(topic) {
                tracing::warn!(topic = %topic.name, %error, "cannot delete old records");
            }
        };
        rounds.run_all(&topics, &stop, work).await;
    }
}

/// Compacts the topics that ask for it, one at a time, until `stop` says so.
pub(crate) async fn compact(topics: Arc<Topics>, mut stop: watch::Receiver<bool>) {
    let hash_secret = super::random_id();
    let mut rounds = COMPACTION;
    while is_time(&mut stop).await {
        let work = move |topic: &OpenTopic| {
            if let Err(error) = compact_one(topic, hash_secret) {
                tracing::warn!(topic = %topic.name, %error, "cannot compact");
            }
        };
        rounds.run_all(&topics, &stop, work).await;
    }
}

/// Waits until topics are to be looked at again; `false` where the broker stops.
async fn is_time(stop: &mut watch::Receiver<bool>) -> bool {
    tokio::select! {
        _ = stop.wait_for(|stops| *stops) => false,
        () = tokio::time::sleep(INTERVAL) => true,
    }
}

/// Whether work may wait for a disk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Waits {
    /// Only for the daemon, as all topics do.
    Never,
    Perhaps,
}

impl Rounds {
    const fn new(patience: Duration, left_max: usize) -> Self {
        Self { patience, left_max, left: Vec::new() }
    }

    /// Those first that wait for no disk.
    async fn run_all(
        &mut self,
        topics: &Topics,
        stop: &watch::Receiver<bool>,
        work: impl Fn(&OpenTopic) + Clone + Send + 'static,
    ) {
        let waits = |topic: &OpenTopic| match topic.waits_for_disk() {
            true => Waits::Perhaps,
            false => Waits::Never,
        };
        let mut all: Vec<_> = topics.all().into_iter().map(|it| (waits(&it), it)).collect();
        all.sort_by_key(|(waits, _)| *waits);
        for (waits, topic) in all {
            if *stop.borrow() {
                return;
            }
            let work = work.clone();
            self.run(topic.id, waits, move || work(&topic)).await;
        }
    }

    /// Runs the work on a thread that may wait. It is left out where the last one has not ended,
    /// and, where it may wait, while as many are left as may be.
    async fn run(&mut self, of: Uuid, waits: Waits, work: impl FnOnce() + Send + 'static) {
        self.left.retain(|(_, it)| !it.is_finished());
        let is_full = self.left.len() >= self.left_max;
        if self.left.iter().any(|(it, _)| *it == of) || is_full && waits == Waits::Perhaps {
            return;
        }
        let mut worked = tokio::task::spawn_blocking(work);
        let ended = match is_full {
            true => Ok((&mut worked).await),
            false => tokio::time::timeout(self.patience, &mut worked).await,
        };
        match ended {
            Ok(ended) => ended.expect("the thread does not panic"),
            Err(_) => self.left.push((of, worked)),
        }
    }
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
    // Slots of what was deleted are given back with the next flush. Topics that nobody uses are
    // left alone: each has to be connected to.
    if topic.log.has_to_flush() {
        return topic.flush();
    }
    topic.wake_all();
    Ok(())
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
    topic.flush()
}
