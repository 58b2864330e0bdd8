//! ConsumerGroupHeartbeat: members come, subscribe, report what they own, and leave.

use std::collections::{BTreeMap, BTreeSet};

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::ConsumerGroupHeartbeatResponse;
use kafka_protocol::messages::consumer_group_heartbeat_response::{Assignment, TopicPartitions};
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::protocol::StrBytes;

use super::group::{
    ConsumerGroup, JOIN_EPOCH, LEAVE_EPOCH, Member, Partitions, Profile, STATIC_LEAVE_EPOCH,
    by_topic,
};
use crate::effect::CallContext;
use crate::topics::Topics;

/// Patterns that members of one group may have between them: each is matched with all topics.
const PATTERN_COUNT_MAX: usize = 100;

/// A heartbeat whose fields are in bounds and agree, with texts of its own.
pub(crate) struct Beat {
    pub(crate) member_id: StrBytes,
    pub(crate) epoch: i32,
    pub(crate) instance: Option<StrBytes>,
    pub(crate) client_id: StrBytes,
    pub(crate) host: StrBytes,
    pub(crate) principal: StrBytes,
    // Fields that are absent did not change.
    pub(crate) rack: Option<StrBytes>,
    pub(crate) rebalance_timeout_ms: Option<i32>,
    pub(crate) names: Option<BTreeSet<StrBytes>>,
    /// Empty for a member that has no pattern any more.
    pub(crate) pattern: Option<StrBytes>,
    pub(crate) assignor: Option<StrBytes>,
    pub(crate) owned: Option<Partitions>,
}

impl Beat {
    /// The member by this heartbeat, if it was so before. One that joins says everything.
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

    /// Whether it only says that the member is there, and what it owns.
    fn says_nothing_new(&self, members: &BTreeMap<StrBytes, Member>) -> bool {
        let Some(member) = members.get(&self.member_id) else { return false };
        let texts = [&self.rack, &self.pattern, &self.assignor];
        let subscribes = self.names.is_some() || texts.iter().any(|it| it.is_some());
        let profile = &member.profile;
        !subscribes
            && self.rebalance_timeout_ms.is_none()
            && (self.instance.is_none() || self.instance == profile.instance)
            && self.client_id == profile.client_id
            && self.host == profile.host
            && self.principal == profile.principal
    }

    /// Whether the client says everything, as it does when it knows nothing.
    fn is_full(&self) -> bool {
        let subscribes = self.names.is_some() || self.pattern.is_some();
        self.epoch == JOIN_EPOCH
            || (self.rebalance_timeout_ms.is_some() && subscribes && self.owned.is_some())
    }
}

/// What a heartbeat is to the group.
enum Standing {
    Known,
    New,
    /// A static member that takes the place of this one.
    Successor(StrBytes),
}

