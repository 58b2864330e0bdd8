//! Consumer groups: list, description, offsets, deletion.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Buf, Bytes};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::consumer_group_describe_response::Member as NewMember;
use kafka_protocol::messages::describe_groups_response::DescribedGroupMember;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;
use kafka_protocol::messages::{
    ConsumerGroupDescribeRequest, DeleteGroupsRequest, DescribeGroupsRequest, GroupId,
    ListGroupsRequest, OffsetCommitRequest, OffsetFetchRequest, OffsetFetchResponse,
};

use crate::client::{Client, text, topic_name};
use crate::connection::Connection;
use crate::error::{ClientError, check, check_right};
use crate::topics::no_result;

/// A group in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub name: String,
    /// `consumer` for consumer groups.
    pub protocol_type: String,
    /// Empty if the broker is too old to report it.
    pub state: String,
    /// `classic` or `consumer`. Empty if the broker is too old to report it.
    pub kind: String,
}

/// Current description of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupDetails {
    pub name: String,
    pub state: String,
    pub assignor: String,
    pub members: Vec<GroupMember>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMember {
    pub id: String,
    pub client_id: String,
    pub host: String,
    /// Assigned partitions by topic.
    pub partitions: BTreeMap<String, Vec<i32>>,
}

/// Committed offset of a group in a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedOffset {
    pub topic: String,
    pub partition: i32,
    /// Offset of the next record to read.
    pub offset: i64,
}

/// Handling of offsets that an open transaction may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pending {
    /// The broker returns the committed offsets.
    Ignored,
    /// The broker returns a retriable error.
    Refused,
}

/// Generation of commits from outside the group.
const NO_GENERATION: i32 = -1;

pub(crate) fn group_id(name: &str) -> GroupId {
    GroupId(text(name))
}

impl Client {
    /// Lists the groups of all brokers.
    pub async fn groups(&self) -> Result<Vec<Group>, ClientError> {
        let cluster = self.cluster().await?;
        let mut groups = Vec::new();
        for broker in &cluster.brokers {
            let connection = self.connection(&broker.address).await?;
            let version = connection.version_of::<ListGroupsRequest>()?;
            let response = connection.call(&ListGroupsRequest::default(), version).await?;
            check(response.error_code, None, "list groups")?;
            groups.extend(response.groups.iter().map(|it| Group {
                name: it.group_id.0.to_string(),
                protocol_type: it.protocol_type.to_string(),
                state: it.group_state.to_string(),
                kind: it.group_type.to_string(),
            }));
        }
        groups.sort_by(|a, b| a.name.cmp(&b.name));
        groups.dedup();
        Ok(groups)
    }

    /// Describes a group of either protocol. A missing group fails with `GroupIdNotFound`.
    pub async fn group(&self, name: &str) -> Result<GroupDetails, ClientError> {
        let coordinator = self.coordinator(name).await?;
        if let Ok(version) = coordinator.version_of::<ConsumerGroupDescribeRequest>() {
            let described = describe_new(&coordinator, name, version).await;
            // Brokers reject classic groups here with different error codes.
            if !described.as_ref().is_err_and(|error| error.refusal().is_some()) {
                return described;
            }
        }
        describe_classic(&coordinator, name).await
    }

    /// Deletes a group without members, including its offsets.
    pub async fn delete_group(&self, name: &str) -> Result<(), ClientError> {
        let coordinator = self.coordinator(name).await?;
        let version = coordinator.version_of::<DeleteGroupsRequest>()?;
        let request = DeleteGroupsRequest::default().with_groups_names(vec![group_id(name)]);
        let response = coordinator.call(&request, version).await?;
        let attempt = format!("delete group {name:?}");
        let result = response.results.first().ok_or_else(|| no_result(&attempt))?;
        let right = format_args!("Delete on group {name:?}");
        check_right(result.error_code, None, attempt, right)
    }

    /// Lists all committed offsets of a group.
    pub async fn group_offsets(&self, name: &str) -> Result<Vec<CommittedOffset>, ClientError> {
        self.group_offsets_once(name, Pending::Ignored).await
    }

    /// Lists committed offsets once no transaction has pending offset commits (KIP-447).
    pub(crate) async fn stable_group_offsets(
        &self,
        name: &str,
    ) -> Result<Vec<CommittedOffset>, ClientError> {
        let mut retry = self.retry();
        loop {
            match retry.attempt(self.group_offsets_once(name, Pending::Refused)).await {
                Ok(offsets) => return Ok(offsets),
                Err(error) => retry.after(error).await?,
            }
        }
    }

