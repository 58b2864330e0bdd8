//! CreateTopics, DeleteTopics and CreatePartitions. Each change is durable before it is
//! acknowledged.

use std::collections::BTreeMap;
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
use uuid::Uuid;

use super::{Context, denied, on_blocking_thread, text};
use crate::broker::NODE_ID;
use crate::topics::{NewTopic, OpenTopic, Refusal, SETTINGS, Setting, TopicSettings};

/// Requests the broker's default.
const DEFAULT: i32 = -1;

/// Sources of a setting, with Kafka's codes: the topic's owner, the broker's options, and Kafka's
/// default.
const SET_ON_TOPIC: i8 = 1;
const SET_BY_BROKER: i8 = 4;
const SET_BY_DEFAULT: i8 = 5;

/// Returns the values of a setting with their sources. The first one is in effect.
pub(super) fn values<'a>(
    setting: &'static Setting,
    own: Option<&'a str>,
    defaults: &'a BTreeMap<String, String>,
) -> Vec<(&'a str, i8)> {
    let own = own.map(|value| (value, SET_ON_TOPIC));
    let of_broker = defaults.get(setting.name).map(|value| (value.as_str(), SET_BY_BROKER));
    let values = own.into_iter().chain(of_broker).chain([(setting.default, SET_BY_DEFAULT)]);
    values.collect()
}

pub(super) async fn create(context: Context, request: CreateTopicsRequest) -> CreateTopicsResponse {
    on_blocking_thread(context.client.owner(), move || {
        let topics = each_name(&request.topics, |it| &it.name).map(|(asked, once)| {
            let made = once.and_then(|()| create_one(&context, asked, request.validate_only));
            created(&context, asked, made)
        });
        CreateTopicsResponse::default().with_topics(topics.collect())
    })
    .await
}

