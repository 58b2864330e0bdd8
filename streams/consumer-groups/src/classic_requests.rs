//! JoinGroup, SyncGroup, Heartbeat and LeaveGroup, as requests to the coordinator.

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::leave_group_response::MemberResponse;
use kafka_protocol::messages::{
    HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, LeaveGroupRequest, LeaveGroupResponse,
    SyncGroupRequest, SyncGroupResponse,
};
use kafka_protocol::protocol::StrBytes;

use crate::classic::{ClassicGroup, Joining, Protocol, refused};
use crate::effect::{CallContext, Caller, Effect, Waiting, code};
use crate::fields::{own, own_beginning, own_bytes};
use crate::groups::{Groups, Kind};
use crate::options::{ID_BYTES_MAX, SHOWN_BYTES_MAX};

impl Groups {
    /// JoinGroup, versions 0 to 9. The reply may come much later, once all members have joined.
    pub fn join(&mut self, caller: Caller<'_>, request: &JoinGroupRequest, out: &mut Vec<Effect>) {
        let mut context = Self::context(self.options, self.host_ahead_ms, caller.now_ms, out);
        if let Err(error) = self.try_join(&caller, request, &mut context) {
            let response = refused(error, &request.member_id, caller.api_version);
            context.reply(caller.ticket, response);
        }
        self.settle(&request.group_id);
    }

    fn try_join(
        &mut self,
        caller: &Caller<'_>,
        request: &JoinGroupRequest,
        context: &mut CallContext<'_>,
    ) -> Result<(), ResponseError> {
        check_group_id(&request.group_id)?;
        let joining = self.check_joining(caller, request)?;
        let bytes: usize = joining.protocols.iter().map(|it| it.metadata.len()).sum();
        let brought = self
            .classic(&request.group_id)
            .map_or(0, |group| group.metadata_bytes(&joining.member_id, joining.instance.as_ref()));
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
            Kind::Consumer(consumer) if consumer.members.is_empty() => {
                let effect_count = context.out.len();
                let id = consumer.id.clone();
                let mut classic = ClassicGroup::take_over(id, consumer.epoch, context);
                let result = classic.join(joining, fresh_id, context);
                match result {
                    Ok(()) => group.kind = Kind::Classic(classic),
                    Err(_) => context.out.truncate(effect_count),
                }
                result
            }
            Kind::Consumer(_) => Err(ResponseError::InconsistentGroupProtocol),
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
            // Version 0 has one timeout for both.
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

    /// SyncGroup, versions 0 to 5. The reply comes once the leader has assigned.
    pub fn sync(&mut self, caller: Caller<'_>, request: &SyncGroupRequest, out: &mut Vec<Effect>) {
        let mut context = Self::context(self.options, self.host_ahead_ms, caller.now_ms, out);
        let waiting = Waiting { ticket: caller.ticket, api_version: caller.api_version };
        let assigned: usize = request.assignments.iter().map(|it| it.assignment.len()).sum();
        let before = self.classic(&request.group_id).map_or(0, |group| group.assignment_bytes());
        let more = assigned.saturating_sub(before);
        let result = self
            .check_bytes(self.owner_of(&request.group_id, &caller), more)
            .and_then(|()| self.classic(&request.group_id))
            .and_then(|group| group.sync(request, waiting, &mut context));
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
        let instance = request.group_instance_id.as_ref();
        let result = self.classic(&request.group_id).and_then(|group| {
            group.heartbeat(&request.member_id, instance, request.generation_id, caller.now_ms)
        });
        let response = HeartbeatResponse::default().with_error_code(code(result));
        out.push(Effect::Reply(caller.ticket, response.into()));
    }

    /// LeaveGroup, versions 0 to 5.
    pub fn leave(
        &mut self,
        caller: Caller<'_>,
        request: &LeaveGroupRequest,
        out: &mut Vec<Effect>,
    ) {
        let mut context = Self::context(self.options, self.host_ahead_ms, caller.now_ms, out);
        let single = [MemberIdentity::default().with_member_id(request.member_id.clone())];
        let members = match caller.api_version {
            ..3 => &single[..],
            _ => &request.members[..],
        };
        let kind = self.groups.get_mut(&*request.group_id).map(|it| &mut it.kind);
        let results = match kind {
            Some(Kind::Classic(group)) => group.leave(members, &mut context),
            Some(Kind::Consumer(group)) => group.leave_all(members, &mut context),
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

    fn classic(&mut self, id: &StrBytes) -> Result<&mut ClassicGroup, ResponseError> {
        check_group_id(id)?;
        match self.groups.get_mut(id).map(|it| &mut it.kind) {
            Some(Kind::Classic(group)) => Ok(group),
            Some(Kind::Consumer(_)) | None => Err(ResponseError::UnknownMemberId),
        }
    }
}

pub(crate) fn check_group_id(id: &StrBytes) -> Result<(), ResponseError> {
    match (1..=ID_BYTES_MAX).contains(&id.len()) {
        true => Ok(()),
        false => Err(ResponseError::InvalidGroupId),
    }
}
