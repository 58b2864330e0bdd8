//! State of a classic group, and queries of it.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::JoinGroupResponse;
use kafka_protocol::messages::join_group_response::JoinGroupResponseMember;
use kafka_protocol::protocol::StrBytes;

use crate::effect::Waiting;
use crate::embedded::{PROTOCOL_TYPE, subscribed_names};
use crate::options::ENTRY_BYTES;
use crate::subscriptions::Subscriptions;

/// State of a classic group in a rebalance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Empty,
    /// Waits for members to join.
    PreparingRebalance,
    /// Members have joined; waits for the leader's assignment.
    CompletingRebalance,
    Stable,
}

impl Phase {
    /// Returns Kafka's name of the state.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::PreparingRebalance => "PreparingRebalance",
            Self::CompletingRebalance => "CompletingRebalance",
            Self::Stable => "Stable",
        }
    }
}

/// Assignment protocol that a member supports, with its metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Protocol {
    pub(crate) name: StrBytes,
    pub(crate) metadata: Bytes,
}

#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) instance: Option<StrBytes>,
    pub(crate) client_id: StrBytes,
    pub(crate) host: StrBytes,
    pub(crate) session_timeout_ms: i32,
    pub(crate) rebalance_timeout_ms: i32,
    pub(crate) protocols: Vec<Protocol>,
    pub(crate) assignment: Bytes,
    /// Session timeout. The member is removed then, unless one of its requests is waiting.
    pub(crate) session_until_ms: i64,
    /// True until the member is part of a generation.
    pub(crate) is_new: bool,
    /// The member must send SyncGroup.
    pub(crate) owes_sync: bool,
    /// Epoch in the consumer group that this group was before, until the member joins.
    pub(crate) former_epoch: Option<i32>,
    pub(crate) join: Option<Waiting>,
    pub(crate) sync: Option<Waiting>,
}

impl Member {
    pub(crate) fn metadata(&self, protocol: Option<&StrBytes>) -> Bytes {
        let chosen = self.protocols.iter().find(|it| Some(&it.name) == protocol);
        chosen.map(|it| it.metadata.clone()).unwrap_or_default()
    }

    pub(crate) fn refresh(&mut self, now_ms: i64) {
        self.session_until_ms = now_ms + i64::from(self.session_timeout_ms);
    }

    /// Returns when the member expires. `None` while one of its requests is waiting.
    pub(crate) fn expires_ms(&self) -> Option<i64> {
        let waits = self.join.is_some() || self.sync.is_some();
        (self.is_new || !waits).then_some(self.session_until_ms)
    }

    fn bytes(&self) -> usize {
        let instance = self.instance.as_ref().map_or(0, |it| it.len());
        let shown = self.client_id.len() + self.host.len();
        ENTRY_BYTES + instance + shown + protocols_bytes(&self.protocols) + self.assignment.len()
    }
}

pub(crate) fn protocols_bytes(protocols: &[Protocol]) -> usize {
    protocols.iter().map(|it| ENTRY_BYTES + it.name.len() + it.metadata.len()).sum()
}

/// Deadline of the join phase.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JoinTimer {
    pub(crate) at_ms: i64,
    /// Set in the first rebalance of an empty group, which waits for more members.
    pub(crate) initial: Option<InitialDelay>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct InitialDelay {
    /// Remaining time by which the delay can be extended.
    pub(crate) remaining_ms: i64,
    pub(crate) member_came: bool,
}

#[derive(Debug)]
pub(crate) struct ClassicGroup {
    pub(crate) id: StrBytes,
    pub(crate) phase: Phase,
    /// Start of the phase.
    pub(crate) since_ms: i64,
    pub(crate) generation: i32,
    /// Highest generation that a member may know of.
    pub(crate) generation_max: i32,
    pub(crate) protocol_type: Option<StrBytes>,
    pub(crate) protocol: Option<StrBytes>,
    pub(crate) leader: Option<StrBytes>,
    pub(crate) members: BTreeMap<StrBytes, Member>,
    /// Assigned member ids that have not joined yet, with their deadlines.
    pub(crate) invited: BTreeMap<StrBytes, i64>,
    /// Member id of each static instance.
    pub(crate) instances: BTreeMap<StrBytes, StrBytes>,
    pub(crate) join_timer: Option<JoinTimer>,
    pub(crate) sync_until_ms: Option<i64>,
    /// Value of the group's record in the state log.
    pub(crate) durable: Option<Bytes>,
    /// Member id of each static instance, as stored in addition to `durable`: joining members learn
    /// their ids before the generation is stable.
    pub(crate) told: BTreeMap<StrBytes, StrBytes>,
}

