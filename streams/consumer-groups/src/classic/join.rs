//! JoinGroup: new members, rejoining members, and replacement of static members.

use bytes::Bytes;
use kafka_protocol::error::ResponseError;
use kafka_protocol::protocol::StrBytes;

use super::group::{ClassicGroup, Member, Phase, Protocol, protocols_bytes, refused};
use super::phases::refuse_sync;
use crate::effect::{CallContext, Waiting};
use crate::options::NEW_MEMBER_WAIT_MS;

/// A validated JoinGroup request, with its own copies of strings.
pub(crate) struct Joining {
    pub(crate) waiting: Waiting,
    /// Empty for a member without an id.
    pub(crate) member_id: StrBytes,
    pub(crate) instance: Option<StrBytes>,
    pub(crate) client_id: StrBytes,
    pub(crate) host: StrBytes,
    pub(crate) session_timeout_ms: i32,
    pub(crate) rebalance_timeout_ms: i32,
    pub(crate) protocol_type: StrBytes,
    pub(crate) protocols: Vec<Protocol>,
}

impl Joining {
    /// Returns whether the client must first be assigned an id, and join again with it (KIP-394).
    pub(crate) fn needs_id(&self) -> bool {
        let has_none = self.member_id.is_empty() && self.instance.is_none();
        has_none && self.waiting.api_version >= 4
    }
}

impl ClassicGroup {
    /// Takes the waiting joins, with their member ids, for another group to answer. A new static
    /// member does not know its id yet.
    pub(crate) fn take_joins(&mut self) -> Vec<(StrBytes, Joining)> {
        let protocol_type = self.protocol_type.clone().unwrap_or_default();
        let joins = self.members.iter_mut().filter_map(|(id, member)| {
            let waiting = member.join.take()?;
            let knows_id = !member.is_new || member.instance.is_none();
            let joining = Joining {
                waiting,
                member_id: if knows_id { id.clone() } else { StrBytes::default() },
                instance: member.instance.clone(),
                client_id: member.client_id.clone(),
                host: member.host.clone(),
                session_timeout_ms: member.session_timeout_ms,
                rebalance_timeout_ms: member.rebalance_timeout_ms,
                protocol_type: protocol_type.clone(),
                protocols: member.protocols.clone(),
            };
            Some((id.clone(), joining))
        });
        joins.collect()
    }

    /// Joins a member. The reply follows when all members have joined. `fresh_id` is the id of a
    /// new member. The caller replies to an error, which leaves the group unchanged.
    pub(crate) fn join(
        &mut self,
        joining: Joining,
        fresh_id: StrBytes,
        context: &mut CallContext<'_>,
    ) -> Result<(), ResponseError> {
        self.check_room(&joining, context)?;
        if !self.supports(&joining.protocol_type, &joining.protocols) {
            return Err(ResponseError::InconsistentGroupProtocol);
        }
        if joining.member_id.is_empty() {
            self.join_without_id(joining, fresh_id, context);
            return Ok(());
        }
        let member_id = joining.member_id.clone();
        if self.invited.contains_key(&member_id) {
            if joining.instance.is_some() {
                return Err(ResponseError::UnknownMemberId);
            }
            self.add(member_id, joining, context);
            return Ok(());
        }
        self.validate(&member_id, joining.instance.as_ref())?;
        self.rejoin(member_id, joining, context);
        Ok(())
    }

    fn check_room(
        &self,
        joining: &Joining,
        context: &CallContext<'_>,
    ) -> Result<(), ResponseError> {
        let is_known = self.members.contains_key(&joining.member_id)
            || self.invited.contains_key(&joining.member_id)
            || joining.instance.as_ref().is_some_and(|it| self.instances.contains_key(it));
        let is_full = self.members.len() + self.invited.len() >= context.options.members_max;
        let bytes = self.bytes() + protocols_bytes(&joining.protocols);
        if (is_full && !is_known) || bytes > context.options.group_bytes_max {
            return Err(ResponseError::GroupMaxSizeReached);
        }
        Ok(())
    }

    fn join_without_id(
        &mut self,
        joining: Joining,
        fresh_id: StrBytes,
        context: &mut CallContext<'_>,
    ) {
        let current =
            joining.instance.as_ref().and_then(|instance| self.instances.get(instance).cloned());
        if let Some(current) = current {
            self.replace(&current, fresh_id, joining, context);
        } else if joining.needs_id() {
            let Waiting { ticket, api_version } = joining.waiting;
            let until_ms = context.now_ms + i64::from(joining.session_timeout_ms);
            context.reply(ticket, refused(ResponseError::MemberIdRequired, &fresh_id, api_version));
            self.invited.insert(fresh_id, until_ms);
        } else {
            self.add(fresh_id, joining, context);
        }
    }

