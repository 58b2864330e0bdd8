//! SyncGroup, Heartbeat, LeaveGroup, and validation of commits.

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::{SyncGroupRequest, SyncGroupResponse};
use kafka_protocol::protocol::StrBytes;

use super::group::{ClassicGroup, Phase};
use super::phases::refuse_sync;
use crate::effect::{CallContext, Waiting};
use crate::fields::own_bytes;

/// Sender of an offset commit.
pub(crate) struct Committer<'a> {
    pub(crate) member_id: &'a StrBytes,
    pub(crate) instance: Option<&'a StrBytes>,
    /// Generation or member epoch.
    pub(crate) epoch: i32,
    pub(crate) is_transactional: bool,
}

impl ClassicGroup {
    /// Replies with the member's assignment once it exists. The caller replies to an error, which
    /// leaves the group unchanged.
    pub(crate) fn sync(
        &mut self,
        request: &SyncGroupRequest,
        waiting: Waiting,
        context: &mut CallContext<'_>,
    ) -> Result<(), ResponseError> {
        let member_id = &request.member_id;
        self.validate(member_id, request.group_instance_id.as_ref())?;
        self.check_generation(member_id, request.generation_id)?;
        let differs = |asked: &Option<StrBytes>, is: &Option<StrBytes>| {
            asked.is_some() && is.is_some() && asked != is
        };
        if differs(&request.protocol_type, &self.protocol_type)
            || differs(&request.protocol_name, &self.protocol)
        {
            return Err(ResponseError::InconsistentGroupProtocol);
        }
        match self.phase {
            Phase::Empty => return Err(ResponseError::UnknownMemberId),
            Phase::PreparingRebalance => return Err(ResponseError::RebalanceInProgress),
            Phase::CompletingRebalance if self.is_leader(member_id) => {
                self.check_assignments(request, context)?;
                self.park_sync(member_id, waiting, context);
                self.assign(request, context);
            }
            Phase::CompletingRebalance => self.park_sync(member_id, waiting, context),
            Phase::Stable => {
                self.park_sync(member_id, waiting, context);
                self.answer_sync(member_id, context);
            }
        }
        Ok(())
    }

    /// Members converted from a consumer group may have an epoch of their own until they join.
    fn check_generation(&self, member_id: &StrBytes, generation: i32) -> Result<(), ResponseError> {
        let member = self.members.get(member_id);
        let is_former = member.is_some_and(|it| it.former_epoch == Some(generation));
        match generation == self.generation || is_former {
            true => Ok(()),
            false => Err(ResponseError::IllegalGeneration),
        }
    }

    fn check_assignments(
        &self,
        request: &SyncGroupRequest,
        context: &CallContext<'_>,
    ) -> Result<(), ResponseError> {
        let bytes: usize = request.assignments.iter().map(|it| it.assignment.len()).sum();
        match self.bytes() + bytes <= context.options.group_bytes_max {
            true => Ok(()),
            // Kafka's error if the record of a group becomes too large.
            false => Err(ResponseError::UnknownServerError),
        }
    }

    fn park_sync(&mut self, member_id: &StrBytes, waiting: Waiting, context: &mut CallContext<'_>) {
        let member = self.members.get_mut(member_id).expect("a member that was validated");
        member.owes_sync = false;
        if let Some(older) = member.sync.replace(waiting) {
            refuse_sync(older, ResponseError::RebalanceInProgress, context);
        }
    }

    fn assign(&mut self, request: &SyncGroupRequest, context: &mut CallContext<'_>) {
        for member in self.members.values_mut() {
            member.assignment.clear();
        }
        for assigned in &request.assignments {
            if let Some(member) = self.members.get_mut(&assigned.member_id) {
                member.assignment = own_bytes(&assigned.assignment);
            }
        }
        self.enter(Phase::Stable, context.unix_ms);
        self.persist(context);
        let ids: Vec<StrBytes> = self.members.keys().cloned().collect();
        for id in ids {
            self.answer_sync(&id, context);
        }
    }

    fn answer_sync(&mut self, member_id: &StrBytes, context: &mut CallContext<'_>) {
        let member = self.members.get_mut(member_id).expect("the id is of a member");
        let Some(waiting) = member.sync.take() else { return };
        member.refresh(context.now_ms);
        let names_protocol = waiting.api_version >= 5;
        let response = SyncGroupResponse::default()
            .with_assignment(member.assignment.clone())
            .with_protocol_type(self.protocol_type.clone().filter(|_| names_protocol))
            .with_protocol_name(self.protocol.clone().filter(|_| names_protocol));
        context.reply(waiting.ticket, response);
    }

    pub(crate) fn heartbeat(
        &mut self,
        member_id: &StrBytes,
        instance: Option<&StrBytes>,
        generation: i32,
        now_ms: i64,
    ) -> Result<(), ResponseError> {
        self.validate(member_id, instance)?;
        self.check_generation(member_id, generation)?;
        let member = self.members.get_mut(member_id).expect("a member that was validated");
        if !member.is_new {
            member.refresh(now_ms);
        }
        match self.phase {
            Phase::PreparingRebalance => Err(ResponseError::RebalanceInProgress),
            Phase::Empty => Err(ResponseError::UnknownMemberId),
            Phase::CompletingRebalance | Phase::Stable => Ok(()),
        }
    }

    /// Removes members, and returns a result for each.
    pub(crate) fn leave(
        &mut self,
        members: &[MemberIdentity],
        context: &mut CallContext<'_>,
    ) -> Vec<Result<(), ResponseError>> {
        let count_before = self.members.len();
        let results = members.iter().map(|it| self.leave_one(it, context)).collect::<Vec<_>>();
        self.after_departures(count_before, context);
        results
    }

    fn leave_one(
        &mut self,
        member: &MemberIdentity,
        context: &mut CallContext<'_>,
    ) -> Result<(), ResponseError> {
        let instance = member.group_instance_id.as_ref();
        if member.member_id.is_empty() {
            // Administrators remove a static member by its instance id.
            let current = instance.and_then(|it| self.instances.get(it).cloned());
            self.remove(&current.ok_or(ResponseError::UnknownMemberId)?, context);
            return Ok(());
        }
        if instance.is_none() && self.invited.remove(&member.member_id).is_some() {
            return Ok(());
        }
        self.validate(&member.member_id, instance)?;
        self.remove(&member.member_id, context);
        Ok(())
    }

    /// Checks whether offsets may be committed (Kafka: `ClassicGroup.validateOffsetCommit`).
    pub(crate) fn check_commit(
        &mut self,
        committer: &Committer<'_>,
        now_ms: i64,
    ) -> Result<(), ResponseError> {
        if committer.epoch < 0 && self.phase == Phase::Empty {
            return Ok(());
        }
        let names_member =
            committer.epoch >= 0 || !committer.member_id.is_empty() || committer.instance.is_some();
        if names_member {
            self.validate(committer.member_id, committer.instance)?;
            self.check_generation(committer.member_id, committer.epoch)?;
            let member =
                self.members.get_mut(committer.member_id).expect("a member that was validated");
            if !member.is_new {
                member.refresh(now_ms);
            }
        } else if !committer.is_transactional {
            return Err(ResponseError::UnknownMemberId);
        }
        if !committer.is_transactional && self.phase == Phase::CompletingRebalance {
            return Err(ResponseError::RebalanceInProgress);
        }
        Ok(())
    }
}
