//! Authorization of requests to the coordinator: elements that the client may not use are removed
//! from the request before the coordinator handles the rest, and each is rejected individually.

use std::collections::BTreeMap;
use std::sync::Arc;

use access::{Operation, Resource};
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::add_partitions_to_txn_response::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnTopicResult,
};
use kafka_protocol::messages::delete_groups_response::DeletableGroupResult;
use kafka_protocol::messages::describe_groups_response::DescribedGroup;
use kafka_protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use kafka_protocol::messages::offset_delete_response::{
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use kafka_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use kafka_protocol::messages::txn_offset_commit_response::{
    TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use kafka_protocol::messages::{
    AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, ConsumerGroupDescribeResponse,
    DeleteGroupsResponse, DescribeGroupsResponse, DescribeTransactionsResponse, GroupId,
    OffsetCommitRequest, OffsetCommitResponse, OffsetDeleteRequest, OffsetDeleteResponse,
    OffsetFetchRequest, OffsetFetchResponse, RequestKind, ResponseKind, TopicName,
    TxnOffsetCommitRequest, TxnOffsetCommitResponse, consumer_group_describe_response,
    describe_transactions_response,
};
use kafka_protocol::protocol::StrBytes;

use super::super::Context;
use crate::topics::OpenTopic;

/// Rejected part of a request, as a response.
pub(super) enum Withheld {
    Nothing,
    Some(ResponseKind),
    /// Nothing remains to be handled.
    Everything(ResponseKind),
}

impl Withheld {
    fn of<T>(refused: Vec<T>, has_rest: bool, answer: impl FnOnce(Vec<T>) -> ResponseKind) -> Self {
        match (refused.is_empty(), has_rest) {
            (true, _) => Self::Nothing,
            (false, true) => Self::Some(answer(refused)),
            (false, false) => Self::Everything(answer(refused)),
        }
    }
}

/// Removes elements that the client may not use, and topics that do not exist.
pub(super) fn withhold(context: &Context, request: &mut RequestKind) -> Withheld {
    let may_group = |operation, id: &GroupId| context.may(operation, Resource::group(id));
    let group_code = ResponseError::GroupAuthorizationFailed.code();
    match request {
        RequestKind::OffsetCommit(it) => commits(context, it),
        RequestKind::TxnOffsetCommit(it) => transactional_commits(context, it),
        RequestKind::OffsetDelete(it) => deletions(context, it),
        RequestKind::OffsetFetch(it) => fetches(context, it),
        RequestKind::AddPartitionsToTxn(it) => additions(context, it),
        RequestKind::DescribeGroups(it) => {
            let refused = take(&mut it.groups, |id| may_group(Operation::Describe, id));
            Withheld::of(refused, !it.groups.is_empty(), |refused| {
                let groups = refused.into_iter().map(|id| {
                    DescribedGroup::default().with_group_id(id).with_error_code(group_code)
                });
                DescribeGroupsResponse::default().with_groups(groups.collect()).into()
            })
        }
        RequestKind::DeleteGroups(it) => {
            let refused = take(&mut it.groups_names, |id| may_group(Operation::Delete, id));
            Withheld::of(refused, !it.groups_names.is_empty(), |refused| {
                let results = refused.into_iter().map(|id| {
                    DeletableGroupResult::default().with_group_id(id).with_error_code(group_code)
                });
                DeleteGroupsResponse::default().with_results(results.collect()).into()
            })
        }
        RequestKind::ConsumerGroupDescribe(it) => {
            let refused = take(&mut it.group_ids, |id| may_group(Operation::Describe, id));
            Withheld::of(refused, !it.group_ids.is_empty(), |refused| {
                let groups = refused.into_iter().map(|id| {
                    consumer_group_describe_response::DescribedGroup::default()
                        .with_group_id(id)
                        .with_error_code(group_code)
                });
                ConsumerGroupDescribeResponse::default().with_groups(groups.collect()).into()
            })
        }
        RequestKind::DescribeTransactions(it) => {
            let refused = take(&mut it.transactional_ids, |id| {
                context.may(Operation::Describe, Resource::transactional_id(id))
            });
            Withheld::of(refused, !it.transactional_ids.is_empty(), |refused| {
                let code = ResponseError::TransactionalIdAuthorizationFailed.code();
                let states = refused.into_iter().map(|id| {
                    describe_transactions_response::TransactionState::default()
                        .with_transactional_id(id)
                        .with_error_code(code)
                });
                DescribeTransactionsResponse::default()
                    .with_transaction_states(states.collect())
                    .into()
            })
        }
        _ => Withheld::Nothing,
    }
}

/// Adds rejections to the coordinator's response.
pub(super) fn merge(answer: ResponseKind, withheld: ResponseKind) -> ResponseKind {
    match (answer, withheld) {
        (ResponseKind::OffsetCommit(mut it), ResponseKind::OffsetCommit(more)) => {
            join(&mut it.topics, more.topics, |it| (&it.name, &mut it.partitions));
            it.into()
        }
        (ResponseKind::TxnOffsetCommit(mut it), ResponseKind::TxnOffsetCommit(more)) => {
            join(&mut it.topics, more.topics, |it| (&it.name, &mut it.partitions));
            it.into()
        }
        // An error of the whole request is sufficient.
        (ResponseKind::OffsetDelete(mut it), ResponseKind::OffsetDelete(more)) => {
            if it.error_code == 0 {
                it.topics.extend(more.topics);
            }
            it.into()
        }
        (ResponseKind::OffsetFetch(mut it), ResponseKind::OffsetFetch(more)) => {
            if it.error_code == 0 {
                it.topics.extend(more.topics);
            }
            join_groups(&mut it.groups, more.groups);
            it.into()
        }
        (ResponseKind::DescribeGroups(mut it), ResponseKind::DescribeGroups(more)) => {
            it.groups.extend(more.groups);
            it.into()
        }
        (ResponseKind::DeleteGroups(mut it), ResponseKind::DeleteGroups(more)) => {
            it.results.extend(more.results);
            it.into()
        }
        (
            ResponseKind::ConsumerGroupDescribe(mut it),
            ResponseKind::ConsumerGroupDescribe(more),
        ) => {
            it.groups.extend(more.groups);
            it.into()
        }
        (ResponseKind::DescribeTransactions(mut it), ResponseKind::DescribeTransactions(more)) => {
            it.transaction_states.extend(more.transaction_states);
            it.into()
        }
        (answer, _) => answer,
    }
}

/// Merges partitions of the same topic.
fn join<T, P>(
    topics: &mut Vec<T>,
    more: Vec<T>,
    parts: impl Fn(&mut T) -> (&TopicName, &mut Vec<P>),
) {
    let mut places = BTreeMap::new();
    for (place, topic) in topics.iter_mut().enumerate() {
        places.insert(parts(topic).0.clone(), place);
    }
    for mut topic in more {
        match places.get(parts(&mut topic).0) {
            Some(place) => parts(&mut topics[*place]).1.append(parts(&mut topic).1),
            None => topics.push(topic),
        }
    }
}

fn join_groups(groups: &mut Vec<OffsetFetchResponseGroup>, more: Vec<OffsetFetchResponseGroup>) {
    let ids = groups.iter().enumerate().map(|(place, it)| (it.group_id.clone(), place));
    let places: BTreeMap<GroupId, usize> = ids.collect();
    for group in more {
        match places.get(&group.group_id).map(|place| &mut groups[*place]) {
            Some(answered) if answered.error_code == 0 => answered.topics.extend(group.topics),
            Some(_) => {}
            None => groups.push(group),
        }
    }
}

/// Retains the elements that pass, and returns the others.
fn take<T>(names: &mut Vec<T>, passes: impl Fn(&T) -> bool) -> Vec<T> {
    let (kept, refused) = std::mem::take(names).into_iter().partition(passes);
    *names = kept;
    refused
}

/// Removes unusable partitions, and returns their rejections.
fn unusable<P, R>(
    topic: &Result<Arc<OpenTopic>, ResponseError>,
    partitions: &mut Vec<P>,
    index: impl Fn(&P) -> i32,
    refuse: impl Fn(i32, i16) -> R,
) -> Vec<R> {
    let mut refused = Vec::new();
    partitions.retain(|partition| {
        let index = index(partition);
        let error = match topic {
            Ok(topic) if topic.partition(index).is_some() => return true,
            Ok(_) => ResponseError::UnknownTopicOrPartition,
            Err(error) => *error,
        };
        refused.push(refuse(index, error.code()));
        false
    });
    refused
}

fn commits(context: &Context, request: &mut OffsetCommitRequest) -> Withheld {
    let mut refused = Vec::new();
    request.topics.retain_mut(|topic| {
        let found = context.topic(Operation::Read, &topic.name);
        let partitions = &mut topic.partitions;
        let gone = unusable(
            &found,
            partitions,
            |it| it.partition_index,
            |index, code| {
                OffsetCommitResponsePartition::default()
                    .with_partition_index(index)
                    .with_error_code(code)
            },
        );
        let has_rest = !partitions.is_empty();
        if !gone.is_empty() {
            let answered = OffsetCommitResponseTopic::default().with_name(topic.name.clone());
            refused.push(answered.with_partitions(gone));
        }
        has_rest
    });
    Withheld::of(refused, !request.topics.is_empty(), |topics| {
        OffsetCommitResponse::default().with_topics(topics).into()
    })
}

fn transactional_commits(context: &Context, request: &mut TxnOffsetCommitRequest) -> Withheld {
    let mut refused = Vec::new();
    request.topics.retain_mut(|topic| {
        let found = context.topic(Operation::Read, &topic.name);
        let partitions = &mut topic.partitions;
        let gone = unusable(
            &found,
            partitions,
            |it| it.partition_index,
            |index, code| {
                TxnOffsetCommitResponsePartition::default()
                    .with_partition_index(index)
                    .with_error_code(code)
            },
        );
        let has_rest = !partitions.is_empty();
        if !gone.is_empty() {
            let answered = TxnOffsetCommitResponseTopic::default().with_name(topic.name.clone());
            refused.push(answered.with_partitions(gone));
        }
        has_rest
    });
    Withheld::of(refused, !request.topics.is_empty(), |topics| {
        TxnOffsetCommitResponse::default().with_topics(topics).into()
    })
}

/// Removes topics that the client may not read. The coordinator reports those that do not exist.
fn deletions(context: &Context, request: &mut OffsetDeleteRequest) -> Withheld {
    let code = ResponseError::TopicAuthorizationFailed.code();
    let mut refused = Vec::new();
    request.topics.retain(|topic| {
        let may_read = context.may(Operation::Read, Resource::topic(&topic.name));
        if !may_read {
            let partitions = topic.partitions.iter().map(|it| {
                OffsetDeleteResponsePartition::default()
                    .with_partition_index(it.partition_index)
                    .with_error_code(code)
            });
            let answered = OffsetDeleteResponseTopic::default().with_name(topic.name.clone());
            refused.push(answered.with_partitions(partitions.collect()));
        }
        may_read
    });
    // The coordinator checks whether the group exists.
    Withheld::of(refused, true, |topics| OffsetDeleteResponse::default().with_topics(topics).into())
}

/// Builds the response for a partition whose offset may not be shown.
fn unfetched(index: &i32) -> OffsetFetchResponsePartitions {
    OffsetFetchResponsePartitions::default()
        .with_partition_index(*index)
        .with_committed_offset(-1)
        .with_metadata(Some(StrBytes::default()))
        .with_error_code(ResponseError::TopicAuthorizationFailed.code())
}

fn fetches(context: &Context, request: &mut OffsetFetchRequest) -> Withheld {
    let may = |name: &TopicName| context.may(Operation::Describe, Resource::topic(name));
    let mut topics = Vec::new();
    if let Some(asked) = &mut request.topics {
        asked.retain(|topic| {
            let may = may(&topic.name);
            if !may {
                let partitions = topic.partition_indexes.iter().map(|index| {
                    OffsetFetchResponsePartition::default()
                        .with_partition_index(*index)
                        .with_committed_offset(-1)
                        .with_metadata(Some(StrBytes::default()))
                        .with_error_code(ResponseError::TopicAuthorizationFailed.code())
                });
                let answered = OffsetFetchResponseTopic::default().with_name(topic.name.clone());
                topics.push(answered.with_partitions(partitions.collect()));
            }
            may
        });
    }
    let mut groups = Vec::new();
    request.groups.retain_mut(|group| {
        let mut answered =
            OffsetFetchResponseGroup::default().with_group_id(group.group_id.clone());
        if !context.may(Operation::Describe, Resource::group(&group.group_id)) {
            let code = ResponseError::GroupAuthorizationFailed.code();
            groups.push(answered.with_error_code(code));
            return false;
        }
        group.topics.iter_mut().for_each(|topics| {
            topics.retain(|topic| {
                let may = may(&topic.name);
                if !may {
                    let partitions = topic.partition_indexes.iter().map(unfetched).collect();
                    let refused = OffsetFetchResponseTopics::default()
                        .with_name(topic.name.clone())
                        .with_partitions(partitions);
                    answered.topics.push(refused);
                }
                may
            });
        });
        if !answered.topics.is_empty() {
            groups.push(answered);
        }
        true
    });
    // A request for a single group always gets that group's error.
    let has_rest = context.asked.version < 8 || !request.groups.is_empty();
    if topics.is_empty() && groups.is_empty() {
        return Withheld::Nothing;
    }
    let answer = OffsetFetchResponse::default().with_topics(topics).with_groups(groups).into();
    if has_rest { Withheld::Some(answer) } else { Withheld::Everything(answer) }
}

/// Partitions are added to a transaction atomically.
fn additions(context: &Context, request: &AddPartitionsToTxnRequest) -> Withheld {
    let mut has_refusals = false;
    let topics = request.v3_and_below_topics.iter().map(|topic| {
        let found = context.topic(Operation::Write, &topic.name);
        let partitions = topic.partitions.iter().map(|index| {
            let error = match &found {
                Ok(topic) if topic.partition(*index).is_some() => {
                    ResponseError::OperationNotAttempted
                }
                Ok(_) => ResponseError::UnknownTopicOrPartition,
                Err(error) => *error,
            };
            has_refusals |= error != ResponseError::OperationNotAttempted;
            AddPartitionsToTxnPartitionResult::default()
                .with_partition_index(*index)
                .with_partition_error_code(error.code())
        });
        AddPartitionsToTxnTopicResult::default()
            .with_name(topic.name.clone())
            .with_results_by_partition(partitions.collect())
    });
    let topics: Vec<_> = topics.collect();
    if !has_refusals {
        return Withheld::Nothing;
    }
    let answer = AddPartitionsToTxnResponse::default().with_results_by_topic_v3_and_below(topics);
    Withheld::Everything(answer.into())
}
