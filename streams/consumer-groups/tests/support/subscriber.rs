//! A member of a classic group that behaves like Kafka's consumers: it sends its subscription and
//! owned partitions, and assigns as the leader.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{BufMut, BytesMut};
use consumer_groups::{Ticket, Topics};
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::consumer_protocol_assignment as assignment;
use kafka_protocol::messages::consumer_protocol_subscription as subscription;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    ConsumerProtocolAssignment, ConsumerProtocolSubscription, HeartbeatRequest, JoinGroupResponse,
    LeaveGroupRequest, ResponseKind, TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};

use crate::support::catalog::{Catalog, Owned};
use crate::support::{Owner, SESSION_MS, group_id, join_request, sync_request, text};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Stage {
    Idle,
    Joining(Ticket),
    Syncing(Ticket, i32),
    Stable(i32),
}

pub(crate) struct Subscriber {
    pub(crate) id: StrBytes,
    pub(crate) instance: Option<StrBytes>,
    pub(crate) topics: Vec<String>,
    /// Cooperative rebalancing: revokes only partitions that it loses, and none before it joins.
    pub(crate) is_cooperative: bool,
    pub(crate) join_version: i16,
    /// Version of its subscription; version 0 lacks owned partitions.
    pub(crate) says_version: i16,
    pub(crate) stage: Stage,
    pub(crate) owned: Owned,
    /// Earliest time at which the group may remove it, according to the replies it has read.
    lives_until_ms: i64,
    /// Errors that it received, except those that tell it to join.
    pub(crate) errors: Vec<i16>,
}

impl Subscriber {
    pub(crate) fn new(topics: &[&str], is_cooperative: bool) -> Self {
        Self {
            id: StrBytes::default(),
            instance: None,
            topics: topics.iter().map(|it| (*it).to_owned()).collect(),
            is_cooperative,
            join_version: 9,
            says_version: 3,
            stage: Stage::Idle,
            owned: Owned::new(),
            lives_until_ms: 0,
            errors: Vec::new(),
        }
    }

    pub(crate) fn generation(&self) -> Option<i32> {
        if let Stage::Stable(generation) = self.stage { Some(generation) } else { None }
    }

