//! Transactions with a decided outcome, until all their markers are stable.
//!
//! A marker is appended to each partition once, regardless of failures in other partitions of the
//! transaction. It is omitted if the topic was deleted; an unavailable topic is waited for. Failed
//! appends are retried with exponential backoff.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kafka_protocol::messages::TopicName;
use record_batch::{Marker, TransactionEnd};
use record_log::{Batch, LogError};
use tokio::sync::Notify;
use transactions::{Markers, Outcome};

use crate::clock;
use crate::topics::{Found, OpenPartition, OpenTopic, Topics};

/// Minimum and maximum delay between retries for a transaction. The delay doubles with each
/// failure.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Coordinator epoch in markers. It is constant, because there is only one coordinator.
const COORDINATOR_EPOCH: i32 = 0;

#[derive(Default)]
pub(super) struct Endings {
    list: VecDeque<Ending>,
}

struct Ending {
    markers: Markers,
    /// Partitions to which the marker must be appended.
    left: BTreeMap<TopicName, BTreeSet<i32>>,
    /// Partitions to which the marker was appended, but is not stable yet.
    unstable: Vec<Unstable>,
    pause: Duration,
    due: Instant,
}

struct Unstable {
    topic: Arc<OpenTopic>,
    partition: Arc<OpenPartition>,
    /// Offset after the marker.
    end_offset: i64,
}

impl Unstable {
    /// Returns whether the marker must still become stable. Deleted topics do not count.
    fn is_left(&self, topics: &Topics) -> bool {
        self.partition.log.stable_offset() < self.end_offset
            && topics.by_id(self.topic.id).is_some()
    }
}

impl Endings {
    pub(super) fn push(&mut self, mut markers: Markers) {
        let left = std::mem::take(&mut markers.participants.topics);
        let (unstable, pause, due) = (Vec::new(), PAUSE_MIN, Instant::now());
        self.list.push_back(Ending { markers, left, unstable, pause, due });
    }

    pub(super) fn clear(&mut self) {
        self.list.clear();
    }

    /// Returns the time until the next attempt; `None` if no transaction is left.
    pub(super) fn idle_time(&self) -> Option<Duration> {
        let due = self.list.iter().map(|it| it.due).min()?;
        Some(due.saturating_duration_since(Instant::now()))
    }

    /// Writes the markers that are due, with one flush per topic: synchronously, or on another
    /// thread if the flush waits for a disk, after which `stirred` is notified. Returns the
    /// completed transactions.
    pub(super) fn write(&mut self, topics: &Topics, stirred: &Arc<Notify>) -> Vec<Markers> {
        let now = Instant::now();
        let due = self.list.iter_mut().filter(|it| it.due <= now);
        let mut unstable = BTreeMap::new();
        for ending in due {
            ending.append(topics);
            for it in &ending.unstable {
                // Before the flush, so that its end is not missed.
                it.partition.watchers.add(stirred);
                unstable.insert(it.topic.id, Arc::clone(&it.topic));
            }
        }
        for topic in unstable.into_values() {
            let flushed = match topic.waits_for_disk() {
                true => topic.stabilize().map(drop),
                false => topic.flush(),
            };
            if let Err(error) = flushed {
                let (topic, error) = (&topic.name, error.with_causes());
                tracing::warn!(%topic, error, "cannot flush transaction markers yet");
            }
        }
        let mut written = Vec::new();
        for mut ending in std::mem::take(&mut self.list) {
            ending.unstable.retain(|it| it.is_left(topics));
            if ending.left.is_empty() && ending.unstable.is_empty() {
                written.push(ending.markers);
                continue;
            }
            if ending.due <= now {
                ending.due = Instant::now() + ending.pause;
                ending.pause = (2 * ending.pause).min(PAUSE_MAX);
            }
            self.list.push_back(ending);
        }
        written
    }
}

impl Ending {
    /// Appends the marker to all remaining partitions that are available.
    fn append(&mut self, topics: &Topics) {
        let marker = self.markers.outcome;
        let end = TransactionEnd {
            producer_id: self.markers.producer.id.0,
            producer_epoch: self.markers.producer.epoch,
            coordinator_epoch: COORDINATOR_EPOCH,
            unix_ms: clock::unix_ms(),
        };
        let id = &**self.markers.transactional_id;
        let unstable = &mut self.unstable;
        self.left.retain(|name, partitions| {
            let topic = match topics.find(name) {
                Found::Served(topic) => topic,
                Found::Gone => return false,
                Found::NotServed => {
                    let topic = name.as_str();
                    tracing::warn!(
                        transaction = id,
                        topic,
                        "cannot end a transaction: topic unavailable"
                    );
                    return true;
                }
            };
            partitions.retain(|number| {
                // A partition that the topic lacks belonged to an earlier topic of that name.
                let Some(partition) = topic.partition(*number) else { return false };
                match append(&partition, marker, end) {
                    Ok(end_offset) => {
                        let topic = Arc::clone(&topic);
                        unstable.push(Unstable { topic, partition, end_offset });
                        false
                    }
                    Err(error) => {
                        let (topic, error) = (&topic.name, error.with_causes());
                        let what = "cannot end a transaction yet";
                        tracing::warn!(transaction = id, %topic, error, "{what}");
                        true
                    }
                }
            });
            !partitions.is_empty()
        });
    }
}

/// Appends a marker. Returns the offset after it.
fn append(
    partition: &OpenPartition,
    outcome: Outcome,
    end: TransactionEnd,
) -> Result<i64, LogError> {
    let marker = match outcome {
        Outcome::Commit => Marker::Commit,
        Outcome::Abort => Marker::Abort,
    };
    let mut batch = marker.to_batch(end);
    let (mut batch, _) = Batch::split_first(&mut batch)?;
    Ok(partition.log.append(&mut batch, end.unix_ms)?.base_offset + 1)
}
