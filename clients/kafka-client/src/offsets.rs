//! Offsets of partitions: the first, the next, and those of a time.

use std::collections::BTreeMap;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::{BrokerId, ListOffsetsRequest};

use crate::client::{Client, topic_name};
use crate::connection::Connection;
use crate::error::{ClientError, check};
use crate::fetch::Isolation;
use crate::topics::no_result;

/// Place whose offset is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetAt {
    /// The first that is kept.
    Earliest,
    /// The one that the next record will have.
    Latest,
    /// The first whose record has this time or a later one, in milliseconds since 1970.
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

/// An answer for one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionOffset {
    pub partition: i32,
    /// `None` where no record has such a time.
    pub offset: Option<i64>,
}

impl Client {
    /// The offsets of all partitions of a topic, in their order. With `ReadCommitted` the latest is
    /// the one that the first open transaction begins with.
    pub async fn topic_offsets(
        &self,
        topic: &str,
        at: OffsetAt,
        isolation: Isolation,
    ) -> Result<Vec<PartitionOffset>, ClientError> {
        let mut retry = self.retry();
        loop {
            match self.topic_offsets_once(topic, at, isolation).await {
                // A leader may be waited for, and not a topic to be created.
                Err(error) if error.refusal() != Some(ResponseError::UnknownTopicOrPartition) => {
                    retry.after(error).await?;
                }
                offsets => return offsets,
            }
        }
    }

    /// Asks each leader once, for all of its partitions.
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
        check(result.error_code, None, attempt)?;
        let offset = Some(result.offset).filter(|&offset| offset >= 0);
        Ok(PartitionOffset { partition, offset })
    };
    partitions.iter().map(offset).collect()
}