    fn protocol(&self) -> &'static str {
        if self.is_cooperative { "cooperative-sticky" } else { "range" }
    }

    /// Performs the client's next action.
    pub(crate) fn advance(&mut self, owner: &mut Owner) {
        match self.stage {
            Stage::Idle => self.join(owner),
            Stage::Joining(ticket) => match self.take_reply(owner, ticket) {
                Some(Some(ResponseKind::JoinGroup(joined))) => self.joined(owner, &joined),
                Some(_) => self.stage = Stage::Idle,
                None => {}
            },
            Stage::Syncing(ticket, generation) => match self.take_reply(owner, ticket) {
                Some(Some(ResponseKind::SyncGroup(synced))) if synced.error_code == 0 => {
                    let assigned = read_assignment(&synced.assignment, &owner.catalog);
                    let lost = self.owned.difference(&assigned).count();
                    self.owned = assigned;
                    // It no longer owns the lost partitions from here on.
                    self.stage = if lost > 0 { Stage::Idle } else { Stage::Stable(generation) };
                }
                Some(Some(ResponseKind::SyncGroup(synced))) => self.start_over(synced.error_code),
                Some(_) => self.stage = Stage::Idle,
                None => {}
            },
            Stage::Stable(generation) => {
                let code = self.heartbeat(owner, generation);
                if code != 0 {
                    self.start_over(code);
                }
            }
        }
    }

    /// Acts until it has received everything that is available immediately.
    pub(crate) fn catch_up(&mut self, owner: &mut Owner) {
        for _ in 0..12 {
            self.advance(owner);
        }
    }

    /// Returns the earliest time at which the group may remove it; unbounded while a request is
    /// waiting.
    pub(crate) fn lives_until_ms(&self, owner: &Owner) -> i64 {
        match self.stage {
            Stage::Joining(ticket) | Stage::Syncing(ticket, _) => {
                if owner.is_waiting(ticket) {
                    return i64::MAX;
                }
                let heard_ms = owner.answered_ms.get(&ticket).filter(|_| is_heard(owner, ticket));
                heard_ms.map_or(self.lives_until_ms, |at_ms| at_ms + SESSION_MS)
            }
            Stage::Idle | Stage::Stable(_) => self.lives_until_ms,
        }
    }

    /// Returns `None` while the request is waiting, and `Some(None)` if the coordinator crashed
    /// with it.
    fn take_reply(&mut self, owner: &mut Owner, ticket: Ticket) -> Option<Option<ResponseKind>> {
        let is_answered = !owner.is_waiting(ticket);
        if is_answered {
            self.lives_until_ms = self.lives_until_ms(owner);
        }
        owner.answered_ms.remove(&ticket);
        let reply = owner.replies.remove(&ticket);
        (reply.is_some() || is_answered).then_some(reply)
    }

    fn heartbeat(&mut self, owner: &mut Owner, generation: i32) -> i16 {
        let request = HeartbeatRequest::default()
            .with_group_id(group_id())
            .with_member_id(self.id.clone())
            .with_group_instance_id(self.instance.clone())
            .with_generation_id(generation);
        let ticket = owner.call(4, |groups, caller, out| groups.heartbeat(caller, &request, out));
        let answered_ms = owner.answered_ms.remove(&ticket);
        let Some(ResponseKind::Heartbeat(reply)) = owner.replies.remove(&ticket) else { return 0 };
        let is_heard = [0, ResponseError::RebalanceInProgress.code()].contains(&reply.error_code);
        if let Some(at_ms) = answered_ms.filter(|_| is_heard) {
            self.lives_until_ms = at_ms + SESSION_MS;
        }
        reply.error_code
    }

    fn join(&mut self, owner: &mut Owner) {
        if !self.is_cooperative {
            self.owned.clear();
        }
        let protocol = JoinGroupRequestProtocol::default()
            .with_name(text(self.protocol()))
            .with_metadata(self.subscription(&owner.catalog));
        let request = join_request(&self.id, &[])
            .with_group_instance_id(self.instance.clone())
            // Prevents its removal if it learns of a rebalance too late: only session timeouts
            // apply.
            .with_rebalance_timeout_ms(i32::MAX)
            .with_protocols(vec![protocol]);
        let ticket = owner.join(self.join_version, &request);
        self.stage = Stage::Joining(ticket);
    }

    fn subscription(&self, catalog: &Catalog) -> bytes::Bytes {
        let owned = by_name(&self.owned, catalog).into_iter().map(|(name, indexes)| {
            subscription::TopicPartition::default().with_topic(name).with_partitions(indexes)
        });
        let message = ConsumerProtocolSubscription::default()
            .with_topics(self.topics.iter().map(|it| text(it)).collect())
            .with_owned_partitions(owned.collect());
        let mut bytes = BytesMut::new();
        bytes.put_i16(self.says_version);
        message.encode(&mut bytes, self.says_version).expect("it can be said");
        bytes.freeze()
    }

    fn joined(&mut self, owner: &mut Owner, joined: &JoinGroupResponse) {
        if joined.error_code == ResponseError::MemberIdRequired.code() {
            self.id = joined.member_id.clone();
            self.stage = Stage::Idle;
            return;
        }
        if joined.error_code != 0 {
            self.start_over(joined.error_code);
            return;
        }
        self.id = joined.member_id.clone();
        assert_eq!(joined.protocol_name.as_ref().expect("named").as_str(), self.protocol());
        let leads = joined.leader == self.id && !joined.skip_assignment;
        let assignments = if leads { assign(joined, &owner.catalog) } else { Vec::new() };
        let request = sync_request(&self.id, joined.generation_id, &[])
            .with_group_instance_id(self.instance.clone())
            .with_protocol_type(Some(text("consumer")))
            .with_protocol_name(Some(text(self.protocol())))
            .with_assignments(assignments);
        let ticket = owner.sync(&request);
        self.stage = Stage::Syncing(ticket, joined.generation_id);
    }

    fn start_over(&mut self, code: i16) {
        let is = |error: ResponseError| error.code() == code;
        if !is(ResponseError::RebalanceInProgress) {
            self.errors.push(code);
            self.owned.clear();
            if !is(ResponseError::IllegalGeneration) {
                assert!(is(ResponseError::UnknownMemberId), "it was told {code}");
                self.id = StrBytes::default();
            }
        }
        self.stage = Stage::Idle;
    }

    pub(crate) fn leave(&self, owner: &mut Owner) {
        let request =
            LeaveGroupRequest::default().with_group_id(group_id()).with_member_id(self.id.clone());
        owner.leave(2, &request);
    }
}

