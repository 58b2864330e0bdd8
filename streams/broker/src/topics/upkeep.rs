//! What topics need from time to time: retention, compaction, producers that are gone.

use std::sync::Arc;
use std::time::Duration;

use record_log::{LogError, Retention};
use tokio::sync::watch;

use super::{OpenTopic, Topics};
use crate::clock;

/// How often topics are looked at.
const INTERVAL: Duration = Duration::from_secs(5);

/// Producers without a transaction that wrote nothing for so long are forgotten (Kafka's
/// `producer.id.expiration.ms`).
const PRODUCER_LIFE_MS: i64 = 24 * 3600 * 1000;

/// Keeps all topics up until `stop` says so.
pub(crate) async fn keep_up(topics: Arc<Topics>, mut stop: watch::Receiver<bool>) {
    loop {
        tokio::select! {
            _ = stop.wait_for(|stops| *stops) => return,
            () = tokio::time::sleep(INTERVAL) => {}
        }
        for topic in topics.all() {
            let turn = tokio::task::spawn_blocking(move || {
                if let Err(error) = keep_up_one(&topic) {
                    tracing::warn!(topic = %topic.name, %error, "cannot delete old records");
                }
            });
            turn.await.expect("the thread does not panic");
        }
    }
}

fn keep_up_one(topic: &OpenTopic) -> Result<(), LogError> {
    let settings = topic.settings();
    let now_ms = clock::unix_ms();
    for partition in topic.partitions().iter().map(Arc::clone).collect::<Vec<_>>() {
        if settings.deletes {
            let oldest_unix_ms = settings.retention_ms.map(|time| now_ms.saturating_sub(time));
            let bytes_max = settings.retention_bytes;
            partition.log.retain(Retention { bytes_max, oldest_unix_ms })?;
        }
        partition.log.forget_idle_producers(now_ms, PRODUCER_LIFE_MS);
    }
    // Slots of what was deleted are given back with the next flush.
    topic.flush()
}