    fn add(&mut self, member_id: StrBytes, joining: Joining, context: &mut CallContext<'_>) {
        self.invited.remove(&member_id);
        if self.members.is_empty() {
            self.protocol_type = Some(joining.protocol_type);
        }
        if let Some(instance) = &joining.instance {
            self.instances.insert(instance.clone(), member_id.clone());
        }
        if let Some(initial) = self.join_timer.as_mut().and_then(|it| it.initial.as_mut()) {
            initial.member_came = true;
        }
        let member = Member {
            instance: joining.instance,
            client_id: joining.client_id,
            host: joining.host,
            session_timeout_ms: joining.session_timeout_ms,
            rebalance_timeout_ms: joining.rebalance_timeout_ms,
            protocols: joining.protocols,
            assignment: Bytes::new(),
            session_until_ms: context.now_ms + NEW_MEMBER_WAIT_MS,
            is_new: true,
            owes_sync: false,
            former_epoch: None,
            join: Some(joining.waiting),
            sync: None,
        };
        self.leader.get_or_insert_with(|| member_id.clone());
        self.members.insert(member_id, member);
        self.rebalance_or_complete(context);
    }

    fn rejoin(&mut self, member_id: StrBytes, joining: Joining, context: &mut CallContext<'_>) {
        let is_leader = self.is_leader(&member_id);
        let member = self.members.get_mut(&member_id).expect("a member that was validated");
        let is_same = member.protocols == joining.protocols;
        let needs_no_rebalance = match self.phase {
            // The client missed the reply to its join.
            Phase::CompletingRebalance => is_same,
            // A leader joins again to trigger a new assignment.
            Phase::Stable => is_same && !is_leader,
            Phase::PreparingRebalance | Phase::Empty => false,
        };
        if needs_no_rebalance {
            member.refresh(context.now_ms);
            let Waiting { ticket, api_version } = joining.waiting;
            context.reply(ticket, self.joined(&member_id, api_version));
            return;
        }
        member.update(&member_id, joining, context);
        self.rebalance_or_complete(context);
    }

    /// Replaces a static member by one with a new id. The old id is fenced.
    fn replace(
        &mut self,
        old_id: &StrBytes,
        new_id: StrBytes,
        joining: Joining,
        context: &mut CallContext<'_>,
    ) {
        let Waiting { ticket, api_version } = joining.waiting;
        let leader_before = self.leader.clone();
        let mut member = self.members.remove(old_id).expect("an instance has its member");
        if let Some(waiting) = member.join.take() {
            let fenced = refused(ResponseError::FencedInstanceId, old_id, waiting.api_version);
            context.reply(waiting.ticket, fenced);
        }
        if let Some(waiting) = member.sync.take() {
            refuse_sync(waiting, ResponseError::FencedInstanceId, context);
        }
        if self.is_leader(old_id) {
            self.leader = Some(new_id.clone());
        }
        let instance = joining.instance.clone().expect("a static member has an instance");
        self.instances.insert(instance, new_id.clone());
        member.update(&new_id, joining, context);
        self.members.insert(new_id.clone(), member);
        if self.phase != Phase::Stable || self.select_protocol() != self.protocol {
            self.rebalance_or_complete(context);
            return;
        }
        // The member keeps its assignment, without a rebalance.
        let member = self.members.get_mut(&new_id).expect("just inserted");
        member.join = None;
        member.refresh(context.now_ms);
        self.persist(context);
        let response = if api_version >= 9 {
            self.joined(&new_id, api_version).with_skip_assignment(self.is_leader(&new_id))
        } else {
            // Clients without support for skipping must not consider themselves the leader.
            let leader = leader_before.unwrap_or_default();
            self.joined_as_follower(&new_id, api_version).with_leader(leader)
        };
        context.reply(ticket, response);
    }
}

impl Member {
    /// Updates the member from the request. An older waiting request must be repeated.
    fn update(&mut self, member_id: &StrBytes, joining: Joining, context: &mut CallContext<'_>) {
        if let Some(older) = self.join.replace(joining.waiting) {
            let error = ResponseError::RebalanceInProgress;
            context.reply(older.ticket, refused(error, member_id, older.api_version));
        }
        self.client_id = joining.client_id;
        self.host = joining.host;
        self.session_timeout_ms = joining.session_timeout_ms;
        self.rebalance_timeout_ms = joining.rebalance_timeout_ms;
        self.protocols = joining.protocols;
        if self.is_new {
            self.session_until_ms = context.now_ms + NEW_MEMBER_WAIT_MS;
        }
    }
}