/// Returns whether an unread reply shows that the client is a member.
fn is_heard(owner: &Owner, ticket: Ticket) -> bool {
    match owner.replies.get(&ticket) {
        Some(ResponseKind::JoinGroup(reply)) => reply.error_code == 0,
        Some(ResponseKind::SyncGroup(reply)) => reply.error_code == 0,
        _ => false,
    }
}

fn by_name(owned: &Owned, catalog: &Catalog) -> BTreeMap<TopicName, Vec<i32>> {
    let mut topics: BTreeMap<TopicName, Vec<i32>> = BTreeMap::new();
    for (id, index) in owned {
        let name = TopicName(text(&catalog.name_of(*id).expect("topics stay")));
        topics.entry(name).or_default().push(*index);
    }
    topics
}

fn read_assignment(bytes: &bytes::Bytes, catalog: &Catalog) -> Owned {
    if bytes.is_empty() {
        return Owned::new();
    }
    let version = i16::from_be_bytes([bytes[0], bytes[1]]);
    let read = ConsumerProtocolAssignment::decode(&mut bytes.slice(2..), version);
    let topics = read.expect("it can be read").assigned_partitions;
    let partitions = topics.iter().flat_map(|topic| {
        let id = catalog.by_name(&topic.topic).expect("topics stay").id;
        topic.partitions.iter().map(move |index| (id, *index))
    });
    partitions.collect()
}

/// Assigns each partition to its subscribers in turn. A partition is not assigned to another member
/// before its owner has revoked it, which a cooperative one does after this generation.
fn assign(joined: &JoinGroupResponse, catalog: &Catalog) -> Vec<SyncGroupRequestAssignment> {
    let mut reads: BTreeMap<String, Vec<&StrBytes>> = BTreeMap::new();
    let mut claims: BTreeMap<(TopicName, i32), BTreeSet<&StrBytes>> = BTreeMap::new();
    for member in &joined.members {
        let version = i16::from_be_bytes([member.metadata[0], member.metadata[1]]);
        let said = ConsumerProtocolSubscription::decode(&mut member.metadata.slice(2..), version);
        let said = said.expect("it can be read");
        for topic in &said.topics {
            reads.entry(topic.to_string()).or_default().push(&member.member_id);
        }
        for topic in &said.owned_partitions {
            for index in &topic.partitions {
                let place = (topic.topic.clone(), *index);
                claims.entry(place).or_default().insert(&member.member_id);
            }
        }
    }
    let mut given: BTreeMap<&StrBytes, Vec<assignment::TopicPartition>> = BTreeMap::new();
    for (topic, readers) in &reads {
        let name = TopicName(text(topic));
        let count = i32::try_from(catalog.partitions(topic).len()).expect("few");
        for index in 0..count {
            let turn = usize::try_from(index).expect("small") % readers.len();
            let reader = readers[turn];
            let owners = claims.get(&(name.clone(), index));
            if owners.is_some_and(|it| it.iter().any(|owner| *owner != reader)) {
                continue;
            }
            given.entry(reader).or_default().push(
                assignment::TopicPartition::default()
                    .with_topic(name.clone())
                    .with_partitions(vec![index]),
            );
        }
    }
    let given = joined.members.iter().map(|member| {
        let partitions = given.remove(&member.member_id).unwrap_or_default();
        let message = ConsumerProtocolAssignment::default().with_assigned_partitions(partitions);
        let mut bytes = BytesMut::new();
        bytes.put_i16(1);
        message.encode(&mut bytes, 1).expect("it can be said");
        SyncGroupRequestAssignment::default()
            .with_member_id(member.member_id.clone())
            .with_assignment(bytes.freeze())
    });
    given.collect()
}