/// Returns the first element of each name. A repeated name is rejected, because it is ambiguous.
fn each_name<'a, T, K: Ord + 'a>(
    asked: &'a [T],
    name: impl Fn(&'a T) -> &'a K,
) -> impl Iterator<Item = (&'a T, Result<(), Refusal>)> {
    let mut counts = BTreeMap::new();
    asked.iter().for_each(|it| *counts.entry(name(it)).or_insert(0_u32) += 1);
    let firsts = asked.iter().filter_map(move |it| Some((it, counts.remove(name(it))?)));
    firsts.map(|(it, count)| match count {
        1 => (it, Ok(())),
        _ => {
            let what = "duplicate topic name in the request";
            (it, Err(Refusal::new(ResponseError::InvalidRequest, what)))
        }
    })
}

/// Result of a request to create a topic.
enum Made {
    Topic(Arc<OpenTopic>),
    /// The request is valid. The topic would have these properties.
    Valid {
        partition_count: u32,
        settings: TopicSettings,
    },
}

fn create_one(
    context: &Context,
    asked: &CreatableTopic,
    validate_only: bool,
) -> Result<Made, Refusal> {
    let name = asked.name.to_string();
    let may_create = context.may(Operation::Create, Resource::cluster())
        || context.may(Operation::Create, Resource::topic(&name));
    if !may_create {
        let what = format!("permission denied: requires Create on topic {name:?} or the cluster");
        return Err(Refusal::new(ResponseError::TopicAuthorizationFailed, what));
    }
    let broker = &context.broker;
    let mut settings = BTreeMap::new();
    for config in &asked.configs {
        let Some(value) = &config.value else {
            let what = format!("null value not supported for setting {:?}", config.name.as_str());
            return Err(Refusal::new(ResponseError::InvalidConfig, what));
        };
        settings.insert(config.name.to_string(), value.to_string());
    }
    let partition_count = match (asked.assignments.len(), asked.num_partitions) {
        (0, DEFAULT) => broker.new_topics.partition_count,
        (0, count) => u32::try_from(count).unwrap_or(0),
        (count, DEFAULT) => u32::try_from(count).unwrap_or(0),
        _ => {
            let what = "give either a number of partitions or an assignment, not both";
            return Err(Refusal::new(ResponseError::InvalidRequest, what));
        }
    };
    let places = asked.assignments.iter().map(|it| (it.partition_index, &it.broker_ids[..]));
    check_places(places, 0)?;
    if !asked.assignments.is_empty() && asked.replication_factor != -1 {
        let what = "give either a replication factor or an assignment, not both";
        return Err(Refusal::new(ResponseError::InvalidRequest, what));
    }
    if !matches!(asked.replication_factor, -1 | 1) {
        let what = format!(
            "invalid replication factor {}: there is one broker, so a topic has one replica",
            asked.replication_factor
        );
        return Err(Refusal::new(ResponseError::InvalidReplicationFactor, what));
    }
    let new = NewTopic {
        name,
        partition_count,
        settings,
        is_derived: false,
        owner: context.client.owner(),
    };
    match validate_only {
        true => Ok(Made::Valid { partition_count, settings: broker.topics.check_new(&new)? }),
        false => broker.topics.create(&new).map(Made::Topic),
    }
}

/// Checks that replicas are assigned to existing brokers, and partitions are numbered from `first`
/// on.
fn check_places<'a>(
    places: impl Iterator<Item = (i32, &'a [BrokerId])>,
    first: usize,
) -> Result<(), Refusal> {
    let mut places: Vec<_> = places.collect();
    places.sort_unstable_by_key(|(number, _)| *number);
    for (index, (number, brokers)) in places.iter().enumerate() {
        if usize::try_from(*number) != Ok(first + index) {
            let what = format!(
                "invalid assignment: it names partition {number} instead of {}",
                first + index
            );
            return Err(Refusal::new(ResponseError::InvalidReplicaAssignment, what));
        }
        if **brokers != [BrokerId(NODE_ID)] {
            let what = format!(
                "cannot assign partition {number} to brokers {:?}: the only broker is {NODE_ID}",
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
    made: Result<Made, Refusal>,
) -> CreatableTopicResult {
    let result = CreatableTopicResult::default()
        .with_error_message(None)
        .with_name(asked.name.clone())
        .with_num_partitions(-1)
        .with_replication_factor(-1)
        .with_configs(None);
    let (id, partition_count, settings) = match made {
        Err(refusal) => {
            return result
                .with_error_code(refusal.error.code())
                .with_error_message(Some(text(refusal.message)));
        }
        Ok(Made::Topic(topic)) => (topic.id, topic.log.partition_count(), topic.settings()),
        Ok(Made::Valid { partition_count, settings }) => {
            (Uuid::nil(), partition_count, Arc::new(settings))
        }
    };
    let result = result.with_topic_id(id);
    if !may_see_settings(context, &asked.name) {
        let error = ResponseError::TopicAuthorizationFailed;
        return result.with_topic_config_error_code(error.code());
    }
    let defaults = &context.broker.topics.defaults;
    let configs = SETTINGS.iter().map(|setting| {
        let own = settings.own.get(setting.name).map(String::as_str);
        let (value, source) = values(setting, own, defaults)[0];
        CreatableTopicConfigs::default()
            .with_name(text(setting.name))
            .with_value(Some(text(value)))
            .with_config_source(source)
    });
    result
        .with_num_partitions(i32::try_from(partition_count).expect("they have a limit"))
        .with_replication_factor(1)
        .with_configs(Some(configs.collect()))
}

fn may_see_settings(context: &Context, name: &str) -> bool {
    context.may(Operation::DescribeConfigs, Resource::topic(name))
}

pub(super) async fn delete(context: Context, request: DeleteTopicsRequest) -> DeleteTopicsResponse {
    on_blocking_thread(context.client.owner(), move || {
        let by_name = request
            .topic_names
            .into_iter()
            .map(|name| DeleteTopicState::default().with_name(Some(name)));
        let asked = by_name.chain(request.topics).map(|it| (meant(&context, &it), it));
        let asked: Vec<_> = asked.collect();
        let mut gone = Vec::new();
        let responses = each_name(&asked, |(topic, _)| topic).map(|((_, asked), once)| {
            let found = once.and_then(|()| find_deleted(&context, asked));
            let name = found.as_ref().map(|topic| TopicName(text(&*topic.name))).ok();
            let deleted = found.and_then(|topic| {
                context.broker.deriving.delete(&topic.name)?;
                gone.push(Arc::clone(&topic.name));
                Ok(())
            });
            let result = DeletableTopicResult::default()
                .with_error_message(None)
                .with_name(asked.name.clone().or(name))
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

/// Returns a key that is the same for the name and the id of a topic.
fn meant(context: &Context, asked: &DeleteTopicState) -> (Uuid, Option<TopicName>) {
    let by_name = |name: &TopicName| context.broker.topics.by_name(name);
    match asked.name.as_ref().and_then(by_name) {
        Some(topic) if asked.topic_id.is_nil() => (topic.id, None),
        _ => (asked.topic_id, asked.name.clone()),
    }
}

/// Looks up a topic to delete. A client without the right to describe it learns neither its
/// existence nor its name.
fn find_deleted(context: &Context, asked: &DeleteTopicState) -> Result<Arc<OpenTopic>, Refusal> {
    let topics = &context.broker.topics;
    if asked.name.is_some() != asked.topic_id.is_nil() {
        let what = "identify each topic by either its name or its id";
        return Err(Refusal::new(ResponseError::InvalidRequest, what));
    }
    let topic = match &asked.name {
        Some(name) => {
            check_deletion(context, name)?;
            topics.demand(name)?
        }
        None => topics.by_id(asked.topic_id).ok_or_else(|| {
            Refusal::new(ResponseError::UnknownTopicId, "this server does not host this topic id")
        })?,
    };
    if !context.may(Operation::Describe, Resource::topic(&topic.name)) {
        let what = "permission denied: requires Describe on the topic of this id";
        return Err(Refusal::new(ResponseError::TopicAuthorizationFailed, what));
    }
    check_deletion(context, &topic.name)?;
    Ok(topic)
}

fn check_deletion(context: &Context, name: &str) -> Result<(), Refusal> {
    context
        .check_topic(Operation::Delete, name)
        .map_err(|error| Refusal::new(error, denied(Operation::Delete, Resource::topic(name))))
}

pub(super) async fn add_partitions(
    context: Context,
    request: CreatePartitionsRequest,
) -> CreatePartitionsResponse {
    on_blocking_thread(context.client.owner(), move || {
        let results = each_name(&request.topics, |it| &it.name).map(|(asked, once)| {
            let allowed = context.check_topic(Operation::Alter, &asked.name).map_err(|error| {
                Refusal::new(error, denied(Operation::Alter, Resource::topic(&asked.name)))
            });
            let added = allowed.and(once).and_then(|()| {
                let topics = &context.broker.topics;
                if let Some(assigned) = &asked.assignments {
                    let before = topics.demand(&asked.name)?.partitions().len();
                    let added = usize::try_from(asked.count).unwrap_or(0).saturating_sub(before);
                    // A request without additional partitions is rejected for that.
                    if added > 0 && added != assigned.len() {
                        let what = format!(
                            "invalid assignment: {} partitions for {added} new \
                                            ones",
                            assigned.len()
                        );
                        return Err(Refusal::new(ResponseError::InvalidReplicaAssignment, what));
                    }
                    // New partitions follow the existing ones.
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
