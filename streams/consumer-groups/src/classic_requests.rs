//! Entry points of JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::leave_group_response::MemberResponse;
use kafka_protocol::messages::{
    HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, LeaveGroupRequest, LeaveGroupResponse,
    SyncGroupRequest, SyncGroupResponse,
};
use kafka_protocol::protocol::StrBytes;

use crate::classic::{Joining, Protocol, refused};
use crate::conversion::downgraded;
use crate::effect::{CallContext, Caller, Effect, Waiting, code};
use crate::fields::{own, own_beginning, own_bytes};
use crate::groups::{Groups, Kind};
use crate::options::{ID_BYTES_MAX, SHOWN_BYTES_MAX};
use crate::topics::Topics;

impl Groups {
    /// JoinGroup, versions 0 to 9. The reply may be delayed until all members have joined.
    pub fn join(
        &mut self,
        caller: Caller<'_>,
        request: &JoinGroupRequest,
        topics: &dyn Topics,
        out: &mut Vec<Effect>,
    ) {
        let mut context = Self::context(self.options, self.host_ahead_ms, caller.now_ms, out);
        if let Err(error) = self.try_join(&caller, request, topics, &mut context) {
            let response = refused(error, &request.member_id, caller.api_version);
            context.reply(caller.ticket, response);
        }
        self.settle(&request.group_id);
    }

    fn try_join(
        &mut self,
        caller: &Caller<'_>,
        request: &JoinGroupRequest,
        topics: &dyn Topics,
        context: &mut CallContext<'_>,
    ) -> Result<(), ResponseError> {
        check_group_id(&request.group_id)?;
        let joining = self.check_joining(caller, request)?;
        let bytes: usize = joining.protocols.iter().map(|it| it.metadata.len()).sum();
        let (id, instance) = (&joining.member_id, joining.instance.as_ref());
        let brought = match self.groups.get(&*request.group_id).map(|it| &it.kind) {
            Some(Kind::Classic(group)) => group.metadata_bytes(id, instance),
            Some(Kind::Consumer(group)) => group.metadata_bytes(id, instance),
            None => 0,
        };
        let more = bytes.saturating_sub(brought);
        self.check_bytes(self.owner_of(&request.group_id, caller), more)?;
        let uuid = self.fresh_uuid();
        let fresh_id = StrBytes::from_string(format!("{}-{uuid}", joining.client_id));
        if !joining.member_id.is_empty() && !self.groups.contains_key(&*request.group_id) {
            return Err(ResponseError::UnknownMemberId);
        }
        let group = self.classic_or_new(&request.group_id, caller)?;
        match &mut group.kind {
            Kind::Classic(group) => group.join(joining, fresh_id, context),
            Kind::Consumer(consumer) if consumer.is_left_to(&joining, context) => {
                let effect_count = context.out.len();
                let replaced = consumer.replaced_by(&joining);
                let mut classic = downgraded(consumer, replaced, topics, context);
                let result = classic.join(joining, fresh_id, context);
                match result {
                    Ok(()) => group.kind = Kind::Classic(classic),
                    Err(_) => context.out.truncate(effect_count),
                }
                result
            }
            Kind::Consumer(consumer) => consumer.join(joining, fresh_id, topics, context),
        }
    }

    fn check_joining(
        &self,
        caller: &Caller<'_>,
        request: &JoinGroupRequest,
    ) -> Result<Joining, ResponseError> {
        let Caller { ticket, api_version, client_id, host, .. } = *caller;
        let sessions = self.options.session_timeout_ms_min..=self.options.session_timeout_ms_max;
        if !sessions.contains(&request.session_timeout_ms) {
            return Err(ResponseError::InvalidSessionTimeout);
        }
        let instance = request.group_instance_id.as_ref();
        let is_too_long = |id: &StrBytes| id.len() > ID_BYTES_MAX;
        if is_too_long(&request.member_id) || instance.is_some_and(is_too_long) {
            return Err(ResponseError::InvalidRequest);
        }
        let rebalance_timeout_ms = match request.rebalance_timeout_ms {
            // Version 0 uses the session timeout for both.
            ..0 => request.session_timeout_ms,
            timeout_ms => timeout_ms,
        };
        let protocols = request
            .protocols
            .iter()
            .map(|it| Protocol { name: own(&it.name), metadata: own_bytes(&it.metadata) });
        Ok(Joining {
            waiting: Waiting { ticket, api_version },
            member_id: own(&request.member_id),
            instance: instance.map(own),
            client_id: own_beginning(client_id, SHOWN_BYTES_MAX),
            host: own_beginning(host, SHOWN_BYTES_MAX),
            session_timeout_ms: request.session_timeout_ms,
            rebalance_timeout_ms,
            protocol_type: own(&request.protocol_type),
            protocols: protocols.collect(),
        })
    }

