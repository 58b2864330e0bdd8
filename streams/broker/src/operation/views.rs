//! JSON views of the broker. Nothing here waits for the storage.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use consumer_groups::GroupView;
use serde::Serialize;

use super::state::Operation;
use crate::broker::Broker;
use crate::topics::OpenTopic;

/// Maximum wait for the coordinator, after which its data is omitted.
const COORDINATOR_TIME_MAX: Duration = Duration::from_millis(500);

#[derive(Serialize)]
pub(super) struct StatusView {
    version: &'static str,
    stage: &'static str,
    /// Reason why the storage is not available.
    storage_failure: Option<String>,
    uptime_seconds: u64,
    cluster_id: Option<String>,
    advertised: Option<String>,
    topic_count: usize,
    partition_count: usize,
    connection_count: u64,
    /// Memory outside of the pool.
    memory_bytes: Option<u64>,
}

impl StatusView {
    pub(super) fn of(operation: &Operation) -> Self {
        let broker = operation.broker();
        let topics = broker.as_ref().map(|it| it.topics.all()).unwrap_or_default();
        let advertised =
            broker.as_ref().map(|it| format!("{}:{}", it.advertised.host, it.advertised.port));
        Self {
            version: env!("CARGO_PKG_VERSION"),
            stage: operation.stage(),
            storage_failure: operation.storage_failure(),
            uptime_seconds: operation.started.elapsed().as_secs(),
            cluster_id: broker.as_ref().map(|it| it.cluster_id.clone()),
            advertised,
            topic_count: topics.len(),
            partition_count: topics.iter().map(|topic| topic.partitions().len()).sum(),
            connection_count: broker.as_ref().map_or(0, |it| open_connections(it)),
            memory_bytes: memory_bytes("RssAnon:"),
        }
    }
}

pub(super) fn open_connections(broker: &Broker) -> u64 {
    let ended = broker.counters.connections_ended.load(Ordering::Relaxed);
    broker.counters.connections_accepted.load(Ordering::Relaxed).saturating_sub(ended)
}

/// Returns a memory counter of this process from `/proc/self/status`.
pub(super) fn memory_bytes(field: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Statistics of a topic's current values.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ValuesTotals {
    pub(super) key_count: u64,
    pub(super) index_bytes: u64,
    /// Committed offsets that were not applied yet.
    pub(super) lag: u64,
    /// Partitions whose values cannot be read yet.
    pub(super) unready: u64,
}

impl ValuesTotals {
    pub(super) fn of(topic: &OpenTopic) -> Self {
        let mut totals = Self::default();
        for partition in topic.partitions().iter() {
            let figures = partition.values().map(|values| values.figures());
            let applied = figures.map_or(partition.log.start_offset(), |it| it.applied);
            let lag = partition.log.last_stable_offset().saturating_sub(applied);
            totals.lag += u64::try_from(lag).unwrap_or(0);
            totals.key_count += figures.map_or(0, |it| it.key_count as u64);
            totals.index_bytes += figures.map_or(0, |it| it.index_bytes as u64);
            totals.unready += u64::from(!figures.is_some_and(|it| it.is_ready));
        }
        totals
    }
}

/// Traffic of a topic since the start, and its size.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Totals {
    pub(super) size_bytes: u64,
    pub(super) records_in: u64,
    pub(super) bytes_in: u64,
    pub(super) records_out: u64,
    pub(super) bytes_out: u64,
}

impl Totals {
    pub(super) fn of(topic: &OpenTopic) -> Self {
        let mut totals = Self::default();
        for partition in topic.partitions().iter() {
            let traffic = &partition.traffic;
            totals.size_bytes += partition.log.size_bytes();
            totals.records_in += traffic.records_in.load(Ordering::Relaxed);
            totals.bytes_in += traffic.bytes_in.load(Ordering::Relaxed);
            totals.records_out += traffic.records_out.load(Ordering::Relaxed);
            totals.bytes_out += traffic.bytes_out.load(Ordering::Relaxed);
        }
        totals
    }
}

#[derive(Serialize)]
pub(super) struct TopicView {
    name: String,
    id: String,
    volume: String,
    partition_count: usize,
    durability: &'static str,
    #[serde(flatten)]
    totals: Totals,
    /// Included for a single topic.
    #[serde(flatten)]
    details: Option<TopicDetails>,
}

#[derive(Serialize)]
struct TopicDetails {
    /// Settings that the topic's owner set.
    settings: BTreeMap<String, String>,
    partitions: Vec<PartitionView>,
}

#[derive(Serialize)]
struct PartitionView {
    partition: u32,
    start_offset: i64,
    end_offset: i64,
    size_bytes: u64,
}

impl TopicView {
    pub(super) fn of(topic: &OpenTopic) -> Self {
        Self {
            name: topic.name.to_string(),
            id: topic.id.to_string(),
            volume: topic.volume.clone(),
            partition_count: topic.partitions().len(),
            durability: topic.kept().durability.name(),
            totals: Totals::of(topic),
            details: None,
        }
    }

    pub(super) fn detailed(topic: &OpenTopic) -> Self {
        let partitions = Arc::clone(&topic.partitions());
        let partitions = partitions.iter().map(|it| PartitionView {
            partition: it.log.number(),
            start_offset: it.log.start_offset(),
            end_offset: it.log.stable_offset(),
            size_bytes: it.log.size_bytes(),
        });
        let details = TopicDetails {
            partitions: partitions.collect(),
            settings: topic.settings().own.clone(),
        };
        Self { details: Some(details), ..Self::of(topic) }
    }
}

