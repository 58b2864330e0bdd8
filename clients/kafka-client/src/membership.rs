//! Member of a classic consumer group: joins, receives partitions, sends heartbeats and commits
//! offsets.
//!
//! Nothing runs in the background. The caller must call `keep_up` between reads, more often than
//! the session timeout. If it reports a rebalance, earlier assignments and positions are void.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::consumer_protocol_assignment::TopicPartition;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::join_group_response::JoinGroupResponse;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    ConsumerProtocolAssignment, ConsumerProtocolSubscription, HeartbeatRequest, JoinGroupRequest,
    LeaveGroupRequest, SyncGroupRequest,
};
use kafka_protocol::protocol::{Encodable, StrBytes};
use tokio::time::Instant;

use crate::assignor::{self, Assignment};
use crate::client::{Client, text, topic_name};
use crate::connection::Connection;
use crate::error::{ClientError, check, check_right, error_name};
use crate::groups::{
    CommittedOffset, assignment_of, commit, commit_request, group_id, subscription_of,
};
use crate::retry::Retry;

/// Session timeout and heartbeat interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MembershipSettings {
    pub session_time_max: Duration,
    pub heartbeat_interval: Duration,
    /// Rebalance timeout: time for members to rejoin when the group changes.
    pub rebalance_time_max: Duration,
}

impl Default for MembershipSettings {
    fn default() -> Self {
        Self {
            session_time_max: Duration::from_secs(45),
            heartbeat_interval: Duration::from_secs(3),
            rebalance_time_max: Duration::from_secs(60),
        }
    }
}

/// A member of a group. The caller must `leave` at the end.
#[derive(Debug)]
pub struct Membership {
    client: Arc<Client>,
    settings: MembershipSettings,
    group: String,
    topics: BTreeSet<String>,
    coordinator: Arc<Connection>,
    member_id: StrBytes,
    generation: i32,
    assignment: Assignment,
    spoken_at: Instant,
    /// A join was begun. If it is cancelled, its request still occupies the connection.
    is_joining: bool,
}

/// A member in one generation of its group. Its commits are accepted only in that generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupGeneration {
    pub group: String,
    pub generation: i32,
    pub member_id: String,
}

const PROTOCOL_TYPE: &str = "consumer";

/// Version of subscriptions and assignments that all clients support.
const CONSUMER_PROTOCOL_VERSION: i16 = 0;

impl Membership {
    /// Joins the group. May wait until all its members have rejoined. If the caller may stop
    /// waiting, it calls `outside` and `rejoin` instead, and then `leave`.
    pub async fn join(
        client: Arc<Client>,
        group: &str,
        topics: BTreeSet<String>,
        settings: MembershipSettings,
    ) -> Result<Self, ClientError> {
        let mut membership = Self::outside(client, group, topics, settings).await?;
        membership.rejoin().await?;
        Ok(membership)
    }

    /// Finds the group's coordinator, without joining the group.
    pub async fn outside(
        client: Arc<Client>,
        group: &str,
        topics: BTreeSet<String>,
        settings: MembershipSettings,
    ) -> Result<Self, ClientError> {
        let coordinator = client.coordinator(group).await?;
        Ok(Self {
            client,
            settings,
            group: group.to_owned(),
            topics,
            coordinator,
            member_id: StrBytes::new(),
            generation: -1,
            assignment: Assignment::new(),
            spoken_at: Instant::now(),
            is_joining: false,
        })
    }

    /// Partitions assigned to this member, by topic.
    pub fn assignment(&self) -> &BTreeMap<String, Vec<i32>> {
        &self.assignment
    }

    /// Current generation and member id, for offset commits in transactions.
    pub fn generation(&self) -> GroupGeneration {
        GroupGeneration {
            group: self.group.clone(),
            generation: self.generation,
            member_id: self.member_id.to_string(),
        }
    }

    /// Rejoins the group and takes its new assignment. If the call is cancelled, the member can
    /// still `commit` and `leave`.
    pub async fn rejoin(&mut self) -> Result<(), ClientError> {
        self.is_joining = true;
        let joined = self.rejoin_with_retries().await;
        self.is_joining = false;
        joined
    }

