//! Requests of each type for named resources, and the results for each name in their answers. None
//! changes anything, whether or not it is permitted.

use bytes::Bytes;
use kafka_protocol::messages::{self as of, RequestKind, ResponseKind};
use kafka_protocol::protocol::StrBytes;

/// Id of producers and members that do not exist.
const NOBODY: &str = "nobody";

const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const GROUP: i8 = 32;

/// Returns the type of the resource whose settings a row of the table concerns.
fn resource<'a>(row: &str, name: &'a str) -> (i8, &'a str) {
    match row.split(": ").nth(1) {
        Some("topics") => (TOPIC, name),
        Some("groups") => (GROUP, name),
        _ => (BROKER, "1"),
    }
}

fn text(name: &str) -> StrBytes {
    StrBytes::from_string(name.to_owned())
}

fn topic(name: &str) -> of::TopicName {
    of::TopicName(text(name))
}

fn group(name: &str) -> of::GroupId {
    of::GroupId(text(name))
}

fn transaction(name: &str) -> of::TransactionalId {
    of::TransactionalId(text(name))
}

fn topics<T>(names: &[&str], topic_of: impl Fn(of::TopicName) -> T) -> Vec<T> {
    names.iter().map(|name| topic_of(topic(name))).collect()
}

/// Returns versions other than the highest in which a row of the table is tested.
pub(crate) fn versions(row: &str) -> Option<&'static [i16]> {
    match row {
        "OffsetFetch: topics" | "OffsetFetch: all topics" => Some(&[7, 9]),
        // Later versions identify topics by id.
        "Fetch" => Some(&[12]),
        "ElectLeaders" | "DescribeQuorum" => Some(&[0, 1, 2]),
        "AlterPartitionReassignments"
        | "ListConfigResources"
        | "DescribeClientQuotas"
        | "AlterClientQuotas" => Some(&[0, 1]),
        "AlterReplicaLogDirs" => Some(&[1, 2]),
        "AlterConfigs: topics" => Some(&[0, 2]),
        _ => None,
    }
}

