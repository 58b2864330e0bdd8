//! ConsumerGroupHeartbeat: members join, subscribe, report owned partitions, and leave.

use std::collections::{BTreeMap, BTreeSet};

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::ConsumerGroupHeartbeatResponse;
use kafka_protocol::messages::consumer_group_heartbeat_response::{Assignment, TopicPartitions};
use kafka_protocol::protocol::StrBytes;

use super::group::{
    ConsumerGroup, JOIN_EPOCH, LEAVE_EPOCH, Member, Partitions, Profile, STATIC_LEAVE_EPOCH,
    by_topic,
};
use super::members::{Arrival, Standing};
use crate::effect::CallContext;
use crate::topics::Topics;

/// A validated heartbeat, with its own copies of strings.
pub(crate) struct Beat {
    pub(crate) member_id: StrBytes,
    pub(crate) epoch: i32,
    pub(crate) instance: Option<StrBytes>,
    pub(crate) client_id: StrBytes,
    pub(crate) host: StrBytes,
    pub(crate) principal: StrBytes,
    // An absent field is unchanged.
    pub(crate) rack: Option<StrBytes>,
    pub(crate) rebalance_timeout_ms: Option<i32>,
    pub(crate) names: Option<BTreeSet<StrBytes>>,
    /// Empty if the member removes its pattern.
    pub(crate) pattern: Option<StrBytes>,
    pub(crate) assignor: Option<StrBytes>,
    pub(crate) owned: Option<Partitions>,
}

impl Beat {
    /// Returns the member's profile after this heartbeat. A joining member sends all fields.
    fn profile(&self, before: &Profile) -> Profile {
        let instance = self.instance.clone().or_else(|| before.instance.clone());
        let nothing = Profile::default();
        let before = if self.epoch == JOIN_EPOCH { &nothing } else { before };
        let maybe = |now: &Option<StrBytes>, before: &Option<StrBytes>| {
            now.clone().or_else(|| before.clone())
        };
        Profile {
            instance,
            rack: maybe(&self.rack, &before.rack),
            client_id: self.client_id.clone(),
            host: self.host.clone(),
            principal: self.principal.clone(),
            rebalance_timeout_ms: self.rebalance_timeout_ms.unwrap_or(before.rebalance_timeout_ms),
            names: self.names.clone().unwrap_or_else(|| before.names.clone()),
            pattern: maybe(&self.pattern, &before.pattern).filter(|it| !it.is_empty()),
            assignor: maybe(&self.assignor, &before.assignor),
        }
    }

    /// Returns whether the heartbeat changes nothing except, possibly, the owned partitions.
    fn says_nothing_new(&self, members: &BTreeMap<StrBytes, Member>) -> bool {
        let Some(member) = members.get(&self.member_id) else { return false };
        let texts = [&self.rack, &self.pattern, &self.assignor];
        let subscribes = self.names.is_some() || texts.iter().any(|it| it.is_some());
        let profile = &member.profile;
        !subscribes
            && member.classic.is_none()
            && self.rebalance_timeout_ms.is_none()
            && (self.instance.is_none() || self.instance == profile.instance)
            && self.client_id == profile.client_id
            && self.host == profile.host
            && self.principal == profile.principal
    }

    /// Returns whether the heartbeat contains all fields, as from a client without state.
    fn is_full(&self) -> bool {
        let subscribes = self.names.is_some() || self.pattern.is_some();
        self.epoch == JOIN_EPOCH
            || (self.rebalance_timeout_ms.is_some() && subscribes && self.owned.is_some())
    }
}

impl ConsumerGroup {
    /// Processes a heartbeat. An error leaves the group unchanged.
    pub(crate) fn heartbeat(
        &mut self,
        beat: &Beat,
        topics: &dyn Topics,
        context: &mut CallContext<'_>,
    ) -> Result<ConsumerGroupHeartbeatResponse, ResponseError> {
        if beat.epoch < JOIN_EPOCH {
            return self.leave(beat, context);
        }
        let standing = self.standing(beat)?;
        if matches!(standing, Standing::Known) && beat.says_nothing_new(&self.members) {
            return Ok(self.carry_on(beat, topics, context));
        }
        let nothing = Profile::default();
        let before = self.predecessor(&beat.member_id, &standing);
        let profile = beat.profile(before.map_or(&nothing, |it| &it.profile));
        let arrival = Arrival { member_id: &beat.member_id, standing, profile, classic: None };
        self.enrol(arrival, topics, context)?;
        Ok(self.step(beat, topics, context))
    }