    async fn rejoin_with_retries(&mut self) -> Result<(), ClientError> {
        let mut retry = self.client.retry();
        loop {
            let had_no_id = self.member_id.is_empty();
            let Err(error) = self.rejoin_once().await else { return Ok(()) };
            match error.refusal() {
                // The broker has assigned a member id. Join again with it.
                Some(ResponseError::MemberIdRequired) if had_no_id => {}
                Some(ResponseError::RebalanceInProgress) => {
                    self.wait_to_rejoin(&mut retry, error).await?;
                }
                Some(ResponseError::UnknownMemberId | ResponseError::IllegalGeneration) => {
                    self.member_id = StrBytes::new();
                    self.wait_to_rejoin(&mut retry, error).await?;
                }
                _ => {
                    retry.after(error).await?;
                    self.coordinator = self.client.coordinator(&self.group).await?;
                }
            }
        }
    }

    /// Pauses before the next attempt to join a group that changes, for at most the time of one
    /// rebalance in addition to that of an operation.
    async fn wait_to_rejoin(
        &self,
        retry: &mut Retry,
        error: ClientError,
    ) -> Result<(), ClientError> {
        let more = self.settings.rebalance_time_max;
        let late = |error: ClientError| {
            let answer = error.refusal().map(error_name).unwrap_or_default();
            let within = self.client.settings().request_time_max + more;
            let context = format!("cannot join group {:?} within {within:?}", self.group);
            ClientError::new(error.kind(), context).because(format!(
                "its last response was {answer}; look for members that join and leave repeatedly \
                 or do not rejoin in time, and stop them or give them more time"
            ))
        };
        retry.wait(error, more).await.map_err(late)
    }

    async fn rejoin_once(&mut self) -> Result<(), ClientError> {
        let joined = self.send_join().await?;
        self.generation = joined.generation_id;
        let assignments = match joined.leader == joined.member_id {
            true => self.assign(&joined).await?,
            false => Vec::new(),
        };
        let protocol = joined.protocol_name.unwrap_or_default();
        let version = self.coordinator.version_of::<SyncGroupRequest>()?;
        let mut request = SyncGroupRequest::default()
            .with_group_id(group_id(&self.group))
            .with_generation_id(self.generation)
            .with_member_id(self.member_id.clone())
            .with_assignments(assignments);
        if version >= 5 {
            request = request
                .with_protocol_type(Some(StrBytes::from_static_str(PROTOCOL_TYPE)))
                .with_protocol_name(Some(protocol));
        }
        let held_back = self.settings.rebalance_time_max;
        let response = self.coordinator.call_held(&request, version, held_back).await?;
        let attempt = format_args!("join group {:?}", self.group);
        let right = format_args!("Read on group {:?}", self.group);
        check_right(response.error_code, None, attempt, right)?;
        self.assignment = assignment_of(&response.assignment)?;
        self.spoken_at = Instant::now();
        Ok(())
    }

    async fn send_join(&mut self) -> Result<JoinGroupResponse, ClientError> {
        let milliseconds = |time: Duration| i32::try_from(time.as_millis()).unwrap_or(i32::MAX);
        let subscription = ConsumerProtocolSubscription::default()
            .with_topics(self.topics.iter().map(|topic| text(topic)).collect());
        let protocol = JoinGroupRequestProtocol::default()
            .with_name(StrBytes::from_static_str(assignor::NAME))
            .with_metadata(versioned(&subscription)?);
        let request = JoinGroupRequest::default()
            .with_group_id(group_id(&self.group))
            .with_session_timeout_ms(milliseconds(self.settings.session_time_max))
            .with_rebalance_timeout_ms(milliseconds(self.settings.rebalance_time_max))
            .with_member_id(self.member_id.clone())
            .with_protocol_type(StrBytes::from_static_str(PROTOCOL_TYPE))
            .with_protocols(vec![protocol]);
        let version = self.coordinator.version_of::<JoinGroupRequest>()?;
        let held_back = self.settings.rebalance_time_max;
        let response = self.coordinator.call_held(&request, version, held_back).await?;
        if !response.member_id.is_empty() {
            self.member_id = response.member_id.clone();
        }
        let attempt = format_args!("join group {:?}", self.group);
        let right = format_args!("Read on group {:?}", self.group);
        check_right(response.error_code, None, attempt, right)?;
        Ok(response)
    }

