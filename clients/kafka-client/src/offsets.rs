//! Offsets of partitions: earliest, latest, by timestamp.

use std::collections::BTreeMap;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::{BrokerId, ListOffsetsRequest};

use crate::client::{Client, topic_name};
use crate::connection::Connection;
use crate::error::{ClientError, check_right};
use crate::fetch::Isolation;
use crate::topics::no_result;

/// Kind of offset to look up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetAt {
    /// First available offset (log start offset).
    Earliest,
    /// Offset of the next record (log end offset).
    Latest,
    /// First offset whose record has this timestamp or a later one, in milliseconds since 1970.
    Time(i64),
}

impl OffsetAt {
    fn timestamp(self) -> i64 {
        match self {
            Self::Earliest => -2,
            Self::Latest => -1,
            Self::Time(milliseconds) => milliseconds,
        }
    }
}

/// Result for one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionOffset {
    pub partition: i32,
    /// `None` if no record has such a timestamp.
    pub offset: Option<i64>,
}

impl Client {
    /// Looks up an offset in each partition of a topic, sorted by partition index. With
    /// `ReadCommitted`, the latest offset is the last stable offset.
    pub async fn topic_offsets(
        &self,
        topic: &str,
        at: OffsetAt,
        isolation: Isolation,
    ) -> Result<Vec<PartitionOffset>, ClientError> {
        let mut retry = self.retry();
        loop {
            match retry.attempt(self.topic_offsets_once(topic, at, isolation)).await {
                // Retry while there is no leader, but not if the topic does not exist.
                Err(error) if error.refusal() != Some(ResponseError::UnknownTopicOrPartition) => {
                    retry.after(error).await?;
                }
                offsets => return offsets,
            }
        }
    }

    /// Sends one request to each leader, for all of its partitions.
    async fn topic_offsets_once(
        &self,
        topic: &str,
        at: OffsetAt,
        isolation: Isolation,
    ) -> Result<Vec<PartitionOffset>, ClientError> {
        let leaders = self.leaders(topic).await?;
        let mut by_leader = BTreeMap::<&str, Vec<i32>>::new();
        for (partition, leader) in (0..).zip(&leaders) {
            by_leader.entry(leader.address()).or_default().push(partition);
        }
        let mut offsets = Vec::with_capacity(leaders.len());
        for (address, partitions) in by_leader {
            let leader = self.connection(address).await?;
            let request = request(topic, &partitions, at, isolation);
            offsets.extend(offsets_from(&leader, &request, topic, &partitions).await?);
        }
        offsets.sort_by_key(|offset| offset.partition);
        Ok(offsets)
    }
}

fn request(
    topic: &str,
    partitions: &[i32],
    at: OffsetAt,
    isolation: Isolation,
) -> ListOffsetsRequest {
    let partition = |&partition: &i32| {
        ListOffsetsPartition::default()
            .with_partition_index(partition)
            .with_timestamp(at.timestamp())
    };
    let asked = ListOffsetsTopic::default()
        .with_name(topic_name(topic))
        .with_partitions(partitions.iter().map(partition).collect());
    ListOffsetsRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_isolation_level(isolation.level())
        .with_topics(vec![asked])
}

async fn offsets_from(
    leader: &Connection,
    request: &ListOffsetsRequest,
    topic: &str,
    partitions: &[i32],
) -> Result<Vec<PartitionOffset>, ClientError> {
    let version = leader.version_of::<ListOffsetsRequest>()?;
    let response = leader.call(request, version).await?;
    let results = response.topics.first().map(|topic| &topic.partitions[..]).unwrap_or_default();
    let offset = |&partition: &i32| {
        let attempt = format!("find an offset of {topic:?}, partition {partition}");
        let result = results.iter().find(|it| it.partition_index == partition);
        let result = result.ok_or_else(|| no_result(&attempt))?;
        let right = format_args!("Describe on topic {topic:?}");
        check_right(result.error_code, None, attempt, right)?;
        let offset = Some(result.offset).filter(|&offset| offset >= 0);
        Ok(PartitionOffset { partition, offset })
    };
    partitions.iter().map(offset).collect()
}
