//! Responses that consist of an error only, at the position in each response where the protocol has
//! it.

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::add_partitions_to_txn_response::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnTopicResult,
};
use kafka_protocol::messages::offset_commit_request::OffsetCommitRequestTopic;
use kafka_protocol::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use kafka_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponseTopic,
};
use kafka_protocol::messages::txn_offset_commit_request::TxnOffsetCommitRequestTopic;
use kafka_protocol::messages::txn_offset_commit_response::{
    TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
use kafka_protocol::messages::{
    AddOffsetsToTxnResponse, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse,
    ConsumerGroupDescribeResponse, ConsumerGroupHeartbeatResponse, DeleteGroupsResponse,
    DescribeGroupsResponse, DescribeTransactionsResponse, EndTxnResponse, HeartbeatResponse,
    InitProducerIdResponse, JoinGroupResponse, LeaveGroupResponse, ListGroupsResponse,
    ListTransactionsResponse, OffsetCommitRequest, OffsetCommitResponse, OffsetDeleteResponse,
    OffsetFetchRequest, OffsetFetchResponse, RequestKind, ResponseKind, SyncGroupResponse,
    TxnOffsetCommitRequest, TxnOffsetCommitResponse, consumer_group_describe_response,
    delete_groups_response, describe_groups_response, describe_transactions_response,
};

/// Builds the error response for a request to the coordinator.
pub(crate) fn refuse(request: &RequestKind, error: ResponseError) -> ResponseKind {
    let code = error.code();
    match request {
        RequestKind::JoinGroup(_) => {
            JoinGroupResponse::default().with_error_code(code).with_generation_id(-1).into()
        }
        RequestKind::SyncGroup(_) => SyncGroupResponse::default().with_error_code(code).into(),
        RequestKind::Heartbeat(_) => HeartbeatResponse::default().with_error_code(code).into(),
        RequestKind::LeaveGroup(_) => LeaveGroupResponse::default().with_error_code(code).into(),
        RequestKind::OffsetCommit(it) => offset_commit(it, code).into(),
        RequestKind::TxnOffsetCommit(it) => txn_offset_commit(it, code).into(),
        RequestKind::OffsetFetch(it) => offset_fetch(it, code).into(),
        RequestKind::OffsetDelete(_) => {
            OffsetDeleteResponse::default().with_error_code(code).into()
        }
        RequestKind::ListGroups(_) => ListGroupsResponse::default().with_error_code(code).into(),
        RequestKind::DescribeGroups(it) => {
            let groups = it.groups.iter().map(|id| {
                describe_groups_response::DescribedGroup::default()
                    .with_group_id(id.clone())
                    .with_error_code(code)
            });
            DescribeGroupsResponse::default().with_groups(groups.collect()).into()
        }
        RequestKind::DeleteGroups(it) => {
            let results = it.groups_names.iter().map(|id| {
                delete_groups_response::DeletableGroupResult::default()
                    .with_group_id(id.clone())
                    .with_error_code(code)
            });
            DeleteGroupsResponse::default().with_results(results.collect()).into()
        }
        RequestKind::InitProducerId(_) => {
            InitProducerIdResponse::default().with_error_code(code).with_producer_epoch(-1).into()
        }
        RequestKind::AddPartitionsToTxn(it) => add_partitions(it, code).into(),
        RequestKind::AddOffsetsToTxn(_) => {
            AddOffsetsToTxnResponse::default().with_error_code(code).into()
        }
        RequestKind::EndTxn(_) => EndTxnResponse::default().with_error_code(code).into(),
        RequestKind::ListTransactions(_) => {
            ListTransactionsResponse::default().with_error_code(code).into()
        }
        RequestKind::DescribeTransactions(it) => {
            let states = it.transactional_ids.iter().map(|id| {
                describe_transactions_response::TransactionState::default()
                    .with_transactional_id(id.clone())
                    .with_error_code(code)
            });
            DescribeTransactionsResponse::default().with_transaction_states(states.collect()).into()
        }
        RequestKind::ConsumerGroupDescribe(it) => {
            let groups = it.group_ids.iter().map(|id| {
                consumer_group_describe_response::DescribedGroup::default()
                    .with_group_id(id.clone())
                    .with_error_code(code)
            });
            ConsumerGroupDescribeResponse::default().with_groups(groups.collect()).into()
        }
        _ => ConsumerGroupHeartbeatResponse::default().with_error_code(code).into(),
    }
}

fn offset_commit(request: &OffsetCommitRequest, code: i16) -> OffsetCommitResponse {
    let topics = request.topics.iter().map(|topic| refuse_offsets(topic, code));
    OffsetCommitResponse::default().with_topics(topics.collect())
}

/// Rejects the offsets of one topic.
fn refuse_offsets(topic: &OffsetCommitRequestTopic, code: i16) -> OffsetCommitResponseTopic {
    let partitions = topic.partitions.iter().map(|it| {
        OffsetCommitResponsePartition::default()
            .with_partition_index(it.partition_index)
            .with_error_code(code)
    });
    OffsetCommitResponseTopic::default()
        .with_name(topic.name.clone())
        .with_partitions(partitions.collect())
}

fn txn_offset_commit(request: &TxnOffsetCommitRequest, code: i16) -> TxnOffsetCommitResponse {
    let topics = request.topics.iter().map(|topic| refuse_transactional_offsets(topic, code));
    TxnOffsetCommitResponse::default().with_topics(topics.collect())
}

/// Rejects the offsets of one topic in a transaction.
fn refuse_transactional_offsets(
    topic: &TxnOffsetCommitRequestTopic,
    code: i16,
) -> TxnOffsetCommitResponseTopic {
    let partitions = topic.partitions.iter().map(|it| {
        TxnOffsetCommitResponsePartition::default()
            .with_partition_index(it.partition_index)
            .with_error_code(code)
    });
    TxnOffsetCommitResponseTopic::default()
        .with_name(topic.name.clone())
        .with_partitions(partitions.collect())
}

/// The first versions have error codes of partitions only.
fn offset_fetch(request: &OffsetFetchRequest, code: i16) -> OffsetFetchResponse {
    let groups = request.groups.iter().map(|group| {
        OffsetFetchResponseGroup::default()
            .with_group_id(group.group_id.clone())
            .with_error_code(code)
    });
    let topics = request.topics.iter().flatten().map(|topic| {
        let partitions = topic.partition_indexes.iter().map(|index| {
            OffsetFetchResponsePartition::default()
                .with_partition_index(*index)
                .with_committed_offset(-1)
                .with_error_code(code)
        });
        OffsetFetchResponseTopic::default()
            .with_name(topic.name.clone())
            .with_partitions(partitions.collect())
    });
    OffsetFetchResponse::default()
        .with_groups(groups.collect())
        .with_topics(topics.collect())
        .with_error_code(code)
}

fn add_partitions(request: &AddPartitionsToTxnRequest, code: i16) -> AddPartitionsToTxnResponse {
    let topics = request.v3_and_below_topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|index| {
            AddPartitionsToTxnPartitionResult::default()
                .with_partition_index(*index)
                .with_partition_error_code(code)
        });
        AddPartitionsToTxnTopicResult::default()
            .with_name(topic.name.clone())
            .with_results_by_partition(partitions.collect())
    });
    AddPartitionsToTxnResponse::default().with_results_by_topic_v3_and_below(topics.collect())
}