    /// SyncGroup, versions 0 to 5. The reply is delayed until the leader has sent the assignment.
    pub fn sync(
        &mut self,
        caller: Caller<'_>,
        request: &SyncGroupRequest,
        topics: &dyn Topics,
        out: &mut Vec<Effect>,
    ) {
        let mut context = Self::context(self.options, self.host_ahead_ms, caller.now_ms, out);
        let waiting = Waiting { ticket: caller.ticket, api_version: caller.api_version };
        let assigned: usize = request.assignments.iter().map(|it| it.assignment.len()).sum();
        let more = match self.groups.get(&*request.group_id).map(|it| &it.kind) {
            Some(Kind::Classic(group)) => assigned.saturating_sub(group.assignment_bytes()),
            Some(Kind::Consumer(_)) | None => 0,
        };
        let result = self
            .check_bytes(self.owner_of(&request.group_id, &caller), more)
            .and_then(|()| self.joined(&request.group_id))
            .and_then(|kind| match kind {
                Kind::Classic(group) => group.sync(request, waiting, &mut context),
                Kind::Consumer(group) => group.sync(request, waiting, topics, &mut context),
            });
        if let Err(error) = result {
            let response = SyncGroupResponse::default().with_error_code(error.code());
            context.reply(caller.ticket, response);
        }
        self.settle(&request.group_id);
    }

    /// Heartbeat, versions 0 to 4.
    pub fn heartbeat(
        &mut self,
        caller: Caller<'_>,
        request: &HeartbeatRequest,
        out: &mut Vec<Effect>,
    ) {
        let mut context = Self::context(self.options, self.host_ahead_ms, caller.now_ms, out);
        let (id, generation) = (&request.member_id, request.generation_id);
        let instance = request.group_instance_id.as_ref();
        let result = self.joined(&request.group_id).and_then(|kind| match kind {
            Kind::Classic(group) => group.heartbeat(id, instance, generation, caller.now_ms),
            Kind::Consumer(group) => group.classic_heartbeat(id, instance, generation, &context),
        });
        if result == Err(ResponseError::RebalanceInProgress) {
            // The member has a deadline for its next join.
            self.settle(&request.group_id);
        }
        context.reply(caller.ticket, HeartbeatResponse::default().with_error_code(code(result)));
    }

    /// LeaveGroup, versions 0 to 5.
    pub fn leave(
        &mut self,
        caller: Caller<'_>,
        request: &LeaveGroupRequest,
        topics: &dyn Topics,
        out: &mut Vec<Effect>,
    ) {
        let mut context = Self::context(self.options, self.host_ahead_ms, caller.now_ms, out);
        let single = [MemberIdentity::default().with_member_id(request.member_id.clone())];
        let members = match caller.api_version {
            ..3 => &single[..],
            _ => &request.members[..],
        };
        let results = match self.groups.get_mut(&*request.group_id) {
            Some(group) => {
                let results = match &mut group.kind {
                    Kind::Classic(group) => group.leave(members, &mut context),
                    Kind::Consumer(group) => group.leave_all(members, &mut context),
                };
                group.downgrade(topics, &mut context);
                results
            }
            None => vec![Err(ResponseError::UnknownMemberId); members.len()],
        };
        let response = if caller.api_version < 3 {
            let result = results.into_iter().next().expect("a request of one member");
            LeaveGroupResponse::default().with_error_code(code(result))
        } else {
            let members = members.iter().zip(results).map(|(member, result)| {
                MemberResponse::default()
                    .with_member_id(member.member_id.clone())
                    .with_group_instance_id(member.group_instance_id.clone())
                    .with_error_code(code(result))
            });
            LeaveGroupResponse::default().with_members(members.collect())
        };
        context.reply(caller.ticket, response);
        self.settle(&request.group_id);
    }

    /// Returns the group to which a member claims to belong.
    fn joined(&mut self, id: &StrBytes) -> Result<&mut Kind, ResponseError> {
        check_group_id(id)?;
        let group = self.groups.get_mut(id).ok_or(ResponseError::UnknownMemberId)?;
        Ok(&mut group.kind)
    }
}

pub(crate) fn check_group_id(id: &StrBytes) -> Result<(), ResponseError> {
    match (1..=ID_BYTES_MAX).contains(&id.len()) {
        true => Ok(()),
        false => Err(ResponseError::InvalidGroupId),
    }
}
