//! Metadata of the cluster: its broker, topics and partitions.

use std::sync::Arc;

use access::{Operation, Resource};
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use kafka_protocol::messages::describe_topic_partitions_response::{
    Cursor, DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
};
use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{
    BrokerId, DescribeClusterRequest, DescribeClusterResponse, DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse, FindCoordinatorRequest, FindCoordinatorResponse,
    MetadataRequest, MetadataResponse, TopicName,
};
use uuid::Uuid;

use super::{Context, code, on_blocking_thread, text};
use crate::broker::NODE_ID;
use crate::topics::{Found, NewTopic, OpenTopic, check_name};

/// Maximum number of partitions in a response, also if the client sets no limit.
const PARTITIONS_SHOWN_MAX: usize = 2_000;

/// Maximum number of partitions in a Metadata response, which has no pages: about 40 MB.
const METADATA_PARTITIONS_MAX: usize = 200_000;

pub(super) async fn metadata(context: &Context, request: MetadataRequest) -> MetadataResponse {
    let broker = &context.broker;
    // In version 0, an empty list requests all topics.
    let asks_for_all =
        context.asked.version == 0 && request.topics.as_ref().is_some_and(Vec::is_empty);
    let shows_operations = request.include_topic_authorized_operations;
    let shows_own_operations = request.include_cluster_authorized_operations;
    let mut left = METADATA_PARTITIONS_MAX;
    let mut topics = match request.topics.filter(|_| !asks_for_all) {
        None => {
            let all = visible_topics(context);
            all.iter().map(|topic| describe_topic(topic, &mut left)).collect()
        }
        Some(asked) => {
            let mut topics = Vec::new();
            for topic in asked {
                let creates = request.allow_auto_topic_creation || context.asked.version < 4;
                let (name, id) = (topic.name.unwrap_or_default(), topic.topic_id);
                topics.push(match find_by_either(context, &name, id, creates).await {
                    Ok(topic) => describe_topic(&topic, &mut left),
                    Err(error) => MetadataResponseTopic::default()
                        .with_error_code(error.code())
                        .with_name(Some(name))
                        .with_topic_id(id),
                });
            }
            topics
        }
    };
    let node = MetadataResponseBroker::default()
        .with_node_id(BrokerId(NODE_ID))
        .with_host(text(&*broker.advertised.host))
        .with_port(i32::from(broker.advertised.port));
    for topic in topics.iter_mut().filter(|it| it.error_code == 0) {
        let name = topic.name.as_deref().map_or("", |name| &**name);
        topic.topic_authorized_operations = context.topic_operations(shows_operations, name);
    }
    let operations = context.cluster_operations(shows_own_operations);
    MetadataResponse::default()
        .with_cluster_authorized_operations(operations)
        .with_brokers(vec![node])
        .with_cluster_id(Some(text(&*broker.cluster_id)))
        .with_controller_id(BrokerId(NODE_ID))
        .with_topics(topics)
}

/// Returns all topics that the client may describe.
fn visible_topics(context: &Context) -> Vec<Arc<OpenTopic>> {
    let mut topics = context.broker.topics.all();
    topics.retain(|topic| context.may(Operation::Describe, Resource::topic(&topic.name)));
    topics
}

async fn find_by_either(
    context: &Context,
    name: &TopicName,
    id: Uuid,
    creates: bool,
) -> Result<Arc<OpenTopic>, ResponseError> {
    if id.is_nil() {
        return find_or_create(context, name, creates).await;
    }
    let topic = context.broker.topics.by_id(id).ok_or(ResponseError::UnknownTopicId)?;
    context.check_topic(Operation::Describe, &topic.name)?;
    Ok(topic)
}

