//! Requests for the coordinator of groups and transactions.

use access::{Operation, Resource};
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::offset_commit_response::OffsetCommitResponseTopic;
use kafka_protocol::messages::txn_offset_commit_response::TxnOffsetCommitResponseTopic;
use kafka_protocol::messages::{RequestKind, ResponseKind};

use super::Context;
use crate::coordinator::{Ask, refuse, refuse_offsets, refuse_transactional_offsets};

pub(super) async fn serve(context: Context, mut request: RequestKind) -> ResponseKind {
    if let Err(error) = check(&context, &request) {
        return refuse(&request, error);
    }
    let withheld = match withhold(&context, &mut request) {
        Ok(withheld) => withheld,
        Err(error) => return refuse(&request, error),
    };
    let refused = refuse(&request, ResponseError::CoordinatorNotAvailable);
    let Context { broker, client, client_id, asked } = context;
    let answer = broker.coordinator.ask(|reply| Ask {
        request,
        api_version: asked.version,
        client_id,
        host: format!("/{}", client.address.ip()),
        principal: client.principal().to_owned(),
        reply,
    });
    withheld.add_to(answer.await.unwrap_or(refused))
}

/// What is refused of a request before the coordinator sees the rest.
enum Withheld {
    Nothing,
    Offsets(Vec<OffsetCommitResponseTopic>),
    TransactionalOffsets(Vec<TxnOffsetCommitResponseTopic>),
}

impl Withheld {
    fn add_to(self, response: ResponseKind) -> ResponseKind {
        match (self, response) {
            (Self::Offsets(topics), ResponseKind::OffsetCommit(mut it)) => {
                it.topics.extend(topics);
                it.into()
            }
            (Self::TransactionalOffsets(topics), ResponseKind::TxnOffsetCommit(mut it)) => {
                it.topics.extend(topics);
                it.into()
            }
            (_, response) => response,
        }
    }
}

/// Takes out what concerns topics that are not there, or that the client may not use. Partitions
/// are added to a transaction all together or not at all.
fn withhold(context: &Context, request: &mut RequestKind) -> Result<Withheld, ResponseError> {
    match request {
        RequestKind::OffsetCommit(it) => Ok(Withheld::Offsets(unusable(&mut it.topics, |topic| {
            let indexes = topic.partitions.iter().map(|it| it.partition_index);
            let error = usable(context, Operation::Read, &topic.name, indexes).err()?;
            Some(refuse_offsets(topic, error.code()))
        }))),
        RequestKind::TxnOffsetCommit(it) => {
            Ok(Withheld::TransactionalOffsets(unusable(&mut it.topics, |topic| {
                let indexes = topic.partitions.iter().map(|it| it.partition_index);
                let error = usable(context, Operation::Read, &topic.name, indexes).err()?;
                Some(refuse_transactional_offsets(topic, error.code()))
            })))
        }
        RequestKind::AddPartitionsToTxn(it) => {
            let mut topics = it.v3_and_below_topics.iter().map(|topic| {
                usable(context, Operation::Write, &topic.name, topic.partitions.iter().copied())
            });
            match topics.find_map(Result::err) {
                Some(error) => Err(error),
                None => Ok(Withheld::Nothing),
            }
        }
        _ => Ok(Withheld::Nothing),
    }
}

/// Takes out the topics that are refused; returns the refusals.
fn unusable<T, R>(topics: &mut Vec<T>, refusal: impl Fn(&T) -> Option<R>) -> Vec<R> {
    let mut refused = Vec::new();
    topics.retain(|topic| match refusal(topic) {
        Some(refusal) => {
            refused.push(refusal);
            false
        }
        None => true,
    });
    refused
}

/// Whether all of these partitions are there, and the client may use them.
fn usable(
    context: &Context,
    operation: Operation,
    name: &str,
    mut indexes: impl Iterator<Item = i32>,
) -> Result<(), ResponseError> {
    let topic = context.topic(operation, name)?;
    match indexes.all(|index| topic.partition(index).is_some()) {
        true => Ok(()),
        false => Err(ResponseError::UnknownTopicOrPartition),
    }
}

/// Whether the client may ask for that.
fn check(context: &Context, request: &RequestKind) -> Result<(), ResponseError> {
    let group = |operation, name: &str| {
        let error = ResponseError::GroupAuthorizationFailed;
        context.check(operation, Resource::group(name), error)
    };
    let transaction = |operation, id: &str| {
        let error = ResponseError::TransactionalIdAuthorizationFailed;
        context.check(operation, Resource::transactional_id(id), error)
    };
    match request {
        RequestKind::JoinGroup(it) => group(Operation::Read, &it.group_id),
        RequestKind::SyncGroup(it) => group(Operation::Read, &it.group_id),
        RequestKind::Heartbeat(it) => group(Operation::Read, &it.group_id),
        RequestKind::LeaveGroup(it) => group(Operation::Read, &it.group_id),
        RequestKind::OffsetCommit(it) => group(Operation::Read, &it.group_id),
        RequestKind::OffsetDelete(it) => group(Operation::Delete, &it.group_id),
        RequestKind::TxnOffsetCommit(it) => {
            transaction(Operation::Write, &it.transactional_id)?;
            group(Operation::Read, &it.group_id)
        }
        RequestKind::OffsetFetch(it) => match it.groups.is_empty() {
            true => group(Operation::Describe, &it.group_id),
            false => it.groups.iter().try_for_each(|it| group(Operation::Describe, &it.group_id)),
        },
        RequestKind::DescribeGroups(it) => {
            it.groups.iter().try_for_each(|it| group(Operation::Describe, it))
        }
        RequestKind::DeleteGroups(it) => {
            it.groups_names.iter().try_for_each(|it| group(Operation::Delete, it))
        }
        RequestKind::InitProducerId(it) => match &it.transactional_id {
            Some(id) => transaction(Operation::Write, id),
            None => match context.client.may_with_some_topic(&context.broker, Operation::Write) {
                true => Ok(()),
                false => Err(ResponseError::ClusterAuthorizationFailed),
            },
        },
        RequestKind::AddPartitionsToTxn(it) => {
            transaction(Operation::Write, &it.v3_and_below_transactional_id)
        }
        RequestKind::AddOffsetsToTxn(it) => transaction(Operation::Write, &it.transactional_id),
        RequestKind::ConsumerGroupHeartbeat(it) => {
            group(Operation::Read, &it.group_id)?;
            let mut names = it.subscribed_topic_names.iter().flatten();
            names.try_for_each(|name| context.check_topic(Operation::Describe, name))
        }
        RequestKind::ConsumerGroupDescribe(it) => {
            it.group_ids.iter().try_for_each(|it| group(Operation::Describe, it))
        }
        RequestKind::EndTxn(it) => transaction(Operation::Write, &it.transactional_id),
        _ => Ok(()),
    }
}
