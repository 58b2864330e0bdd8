//! Topics that are made, deleted and widened. Each change is durable before it is acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use access::{Operation, Resource};
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::create_topics_response::{
    CreatableTopicConfigs, CreatableTopicResult,
};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::delete_topics_response::DeletableTopicResult;
use kafka_protocol::messages::{
    BrokerId, CreatePartitionsRequest, CreatePartitionsResponse, CreateTopicsRequest,
    CreateTopicsResponse, DeleteTopicsRequest, DeleteTopicsResponse, TopicName,
};

use super::{Context, on_blocking_thread, text};
use crate::broker::NODE_ID;
use crate::topics::{NewTopic, OpenTopic, Refusal, SETTINGS};

/// The broker's default is asked for.
const DEFAULT: i32 = -1;

/// Sources of a setting, as Kafka counts them.
pub(super) const SET_ON_TOPIC: i8 = 1;
pub(super) const SET_BY_DEFAULT: i8 = 5;

pub(super) async fn create(context: Context, request: CreateTopicsRequest) -> CreateTopicsResponse {
    on_blocking_thread(move || {
        let mut topics = Vec::new();
        let mut names = BTreeSet::new();
        for asked in &request.topics {
            let is_repeated = !names.insert(&asked.name);
            let made = match is_repeated {
                true => Err(named_twice()),
                false => create_one(&context, asked, request.validate_only),
            };
            topics.push(created(&context, asked, made));
        }
        CreateTopicsResponse::default().with_topics(topics)
    })
    .await
}

fn named_twice() -> Refusal {
    Refusal::new(ResponseError::InvalidRequest, "the request names the topic twice")
}

fn create_one(
    context: &Context,
    asked: &CreatableTopic,
    validate_only: bool,
) -> Result<Option<Arc<OpenTopic>>, Refusal> {
    let name = asked.name.to_string();
    let may_create = context.may(Operation::Create, Resource::cluster())
        || context.may(Operation::Create, Resource::topic(&name));
    if !may_create {
        let what = format!("the client may not make topic {name:?}");
        return Err(Refusal::new(ResponseError::TopicAuthorizationFailed, what));
    }
    let broker = &context.broker;
    let mut settings = BTreeMap::new();
    for config in &asked.configs {
        let Some(value) = &config.value else {
            let what = format!("setting {:?} has no value", config.name.as_str());
            return Err(Refusal::new(ResponseError::InvalidConfig, what));
        };
        settings.insert(config.name.to_string(), value.to_string());
    }
    let partition_count = match (asked.assignments.len(), asked.num_partitions) {
        (0, DEFAULT) => broker.new_topics.partition_count,
        (0, count) => u32::try_from(count).unwrap_or(0),
        (count, DEFAULT) => u32::try_from(count).unwrap_or(0),
        _ => {
            let what = "give a number of partitions or their places, not both";
            return Err(Refusal::new(ResponseError::InvalidRequest, what));
        }
    };
    let places = asked.assignments.iter().map(|it| (it.partition_index, &it.broker_ids[..]));
    check_places(places, 0)?;
    if !matches!(asked.replication_factor, -1 | 1) {
        let what = format!(
            "there is one broker, so that a topic has one replica, not {}",
            asked.replication_factor
        );
        return Err(Refusal::new(ResponseError::InvalidReplicationFactor, what));
    }
    let new = NewTopic { name, partition_count, settings, is_derived: false };
    broker.topics.create(&new, validate_only)
}

/// Whether partitions are to be where there is a broker, and are numbered from `first` on.
fn check_places<'a>(
    places: impl Iterator<Item = (i32, &'a [BrokerId])>,
    first: usize,
) -> Result<(), Refusal> {
    let mut places: Vec<_> = places.collect();
    places.sort_unstable_by_key(|(number, _)| *number);
    for (index, (number, brokers)) in places.iter().enumerate() {
        if usize::try_from(*number) != Ok(first + index) {
            let what = format!("the places name partition {number}, and not {}", first + index);
            return Err(Refusal::new(ResponseError::InvalidReplicaAssignment, what));
        }
        if **brokers != [BrokerId(NODE_ID)] {
            let what = format!(
                "partition {number} cannot be on brokers {:?}: there is broker {NODE_ID} alone",
                brokers.iter().map(|it| it.0).collect::<Vec<_>>()
            );
            return Err(Refusal::new(ResponseError::InvalidReplicaAssignment, what));
        }
    }
    Ok(())
}