    /// Computes the assignment of all members, as the group's leader.
    async fn assign(
        &self,
        joined: &JoinGroupResponse,
    ) -> Result<Vec<SyncGroupRequestAssignment>, ClientError> {
        let mut subscriptions = BTreeMap::new();
        for member in &joined.members {
            let topics = subscription_of(&member.metadata)?;
            subscriptions.insert(member.member_id.to_string(), topics);
        }
        let mut counts = BTreeMap::new();
        for topic in subscriptions.values().flatten().collect::<BTreeSet<_>>() {
            match self.client.topic(topic).await {
                Ok(found) => {
                    let count = i32::try_from(found.partitions.len()).unwrap_or(i32::MAX);
                    counts.insert(topic.clone(), count);
                }
                // A missing topic has no partitions to assign.
                Err(error) if error.refusal() == Some(ResponseError::UnknownTopicOrPartition) => {}
                Err(error) => return Err(error),
            }
        }
        let assignment = |(member, assignment): (String, Assignment)| {
            let partitions = assignment.into_iter().map(|(topic, partitions)| {
                TopicPartition::default().with_topic(topic_name(&topic)).with_partitions(partitions)
            });
            let message = ConsumerProtocolAssignment::default()
                .with_assigned_partitions(partitions.collect());
            let assigned = SyncGroupRequestAssignment::default().with_member_id(text(&member));
            Ok(assigned.with_assignment(versioned(&message)?))
        };
        assignor::assign(&subscriptions, &counts).into_iter().map(assignment).collect()
    }

    /// Sends a heartbeat if one is due. Returns `false` if the group has changed; the member has
    /// then rejoined.
    pub async fn keep_up(&mut self) -> Result<bool, ClientError> {
        if self.spoken_at.elapsed() < self.settings.heartbeat_interval {
            return Ok(true);
        }
        let mut retry = self.client.retry();
        loop {
            match retry.attempt(self.beat()).await {
                Ok(()) => {
                    self.spoken_at = Instant::now();
                    return Ok(true);
                }
                Err(error) if is_for_rejoining(&error) => {
                    self.rejoin().await?;
                    return Ok(false);
                }
                Err(error) => {
                    retry.after(error).await?;
                    self.coordinator = self.client.coordinator(&self.group).await?;
                }
            }
        }
    }

    async fn beat(&self) -> Result<(), ClientError> {
        let request = HeartbeatRequest::default()
            .with_group_id(group_id(&self.group))
            .with_generation_id(self.generation)
            .with_member_id(self.member_id.clone());
        let version = self.coordinator.version_of::<HeartbeatRequest>()?;
        let response = self.coordinator.call(&request, version).await?;
        check(response.error_code, None, format_args!("send a heartbeat to group {:?}", self.group))
    }

    /// Returns the committed offset of each assigned partition, or `None` if there is none. Waits
    /// for pending transactional offset commits, so that no record is read twice.
    pub async fn committed(&self) -> Result<BTreeMap<(String, i32), Option<i64>>, ClientError> {
        let offsets = self.client.stable_group_offsets(&self.group).await?;
        let find = |topic: &str, partition: i32| {
            let is_it = |it: &&CommittedOffset| it.topic == topic && it.partition == partition;
            offsets.iter().find(is_it).map(|it| it.offset)
        };
        let mut committed = BTreeMap::new();
        for (topic, partitions) in &self.assignment {
            for &partition in partitions {
                committed.insert((topic.clone(), partition), find(topic, partition));
            }
        }
        Ok(committed)
    }

