//! Entry points of ConsumerGroupHeartbeat and ConsumerGroupDescribe.

use std::collections::BTreeSet;

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::consumer_group_describe_response::{
    Assignment, DescribedGroup, Member as DescribedMember, TopicPartitions,
};
use kafka_protocol::messages::{
    ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse, GroupId, TopicName,
};
use kafka_protocol::protocol::StrBytes;

use crate::classic::{ClassicGroup, refused};
use crate::classic_requests::check_group_id;
use crate::consumer::{Beat, ConsumerGroup, Partition, Partitions, by_topic, is_known_assignor};
use crate::conversion::upgraded;
use crate::effect::{CallContext, Caller, Effect, Waiting};
use crate::fields::{own, own_beginning};
use crate::groups::{Groups, Kind};
use crate::options::{ID_BYTES_MAX, SHOWN_BYTES_MAX, TOPIC_BYTES_MAX};
use crate::subscriptions::compile;
use crate::topics::Topics;

impl Groups {
    /// ConsumerGroupHeartbeat, versions 0 and 1 (KIP-848).
    pub fn consumer_heartbeat(
        &mut self,
        caller: Caller<'_>,
        request: &ConsumerGroupHeartbeatRequest,
        topics: &dyn Topics,
        out: &mut Vec<Effect>,
    ) {
        let effect_count = out.len();
        let mut context = Self::context(self.options, self.host_ahead_ms, caller.now_ms, out);
        let result = self.try_beat(&caller, request, topics, &mut context);
        if result.is_err() || context.out.len() > effect_count {
            self.settle(&request.group_id);
        }
        let response = result.unwrap_or_else(|error| {
            ConsumerGroupHeartbeatResponse::default()
                .with_error_code(error.code())
                .with_error_message(Some(StrBytes::from_string(error.to_string())))
        });
        context.reply(caller.ticket, response);
    }

    fn try_beat(
        &mut self,
        caller: &Caller<'_>,
        request: &ConsumerGroupHeartbeatRequest,
        topics: &dyn Topics,
        context: &mut CallContext<'_>,
    ) -> Result<ConsumerGroupHeartbeatResponse, ResponseError> {
        check_group_id(&request.group_id).map_err(|_| ResponseError::InvalidRequest)?;
        check_fields(caller, request)?;
        let mut beat = read(caller, request);
        if beat.member_id.is_empty() {
            beat.member_id = StrBytes::from_string(self.fresh_uuid().to_string());
        }
        let bytes: usize = beat.names.iter().flatten().map(|it| it.len()).sum();
        let read = match self.groups.get(&*request.group_id).map(|it| &it.kind) {
            Some(Kind::Consumer(group)) => group.name_bytes(&beat.member_id),
            _ => 0,
        };
        let more = bytes.saturating_sub(read);
        self.check_bytes(self.owner_of(&request.group_id, caller), more)?;
        if beat.epoch != 0 && !self.groups.contains_key(&*request.group_id) {
            return Err(ResponseError::GroupIdNotFound);
        }
        let group = self.classic_or_new(&request.group_id, caller)?;
        match &mut group.kind {
            Kind::Consumer(consumer) => {
                let response = consumer.heartbeat(&beat, topics, context)?;
                if beat.epoch < 0 {
                    group.downgrade(topics, context);
                }
                Ok(response)
            }
            Kind::Classic(classic) if beat.epoch == 0 => {
                let (consumer, response) = upgrade(classic, &beat, topics, context)?;
                group.kind = Kind::Consumer(consumer);
                Ok(response)
            }
            Kind::Classic(classic) => Err(dropped(classic, &beat, context)),
        }
    }

