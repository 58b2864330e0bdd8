//! Replica placement and leadership: all partitions are permanently on the only broker, in its only
//! log directory. Requests for exactly that succeed, and all others are rejected.

use std::sync::Arc;

use access::{Operation, Resource};
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::alter_partition_reassignments_response::{
    ReassignablePartitionResponse, ReassignableTopicResponse,
};
use kafka_protocol::messages::alter_replica_log_dirs_response::{
    AlterReplicaLogDirPartitionResult, AlterReplicaLogDirTopicResult,
};
use kafka_protocol::messages::describe_quorum_response::{
    Listener, Node, PartitionData, ReplicaState, TopicData,
};
use kafka_protocol::messages::elect_leaders_response::{PartitionResult, ReplicaElectionResult};
use kafka_protocol::messages::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse,
    AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse, BrokerId, DescribeQuorumRequest,
    DescribeQuorumResponse, ElectLeadersRequest, ElectLeadersResponse,
    ListPartitionReassignmentsResponse, TopicName,
};

use super::{Context, code, text};
use crate::broker::NODE_ID;
use crate::clock::unix_ms;
use crate::topics::{OpenPartition, Refusal};

/// Name of the log directory that represents the broker's memory.
pub(super) const FOLDER: &str = "memlane";

/// Election types (KIP-460).
const PREFERRED: i8 = 0;
const UNCLEAN: i8 = 1;

/// Name of the metadata log of KRaft controllers.
const QUORUM_LOG: &str = "__cluster_metadata";

fn check_cluster(context: &Context, operation: Operation) -> Result<(), ResponseError> {
    let error = ResponseError::ClusterAuthorizationFailed;
    context.check(operation, Resource::cluster(), error)
}

/// Returns the partition without authorization: the right to the cluster was checked before.
fn find(context: &Context, topic: &str, number: i32) -> Result<Arc<OpenPartition>, Refusal> {
    let found = context.broker.topics.demand(topic)?;
    found.partition(number).ok_or_else(|| {
        let what = format!("topic {topic:?} has no partition {number}");
        Refusal::new(ResponseError::UnknownTopicOrPartition, what)
    })
}

/// Lists no reassignments, because none is ever in progress.
pub(super) fn reassignments(context: &Context) -> ListPartitionReassignmentsResponse {
    let checked = check_cluster(context, Operation::Describe);
    ListPartitionReassignmentsResponse::default()
        .with_error_message(None)
        .with_error_code(code(&checked))
}

pub(super) fn reassign(
    context: &Context,
    request: &AlterPartitionReassignmentsRequest,
) -> AlterPartitionReassignmentsResponse {
    let response = AlterPartitionReassignmentsResponse::default()
        .with_allow_replication_factor_change(request.allow_replication_factor_change)
        .with_error_message(None);
    if let Err(error) = check_cluster(context, Operation::Alter) {
        return response.with_error_code(error.code());
    }
    let topics = request.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|partition| {
            let number = partition.partition_index;
            let response = ReassignablePartitionResponse::default()
                .with_error_message(None)
                .with_partition_index(number);
            let replicas = partition.replicas.as_deref();
            let found = find(context, &topic.name, number);
            match found.and_then(|_| check_replicas(replicas)) {
                Ok(()) => response,
                Err(refusal) => response
                    .with_error_code(refusal.error.code())
                    .with_error_message(Some(text(refusal.message))),
            }
        });
        ReassignableTopicResponse::default()
            .with_name(topic.name.clone())
            .with_partitions(partitions.collect())
    });
    response.with_responses(topics.collect())
}

/// Accepts the current replicas of a partition. `None` cancels a reassignment.
fn check_replicas(replicas: Option<&[BrokerId]>) -> Result<(), Refusal> {
    match replicas {
        Some([BrokerId(NODE_ID)]) => Ok(()),
        Some(_) => Err(Refusal::new(
            ResponseError::InvalidReplicaAssignment,
            format!("cannot reassign: a partition has one replica, on the only broker {NODE_ID}"),
        )),
        None => Err(Refusal::new(
            ResponseError::NoReassignmentInProgress,
            "no partition reassignment is in progress",
        )),
    }
}