impl ClassicGroup {
    pub(crate) fn new(id: StrBytes, generation: i32, now_ms: i64) -> Self {
        Self {
            id,
            phase: Phase::Empty,
            since_ms: now_ms,
            generation,
            generation_max: generation,
            protocol_type: None,
            protocol: None,
            leader: None,
            members: BTreeMap::new(),
            invited: BTreeMap::new(),
            instances: BTreeMap::new(),
            join_timer: None,
            sync_until_ms: None,
            durable: None,
            told: BTreeMap::new(),
        }
    }

    /// Returns whether the group contains at most offsets.
    pub(crate) fn is_empty(&self) -> bool {
        self.phase == Phase::Empty && self.members.is_empty() && self.invited.is_empty()
    }

    /// Returns the size of the members' data.
    pub(crate) fn bytes(&self) -> usize {
        let members: usize = self.members.iter().map(|(id, it)| id.len() + it.bytes()).sum();
        let invited: usize = self.invited.keys().map(|id| ENTRY_BYTES + id.len()).sum();
        members + invited
    }

    /// Returns the size of the metadata that a member sent when it last joined.
    pub(crate) fn metadata_bytes(
        &self,
        member_id: &StrBytes,
        instance: Option<&StrBytes>,
    ) -> usize {
        let is_it = |member: &&Member| instance.is_some() && member.instance.as_ref() == instance;
        let member = self.members.get(member_id).or_else(|| self.members.values().find(is_it));
        let protocols = member.into_iter().flat_map(|it| &it.protocols);
        protocols.map(|it| it.metadata.len()).sum()
    }

    /// Returns the size of all current assignments.
    pub(crate) fn assignment_bytes(&self) -> usize {
        self.members.values().map(|it| it.assignment.len()).sum()
    }

    /// Returns the approximate memory usage.
    pub(crate) fn footprint(&self) -> usize {
        let told: usize = self.told.iter().map(|(it, id)| ENTRY_BYTES + it.len() + id.len()).sum();
        self.bytes() + self.durable.as_ref().map_or(0, Bytes::len) + told
    }

    pub(crate) fn is_leader(&self, member_id: &StrBytes) -> bool {
        self.leader.as_ref() == Some(member_id)
    }

    /// Returns the maximum rebalance timeout of the members.
    pub(crate) fn rebalance_timeout_ms(&self) -> i64 {
        self.members.values().map(|it| i64::from(it.rebalance_timeout_ms)).max().unwrap_or(0)
    }

    /// Checks that member id and instance id match.
    pub(crate) fn validate(
        &self,
        member_id: &StrBytes,
        instance: Option<&StrBytes>,
    ) -> Result<(), ResponseError> {
        if let Some(instance) = instance {
            let current = self.instances.get(instance).ok_or(ResponseError::UnknownMemberId)?;
            if current != member_id {
                return Err(ResponseError::FencedInstanceId);
            }
        }
        match self.members.contains_key(member_id) {
            true => Ok(()),
            false => Err(ResponseError::UnknownMemberId),
        }
    }

    pub(crate) fn has_all_joined(&self) -> bool {
        self.invited.is_empty() && self.members.values().all(|it| it.join.is_some())
    }

    /// Returns the names of protocols that all members support.
    fn protocols_of_all(&self) -> BTreeSet<&StrBytes> {
        let mut members = self.members.values();
        let Some(first) = members.next() else { return BTreeSet::new() };
        let names = first.protocols.iter().map(|it| &it.name);
        let mut shared: BTreeSet<&StrBytes> = names.collect();
        for member in members {
            let known: BTreeSet<_> = member.protocols.iter().map(|it| &it.name).collect();
            shared.retain(|name| known.contains(name));
        }
        shared
    }