    /// ConsumerGroupDescribe, versions 0 and 1. Partitions of deleted topics are omitted.
    pub fn consumer_group_describe(
        &mut self,
        caller: Caller<'_>,
        request: &ConsumerGroupDescribeRequest,
        topics: &dyn Topics,
        out: &mut Vec<Effect>,
    ) {
        let groups =
            request.group_ids.iter().map(|id| match self.groups.get(&id.0).map(|it| &it.kind) {
                Some(Kind::Consumer(group)) => describe(group, caller.api_version, topics),
                Some(Kind::Classic(_)) | None => {
                    let message = format!("group {} is not a consumer group", id.0);
                    DescribedGroup::default()
                        .with_group_id(id.clone())
                        .with_error_code(ResponseError::GroupIdNotFound.code())
                        .with_error_message(Some(StrBytes::from_string(message)))
                }
            });
        let response = ConsumerGroupDescribeResponse::default().with_groups(groups.collect());
        out.push(Effect::Reply(caller.ticket, response.into()));
    }
}

/// Converts a classic group to a consumer group when its first member of the new protocol joins. An
/// error leaves it unchanged.
fn upgrade(
    classic: &mut ClassicGroup,
    beat: &Beat,
    topics: &dyn Topics,
    context: &mut CallContext<'_>,
) -> Result<(ConsumerGroup, ConsumerGroupHeartbeatResponse), ResponseError> {
    let is_none = ResponseError::GroupIdNotFound;
    if !may_upgrade(classic, context) {
        return Err(is_none);
    }
    let mut consumer = upgraded(classic, topics, context).ok_or(is_none)?;
    let effect_count = context.out.len();
    if !consumer.members.is_empty() {
        consumer.persist_conversion(context);
    }
    let response = consumer
        .heartbeat(beat, topics, context)
        .inspect_err(|_| context.out.truncate(effect_count))?;
    if classic.durable.is_some() {
        context.persist(classic.generation_gone());
    }
    classic.refuse_syncs(context);
    for (id, joining) in classic.take_joins() {
        let Waiting { ticket, api_version } = joining.waiting;
        let place = joining.instance.as_ref().and_then(|it| consumer.instances.get(it));
        let joined = match place.is_some_and(|current| *current != id) {
            // The member of the new protocol has just replaced it.
            true => Err(ResponseError::FencedInstanceId),
            false => consumer.join(joining, id.clone(), topics, context),
        };
        if let Err(error) = joined {
            context.reply(ticket, refused(error, &id, api_version));
        }
    }
    Ok((consumer, response))
}

/// Returns whether a member of the new protocol may join.
fn may_upgrade(classic: &ClassicGroup, context: &CallContext<'_>) -> bool {
    let has_upgrades = context.options.migration_policy.has_upgrades();
    classic.is_open_to_consumers() && (has_upgrades || classic.members.is_empty())
}

/// Returns the error for a member that was removed before the group became a classic one. It may
/// join as a new member, unless another has taken its place.
fn dropped(classic: &ClassicGroup, beat: &Beat, context: &CallContext<'_>) -> ResponseError {
    let has_place = beat.instance.as_ref().is_some_and(|it| classic.instances.contains_key(it));
    match beat.epoch {
        ..0 => ResponseError::GroupIdNotFound,
        _ if has_place => ResponseError::FencedInstanceId,
        _ if may_upgrade(classic, context) => ResponseError::UnknownMemberId,
        _ => ResponseError::GroupIdNotFound,
    }
}

