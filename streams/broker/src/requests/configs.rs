//! Settings of topics, and of the broker as far as clients ask for them.

use std::collections::BTreeMap;

use access::{Operation, Resource};
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse;
use kafka_protocol::messages::{
    DescribeConfigsRequest, DescribeConfigsResponse, IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
};

use super::topics::{SET_BY_DEFAULT, SET_ON_TOPIC};
use super::{Context, on_blocking_thread, text};
use crate::broker::NODE_ID;
use crate::topics::{Kind, Refusal, SETTINGS, Setting, find_setting};

/// Kinds of resources, as Kafka counts them.
const TOPIC: i8 = 2;
const BROKER: i8 = 4;

/// Operations on a setting (KIP-339).
const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

pub(super) fn describe(
    context: &Context,
    request: DescribeConfigsRequest,
) -> DescribeConfigsResponse {
    let results = request.resources.iter().map(|resource| {
        let result = DescribeConfigsResult::default()
            .with_error_message(None)
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name.clone());
        match configs_of(context, resource, &request) {
            Ok(configs) => result.with_configs(configs),
            Err(refusal) => result
                .with_error_code(refusal.error.code())
                .with_error_message(Some(text(refusal.message))),
        }
    });
    DescribeConfigsResponse::default().with_results(results.collect())
}

fn configs_of(
    context: &Context,
    resource: &DescribeConfigsResource,
    request: &DescribeConfigsRequest,
) -> Result<Vec<DescribeConfigsResourceResult>, Refusal> {
    let is_wanted = |setting: &&Setting| {
        let keys = resource.configuration_keys.as_ref();
        keys.is_none_or(|keys| keys.iter().any(|key| &**key == setting.name))
    };
    match resource.resource_type {
        TOPIC => {
            let name = &*resource.resource_name;
            context
                .check_topic(Operation::DescribeConfigs, name)
                .map_err(|error| Refusal::new(error, format!("no right to see topic {name:?}")))?;
            let topics = &context.broker.topics;
            let topic = topics.demand(name)?;
            let settings = topic.settings();
            let shown = SETTINGS.iter().filter(is_wanted).map(|setting| {
                let (value, is_own) = settings.value(setting, &topics.defaults);
                show(setting, value, is_own, request)
            });
            Ok(shown.collect())
        }
        BROKER => {
            if !context.may(Operation::DescribeConfigs, Resource::cluster()) {
                let error = ResponseError::ClusterAuthorizationFailed;
                return Err(Refusal::new(error, "no right to see the broker's settings"));
            }
            let shown = broker_settings(context).into_iter().filter(|(name, ..)| {
                let keys = resource.configuration_keys.as_ref();
                keys.is_none_or(|keys| keys.iter().any(|key| &**key == *name))
            });
            Ok(shown.map(|(name, kind, value)| show_fixed(name, kind, value)).collect())
        }
        _ => Err(no_such_resource()),
    }
}

/// Kafka's numbers for types of settings.
const BOOLEAN: i8 = 1;
const STRING: i8 = 2;
const INT: i8 = 3;
const LONG: i8 = 5;
const DOUBLE: i8 = 6;
const LIST: i8 = 7;

/// Set when the broker was started.
const SET_BY_START: i8 = 4;

/// What clients ask of the broker itself, by Kafka's names.
fn broker_settings(context: &Context) -> Vec<(&'static str, i8, String)> {
    let broker = &context.broker;
    let of_topics = |name: &'static str| {
        let default = find_setting(name).expect("it is in the table").default;
        broker.topics.defaults.get(name).map_or(default, |set| set).to_owned()
    };
    let created = broker.new_topics.are_created_on_demand.to_string();
    vec![
        ("auto.create.topics.enable", BOOLEAN, created),
        ("broker.id", INT, NODE_ID.to_string()),
        ("default.replication.factor", INT, "1".to_owned()),
        ("log.cleanup.policy", LIST, of_topics("cleanup.policy")),
        ("log.message.timestamp.type", STRING, of_topics("message.timestamp.type")),
        ("log.retention.bytes", LONG, of_topics("retention.bytes")),
        ("log.retention.ms", LONG, of_topics("retention.ms")),
        ("log.segment.bytes", INT, of_topics("segment.bytes")),
        ("max.connections", INT, broker.limits.connection_count.to_string()),
        ("message.max.bytes", INT, of_topics("max.message.bytes")),
        ("min.insync.replicas", INT, "1".to_owned()),
        ("num.partitions", INT, broker.new_topics.partition_count.to_string()),
        ("socket.request.max.bytes", INT, broker.limits.request_bytes.to_string()),
    ]
}

fn show_fixed(name: &'static str, kind: i8, value: String) -> DescribeConfigsResourceResult {
    DescribeConfigsResourceResult::default()
        .with_name(text(name))
        .with_value(Some(text(value)))
        .with_read_only(true)
        .with_config_source(SET_BY_START)
        .with_config_type(kind)
        .with_documentation(None)
}