async fn find_or_create(
    context: &Context,
    name: &str,
    creates: bool,
) -> Result<Arc<OpenTopic>, ResponseError> {
    let broker = &context.broker;
    context.check_topic(Operation::Describe, name)?;
    match broker.topics.find(name) {
        Found::Served(topic) => return Ok(topic),
        // Clients retry, as for a topic without a leader.
        Found::NotServed => return Err(ResponseError::LeaderNotAvailable),
        Found::Gone => {}
    }
    check_name(name).map_err(|refusal| refusal.error)?;
    if !(creates && broker.new_topics.are_created_on_demand) {
        return Err(ResponseError::UnknownTopicOrPartition);
    }
    if !context.may(Operation::Create, Resource::cluster()) {
        context.check_topic(Operation::Create, name)?;
    }
    let new = NewTopic {
        name: name.to_owned(),
        partition_count: broker.new_topics.partition_count,
        settings: Default::default(),
        is_derived: false,
        owner: context.client.owner(),
    };
    let topics = Arc::clone(&broker.topics);
    let made = on_blocking_thread(context.client.owner(), move || topics.create(&new)).await;
    match made {
        Ok(made) => Ok(made),
        // Another client has created it concurrently.
        Err(refusal) if refusal.error == ResponseError::TopicAlreadyExists => {
            broker.topics.by_name(name).ok_or(ResponseError::InvalidTopicException)
        }
        // A name that cannot be created is unknown to clients that may create topics, as in Kafka.
        Err(refusal) if refusal.error == ResponseError::TopicAuthorizationFailed => {
            Err(ResponseError::UnknownTopicOrPartition)
        }
        Err(refusal) => {
            tracing::warn!(topic = name, error = refusal.message, "cannot create the topic");
            Err(refusal.error)
        }
    }
}

/// Describes a topic with all its partitions, or with an error if the response's limit is exceeded.
/// Then the client must request fewer topics.
fn describe_topic(topic: &OpenTopic, left: &mut usize) -> MetadataResponseTopic {
    let described = MetadataResponseTopic::default()
        .with_name(Some(TopicName(text(&*topic.name))))
        .with_topic_id(topic.id);
    let partitions = topic.partitions();
    let Some(less) = left.checked_sub(partitions.len()) else {
        return described.with_error_code(ResponseError::PolicyViolation.code());
    };
    *left = less;
    let partitions = partitions.iter().map(|partition| {
        MetadataResponsePartition::default()
            .with_partition_index(index(partition.log.number()))
            .with_leader_id(BrokerId(NODE_ID))
            .with_leader_epoch(partition.log.epoch())
            .with_replica_nodes(vec![BrokerId(NODE_ID)])
            .with_isr_nodes(vec![BrokerId(NODE_ID)])
    });
    described.with_partitions(partitions.collect())
}

pub(super) fn index(number: u32) -> i32 {
    i32::try_from(number).expect("partitions have a limit")
}

pub(super) fn describe(
    context: &Context,
    request: &DescribeClusterRequest,
) -> DescribeClusterResponse {
    let is_wanted = request.include_cluster_authorized_operations;
    let operations = context.cluster_operations(is_wanted);
    let broker = &context.broker;
    let node = DescribeClusterBroker::default()
        .with_broker_id(BrokerId(NODE_ID))
        .with_host(text(&*broker.advertised.host))
        .with_port(i32::from(broker.advertised.port));
    DescribeClusterResponse::default()
        .with_cluster_authorized_operations(operations)
        .with_error_message(None)
        .with_cluster_id(text(&*broker.cluster_id))
        .with_controller_id(BrokerId(NODE_ID))
        .with_brokers(vec![node])
}

pub(super) fn find_coordinator(
    context: &Context,
    request: &FindCoordinatorRequest,
) -> FindCoordinatorResponse {
    let broker = &context.broker;
    let find = |key: &str| match request.key_type {
        0 => context.check(
            Operation::Describe,
            Resource::group(key),
            ResponseError::GroupAuthorizationFailed,
        ),
        1 => context.check(
            Operation::Describe,
            Resource::transactional_id(key),
            ResponseError::TransactionalIdAuthorizationFailed,
        ),
        _ => Err(ResponseError::InvalidRequest),
    };
    let (host, port) = (text(&*broker.advertised.host), i32::from(broker.advertised.port));
    if context.asked.version < 4 {
        let found = find(&request.key);
        let response = FindCoordinatorResponse::default().with_error_code(code(&found));
        return match found {
            Ok(()) => response.with_node_id(BrokerId(NODE_ID)).with_host(host).with_port(port),
            Err(_) => response.with_node_id(BrokerId(-1)).with_port(-1),
        };
    }
    let coordinators = request.coordinator_keys.iter().map(|key| {
        let found = find(key);
        let coordinator = Coordinator::default()
            .with_error_message(None)
            .with_key(key.clone())
            .with_error_code(code(&found));
        match found {
            Ok(()) => {
                coordinator.with_node_id(BrokerId(NODE_ID)).with_host(host.clone()).with_port(port)
            }
            Err(_) => coordinator.with_node_id(BrokerId(-1)).with_port(-1),
        }
    });
    FindCoordinatorResponse::default().with_coordinators(coordinators.collect())
}