/// Validates the fields of a heartbeat according to KIP-848.
fn check_fields(
    caller: &Caller<'_>,
    request: &ConsumerGroupHeartbeatRequest,
) -> Result<(), ResponseError> {
    let texts = [&request.instance_id, &request.rack_id, &request.server_assignor];
    let mut texts = texts.into_iter().flatten();
    let is_joining = request.member_epoch == 0;
    let needs_id = !is_joining || caller.api_version >= 1;
    let names = request.subscribed_topic_names.as_ref();
    let pattern = request.subscribed_topic_regex.as_ref();
    let names_a_bad_topic = names.into_iter().flatten().any(|it| it.0.len() > TOPIC_BYTES_MAX);
    let has_no_subscription = names.is_none() && pattern.is_none();
    let is_bad = texts.any(|it| it.is_empty() || it.len() > ID_BYTES_MAX)
        || request.member_epoch < -2
        || request.member_id.len() > ID_BYTES_MAX
        || (needs_id && request.member_id.is_empty())
        || (request.member_epoch == -2 && request.instance_id.is_none())
        || names_a_bad_topic;
    let joins_badly = request.rebalance_timeout_ms < 0
        || has_no_subscription
        || request.topic_partitions.as_ref().is_none_or(|it| !it.is_empty());
    if is_bad || (is_joining && joins_badly) {
        return Err(ResponseError::InvalidRequest);
    }
    if request.server_assignor.as_ref().is_some_and(|it| !is_known_assignor(it)) {
        return Err(ResponseError::UnsupportedAssignor);
    }
    match pattern.filter(|it| !it.is_empty()) {
        Some(pattern) if pattern.len() > ID_BYTES_MAX => {
            Err(ResponseError::InvalidRegularExpression)
        }
        Some(pattern) => compile(pattern).map(|_| ()),
        None => Ok(()),
    }
}

fn read(caller: &Caller<'_>, request: &ConsumerGroupHeartbeatRequest) -> Beat {
    let names = request.subscribed_topic_names.as_ref();
    let names = names.map(|it| it.iter().map(|it| own(&it.0)).collect::<BTreeSet<_>>());
    let owned = request.topic_partitions.as_ref().map(|topics| {
        let topics = topics.iter();
        let partitions = topics.flat_map(|topic| {
            let indexes = topic.partitions.iter();
            indexes.map(|index| Partition { topic: topic.topic_id, index: *index })
        });
        partitions.collect::<Partitions>()
    });
    Beat {
        member_id: own(&request.member_id),
        epoch: request.member_epoch,
        instance: request.instance_id.as_ref().map(own),
        client_id: own_beginning(caller.client_id, SHOWN_BYTES_MAX),
        host: own_beginning(caller.host, SHOWN_BYTES_MAX),
        principal: StrBytes::from_string(caller.principal.to_owned()),
        rack: request.rack_id.as_ref().map(own),
        rebalance_timeout_ms: Some(request.rebalance_timeout_ms).filter(|it| *it >= 0),
        names,
        pattern: request.subscribed_topic_regex.as_ref().map(own),
        assignor: request.server_assignor.as_ref().map(own),
        owned,
    }
}

fn describe(group: &ConsumerGroup, api_version: i16, topics: &dyn Topics) -> DescribedGroup {
    let members = group.members.iter().map(|(id, member)| {
        let profile = &member.profile;
        let target = group.targets.get(id).map(|it| assignment(it, topics));
        DescribedMember::default()
            .with_member_id(id.clone())
            .with_instance_id(profile.instance.clone())
            .with_rack_id(profile.rack.clone())
            .with_member_epoch(member.epoch)
            .with_client_id(profile.client_id.clone())
            .with_client_host(profile.host.clone())
            .with_subscribed_topic_names(profile.names.iter().cloned().map(TopicName).collect())
            .with_subscribed_topic_regex(profile.pattern.clone())
            .with_assignment(assignment(&member.assigned, topics))
            .with_target_assignment(target.unwrap_or_default())
            .with_member_type(match member.classic {
                _ if api_version < 1 => -1,
                Some(_) => 0,
                None => 1,
            })
    });
    DescribedGroup::default()
        .with_group_id(GroupId(group.id.clone()))
        .with_group_state(group.state_name().into())
        .with_group_epoch(group.epoch)
        .with_assignment_epoch(group.assignment_epoch)
        .with_assignor_name(group.assignor.clone())
        .with_members(members.collect())
}

fn assignment(partitions: &Partitions, topics: &dyn Topics) -> Assignment {
    let topics = by_topic(partitions).into_iter().filter_map(|(id, indexes)| {
        let name = TopicName(StrBytes::from_string(topics.name_of(id)?));
        let answered = TopicPartitions::default().with_topic_id(id).with_topic_name(name);
        Some(answered.with_partitions(indexes))
    });
    Assignment::default().with_topic_partitions(topics.collect())
}