/// Returns a replacement for a name whose request, if permitted, would change something.
pub(crate) fn harmless(row: &str, name: &'static str) -> &'static str {
    match (row, name) {
        ("DeleteTopics" | "DeleteGroups", "seen") => "seen-missing",
        _ => name,
    }
}

/// Returns a request for these names, or for the first if it has only one field. `None` if the test
/// has no request for that row of the table.
pub(crate) fn request(row: &str, version: i16, names: &[&str]) -> Option<RequestKind> {
    let name = names[0];
    Some(match row {
        "ApiVersions" => of::ApiVersionsRequest::default()
            .with_client_software_name(text("rights"))
            .with_client_software_version(text("1"))
            .into(),
        "DescribeCluster" => of::DescribeClusterRequest::default().into(),
        "ListPartitionReassignments" => of::ListPartitionReassignmentsRequest::default().into(),
        "DescribeLogDirs" => of::DescribeLogDirsRequest::default().into(),
        "DescribeAcls" => of::DescribeAclsRequest::default()
            .with_resource_type_filter(TOPIC)
            .with_operation(1)
            .with_pattern_type_filter(1)
            .with_permission_type(1)
            .into(),
        "CreateAcls" => {
            // No entry has such an operation.
            let creation = of::create_acls_request::AclCreation::default().with_operation(99);
            of::CreateAclsRequest::default().with_creations(vec![creation]).into()
        }
        "DeleteAcls" => {
            let filter = of::delete_acls_request::DeleteAclsFilter::default()
                .with_resource_type_filter(TOPIC)
                .with_resource_name_filter(Some(text(NOBODY)))
                .with_pattern_type_filter(3)
                .with_operation(1)
                .with_permission_type(1);
            of::DeleteAclsRequest::default().with_filters(vec![filter]).into()
        }
        _ => {
            return about_settings(row, names)
                .or_else(|| about_placement(row, names))
                .or_else(|| about_users(row))
                .or_else(|| about_records(row, names))
                .or_else(|| about_topics(row, names))
                .or_else(|| about_groups(row, version, name, names));
        }
    })
}

fn about_settings(row: &str, names: &[&str]) -> Option<RequestKind> {
    Some(match row.split(':').next().unwrap_or_default() {
        "DescribeConfigs" => {
            let resources = names.iter().map(|name| {
                let (kind, name) = resource(row, name);
                of::describe_configs_request::DescribeConfigsResource::default()
                    .with_resource_type(kind)
                    .with_resource_name(text(name))
            });
            of::DescribeConfigsRequest::default().with_resources(resources.collect()).into()
        }
        "IncrementalAlterConfigs" => {
            let resources = names.iter().map(|name| {
                let (kind, name) = resource(row, name);
                of::incremental_alter_configs_request::AlterConfigsResource::default()
                    .with_resource_type(kind)
                    .with_resource_name(text(name))
            });
            of::IncrementalAlterConfigsRequest::default()
                .with_validate_only(true)
                .with_resources(resources.collect())
                .into()
        }
        "AlterConfigs" => {
            let resources = names.iter().map(|name| {
                let (kind, name) = resource(row, name);
                of::alter_configs_request::AlterConfigsResource::default()
                    .with_resource_type(kind)
                    .with_resource_name(text(name))
            });
            of::AlterConfigsRequest::default()
                .with_validate_only(true)
                .with_resources(resources.collect())
                .into()
        }
        "ListConfigResources" => of::ListConfigResourcesRequest::default().into(),
        _ => return None,
    })
}

fn about_users(row: &str) -> Option<RequestKind> {
    Some(match row {
        "DescribeUserScramCredentials" => {
            of::DescribeUserScramCredentialsRequest::default().with_users(None).into()
        }
        "AlterUserScramCredentials" => {
            let deletion =
                of::alter_user_scram_credentials_request::ScramCredentialDeletion::default()
                    .with_name(text(NOBODY));
            of::AlterUserScramCredentialsRequest::default().with_deletions(vec![deletion]).into()
        }
        "DescribeClientQuotas" => of::DescribeClientQuotasRequest::default().into(),
        "AlterClientQuotas" => {
            let entry = of::alter_client_quotas_request::EntryData::default();
            of::AlterClientQuotasRequest::default().with_entries(vec![entry]).into()
        }
        _ => return None,
    })
}

fn about_placement(row: &str, names: &[&str]) -> Option<RequestKind> {
    Some(match row {
        "AlterPartitionReassignments" => {
            use of::alter_partition_reassignments_request::{
                ReassignablePartition, ReassignableTopic,
            };
            let partition = ReassignablePartition::default().with_replicas(None);
            let topics = topics(names, |it| {
                ReassignableTopic::default().with_name(it).with_partitions(vec![partition.clone()])
            });
            of::AlterPartitionReassignmentsRequest::default().with_topics(topics).into()
        }
        "ElectLeaders" => {
            let topics = topics(names, |it| {
                of::elect_leaders_request::TopicPartitions::default()
                    .with_topic(it)
                    .with_partitions(vec![0])
            });
            of::ElectLeadersRequest::default().with_topic_partitions(Some(topics)).into()
        }
        "AlterReplicaLogDirs" => {
            use of::alter_replica_log_dirs_request::{AlterReplicaLogDir, AlterReplicaLogDirTopic};
            let topics = topics(names, |it| {
                AlterReplicaLogDirTopic::default().with_name(it).with_partitions(vec![0])
            });
            let folder =
                AlterReplicaLogDir::default().with_path(text("memlane")).with_topics(topics);
            of::AlterReplicaLogDirsRequest::default().with_dirs(vec![folder]).into()
        }
        "DescribeQuorum" => {
            use of::describe_quorum_request::{PartitionData, TopicData};
            let log = TopicData::default()
                .with_topic_name(topic("__cluster_metadata"))
                .with_partitions(vec![PartitionData::default()]);
            of::DescribeQuorumRequest::default().with_topics(vec![log]).into()
        }
        _ => return None,
    })
}

fn about_records(row: &str, names: &[&str]) -> Option<RequestKind> {
    use of::produce_request::{PartitionProduceData, TopicProduceData};
    let name = names[0];
    Some(match row {
        "Produce" | "Produce: in a transaction" => {
            let data = || vec![PartitionProduceData::default().with_records(Some(Bytes::new()))];
            let topics = topics(names, |it| {
                TopicProduceData::default().with_name(it).with_partition_data(data())
            });
            let id = row.ends_with("transaction").then(|| transaction(name));
            of::ProduceRequest::default()
                .with_acks(1)
                .with_timeout_ms(1_000)
                .with_transactional_id(id)
                .with_topic_data(topics)
                .into()
        }
        "Fetch" => {
            use of::fetch_request::{FetchPartition, FetchTopic};
            let partition = FetchPartition::default().with_partition_max_bytes(1_000);
            let topics = topics(names, |it| {
                FetchTopic::default().with_topic(it).with_partitions(vec![partition.clone()])
            });
            of::FetchRequest::default().with_session_epoch(-1).with_topics(topics).into()
        }
        "ListOffsets" => {
            use of::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
            let partition = ListOffsetsPartition::default().with_timestamp(-1);
            let topics = topics(names, |it| {
                ListOffsetsTopic::default().with_name(it).with_partitions(vec![partition.clone()])
            });
            of::ListOffsetsRequest::default().with_topics(topics).into()
        }
        "OffsetForLeaderEpoch" => {
            use of::offset_for_leader_epoch_request::{
                OffsetForLeaderPartition, OffsetForLeaderTopic,
            };
            let partitions = vec![OffsetForLeaderPartition::default()];
            let topics = topics(names, |it| {
                OffsetForLeaderTopic::default().with_topic(it).with_partitions(partitions.clone())
            });
            of::OffsetForLeaderEpochRequest::default().with_topics(topics).into()
        }
        "DeleteRecords" => {
            use of::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
            let partitions = vec![DeleteRecordsPartition::default()];
            let topics = topics(names, |it| {
                DeleteRecordsTopic::default().with_name(it).with_partitions(partitions.clone())
            });
            of::DeleteRecordsRequest::default().with_topics(topics).into()
        }
        "DescribeProducers" => {
            let topics = topics(names, |it| {
                of::describe_producers_request::TopicRequest::default()
                    .with_name(it)
                    .with_partition_indexes(vec![0])
            });
            of::DescribeProducersRequest::default().with_topics(topics).into()
        }
        _ => return None,
    })
}

fn about_topics(row: &str, names: &[&str]) -> Option<RequestKind> {
    Some(match row {
        "Metadata" | "Metadata: all topics" => {
            let topics = topics(names, |it| {
                of::metadata_request::MetadataRequestTopic::default().with_name(Some(it))
            });
            let topics = (row == "Metadata").then_some(topics);
            of::MetadataRequest::default()
                .with_allow_auto_topic_creation(false)
                .with_topics(topics)
                .into()
        }
        "DescribeTopicPartitions" | "DescribeTopicPartitions: all topics" => {
            let mut topics = topics(names, |it| {
                of::describe_topic_partitions_request::TopicRequest::default().with_name(it)
            });
            if row.ends_with("all topics") {
                topics.clear();
            }
            of::DescribeTopicPartitionsRequest::default().with_topics(topics).into()
        }
        "CreateTopics" => {
            let topics = topics(names, |it| {
                of::create_topics_request::CreatableTopic::default()
                    .with_name(it)
                    .with_num_partitions(1)
                    .with_replication_factor(1)
            });
            of::CreateTopicsRequest::default().with_validate_only(true).with_topics(topics).into()
        }
        "DeleteTopics" => {
            let topics = topics(names, |it| {
                of::delete_topics_request::DeleteTopicState::default().with_name(Some(it))
            });
            of::DeleteTopicsRequest::default().with_topics(topics).into()
        }
        "CreatePartitions" => {
            let topics = topics(names, |it| {
                of::create_partitions_request::CreatePartitionsTopic::default()
                    .with_name(it)
                    .with_count(2)
            });
            of::CreatePartitionsRequest::default()
                .with_validate_only(true)
                .with_topics(topics)
                .into()
        }
        _ => return None,
    })
}

fn about_groups(row: &str, version: i16, name: &str, names: &[&str]) -> Option<RequestKind> {
    let keys = || names.iter().map(|name| text(name)).collect::<Vec<_>>();
    Some(match row {
        "FindCoordinator: groups" => {
            of::FindCoordinatorRequest::default().with_coordinator_keys(keys()).into()
        }
        "FindCoordinator: transactional ids" => of::FindCoordinatorRequest::default()
            .with_key_type(1)
            .with_coordinator_keys(keys())
            .into(),
        "JoinGroup" => of::JoinGroupRequest::default()
            .with_group_id(group(name))
            .with_member_id(text(NOBODY))
            .with_session_timeout_ms(10_000)
            .into(),
        "SyncGroup" => of::SyncGroupRequest::default()
            .with_group_id(group(name))
            .with_member_id(text(NOBODY))
            .into(),
        "Heartbeat" => of::HeartbeatRequest::default()
            .with_group_id(group(name))
            .with_member_id(text(NOBODY))
            .into(),
        "LeaveGroup" => of::LeaveGroupRequest::default().with_group_id(group(name)).into(),
        "ConsumerGroupHeartbeat" => of::ConsumerGroupHeartbeatRequest::default()
            .with_group_id(group(name))
            .with_member_id(text(NOBODY))
            .with_member_epoch(7)
            .with_subscribed_topic_names(Some(vec![topic(name)]))
            .into(),
        "ListGroups" => of::ListGroupsRequest::default().into(),
        "DescribeGroups" => of::DescribeGroupsRequest::default()
            .with_groups(names.iter().map(|name| group(name)).collect())
            .into(),
        "ConsumerGroupDescribe" => of::ConsumerGroupDescribeRequest::default()
            .with_group_ids(names.iter().map(|name| group(name)).collect())
            .into(),
        "DeleteGroups" => of::DeleteGroupsRequest::default()
            .with_groups_names(names.iter().map(|name| group(name)).collect())
            .into(),
        _ => {
            return about_offsets(row, version, names)
                .or_else(|| about_transactions(row, name, names));
        }
    })
}

fn about_offsets(row: &str, version: i16, names: &[&str]) -> Option<RequestKind> {
    Some(match row {
        "OffsetDelete" => {
            use of::offset_delete_request::{
                OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
            };
            // Nothing was committed for it.
            let partition = OffsetDeleteRequestPartition::default().with_partition_index(9);
            let topics = topics(names, |it| {
                OffsetDeleteRequestTopic::default()
                    .with_name(it)
                    .with_partitions(vec![partition.clone()])
            });
            of::OffsetDeleteRequest::default()
                .with_group_id(group("seen"))
                .with_topics(topics)
                .into()
        }
        "OffsetCommit" => commit("seen", names).into(),
        "OffsetFetch: groups" => {
            let groups = names.iter().map(|name| {
                of::offset_fetch_request::OffsetFetchRequestGroup::default()
                    .with_group_id(group(name))
                    .with_topics(Some(Vec::new()))
            });
            of::OffsetFetchRequest::default().with_groups(groups.collect()).into()
        }
        "OffsetFetch: topics" | "OffsetFetch: all topics" => {
            offset_fetch(version, (!row.ends_with("all topics")).then_some(names)).into()
        }
        _ => return None,
    })
}

/// Returns a commit of an offset of each topic for a group.
pub(crate) fn commit(group_id: &str, names: &[&str]) -> of::OffsetCommitRequest {
    use of::offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
    let topics = topics(names, |it| {
        OffsetCommitRequestTopic::default()
            .with_name(it)
            .with_partitions(vec![OffsetCommitRequestPartition::default()])
    });
    of::OffsetCommitRequest::default().with_group_id(group(group_id)).with_topics(topics)
}

fn offset_fetch(version: i16, names: Option<&[&str]>) -> of::OffsetFetchRequest {
    use of::offset_fetch_request as fetch;
    if version < 8 {
        let topics = names.map(|names| {
            topics(names, |it| {
                fetch::OffsetFetchRequestTopic::default()
                    .with_name(it)
                    .with_partition_indexes(vec![0])
            })
        });
        return of::OffsetFetchRequest::default().with_group_id(group("seen")).with_topics(topics);
    }
    let topics = names.map(|names| {
        topics(names, |it| {
            fetch::OffsetFetchRequestTopics::default().with_name(it).with_partition_indexes(vec![0])
        })
    });
    let group = fetch::OffsetFetchRequestGroup::default()
        .with_group_id(group("seen"))
        .with_member_epoch(-1)
        .with_topics(topics);
    of::OffsetFetchRequest::default().with_groups(vec![group])
}

/// Returns a request that adds partitions to a transaction.
pub(crate) fn add_partitions(
    id: &str,
    producer: (of::ProducerId, i16),
    names: &[&str],
) -> of::AddPartitionsToTxnRequest {
    let topics = topics(names, |it| {
        of::add_partitions_to_txn_request::AddPartitionsToTxnTopic::default()
            .with_name(it)
            .with_partitions(vec![0])
    });
    of::AddPartitionsToTxnRequest::default()
        .with_v3_and_below_transactional_id(transaction(id))
        .with_v3_and_below_producer_id(producer.0)
        .with_v3_and_below_producer_epoch(producer.1)
        .with_v3_and_below_topics(topics)
}

/// Returns a request for a producer id, with a transactional id if one is given.
pub(crate) fn init_producer(id: Option<&str>, timeout_ms: i32) -> of::InitProducerIdRequest {
    of::InitProducerIdRequest::default()
        .with_transactional_id(id.map(transaction))
        .with_transaction_timeout_ms(timeout_ms)
        .with_producer_id(of::ProducerId(-1))
        .with_producer_epoch(-1)
}

fn about_transactions(row: &str, name: &str, names: &[&str]) -> Option<RequestKind> {
    let id = || transaction(name);
    let nobody = of::ProducerId(i64::MAX);
    Some(match row {
        "InitProducerId" => init_producer(None, 1_000).into(),
        // No transaction may have so short a timeout.
        "InitProducerId: for transactions" => init_producer(Some(name), 0).into(),
        "AddPartitionsToTxn" => add_partitions("seen", (nobody, 0), names).into(),
        "AddOffsetsToTxn" => of::AddOffsetsToTxnRequest::default()
            .with_transactional_id(id())
            .with_producer_id(nobody)
            .with_group_id(group(name))
            .into(),
        "EndTxn" => {
            of::EndTxnRequest::default().with_transactional_id(id()).with_producer_id(nobody).into()
        }
        "TxnOffsetCommit" => {
            use of::txn_offset_commit_request as request;
            let topics = topics(names, |it| {
                request::TxnOffsetCommitRequestTopic::default()
                    .with_name(it)
                    .with_partitions(vec![request::TxnOffsetCommitRequestPartition::default()])
            });
            of::TxnOffsetCommitRequest::default()
                .with_transactional_id(transaction("seen"))
                .with_producer_id(nobody)
                .with_group_id(group("seen"))
                .with_topics(topics)
                .into()
        }
        "ListTransactions" => of::ListTransactionsRequest::default().into(),
        "DescribeTransactions" => of::DescribeTransactionsRequest::default()
            .with_transactional_ids(names.iter().map(|name| transaction(name)).collect())
            .into(),
        "DescribeTransactions: topics" => of::DescribeTransactionsRequest::default()
            .with_transactional_ids(vec![transaction("seen")])
            .into(),
        _ => return None,
    })
}

macro_rules! each {
    ($items:expr, $name:ident, $code:ident) => {
        $items.iter().map(|it| (it.$name.to_string(), it.$code)).collect()
    };
    ($topics:expr, $name:ident, $partitions:ident . $code:ident) => {
        $topics.iter().map(|it| (it.$name.to_string(), it.$partitions[0].$code)).collect()
    };
}

/// Returns the result for each name in an answer: its error code, or 0. A result for the whole
/// request has no name.
pub(crate) fn said(row: &str, answer: &ResponseKind) -> Vec<(String, i16)> {
    match answer {
        ResponseKind::ApiVersions(it) => whole(it.error_code),
        ResponseKind::DescribeCluster(it) => whole(it.error_code),
        ResponseKind::ListPartitionReassignments(it) => whole(it.error_code),
        ResponseKind::DescribeLogDirs(it) => whole(it.error_code),
        ResponseKind::DescribeQuorum(it) => whole(it.error_code),
        ResponseKind::DescribeUserScramCredentials(it) => whole(it.error_code),
        ResponseKind::AlterUserScramCredentials(it) => whole(it.results[0].error_code),
        ResponseKind::DescribeClientQuotas(it) => whole(it.error_code),
        ResponseKind::AlterClientQuotas(it) => whole(it.entries[0].error_code),
        ResponseKind::ListConfigResources(it) => whole(it.error_code),
        ResponseKind::AlterPartitionReassignments(it) => whole(it.error_code),
        ResponseKind::ElectLeaders(it) => {
            whole(it.replica_election_results[0].partition_result[0].error_code)
        }
        ResponseKind::AlterReplicaLogDirs(it) => whole(it.results[0].partitions[0].error_code),
        ResponseKind::AlterConfigs(it) => each!(it.responses, resource_name, error_code),
        ResponseKind::DescribeAcls(it) => whole(it.error_code),
        ResponseKind::CreateAcls(it) => whole(it.results[0].error_code),
        ResponseKind::DeleteAcls(it) => whole(it.filter_results[0].error_code),
        ResponseKind::DescribeConfigs(it) => each!(it.results, resource_name, error_code),
        ResponseKind::IncrementalAlterConfigs(it) => each!(it.responses, resource_name, error_code),
        ResponseKind::Produce(it) => each!(it.responses, name, partition_responses.error_code),
        ResponseKind::Fetch(it) => each!(it.responses, topic, partitions.error_code),
        ResponseKind::ListOffsets(it) => each!(it.topics, name, partitions.error_code),
        ResponseKind::OffsetForLeaderEpoch(it) => each!(it.topics, topic, partitions.error_code),
        ResponseKind::DeleteRecords(it) => each!(it.topics, name, partitions.error_code),
        ResponseKind::DescribeProducers(it) => each!(it.topics, name, partitions.error_code),
        ResponseKind::Metadata(it) => {
            it.topics.iter().map(|it| (named(&it.name), it.error_code)).collect()
        }
        ResponseKind::DescribeTopicPartitions(it) => {
            it.topics.iter().map(|it| (named(&it.name), it.error_code)).collect()
        }
        ResponseKind::CreateTopics(it) => each!(it.topics, name, error_code),
        ResponseKind::DeleteTopics(it) => {
            it.responses.iter().map(|it| (named(&it.name), it.error_code)).collect()
        }
        ResponseKind::CreatePartitions(it) => each!(it.results, name, error_code),
        _ => said_of_groups(row, answer),
    }
}

fn whole(code: i16) -> Vec<(String, i16)> {
    vec![(String::new(), code)]
}

fn named(name: &Option<of::TopicName>) -> String {
    name.as_ref().map_or_else(String::new, |it| it.to_string())
}

fn said_of_groups(row: &str, answer: &ResponseKind) -> Vec<(String, i16)> {
    match answer {
        ResponseKind::FindCoordinator(it) => each!(it.coordinators, key, error_code),
        ResponseKind::JoinGroup(it) => whole(it.error_code),
        ResponseKind::SyncGroup(it) => whole(it.error_code),
        ResponseKind::Heartbeat(it) => whole(it.error_code),
        ResponseKind::LeaveGroup(it) => whole(it.error_code),
        ResponseKind::ConsumerGroupHeartbeat(it) => whole(it.error_code),
        ResponseKind::ListGroups(it) => {
            it.groups.iter().map(|it| (it.group_id.to_string(), 0)).collect()
        }
        ResponseKind::DescribeGroups(it) => each!(it.groups, group_id, error_code),
        ResponseKind::ConsumerGroupDescribe(it) => each!(it.groups, group_id, error_code),
        ResponseKind::DeleteGroups(it) => each!(it.results, group_id, error_code),
        ResponseKind::OffsetDelete(it) if it.error_code != 0 => whole(it.error_code),
        ResponseKind::OffsetDelete(it) => each!(it.topics, name, partitions.error_code),
        ResponseKind::OffsetCommit(it) => each!(it.topics, name, partitions.error_code),
        ResponseKind::OffsetFetch(it) if it.error_code != 0 => whole(it.error_code),
        ResponseKind::OffsetFetch(it) if it.groups.is_empty() => {
            each!(it.topics, name, partitions.error_code)
        }
        ResponseKind::OffsetFetch(it) if row == "OffsetFetch: groups" => {
            each!(it.groups, group_id, error_code)
        }
        ResponseKind::OffsetFetch(it) => match &it.groups[0] {
            group if group.error_code != 0 => whole(group.error_code),
            group => each!(group.topics, name, partitions.error_code),
        },
        ResponseKind::InitProducerId(it) => whole(it.error_code),
        ResponseKind::AddPartitionsToTxn(it) => {
            let topics = &it.results_by_topic_v3_and_below;
            each!(topics, name, results_by_partition.partition_error_code)
        }
        ResponseKind::AddOffsetsToTxn(it) => whole(it.error_code),
        ResponseKind::EndTxn(it) => whole(it.error_code),
        ResponseKind::TxnOffsetCommit(it) => each!(it.topics, name, partitions.error_code),
        ResponseKind::ListTransactions(it) => {
            it.transaction_states.iter().map(|it| (it.transactional_id.to_string(), 0)).collect()
        }
        ResponseKind::DescribeTransactions(it) if row.ends_with("topics") => {
            let topics = it.transaction_states[0].topics.iter();
            topics.map(|it| (it.topic.to_string(), 0)).collect()
        }
        ResponseKind::DescribeTransactions(it) => {
            each!(it.transaction_states, transactional_id, error_code)
        }
        _ => Vec::new(),
    }
}