/// A group and its lag.
#[derive(Debug, Serialize)]
pub(super) struct LagView {
    pub(super) group: String,
    pub(super) state: &'static str,
    #[serde(rename = "type")]
    kind: &'static str,
    pub(super) member_count: usize,
    pub(super) topics: Vec<TopicLag>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct TopicLag {
    pub(super) topic: String,
    /// Partitions with a committed offset.
    partition_count: usize,
    /// Lag in offsets between the committed offsets and the ends.
    pub(super) lag: u64,
    /// Included for a single group.
    #[serde(skip_serializing_if = "Option::is_none")]
    partitions: Option<Vec<PartitionLag>>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct PartitionLag {
    partition: i32,
    committed_offset: i64,
    start_offset: i64,
    end_offset: i64,
    lag: u64,
}

/// Level of detail of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    Topics,
    Partitions,
}

/// Returns all groups; `None` if the coordinator is overloaded.
pub(super) async fn lags(broker: &Broker) -> Option<Vec<LagView>> {
    let extent_of = extents(broker);
    let groups = groups(broker).await?;
    Some(groups.into_iter().map(|it| lag_of(it, Shown::Topics, &extent_of)).collect())
}

/// Returns a group with its partitions, if it exists; `None` if the coordinator is overloaded.
pub(super) async fn detailed_lag(broker: &Broker, name: &str) -> Option<Option<LagView>> {
    let group = groups(broker).await?.into_iter().find(|it| it.id.as_str() == name);
    Some(group.map(|it| lag_of(it, Shown::Partitions, &extents(broker))))
}

async fn groups(broker: &Broker) -> Option<Vec<GroupView>> {
    let asked = tokio::time::timeout(COORDINATOR_TIME_MAX, broker.coordinator.groups()).await;
    asked.ok().flatten()
}

/// Start offset and end offset of a partition.
type Extent = (i64, i64);

fn extents(broker: &Broker) -> impl Fn(&str, i32) -> Option<Extent> {
    move |topic, partition| {
        let topic = broker.topics.by_name(topic)?;
        let log = &topic.partition(partition)?.log;
        Some((log.start_offset(), log.stable_offset()))
    }
}

/// Computes the lag of a group. Offsets of deleted partitions are ignored.
fn lag_of(
    group: GroupView,
    shown: Shown,
    extent_of: &dyn Fn(&str, i32) -> Option<Extent>,
) -> LagView {
    let mut topics: BTreeMap<&str, TopicLag> = BTreeMap::new();
    for committed in &group.offsets {
        let Some((start_offset, end_offset)) = extent_of(&committed.topic, committed.partition)
        else {
            continue;
        };
        let topic = topics.entry(&committed.topic).or_insert_with(|| TopicLag {
            topic: committed.topic.to_string(),
            partition_count: 0,
            lag: 0,
            partitions: (shown == Shown::Partitions).then(Vec::new),
        });
        let lag = u64::try_from(end_offset.saturating_sub(committed.offset)).unwrap_or(0);
        topic.partition_count += 1;
        topic.lag += lag;
        if let Some(partitions) = &mut topic.partitions {
            let (partition, committed_offset) = (committed.partition, committed.offset);
            partitions.push(PartitionLag {
                partition,
                committed_offset,
                start_offset,
                end_offset,
                lag,
            });
        }
    }
    LagView {
        group: group.id.to_string(),
        state: group.state,
        kind: group.kind,
        member_count: group.member_count,
        topics: topics.into_values().collect(),
    }
}

#[cfg(test)]
mod tests {
    use consumer_groups::CommittedOffset;

    use super::*;

    #[test]
    fn lag_is_summed_over_the_partitions_that_are_there() {
        let at = |topic: &'static str, partition, offset| CommittedOffset {
            topic: kafka_protocol::protocol::StrBytes::from_static_str(topic),
            partition,
            offset,
        };
        let group = GroupView {
            id: kafka_protocol::protocol::StrBytes::from_static_str("g"),
            state: "Empty",
            kind: "classic",
            member_count: 0,
            offsets: vec![at("a", 0, 3), at("a", 1, 10), at("a", 2, 12), at("gone", 0, 1)],
        };
        let extent_of = |topic: &str, _| (topic == "a").then_some((2, 10));
        let lag = lag_of(group.clone(), Shown::Topics, &extent_of);
        let expected =
            TopicLag { topic: "a".to_owned(), partition_count: 3, lag: 7, partitions: None };
        assert_eq!(lag.topics, [expected], "an offset behind the end is no lag");

        let detailed = lag_of(group, Shown::Partitions, &extent_of);
        let partitions = detailed.topics[0].partitions.as_deref().expect("they are asked for");
        let shown = partitions.iter().map(|it| (it.partition, it.committed_offset, it.lag));
        assert_eq!(shown.collect::<Vec<_>>(), [(0, 3, 7), (1, 10, 0), (2, 12, 0)]);
        assert!(partitions.iter().all(|it| (it.start_offset, it.end_offset) == (2, 10)));
    }

    #[test]
    fn the_kernel_says_what_memory_this_process_has() {
        assert!(memory_bytes("RssAnon:").is_some_and(|bytes| bytes > 0));
        assert_eq!(memory_bytes("NoSuchField:"), None);
    }
}