    async fn group_offsets_once(
        &self,
        name: &str,
        pending: Pending,
    ) -> Result<Vec<CommittedOffset>, ClientError> {
        /// First version with a list of groups.
        const VERSION_OF_LISTS: i16 = 8;
        const VERSION_OF_STABILITY: i16 = 7;
        let coordinator = self.coordinator(name).await?;
        let version = coordinator.version_of::<OffsetFetchRequest>()?;
        let request = match version >= VERSION_OF_LISTS {
            true => {
                let group = OffsetFetchRequestGroup::default()
                    .with_group_id(group_id(name))
                    .with_member_epoch(NO_GENERATION)
                    .with_topics(None);
                OffsetFetchRequest::default().with_groups(vec![group])
            }
            false => OffsetFetchRequest::default().with_group_id(group_id(name)).with_topics(None),
        };
        let request = match version >= VERSION_OF_STABILITY {
            true => request.with_require_stable(pending == Pending::Refused),
            false => request,
        };
        let response = coordinator.call(&request, version).await?;
        let mut offsets = offsets_in(response, name, version >= VERSION_OF_LISTS)?;
        offsets.retain(|committed| committed.offset >= 0);
        offsets.sort_by(|a, b| (&a.topic, a.partition).cmp(&(&b.topic, b.partition)));
        Ok(offsets)
    }

    /// Sets offsets of a group without members.
    pub async fn set_group_offsets(
        &self,
        name: &str,
        offsets: &[CommittedOffset],
    ) -> Result<(), ClientError> {
        let coordinator = self.coordinator(name).await?;
        let request =
            commit_request(name, offsets).with_generation_id_or_member_epoch(NO_GENERATION);
        commit(&coordinator, &request, name).await
    }
}

pub(crate) fn commit_request(group: &str, offsets: &[CommittedOffset]) -> OffsetCommitRequest {
    let mut topics = BTreeMap::<&str, Vec<OffsetCommitRequestPartition>>::new();
    for committed in offsets {
        let partition = OffsetCommitRequestPartition::default()
            .with_partition_index(committed.partition)
            .with_committed_offset(committed.offset);
        topics.entry(&committed.topic).or_default().push(partition);
    }
    let topic = |(name, partitions)| {
        OffsetCommitRequestTopic::default().with_name(topic_name(name)).with_partitions(partitions)
    };
    OffsetCommitRequest::default()
        .with_group_id(group_id(group))
        .with_topics(topics.into_iter().map(topic).collect())
}

pub(crate) async fn commit(
    coordinator: &Connection,
    request: &OffsetCommitRequest,
    group: &str,
) -> Result<(), ClientError> {
    let version = coordinator.version_of::<OffsetCommitRequest>()?;
    let response = coordinator.call(request, version).await?;
    for topic in &response.topics {
        for partition in &topic.partitions {
            let (name, index) = (topic.name.as_str(), partition.partition_index);
            let attempt = format_args!(
                "commit an offset of {name:?}, partition {index}, for group {group:?}"
            );
            let rights = format_args!("Read on group {group:?} and on topic {name:?}");
            check_right(partition.error_code, None, attempt, rights)?;
        }
    }
    Ok(())
}

/// Returns the offsets from either form of the response.
fn offsets_in(
    response: OffsetFetchResponse,
    group: &str,
    is_list: bool,
) -> Result<Vec<CommittedOffset>, ClientError> {
    let attempt = format!("read the offsets of group {group:?}");
    let right = format!("Describe on group {group:?}");
    let mut offsets = Vec::new();
    let mut add = |topic: &str, partition, offset, code| {
        check_right(code, None, &attempt, format_args!("Describe on topic {topic:?}"))?;
        offsets.push(CommittedOffset { topic: topic.to_owned(), partition, offset });
        Ok::<_, ClientError>(())
    };
    if is_list {
        let result = response.groups.first().ok_or_else(|| no_result(&attempt))?;
        check_right(result.error_code, None, &attempt, &right)?;
        for topic in &result.topics {
            for it in &topic.partitions {
                add(&topic.name, it.partition_index, it.committed_offset, it.error_code)?;
            }
        }
    } else {
        check_right(response.error_code, None, &attempt, &right)?;
        for topic in &response.topics {
            for it in &topic.partitions {
                add(&topic.name, it.partition_index, it.committed_offset, it.error_code)?;
            }
        }
    }
    Ok(offsets)
}