    pub(crate) fn supports(&self, protocol_type: &StrBytes, protocols: &[Protocol]) -> bool {
        if protocol_type.is_empty() || protocols.is_empty() {
            return false;
        }
        if self.members.is_empty() {
            return true;
        }
        let shared = self.protocols_of_all();
        self.protocol_type.as_ref() == Some(protocol_type)
            && protocols.iter().any(|it| shared.contains(&it.name))
    }

    /// Returns the protocol supported by all members that most of them prefer; ties are broken by
    /// name.
    pub(crate) fn select_protocol(&self) -> Option<StrBytes> {
        let shared = self.protocols_of_all();
        let mut votes: BTreeMap<&StrBytes, usize> = BTreeMap::new();
        for member in self.members.values() {
            let favourite = member.protocols.iter().find(|it| shared.contains(&it.name))?;
            *votes.entry(&favourite.name).or_default() += 1;
        }
        let most = *votes.values().max()?;
        votes.into_iter().find(|(_, count)| *count == most).map(|(name, _)| name.clone())
    }

    /// Returns whether the members are Kafka consumers, whose subscriptions are known.
    pub(crate) fn is_of_consumers(&self) -> bool {
        self.protocol_type.as_ref().is_some_and(|it| it.as_str() == PROTOCOL_TYPE)
    }

    /// Returns whether all members are consumers.
    pub(crate) fn is_open_to_consumers(&self) -> bool {
        self.members.is_empty() || self.is_of_consumers()
    }

    /// Returns the topics to which the members subscribe, as far as known.
    pub(crate) fn subscriptions(&self) -> Subscriptions {
        let members = self.members.values().filter(|_| self.is_of_consumers());
        let names = members.flat_map(|it| subscribed_names(&it.metadata(self.protocol.as_ref())));
        let names = names.flatten();
        Subscriptions { names: names.collect(), patterns: Vec::new() }
    }

    /// Builds the reply to a join: the current generation and, for the leader, all members.
    pub(crate) fn joined(&self, member_id: &StrBytes, api_version: i16) -> JoinGroupResponse {
        let response = self.joined_as_follower(member_id, api_version);
        if !self.is_leader(member_id) {
            return response;
        }
        let members = self.members.iter().map(|(id, member)| {
            JoinGroupResponseMember::default()
                .with_member_id(id.clone())
                .with_group_instance_id(member.instance.clone())
                .with_metadata(member.metadata(self.protocol.as_ref()))
        });
        response.with_members(members.collect())
    }

    pub(crate) fn joined_as_follower(
        &self,
        member_id: &StrBytes,
        api_version: i16,
    ) -> JoinGroupResponse {
        let protocol = self.protocol.clone();
        JoinGroupResponse::default()
            .with_generation_id(self.generation)
            .with_protocol_type(self.protocol_type.clone().filter(|_| api_version >= 7))
            .with_protocol_name(Some(protocol.unwrap_or_default()))
            .with_leader(self.leader.clone().unwrap_or_default())
            .with_member_id(member_id.clone())
    }

    /// Returns the next deadline of the group.
    pub(crate) fn next_deadline_ms(&self) -> Option<i64> {
        let members = self.members.values().filter_map(Member::expires_ms);
        let timers = self.join_timer.map(|it| it.at_ms).into_iter().chain(self.sync_until_ms);
        members.chain(self.invited.values().copied()).chain(timers).min()
    }
}

/// Builds the reply to a failed join.
pub(crate) fn refused(
    error: ResponseError,
    member_id: &StrBytes,
    api_version: i16,
) -> JoinGroupResponse {
    JoinGroupResponse::default()
        .with_error_code(error.code())
        .with_generation_id(-1)
        .with_member_id(member_id.clone())
        // Before version 7, the name is not nullable.
        .with_protocol_name((api_version < 7).then(StrBytes::default))
}
