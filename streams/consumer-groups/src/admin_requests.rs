//! ListGroups, DescribeGroups and DeleteGroups.
//!
//! The owner authorizes the requests: it removes forbidden groups from requests and replies.

use std::collections::BTreeSet;

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::delete_groups_response::DeletableGroupResult;
use kafka_protocol::messages::describe_groups_response::{DescribedGroup, DescribedGroupMember};
use kafka_protocol::messages::list_groups_response::ListedGroup;
use kafka_protocol::messages::{
    DeleteGroupsRequest, DeleteGroupsResponse, DescribeGroupsRequest, DescribeGroupsResponse,
    GroupId, ListGroupsRequest, ListGroupsResponse,
};
use kafka_protocol::protocol::StrBytes;

use crate::classic::{ClassicGroup, Phase};
use crate::classic_requests::check_group_id;
use crate::effect::{CallContext, Caller, Effect, code};
use crate::groups::{Groups, Kind};

impl Kind {
    pub(crate) fn state_name(&self) -> &'static str {
        match self {
            Self::Classic(group) => group.phase.name(),
            Self::Consumer(group) => group.state_name(),
        }
    }

    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Classic(_) => "classic",
            Self::Consumer(_) => "consumer",
        }
    }

    fn protocol_type(&self) -> StrBytes {
        match self {
            Self::Classic(group) => group.protocol_type.clone().unwrap_or_default(),
            Self::Consumer(_) => StrBytes::from_static_str("consumer"),
        }
    }
}

impl Groups {
    /// ListGroups, versions 0 to 5, with filters by state from version 4 and by type from version 5
    /// on.
    pub fn list(&mut self, caller: Caller<'_>, request: &ListGroupsRequest, out: &mut Vec<Effect>) {
        let set = |filter: &[StrBytes]| -> BTreeSet<String> {
            filter.iter().map(|it| it.to_ascii_lowercase()).collect()
        };
        let (states, types) = (set(&request.states_filter), set(&request.types_filter));
        let passes = |filter: &BTreeSet<String>, name: &str| {
            filter.is_empty() || filter.contains(&name.to_ascii_lowercase())
        };
        let groups = self.groups.iter().filter(|(_, group)| {
            passes(&states, group.kind.state_name()) && passes(&types, group.kind.type_name())
        });
        let groups = groups.map(|(id, group)| {
            ListedGroup::default()
                .with_group_id(GroupId(id.clone()))
                .with_protocol_type(group.kind.protocol_type())
                .with_group_state(group.kind.state_name().into())
                .with_group_type(group.kind.type_name().into())
        });
        let response = ListGroupsResponse::default().with_groups(groups.collect());
        out.push(Effect::Reply(caller.ticket, response.into()));
    }

    /// DescribeGroups, versions 0 to 6, for classic groups.
    pub fn describe(
        &mut self,
        caller: Caller<'_>,
        request: &DescribeGroupsRequest,
        out: &mut Vec<Effect>,
    ) {
        let groups =
            request.groups.iter().map(|id| match self.groups.get(&id.0).map(|it| &it.kind) {
                Some(Kind::Classic(group)) => describe_classic(group, caller.api_version),
                Some(Kind::Consumer(_)) | None => not_found(id, caller.api_version),
            });
        let response = DescribeGroupsResponse::default().with_groups(groups.collect());
        out.push(Effect::Reply(caller.ticket, response.into()));
    }

    /// DeleteGroups, versions 0 to 2: deletes groups without members, and their offsets.
    pub fn delete(
        &mut self,
        caller: Caller<'_>,
        request: &DeleteGroupsRequest,
        out: &mut Vec<Effect>,
    ) {
        let mut context = Self::context(self.options, self.host_ahead_ms, caller.now_ms, out);
        let mut results = Vec::with_capacity(request.groups_names.len());
        for id in &request.groups_names {
            let result = self.delete_one(&id.0, &mut context);
            let answered = DeletableGroupResult::default().with_group_id(id.clone());
            results.push(answered.with_error_code(code(result)));
        }
        context.reply(caller.ticket, DeleteGroupsResponse::default().with_results(results));
    }

    fn delete_one(
        &mut self,
        id: &StrBytes,
        context: &mut CallContext<'_>,
    ) -> Result<(), ResponseError> {
        check_group_id(id)?;
        let group = self.groups.get(id).ok_or(ResponseError::GroupIdNotFound)?;
        if !group.kind.is_empty() {
            return Err(ResponseError::NonEmptyGroup);
        }
        self.delete_group(id, context);
        Ok(())
    }
}

fn describe_classic(group: &ClassicGroup, api_version: i16) -> DescribedGroup {
    let is_stable = group.phase == Phase::Stable;
    let protocol = group.protocol.as_ref().filter(|_| is_stable);
    let members = group.members.iter().map(|(id, member)| {
        let described = DescribedGroupMember::default()
            .with_member_id(id.clone())
            .with_group_instance_id(member.instance.clone().filter(|_| api_version >= 4))
            .with_client_id(member.client_id.clone())
            .with_client_host(member.host.clone());
        match is_stable {
            true => described
                .with_member_metadata(member.metadata(protocol))
                .with_member_assignment(member.assignment.clone()),
            false => described,
        }
    });
    DescribedGroup::default()
        .with_group_id(GroupId(group.id.clone()))
        .with_group_state(group.phase.name().into())
        .with_protocol_type(group.protocol_type.clone().unwrap_or_default())
        .with_protocol_data(protocol.cloned().unwrap_or_default())
        .with_members(members.collect())
}

fn not_found(id: &GroupId, api_version: i16) -> DescribedGroup {
    let dead = DescribedGroup::default().with_group_id(id.clone()).with_group_state("Dead".into());
    match api_version {
        ..6 => dead,
        _ => {
            let message = StrBytes::from_string(format!("there is no classic group {}", id.0));
            dead.with_error_code(ResponseError::GroupIdNotFound.code())
                .with_error_message(Some(message))
        }
    }
}