fn created(
    context: &Context,
    asked: &CreatableTopic,
    made: Result<Option<Arc<OpenTopic>>, Refusal>,
) -> CreatableTopicResult {
    let result =
        CreatableTopicResult::default().with_error_message(None).with_name(asked.name.clone());
    match made {
        Err(refusal) => result
            .with_error_code(refusal.error.code())
            .with_error_message(Some(text(refusal.message)))
            .with_num_partitions(-1)
            .with_replication_factor(-1)
            .with_configs(None),
        Ok(None) => result.with_num_partitions(asked.num_partitions).with_replication_factor(1),
        Ok(Some(topic)) if !may_see_settings(context, &topic.name) => result
            .with_topic_id(topic.id)
            .with_topic_config_error_code(ResponseError::TopicAuthorizationFailed.code())
            .with_num_partitions(-1)
            .with_replication_factor(-1)
            .with_configs(None),
        Ok(Some(topic)) => {
            let defaults = &context.broker.topics.defaults;
            let settings = topic.settings();
            let configs = SETTINGS.iter().map(|setting| {
                let (value, is_own) = settings.value(setting, defaults);
                CreatableTopicConfigs::default()
                    .with_name(text(setting.name))
                    .with_value(Some(text(value)))
                    .with_config_source(if is_own { SET_ON_TOPIC } else { SET_BY_DEFAULT })
            });
            let partition_count = topic.log.partition_count();
            result
                .with_topic_id(topic.id)
                .with_num_partitions(i32::try_from(partition_count).expect("they have a limit"))
                .with_replication_factor(1)
                .with_configs(Some(configs.collect()))
        }
    }
}

fn may_see_settings(context: &Context, name: &str) -> bool {
    context.may(Operation::DescribeConfigs, Resource::topic(name))
}

pub(super) async fn delete(context: Context, request: DeleteTopicsRequest) -> DeleteTopicsResponse {
    on_blocking_thread(move || {
        let by_name = request
            .topic_names
            .into_iter()
            .map(|name| DeleteTopicState::default().with_name(Some(name)));
        let mut gone = Vec::new();
        let responses = by_name.chain(request.topics).map(|asked| {
            let found = find_deleted(&context, &asked);
            let name = found.as_ref().map(|topic| TopicName(text(&*topic.name))).ok();
            let deleted = found.and_then(|topic| {
                context.broker.deriving.delete(&topic.name)?;
                gone.push(Arc::clone(&topic.name));
                Ok(())
            });
            let result = DeletableTopicResult::default()
                .with_error_message(None)
                .with_name(asked.name.or(name))
                .with_topic_id(asked.topic_id);
            match deleted {
                Ok(()) => result,
                Err(refusal) => {
                    let result = result.with_error_code(refusal.error.code());
                    match context.asked.version {
                        5.. => result.with_error_message(Some(text(refusal.message))),
                        _ => result,
                    }
                }
            }
        });
        let responses = responses.collect();
        context.broker.coordinator.topics_deleted(gone);
        DeleteTopicsResponse::default().with_responses(responses)
    })
    .await
}

/// Whoever may not describe a topic does not learn whether it is there, and of an id not its name.
fn find_deleted(context: &Context, asked: &DeleteTopicState) -> Result<Arc<OpenTopic>, Refusal> {
    let topics = &context.broker.topics;
    let topic = match &asked.name {
        Some(name) => {
            check_deletion(context, name)?;
            topics.demand(name)?
        }
        None => topics.by_id(asked.topic_id).ok_or_else(|| {
            Refusal::new(ResponseError::UnknownTopicId, "there is no topic of this id")
        })?,
    };
    if !context.may(Operation::Describe, Resource::topic(&topic.name)) {
        let what = "the client may not describe the topic of this id";
        return Err(Refusal::new(ResponseError::TopicAuthorizationFailed, what));
    }
    check_deletion(context, &topic.name)?;
    Ok(topic)
}

fn check_deletion(context: &Context, name: &str) -> Result<(), Refusal> {
    context
        .check_topic(Operation::Delete, name)
        .map_err(|error| Refusal::new(error, format!("the client may not delete topic {name:?}")))
}

pub(super) async fn add_partitions(
    context: Context,
    request: CreatePartitionsRequest,
) -> CreatePartitionsResponse {
    on_blocking_thread(move || {
        let mut names = BTreeSet::new();
        let results = request.topics.iter().map(|asked| {
            let allowed = context.check_topic(Operation::Alter, &asked.name).map_err(|error| {
                let what = format!("the client may not change topic {:?}", &**asked.name);
                Refusal::new(error, what)
            });
            let allowed = allowed.and_then(|()| match names.insert(&asked.name) {
                true => Ok(()),
                false => Err(named_twice()),
            });
            let added = allowed.and_then(|()| {
                let topics = &context.broker.topics;
                if let Some(assigned) = &asked.assignments {
                    let before = topics.demand(&asked.name)?.partitions().len();
                    let added = usize::try_from(asked.count).unwrap_or(0).saturating_sub(before);
                    if added != assigned.len() {
                        let what = format!("{} places for {added} partitions", assigned.len());
                        return Err(Refusal::new(ResponseError::InvalidReplicaAssignment, what));
                    }
                    // They follow those that are there.
                    let numbers = before..;
                    let places = numbers.zip(assigned).map(|(number, it)| {
                        (i32::try_from(number).unwrap_or(i32::MAX), &it.broker_ids[..])
                    });
                    check_places(places, before)?;
                }
                topics.add_partitions(&asked.name, asked.count, request.validate_only)
            });
            let result = CreatePartitionsTopicResult::default()
                .with_error_message(None)
                .with_name(asked.name.clone());
            match added {
                Ok(()) => result,
                Err(refusal) => result
                    .with_error_code(refusal.error.code())
                    .with_error_message(Some(text(refusal.message))),
            }
        });
        CreatePartitionsResponse::default().with_results(results.collect())
    })
    .await
}