pub(super) fn elect(context: &Context, request: &ElectLeadersRequest) -> ElectLeadersResponse {
    let checked = check_cluster(context, Operation::Alter).and_then(|()| {
        let is_known = matches!(request.election_type, PREFERRED | UNCLEAN);
        if is_known { Ok(()) } else { Err(ResponseError::InvalidRequest) }
    });
    // A request for all partitions returns only those with a new leader, which are none.
    let topics = request.topic_partitions.iter().flatten().map(|topic| {
        let partitions = topic.partitions.iter().map(|number| {
            let result =
                PartitionResult::default().with_error_message(None).with_partition_id(*number);
            match checked {
                Ok(()) => {
                    let refusal = election(context, &topic.topic, *number);
                    result
                        .with_error_code(refusal.error.code())
                        .with_error_message(Some(text(refusal.message)))
                }
                Err(error) => result.with_error_code(error.code()),
            }
        });
        ReplicaElectionResult::default()
            .with_topic(topic.topic.clone())
            .with_partition_result(partitions.collect())
    });
    let response = ElectLeadersResponse::default().with_replica_election_results(topics.collect());
    // Version 0 has no field for it.
    if context.asked.version == 0 { response } else { response.with_error_code(code(&checked)) }
}

fn election(context: &Context, topic: &str, number: i32) -> Refusal {
    find(context, topic, number).err().unwrap_or_else(|| {
        let what = format!("broker {NODE_ID} is already the leader of the partition");
        Refusal::new(ResponseError::ElectionNotNeeded, what)
    })
}

pub(super) fn move_to_folder(
    context: &Context,
    request: &AlterReplicaLogDirsRequest,
) -> AlterReplicaLogDirsResponse {
    let checked = check_cluster(context, Operation::Alter);
    let all = request.dirs.iter().flat_map(|folder| {
        let is_there = &*folder.path == FOLDER;
        folder.topics.iter().map(move |topic| (is_there, topic))
    });
    let results = all.map(|(is_there, topic)| {
        let partitions = topic.partitions.iter().map(|number| {
            let moved = checked.and_then(|()| match is_there {
                true => find(context, &topic.name, *number).map_err(|refusal| refusal.error),
                false => Err(ResponseError::LogDirNotFound),
            });
            AlterReplicaLogDirPartitionResult::default()
                .with_partition_index(*number)
                .with_error_code(code(&moved))
        });
        AlterReplicaLogDirTopicResult::default()
            .with_topic_name(topic.name.clone())
            .with_partitions(partitions.collect())
    });
    AlterReplicaLogDirsResponse::default().with_results(results.collect())
}

/// Describes a quorum of one voter without a metadata log, which is always up to date.
pub(super) fn quorum(context: &Context, request: &DescribeQuorumRequest) -> DescribeQuorumResponse {
    let response = DescribeQuorumResponse::default().with_error_message(None);
    if let Err(error) = check_cluster(context, Operation::Describe) {
        return response.with_error_code(error.code());
    }
    let topics = request.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter();
        let partitions = partitions.map(|it| quorum_of(&topic.topic_name, it.partition_index));
        TopicData::default()
            .with_topic_name(topic.topic_name.clone())
            .with_partitions(partitions.collect())
    });
    let response = response.with_topics(topics.collect());
    if context.asked.version < 2 {
        return response;
    }
    let advertised = &context.broker.advertised;
    let listener = Listener::default()
        .with_name(text(context.broker.rules.policy.protocol.name()))
        .with_host(text(&*advertised.host))
        .with_port(advertised.port);
    let node = Node::default().with_node_id(BrokerId(NODE_ID)).with_listeners(vec![listener]);
    response.with_nodes(vec![node])
}

fn quorum_of(topic: &TopicName, number: i32) -> PartitionData {
    let partition = PartitionData::default().with_partition_index(number).with_error_message(None);
    if (&***topic, number) != (QUORUM_LOG, 0) {
        let error = ResponseError::UnknownTopicOrPartition;
        return partition.with_error_code(error.code()).with_leader_id(BrokerId(-1));
    }
    let voter = ReplicaState::default()
        .with_replica_id(BrokerId(NODE_ID))
        .with_last_fetch_timestamp(-1)
        .with_last_caught_up_timestamp(unix_ms());
    partition.with_leader_id(BrokerId(NODE_ID)).with_current_voters(vec![voter])
}