impl ConsumerGroup {
    /// The reply to a heartbeat. An error changes nothing.
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
        let before = match &standing {
            Standing::Known => self.members.get(&beat.member_id),
            Standing::Successor(predecessor) => self.members.get(predecessor),
            Standing::New => None,
        };
        let before = before.map(|it| it.profile.clone()).unwrap_or_default();
        let profile = beat.profile(&before);
        self.check_room(&standing, &profile, context)?;
        self.take_in(beat, &standing, profile, context);
        let is_changed = !matches!(standing, Standing::Known)
            || !self.members[&beat.member_id].profile.subscribes_as(&before);
        let is_outdated =
            (is_changed || self.topics_version != Some(topics.version())) && self.refresh(topics);
        if is_changed || is_outdated {
            self.bump(context);
        }
        if let Standing::Successor(predecessor) = &standing {
            if let Some(target) = self.targets.get(&beat.member_id) {
                context.persist(self.target_record(&beat.member_id, target));
            }
            self.persist_removal(predecessor, context);
        }
        if self.members[&beat.member_id].profile != before {
            self.persist_member(&beat.member_id, context);
        }
        Ok(self.step(beat, topics, context))
    }

    /// A heartbeat of a member that is as it was.
    fn carry_on(
        &mut self,
        beat: &Beat,
        topics: &dyn Topics,
        context: &mut CallContext<'_>,
    ) -> ConsumerGroupHeartbeatResponse {
        let member = self.members.get_mut(&beat.member_id).expect("a member that is known");
        let timeout_ms = i64::from(context.options.consumer_session_timeout_ms);
        member.session_until_ms = context.now_ms + timeout_ms;
        if self.topics_version != Some(topics.version()) && self.refresh(topics) {
            self.bump(context);
        }
        self.step(beat, topics, context)
    }

    /// Makes the targets of a new epoch, takes the member a step towards its own, and answers.
    fn step(
        &mut self,
        beat: &Beat,
        topics: &dyn Topics,
        context: &mut CallContext<'_>,
    ) -> ConsumerGroupHeartbeatResponse {
        if self.epoch > self.assignment_epoch {
            self.assign(topics, context);
        }
        let is_changed = self.reconcile(&beat.member_id, beat.owned.as_ref(), context.now_ms);
        if is_changed {
            self.persist_member(&beat.member_id, context);
        }
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
                if self.members[current].epoch != STATIC_LEAVE_EPOCH {
                    return Err(ResponseError::UnreleasedInstanceId);
                }
                if known.is_some() {
                    return Err(ResponseError::InvalidRequest);
                }
                return Ok(Standing::Successor(current.clone()));
            }
            // An instance that nobody has is no name for a member that has another, or none.
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

    fn check_room(
        &self,
        standing: &Standing,
        profile: &Profile,
        context: &CallContext<'_>,
    ) -> Result<(), ResponseError> {
        let is_full = self.members.len() >= context.options.members_max;
        let is_too_large = self.bytes() + profile.bytes() > context.options.group_bytes_max;
        let is_new_pattern =
            profile.pattern.as_ref().is_some_and(|it| !self.matches.contains_key(it));
        let has_patterns = is_new_pattern && self.matches.len() >= PATTERN_COUNT_MAX;
        if (is_full && matches!(standing, Standing::New)) || is_too_large || has_patterns {
            return Err(ResponseError::GroupMaxSizeReached);
        }
        Ok(())
    }

    /// Puts the member in the table, as it is by its heartbeat.
    fn take_in(
        &mut self,
        beat: &Beat,
        standing: &Standing,
        profile: Profile,
        context: &CallContext<'_>,
    ) {
        let member_id = &beat.member_id;
        let mut member = match standing {
            Standing::Known => self.members.remove(member_id).unwrap_or_default(),
            Standing::New => Member::default(),
            Standing::Successor(predecessor) => self.take_place(predecessor, member_id),
        };
        if let Some(instance) = &profile.instance {
            self.instances.insert(instance.clone(), member_id.clone());
        }
        member.profile = profile;
        let timeout_ms = i64::from(context.options.consumer_session_timeout_ms);
        member.session_until_ms = context.now_ms + timeout_ms;
        self.members.insert(member_id.clone(), member);
    }

    /// Gives what a static member that left owns to its successor.
    fn take_place(&mut self, predecessor: &StrBytes, successor: &StrBytes) -> Member {
        let mut member = self.members.remove(predecessor).unwrap_or_default();
        member.epoch = JOIN_EPOCH;
        member.previous_epoch = JOIN_EPOCH;
        for partition in &member.assigned {
            self.owners.insert(*partition, successor.clone());
        }
        if let Some(target) = self.targets.remove(predecessor) {
            self.targets.insert(successor.clone(), target);
        }
        member
    }

    /// Begins another epoch, before what it is begun for is stored.
    fn bump(&mut self, context: &mut CallContext<'_>) {
        self.epoch = self.epoch.checked_add(1).unwrap_or(1);
        self.since_ms = context.unix_ms;
        self.persist(context);
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
            // Its partitions stay its own until its session ends.
            let timeout_ms = i64::from(context.options.consumer_session_timeout_ms);
            member.session_until_ms = context.now_ms + timeout_ms;
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

    /// LeaveGroup, by which administrators remove members.
    pub(crate) fn leave_all(
        &mut self,
        members: &[MemberIdentity],
        context: &mut CallContext<'_>,
    ) -> Vec<Result<(), ResponseError>> {
        let mut left = Vec::new();
        let mut results = Vec::new();
        for member in members {
            let instance = member.group_instance_id.as_ref();
            let current = instance.map(|it| self.instances.get(it).cloned());
            let result = match current {
                Some(None) => Err(ResponseError::UnknownMemberId),
                Some(Some(id)) if member.member_id.is_empty() || id == member.member_id => Ok(id),
                Some(Some(_)) => Err(ResponseError::FencedInstanceId),
                None if self.members.contains_key(&member.member_id) => {
                    Ok(member.member_id.clone())
                }
                None => Err(ResponseError::UnknownMemberId),
            };
            results.push(result.map(|id| left.push(id)));
        }
        if !left.is_empty() {
            self.remove(&left, context);
        }
        results
    }

    /// Drops members; what they owned is free.
    pub(crate) fn remove(&mut self, ids: &[StrBytes], context: &mut CallContext<'_>) {
        self.bump(context);
        for id in ids {
            let Some(member) = self.members.remove(id) else { continue };
            self.release(id, &member.assigned);
            self.release(id, &member.revoking);
            self.targets.remove(id);
            if let Some(instance) = &member.profile.instance {
                self.instances.remove(instance);
            }
            self.persist_removal(id, context);
        }
    }

    /// Drops members whose time was over by this time.
    pub(crate) fn expire(&mut self, due_ms: i64, context: &mut CallContext<'_>) {
        let is_over = |member: &Member| {
            let revoke_until_ms = member.revoke_until_ms.unwrap_or(i64::MAX);
            member.session_until_ms.min(revoke_until_ms) <= due_ms
        };
        let over = self.members.iter().filter(|(_, it)| is_over(it)).map(|(id, _)| id.clone());
        let over: Vec<StrBytes> = over.collect();
        if !over.is_empty() {
            self.remove(&over, context);
        }
    }
}

impl Member {
    /// Its client is at the member's epoch, or missed one reply and owns no more than it may.
    fn check_epoch(&self, beat: &Beat) -> Result<(), ResponseError> {
        let owns_no_more = beat.owned.as_ref().is_some_and(|it| it.is_subset(&self.assigned));
        let missed_one = beat.epoch == self.previous_epoch && self.epoch >= beat.epoch;
        match beat.epoch == self.epoch || (missed_one && owns_no_more) {
            true => Ok(()),
            false => Err(ResponseError::FencedMemberEpoch),
        }
    }
}