    /// Commits offsets.
    pub async fn commit(&self, offsets: &[CommittedOffset]) -> Result<(), ClientError> {
        if offsets.is_empty() {
            return Ok(());
        }
        let request = commit_request(&self.group, offsets)
            .with_generation_id_or_member_epoch(self.generation)
            .with_member_id(self.member_id.clone());
        let mut retry = self.client.retry();
        let mut coordinator = self.free_coordinator().await?;
        loop {
            match retry.attempt(commit(&coordinator, &request, &self.group)).await {
                Ok(()) => return Ok(()),
                Err(error) => retry.after(error).await?,
            }
            coordinator = self.client.coordinator(&self.group).await?;
        }
    }

    /// Leaves the group, so that its partitions are reassigned before the session times out.
    pub async fn leave(self) -> Result<(), ClientError> {
        /// First version with a list of members.
        const VERSION_OF_LISTS: i16 = 3;
        if self.member_id.is_empty() {
            // It has not joined.
            return Ok(());
        }
        let coordinator = self.free_coordinator().await?;
        let version = coordinator.version_of::<LeaveGroupRequest>()?;
        let request = LeaveGroupRequest::default().with_group_id(group_id(&self.group));
        let request = match version >= VERSION_OF_LISTS {
            true => {
                let member = MemberIdentity::default().with_member_id(self.member_id.clone());
                request.with_members(vec![member])
            }
            false => request.with_member_id(self.member_id.clone()),
        };
        let response = coordinator.call(&request, version).await?;
        let codes = response.members.iter().map(|member| member.error_code);
        for code in codes.chain([response.error_code]) {
            check(code, None, format_args!("leave group {:?}", self.group))?;
        }
        Ok(())
    }

    /// Returns a connection to the coordinator that no cancelled join occupies: brokers answer the
    /// requests of a connection in order, and hold a join back until all members have joined.
    async fn free_coordinator(&self) -> Result<Arc<Connection>, ClientError> {
        if !self.is_joining {
            return Ok(Arc::clone(&self.coordinator));
        }
        self.client.forget_connections();
        self.client.coordinator(&self.group).await
    }
}

/// Returns whether the error requires a rejoin. After a lost connection, the coordinator still
/// knows the member.
fn is_for_rejoining(error: &ClientError) -> bool {
    matches!(
        error.refusal(),
        Some(
            ResponseError::RebalanceInProgress
                | ResponseError::UnknownMemberId
                | ResponseError::IllegalGeneration
        )
    )
}

/// Encodes a message of the consumer protocol after its version.
fn versioned(message: &impl Encodable) -> Result<Bytes, ClientError> {
    let mut bytes = BytesMut::new();
    bytes.put_i16(CONSUMER_PROTOCOL_VERSION);
    message.encode(&mut bytes, CONSUMER_PROTOCOL_VERSION).map_err(|error| {
        ClientError::invalid("cannot encode the subscription of a group member").because(error)
    })?;
    Ok(bytes.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subscriptions_come_back() {
        let topics = ["a", "b"].map(text).to_vec();
        let message = ConsumerProtocolSubscription::default().with_topics(topics);
        let found = subscription_of(&versioned(&message).expect("short")).expect("it is whole");
        assert_eq!(found, BTreeSet::from(["a".to_owned(), "b".to_owned()]));
    }

    #[test]
    fn broken_subscriptions_and_assignments_are_refused() {
        const MANY: &[u8] = &[0, 0, 0x7F, 0xFF, 0xFF, 0xFF];
        for bytes in [&[][..], &[0], &[0, 0], &[0, 0, 0, 0, 0, 9, 0, 1], MANY] {
            subscription_of(&Bytes::copy_from_slice(bytes)).expect_err("it is broken");
        }
        for bytes in [&[0][..], &[0, 0], MANY] {
            assignment_of(&Bytes::copy_from_slice(bytes)).expect_err("it is broken");
        }
        assert!(assignment_of(&Bytes::new()).expect("nothing is assigned").is_empty());
    }
}