fn no_such_resource() -> Refusal {
    Refusal::new(ResponseError::InvalidRequest, "only topics and brokers have settings here")
}

fn show(
    setting: &'static Setting,
    value: &str,
    is_own: bool,
    request: &DescribeConfigsRequest,
) -> DescribeConfigsResourceResult {
    let kind = match setting.kind {
        Kind::Boolean => BOOLEAN,
        Kind::Choice(_) => STRING,
        Kind::Long(..) => LONG,
        Kind::Double => DOUBLE,
        Kind::Choices(_) => LIST,
    };
    let source = if is_own { SET_ON_TOPIC } else { SET_BY_DEFAULT };
    let mut synonyms = Vec::new();
    if request.include_synonyms {
        let synonym = |value: &str, source| {
            DescribeConfigsSynonym::default()
                .with_name(text(setting.name))
                .with_value(Some(text(value)))
                .with_source(source)
        };
        if is_own {
            synonyms.push(synonym(value, SET_ON_TOPIC));
        }
        synonyms.push(synonym(setting.default, SET_BY_DEFAULT));
    }
    let documentation = match (request.include_documentation, setting.meaning) {
        (false, _) => None,
        (true, "") => Some(text("taken for the sake of clients that send it; it has no effect")),
        (true, meaning) => Some(text(meaning)),
    };
    DescribeConfigsResourceResult::default()
        .with_name(text(setting.name))
        .with_value(Some(text(value)))
        .with_config_source(source)
        .with_config_type(kind)
        .with_synonyms(synonyms)
        .with_documentation(documentation)
}

pub(super) async fn alter(
    context: Context,
    request: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse {
    on_blocking_thread(move || {
        let responses = request.resources.iter().map(|resource| {
            let response = AlterConfigsResourceResponse::default()
                .with_error_message(None)
                .with_resource_type(resource.resource_type)
                .with_resource_name(resource.resource_name.clone());
            match alter_one(&context, resource, request.validate_only) {
                Ok(()) => response,
                Err(refusal) => response
                    .with_error_code(refusal.error.code())
                    .with_error_message(Some(text(refusal.message))),
            }
        });
        IncrementalAlterConfigsResponse::default().with_responses(responses.collect())
    })
    .await
}

fn alter_one(
    context: &Context,
    resource: &AlterConfigsResource,
    validate_only: bool,
) -> Result<(), Refusal> {
    if resource.resource_type != TOPIC {
        return Err(match resource.resource_type {
            BROKER if !context.may(Operation::AlterConfigs, Resource::cluster()) => Refusal::new(
                ResponseError::ClusterAuthorizationFailed,
                "no right to change the broker's settings",
            ),
            BROKER => Refusal::new(
                ResponseError::InvalidRequest,
                "the broker's settings are in its configuration file",
            ),
            _ => no_such_resource(),
        });
    }
    let name = &*resource.resource_name;
    context
        .check_topic(Operation::AlterConfigs, name)
        .map_err(|error| Refusal::new(error, format!("no right to change topic {name:?}")))?;
    let defaults = &context.broker.topics.defaults;
    context.broker.topics.configure(name, validate_only, &|own| {
        resource.configs.iter().try_for_each(|change| apply(own, defaults, change))
    })
}

fn apply(
    own: &mut BTreeMap<String, String>,
    defaults: &BTreeMap<String, String>,
    change: &AlterableConfig,
) -> Result<(), Refusal> {
    let name = change.name.to_string();
    let refuse = |what: String| Err(Refusal::new(ResponseError::InvalidConfig, what));
    let Some(setting) = find_setting(&name) else {
        return refuse(format!("there is no setting {name:?} of topics"));
    };
    if change.config_operation == DELETE {
        own.remove(&name);
        return Ok(());
    }
    let Some(value) = change.value.as_deref() else {
        return refuse(format!("setting {name:?} is given no value"));
    };
    let is_list = matches!(setting.kind, Kind::Choices(_));
    let before = own.get(&name).or_else(|| defaults.get(&name)).map_or(setting.default, |it| it);
    let listed = before.split(',').map(str::trim).filter(|it| !it.is_empty());
    let changed = match change.config_operation {
        SET => value.to_owned(),
        APPEND if is_list => {
            let added = value.split(',').map(str::trim).filter(|it| !before.contains(it));
            listed.chain(added).collect::<Vec<_>>().join(",")
        }
        SUBTRACT if is_list => {
            let removed: Vec<&str> = value.split(',').map(str::trim).collect();
            listed.filter(|it| !removed.contains(it)).collect::<Vec<_>>().join(",")
        }
        APPEND | SUBTRACT => return refuse(format!("setting {name:?} is not a list")),
        other => return refuse(format!("there is no operation {other} on settings")),
    };
    own.insert(name, changed);
    Ok(())
}
