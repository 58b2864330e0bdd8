//! Members of a consumer group that use the classic protocol, during the migration of a group from
//! one protocol to the other.
//!
//! Their joins contain subscription and owned partitions in the embedded consumer protocol. The
//! coordinator assigns partitions. Each join moves the member a step towards its target, its
//! generation is its epoch, and SyncGroup returns its current assignment. No request waits for
//! other members: each is answered immediately.
//!
//! ```text
//! Heartbeat: rebalance in progress ──▶ JoinGroup: what it owns ──▶ SyncGroup: what it may read
//!      ▲                                                                  │
//!      └── there is another epoch, it is to give up more, or may get more ┘
//! ```

use std::collections::BTreeSet;

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::{JoinGroupResponse, SyncGroupRequest, SyncGroupResponse};
use kafka_protocol::protocol::StrBytes;

use super::group::{ClassicTerms, ConsumerGroup, Member, Partition, Profile};
use super::members::{Arrival, Standing};
use super::named::{named, resolve};
use crate::classic::{Joining, Protocol, refused};
use crate::effect::{CallContext, Waiting};
use crate::embedded::{PROTOCOL_TYPE, encode_assignment, subscription_of};
use crate::topics::Topics;

impl ConsumerGroup {
    /// Joins a member of the classic protocol. `fresh_id` is the id of a new member. The caller
    /// replies to an error, which leaves the group unchanged.
    pub(crate) fn join(
        &mut self,
        joining: Joining,
        fresh_id: StrBytes,
        topics: &dyn Topics,
        context: &mut CallContext<'_>,
    ) -> Result<(), ResponseError> {
        let subscription = subscription_of(joining.protocols.iter().map(|it| &it.metadata))
            .filter(|_| joining.protocol_type.as_str() == PROTOCOL_TYPE && self.shares(&joining))
            .ok_or(ResponseError::InconsistentGroupProtocol)?;
        let Waiting { ticket, api_version } = joining.waiting;
        if joining.needs_id() {
            // Its sender will join as a new member, so the id is not stored.
            context.reply(ticket, refused(ResponseError::MemberIdRequired, &fresh_id, api_version));
            return Ok(());
        }
        let (member_id, standing) = self.place(&joining, fresh_id)?;
        let was_dropped = matches!(standing, Standing::New) && !subscription.owned.is_empty();
        if was_dropped {
            // Its partitions may have another owner by now. The member must give them up and join
            // again.
            return Err(ResponseError::UnknownMemberId);
        }
        let before = self.predecessor(&member_id, &standing);
        let instance_before = before.and_then(|it| it.profile.instance.clone());
        let profile = Profile {
            instance: joining.instance.or(instance_before),
            rack: subscription.rack,
            client_id: joining.client_id,
            host: joining.host,
            principal: StrBytes::default(),
            rebalance_timeout_ms: joining.rebalance_timeout_ms,
            names: subscription.names.into_iter().collect(),
            pattern: None,
            assignor: None,
        };
        let owned = resolve(&subscription.owned, topics);
        let session_timeout_ms = joining.session_timeout_ms;
        let classic = Some(ClassicTerms { session_timeout_ms, protocols: joining.protocols });
        let arrival = Arrival { member_id: &member_id, standing, profile, classic };
        self.enrol(arrival, topics, context)?;
        self.advance(&member_id, Some(&owned), topics, context);
        let member = self.members.get_mut(&member_id).expect("it was taken in");
        member.owe(context.now_ms);
        let protocol = member.chosen_protocol().cloned().unwrap_or_default();
        let response = JoinGroupResponse::default()
            .with_generation_id(member.epoch)
            .with_protocol_type((api_version >= 7).then(|| PROTOCOL_TYPE.into()))
            .with_protocol_name(Some(protocol))
            .with_member_id(member_id);
        context.reply(ticket, response);
        Ok(())
    }

    /// Returns whether all members of the classic protocol support a common one, so that they can
    /// form a classic group once the others have left.
    fn shares(&self, joining: &Joining) -> bool {
        let is_same = |id: &StrBytes, member: &Member| {
            let instance = &joining.instance;
            *id == joining.member_id || (instance.is_some() && member.profile.instance == *instance)
        };
        let others = self.members.iter().filter(|(id, it)| !is_same(id, it));
        let mut shared: BTreeSet<&StrBytes> = joining.protocols.iter().map(|it| &it.name).collect();
        for terms in others.filter_map(|(_, it)| it.classic.as_ref()) {
            shared.retain(|name| terms.protocols.iter().any(|it: &Protocol| it.name == **name));
        }
        !shared.is_empty()
    }

    /// Determines the id of a joining member, and its standing.
    fn place(
        &self,
        joining: &Joining,
        fresh_id: StrBytes,
    ) -> Result<(StrBytes, Standing), ResponseError> {
        let member_id = &joining.member_id;
        let current = joining.instance.as_ref().map(|it| self.instances.get(it));
        match current {
            Some(Some(current)) if member_id.is_empty() => {
                Ok((fresh_id, Standing::Successor(current.clone())))
            }
            _ if member_id.is_empty() => Ok((fresh_id, Standing::New)),
            Some(None) => Err(ResponseError::UnknownMemberId),
            Some(Some(current)) if current != member_id => Err(ResponseError::FencedInstanceId),
            _ if self.members.contains_key(member_id) => Ok((member_id.clone(), Standing::Known)),
            _ => Ok((member_id.clone(), Standing::New)),
        }
    }

