//! Membership of a consumer group: joins, updates, replacement of static members, removals.

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::protocol::StrBytes;

use super::group::{ClassicTerms, ConsumerGroup, JOIN_EPOCH, Member, Profile};
use crate::effect::CallContext;
use crate::topics::Topics;

/// Maximum patterns in one group, each of which is matched against all topics.
const PATTERN_COUNT_MAX: usize = 100;

/// Relation of a request's sender to the group.
pub(super) enum Standing {
    Known,
    New,
    /// A static member that replaces this one.
    Successor(StrBytes),
}

/// A joining or updated member.
pub(super) struct Arrival<'a> {
    pub(super) member_id: &'a StrBytes,
    pub(super) standing: Standing,
    pub(super) profile: Profile,
    /// Set for a member of the classic protocol.
    pub(super) classic: Option<ClassicTerms>,
}

impl ConsumerGroup {
    /// Returns the current state of the member, or of the one that it replaces.
    pub(super) fn predecessor(&self, member_id: &StrBytes, standing: &Standing) -> Option<&Member> {
        match standing {
            Standing::Known => self.members.get(member_id),
            Standing::Successor(predecessor) => self.members.get(predecessor),
            Standing::New => None,
        }
    }

    /// Adds or updates a member, and starts a new epoch if the assignment is affected. An error
    /// leaves the group unchanged.
    pub(super) fn enrol(
        &mut self,
        arrival: Arrival<'_>,
        topics: &dyn Topics,
        context: &mut CallContext<'_>,
    ) -> Result<(), ResponseError> {
        self.check_room(&arrival, context)?;
        let member_id = arrival.member_id;
        let before = self.predecessor(member_id, &arrival.standing);
        let before = before.map(|it| (it.profile.clone(), it.classic.clone())).unwrap_or_default();
        let is_known = matches!(arrival.standing, Standing::Known);
        let predecessor = self.take_in(arrival, context);
        let is_changed = !is_known || !self.members[member_id].profile.subscribes_as(&before.0);
        let is_outdated =
            (is_changed || self.topics_version != Some(topics.version())) && self.refresh(topics);
        if is_changed || is_outdated {
            self.bump(context);
        }
        if let Some(predecessor) = &predecessor {
            if let Some(target) = self.targets.get(member_id) {
                context.persist(self.target_record(member_id, target));
            }
            self.persist_removal(predecessor, context);
        }
        let member = &self.members[member_id];
        if member.profile != before.0 || member.classic != before.1 {
            self.persist_member(member_id, context);
        }
        Ok(())
    }

    fn check_room(
        &self,
        arrival: &Arrival<'_>,
        context: &CallContext<'_>,
    ) -> Result<(), ResponseError> {
        let Arrival { standing, profile, classic, .. } = arrival;
        let is_full = self.members.len() >= context.options.members_max;
        let added = profile.bytes() + classic.as_ref().map_or(0, ClassicTerms::bytes);
        let is_too_large = self.bytes() + added > context.options.group_bytes_max;
        let is_new_pattern =
            profile.pattern.as_ref().is_some_and(|it| !self.matches.contains_key(it));
        let has_patterns = is_new_pattern && self.matches.len() >= PATTERN_COUNT_MAX;
        if (is_full && matches!(standing, Standing::New)) || is_too_large || has_patterns {
            return Err(ResponseError::GroupMaxSizeReached);
        }
        Ok(())
    }

    /// Inserts the member. Returns the one that it replaces, if any.
    fn take_in(&mut self, arrival: Arrival<'_>, context: &CallContext<'_>) -> Option<StrBytes> {
        let Arrival { member_id, standing, profile, classic } = arrival;
        let (mut member, predecessor) = match standing {
            Standing::Known => (self.members.remove(member_id).unwrap_or_default(), None),
            Standing::New => (Member::default(), None),
            Standing::Successor(predecessor) => {
                (self.take_place(&predecessor, member_id), Some(predecessor))
            }
        };
        if let Some(instance) = &profile.instance {
            self.instances.insert(instance.clone(), member_id.clone());
        }
        member.profile = profile;
        member.classic = classic;
        member.owes_until_ms = None;
        member.refresh(context);
        self.members.insert(member_id.clone(), member);
        predecessor
    }

    /// Transfers a static member's assignment to its successor. Partitions to revoke become free,
    /// because their client is gone.
    fn take_place(&mut self, predecessor: &StrBytes, successor: &StrBytes) -> Member {
        let mut member = self.members.remove(predecessor).unwrap_or_default();
        member.epoch = JOIN_EPOCH;
        member.previous_epoch = JOIN_EPOCH;
        member.revoke_until_ms = None;
        let revoking = std::mem::take(&mut member.revoking);
        self.release(predecessor, &revoking);
        for partition in &member.assigned {
            self.owners.insert(*partition, successor.clone());
        }
        if let Some(target) = self.targets.remove(predecessor) {
            self.targets.insert(successor.clone(), target);
        }
        member
    }

    /// Increments the group epoch. It is stored before the change that caused it.
    pub(super) fn bump(&mut self, context: &mut CallContext<'_>) {
        self.epoch = self.epoch.checked_add(1).unwrap_or(1);
        self.since_ms = context.unix_ms;
        self.persist(context);
    }

    /// LeaveGroup, with which classic members leave and administrators remove any member.
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

    /// Removes members and frees their partitions.
    pub(super) fn remove(&mut self, ids: &[StrBytes], context: &mut CallContext<'_>) {
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

    /// Removes members whose deadlines have passed.
    pub(crate) fn expire(&mut self, due_ms: i64, context: &mut CallContext<'_>) {
        let is_over = |member: &Member| member.deadline_ms() <= due_ms;
        let over = self.members.iter().filter(|(_, it)| is_over(it)).map(|(id, _)| id.clone());
        let over: Vec<StrBytes> = over.collect();
        if !over.is_empty() {
            self.remove(&over, context);
        }
    }
}