/// DescribeTopicPartitions (KIP-966), with pagination.
pub(super) fn partitions(
    context: &Context,
    request: &DescribeTopicPartitionsRequest,
) -> DescribeTopicPartitionsResponse {
    let limit = usize::try_from(request.response_partition_limit).unwrap_or(0);
    let mut left = limit.clamp(1, PARTITIONS_SHOWN_MAX);
    let mut names: Vec<TopicName> = match request.topics.is_empty() {
        true => visible_topics(context).iter().map(|it| TopicName(text(&*it.name))).collect(),
        false => request.topics.iter().map(|it| it.name.clone()).collect(),
    };
    names.sort();
    names.dedup();
    let (first_name, first_partition) = match &request.cursor {
        Some(cursor) => (cursor.topic_name.clone(), cursor.partition_index),
        None => (TopicName::default(), 0),
    };
    let mut response = DescribeTopicPartitionsResponse::default();
    for name in names.into_iter().filter(|name| *name >= first_name) {
        let from =
            if name == first_name { usize::try_from(first_partition).unwrap_or(0) } else { 0 };
        if left == 0 {
            let cursor = Cursor::default().with_topic_name(name).with_partition_index(0);
            response.next_cursor = Some(cursor);
            break;
        }
        let allowed = context.check_topic(Operation::Describe, &name);
        let found = allowed.and_then(|()| match context.broker.topics.find(&name) {
            Found::Served(topic) => Ok(topic),
            Found::NotServed => Err(ResponseError::LeaderNotAvailable),
            Found::Gone => Err(ResponseError::UnknownTopicOrPartition),
        });
        let shown = DescribeTopicPartitionsResponseTopic::default()
            .with_name(Some(name.clone()))
            .with_error_code(code(&found));
        let Ok(topic) = found else {
            response.topics.push(shown);
            continue;
        };
        let all: Vec<_> = topic.partitions().iter().skip(from).map(describe_partition).collect();
        let is_cut = all.len() > left;
        let taken: Vec<_> = all.into_iter().take(left).collect();
        left -= taken.len();
        let next = from + taken.len();
        let operations = context.topic_operations(true, &name);
        let shown = shown.with_topic_authorized_operations(operations);
        response.topics.push(shown.with_topic_id(topic.id).with_partitions(taken));
        if is_cut {
            let next = i32::try_from(next).expect("partitions have a limit");
            response.next_cursor =
                Some(Cursor::default().with_topic_name(name).with_partition_index(next));
            break;
        }
    }
    response
}

fn describe_partition(
    partition: &Arc<crate::topics::OpenPartition>,
) -> DescribeTopicPartitionsResponsePartition {
    DescribeTopicPartitionsResponsePartition::default()
        .with_partition_index(index(partition.log.number()))
        .with_leader_id(BrokerId(NODE_ID))
        .with_leader_epoch(partition.log.epoch())
        .with_replica_nodes(vec![BrokerId(NODE_ID)])
        .with_isr_nodes(vec![BrokerId(NODE_ID)])
        .with_eligible_leader_replicas(Some(Vec::new()))
        .with_last_known_elr(Some(Vec::new()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::storage::{Embedded, EmbeddedPool};
    use crate::topics::Topics;

    #[test]
    fn an_answer_shows_no_more_partitions_than_it_has_room_for() {
        let folder = tempfile::tempdir_in("/dev/shm").expect("it is there");
        let pool = EmbeddedPool { size_bytes: 64 << 20, file: Some(folder.path().join("pool")) };
        let storage = Arc::new(Embedded::open(&pool).expect("it opens"));
        let topics = Topics::open(storage, BTreeMap::new()).expect("it opens");
        for (name, partition_count) in [("a", 10), ("b", 30), ("c", 11), ("d", 4)] {
            let (name, settings) = (name.to_owned(), BTreeMap::new());
            let new = NewTopic {
                name,
                partition_count,
                settings,
                is_derived: false,
                owner: shares::Owner::NOBODY,
            };
            topics.create(&new).expect("there is room");
        }
        let mut left = 25;
        let all = topics.all();
        let described = all.iter().map(|topic| describe_topic(topic, &mut left));
        let shown = described.map(|it| (it.error_code, it.partitions.len()));
        let too_many = (ResponseError::PolicyViolation.code(), 0);
        assert_eq!(shown.collect::<Vec<_>>(), [(0, 10), too_many, (0, 11), (0, 4)]);
        assert_eq!(left, 0);
    }
}