    /// Replies with the member's current assignment. The caller replies to an error.
    pub(crate) fn sync(
        &mut self,
        request: &SyncGroupRequest,
        waiting: Waiting,
        topics: &dyn Topics,
        context: &mut CallContext<'_>,
    ) -> Result<(), ResponseError> {
        let instance = request.group_instance_id.as_ref();
        let epoch = self.epoch;
        let member = self.classic_member(&request.member_id, instance, request.generation_id)?;
        let protocol_type = request.protocol_type.as_ref();
        let protocol_name = request.protocol_name.as_ref();
        if protocol_type.is_some_and(|it| it.as_str() != PROTOCOL_TYPE)
            || protocol_name.is_some_and(|it| Some(it) != member.chosen_protocol())
        {
            return Err(ResponseError::InconsistentGroupProtocol);
        }
        member.refresh(context);
        // A member that must revoke partitions learns that first.
        if member.epoch != epoch && member.revoking.is_empty() {
            member.owe(context.now_ms);
            return Err(ResponseError::RebalanceInProgress);
        }
        member.owes_until_ms = None;
        let assignment =
            encode_assignment(member.subscription_version(), &named(&member.assigned, topics));
        let names_protocol = waiting.api_version >= 5;
        let response = SyncGroupResponse::default()
            .with_assignment(assignment)
            .with_protocol_type(names_protocol.then(|| PROTOCOL_TYPE.into()))
            .with_protocol_name(member.chosen_protocol().cloned().filter(|_| names_protocol));
        context.reply(waiting.ticket, response);
        Ok(())
    }

    /// Heartbeat: refreshes the session. Returns an error if the member must join again.
    pub(crate) fn classic_heartbeat(
        &mut self,
        member_id: &StrBytes,
        instance: Option<&StrBytes>,
        generation: i32,
        context: &CallContext<'_>,
    ) -> Result<(), ResponseError> {
        let is_to_join = self.is_to_join(member_id, context);
        let member = self.classic_member(member_id, instance, generation)?;
        member.refresh(context);
        match is_to_join {
            true => {
                member.owe(context.now_ms);
                Err(ResponseError::RebalanceInProgress)
            }
            false => Ok(()),
        }
    }

    fn classic_member(
        &mut self,
        member_id: &StrBytes,
        instance: Option<&StrBytes>,
        generation: i32,
    ) -> Result<&mut Member, ResponseError> {
        if let Some(instance) = instance {
            let current = self.instances.get(instance).ok_or(ResponseError::UnknownMemberId)?;
            if current != member_id {
                return Err(ResponseError::FencedInstanceId);
            }
        }
        let member = self.members.get_mut(member_id).filter(|it| it.classic.is_some());
        let member = member.ok_or(ResponseError::UnknownMemberId)?;
        match member.epoch == generation {
            true => Ok(member),
            false => Err(ResponseError::IllegalGeneration),
        }
    }

    fn is_to_join(&self, member_id: &StrBytes, context: &CallContext<'_>) -> bool {
        let Some(member) = self.members.get(member_id) else { return false };
        let target = self.targets.get(member_id);
        let mut missing = target.into_iter().flatten().filter(|it| !member.assigned.contains(it));
        let is_next = missing.next();
        // A client may revoke all its partitions to join. Therefore it waits until all new ones are
        // free.
        let is_free = |it: &Partition| !self.owners.contains_key(it);
        let may_gain = is_next.is_some_and(is_free) && missing.all(is_free);
        member.epoch != self.epoch
            || !member.revoking.is_empty()
            || may_gain
            || (context.options.migration_policy.has_downgrades() && self.has_only_classic())
    }

    /// Returns whether the group has members, and all use the classic protocol. If the policy
    /// allows it, the next join converts it to a classic group.
    pub(crate) fn has_only_classic(&self) -> bool {
        !self.members.is_empty() && self.members.values().all(|it| it.classic.is_some())
    }

    /// Returns the static member that a joining one replaces.
    pub(crate) fn replaced_by(&self, joining: &Joining) -> Option<&StrBytes> {
        let instance = joining.instance.as_ref().filter(|_| joining.member_id.is_empty());
        instance.and_then(|it| self.instances.get(it))
    }

    /// Returns whether all members except the replaced one use the classic protocol, so that a join
    /// results in a classic group. If the policy disallows downgrades, only a group without members
    /// qualifies.
    pub(crate) fn is_left_to(&self, joining: &Joining, context: &CallContext<'_>) -> bool {
        if !context.options.migration_policy.has_downgrades() {
            return self.members.is_empty();
        }
        let replaced = self.replaced_by(joining);
        let mut others = self.members.iter().filter(|(id, _)| Some(*id) != replaced);
        others.all(|(_, it)| it.classic.is_some())
    }

    /// Returns the size of the metadata that a classic member sent when it last joined.
    pub(crate) fn metadata_bytes(
        &self,
        member_id: &StrBytes,
        instance: Option<&StrBytes>,
    ) -> usize {
        let current = instance.and_then(|it| self.instances.get(it)).unwrap_or(member_id);
        let terms = self.members.get(current).and_then(|it| it.classic.as_ref());
        let protocols = terms.into_iter().flat_map(|it| &it.protocols);
        protocols.map(|it| it.metadata.len()).sum()
    }
}

impl Member {
    /// Sets the member's deadline for the next JoinGroup or SyncGroup.
    fn owe(&mut self, now_ms: i64) {
        let until_ms = now_ms.saturating_add(self.profile.rebalance_timeout_ms.into());
        self.owes_until_ms.get_or_insert(until_ms);
    }

    fn chosen_protocol(&self) -> Option<&StrBytes> {
        self.classic.as_ref()?.protocols.first().map(|it| &it.name)
    }

    /// Returns the version of the client's embedded protocol.
    pub(crate) fn subscription_version(&self) -> i16 {
        let protocols = self.classic.iter().flat_map(|it| &it.protocols);
        subscription_of(protocols.map(|it| &it.metadata)).map_or(0, |it| it.version)
    }
}