    /// Processes a heartbeat of a member without changes.
    fn carry_on(
        &mut self,
        beat: &Beat,
        topics: &dyn Topics,
        context: &mut CallContext<'_>,
    ) -> ConsumerGroupHeartbeatResponse {
        let member = self.members.get_mut(&beat.member_id).expect("a member that is known");
        member.refresh(context);
        if self.topics_version != Some(topics.version()) && self.refresh(topics) {
            self.bump(context);
        }
        self.step(beat, topics, context)
    }

    /// Moves the member a step towards its target, and replies.
    fn step(
        &mut self,
        beat: &Beat,
        topics: &dyn Topics,
        context: &mut CallContext<'_>,
    ) -> ConsumerGroupHeartbeatResponse {
        let is_changed = self.advance(&beat.member_id, beat.owned.as_ref(), topics, context);
        self.answer(beat, is_changed, context)
    }

    fn answer(
        &self,
        beat: &Beat,
        is_changed: bool,
        context: &CallContext<'_>,
    ) -> ConsumerGroupHeartbeatResponse {
        let member = &self.members[&beat.member_id];
        let is_told = is_changed || beat.is_full() || member.epoch != beat.epoch;
        let assignment = is_told.then(|| {
            let topics = by_topic(&member.assigned).into_iter().map(|(topic, indexes)| {
                TopicPartitions::default().with_topic_id(topic).with_partitions(indexes)
            });
            Assignment::default().with_topic_partitions(topics.collect())
        });
        ConsumerGroupHeartbeatResponse::default()
            .with_member_id(Some(beat.member_id.clone()))
            .with_member_epoch(member.epoch)
            .with_heartbeat_interval_ms(context.options.consumer_heartbeat_interval_ms)
            .with_assignment(assignment)
    }

    fn standing(&self, beat: &Beat) -> Result<Standing, ResponseError> {
        let is_joining = beat.epoch == JOIN_EPOCH;
        let known = self.members.get(&beat.member_id);
        let current = beat.instance.as_ref().map(|it| self.instances.get(it));
        match current {
            Some(Some(current)) if *current != beat.member_id => {
                if !is_joining {
                    return Err(ResponseError::FencedInstanceId);
                }
                // A classic static member does not announce a temporary leave.
                let current_member = &self.members[current];
                let has_left = current_member.epoch == STATIC_LEAVE_EPOCH;
                if !has_left && current_member.classic.is_none() {
                    return Err(ResponseError::UnreleasedInstanceId);
                }
                if known.is_some() {
                    return Err(ResponseError::InvalidRequest);
                }
                return Ok(Standing::Successor(current.clone()));
            }
            // A known member cannot switch to an unknown instance id.
            Some(None) if known.is_some() => return Err(ResponseError::InvalidRequest),
            _ => {}
        }
        match known {
            Some(_) if is_joining => Ok(Standing::Known),
            Some(member) => member.check_epoch(beat).map(|()| Standing::Known),
            None if is_joining => Ok(Standing::New),
            None => Err(ResponseError::UnknownMemberId),
        }
    }

    fn leave(
        &mut self,
        beat: &Beat,
        context: &mut CallContext<'_>,
    ) -> Result<ConsumerGroupHeartbeatResponse, ResponseError> {
        let member_id = &beat.member_id;
        if let Some(instance) = &beat.instance {
            let current = self.instances.get(instance).ok_or(ResponseError::UnknownMemberId)?;
            if current != member_id {
                return Err(ResponseError::FencedInstanceId);
            }
        }
        let member = self.members.get_mut(member_id).ok_or(ResponseError::UnknownMemberId)?;
        if beat.epoch == STATIC_LEAVE_EPOCH {
            // Its partitions are kept until its session expires.
            member.refresh(context);
            member.epoch = STATIC_LEAVE_EPOCH;
            member.revoke_until_ms = None;
            let revoking = std::mem::take(&mut member.revoking);
            self.release(member_id, &revoking);
            self.persist_member(member_id, context);
        } else {
            self.remove(std::slice::from_ref(member_id), context);
        }
        let epoch = if beat.epoch == STATIC_LEAVE_EPOCH { STATIC_LEAVE_EPOCH } else { LEAVE_EPOCH };
        Ok(ConsumerGroupHeartbeatResponse::default()
            .with_member_id(Some(member_id.clone()))
            .with_member_epoch(epoch))
    }
}

impl Member {
    /// Checks that the client is at the member's epoch, or missed one reply and owns no additional
    /// partitions.
    fn check_epoch(&self, beat: &Beat) -> Result<(), ResponseError> {
        let owns_no_more = beat.owned.as_ref().is_some_and(|it| it.is_subset(&self.assigned));
        let missed_one = beat.epoch == self.previous_epoch && self.epoch >= beat.epoch;
        match beat.epoch == self.epoch || (missed_one && owns_no_more) {
            true => Ok(()),
            false => Err(ResponseError::FencedMemberEpoch),
        }
    }
}