async fn describe_new(
    coordinator: &Connection,
    name: &str,
    version: i16,
) -> Result<GroupDetails, ClientError> {
    let request = ConsumerGroupDescribeRequest::default().with_group_ids(vec![group_id(name)]);
    let response = coordinator.call(&request, version).await?;
    let attempt = format!("describe group {name:?}");
    let group = response.groups.first().ok_or_else(|| no_result(&attempt))?;
    let right = format_args!("Describe on group {name:?}");
    check_right(group.error_code, group.error_message.as_deref(), attempt, right)?;
    let member = |it: &NewMember| GroupMember {
        id: it.member_id.to_string(),
        client_id: it.client_id.to_string(),
        host: it.client_host.to_string(),
        partitions: it.assignment.topic_partitions.iter().fold(
            BTreeMap::new(),
            |mut partitions, topic| {
                partitions.insert(topic.topic_name.0.to_string(), topic.partitions.clone());
                partitions
            },
        ),
    };
    Ok(GroupDetails {
        name: name.to_owned(),
        state: group.group_state.to_string(),
        assignor: group.assignor_name.to_string(),
        members: group.members.iter().map(member).collect(),
    })
}

async fn describe_classic(
    coordinator: &Connection,
    name: &str,
) -> Result<GroupDetails, ClientError> {
    let request = DescribeGroupsRequest::default().with_groups(vec![group_id(name)]);
    let version = coordinator.version_of::<DescribeGroupsRequest>()?;
    let response = coordinator.call(&request, version).await?;
    let attempt = format!("describe group {name:?}");
    let group = response.groups.first().ok_or_else(|| no_result(&attempt))?;
    // Older versions report a missing group in the state `Dead`.
    let code = match group.group_state.as_str() {
        "Dead" if group.error_code == 0 => ResponseError::GroupIdNotFound.code(),
        _ => group.error_code,
    };
    let right = format_args!("Describe on group {name:?}");
    check_right(code, group.error_message.as_deref(), attempt, right)?;
    let member = |it: &DescribedGroupMember| GroupMember {
        id: it.member_id.to_string(),
        client_id: it.client_id.to_string(),
        host: it.client_host.to_string(),
        partitions: assignment_of(&it.member_assignment).unwrap_or_default(),
    };
    Ok(GroupDetails {
        name: name.to_owned(),
        state: group.group_state.to_string(),
        assignor: group.protocol_data.to_string(),
        members: group.members.iter().map(member).collect(),
    })
}

/// Decodes the partitions in a member's assignment: a version, then topics with their partitions,
/// which come first in all versions. The bytes were written by the group's leader, not the broker,
/// so their counts are not used to reserve memory.
pub(crate) fn assignment_of(bytes: &Bytes) -> Result<BTreeMap<String, Vec<i32>>, ClientError> {
    let read = |mut bytes: &[u8]| {
        let _version = bytes.try_get_i16().ok()?;
        let mut topics = BTreeMap::new();
        for _ in 0..bytes.try_get_i32().ok()? {
            let topic = string(&mut bytes)?;
            let mut partitions = Vec::new();
            for _ in 0..bytes.try_get_i32().ok()? {
                partitions.push(bytes.try_get_i32().ok()?);
            }
            topics.insert(topic, partitions);
        }
        Some(topics)
    };
    match &bytes[..] {
        [] => Ok(BTreeMap::new()),
        bytes => {
            read(bytes).ok_or_else(|| ClientError::protocol("invalid assignment of a group member"))
        }
    }
}

/// Decodes the topics in a member's subscription, which another client has written.
pub(crate) fn subscription_of(bytes: &Bytes) -> Result<BTreeSet<String>, ClientError> {
    let read = |mut bytes: &[u8]| {
        let _version = bytes.try_get_i16().ok()?;
        let count = bytes.try_get_i32().ok()?;
        (0..count).map(|_| string(&mut bytes)).collect::<Option<BTreeSet<_>>>()
    };
    read(bytes).ok_or_else(|| ClientError::protocol("invalid subscription of a group member"))
}

/// Reads a length-prefixed string.
fn string(bytes: &mut &[u8]) -> Option<String> {
    let length = usize::try_from(bytes.try_get_i16().ok()?).ok()?;
    let (text, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(String::from_utf8_lossy(text).into_owned())
}
