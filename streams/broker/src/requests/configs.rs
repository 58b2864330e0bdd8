//! Settings of topics, and the settings of the broker and groups that clients can read.

mod changes;
mod fixed;
mod list;

use std::collections::BTreeSet;

use access::{Operation, Resource};
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use kafka_protocol::messages::{DescribeConfigsRequest, DescribeConfigsResponse};

use super::topics::values;
use super::{Context, denied, text};
use crate::broker::NODE_ID;
use crate::topics::{Kind, Refusal, SETTINGS, Setting, check_name};

pub(super) use changes::{alter, replace};
pub(super) use list::list;

/// Resource types, with Kafka's codes.
const TOPIC: i8 = 2;
const BROKER: i8 = 4;
const LOGGER: i8 = 8;
const CLIENT_METRICS: i8 = 16;
const GROUP: i8 = 32;

/// Data types of settings, with Kafka's codes.
const BOOLEAN: i8 = 1;
const STRING: i8 = 2;
const INT: i8 = 3;
const LONG: i8 = 5;
const DOUBLE: i8 = 6;
const LIST: i8 = 7;

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
    let (kind, name) = (resource.resource_type, &*resource.resource_name);
    check(context, Operation::DescribeConfigs, kind, name)?;
    let keys = resource.configuration_keys.as_ref();
    let keys: Option<BTreeSet<&str>> = keys.map(|it| it.iter().map(|key| &**key).collect());
    let is_wanted = |name: &str| keys.as_ref().is_none_or(|keys| keys.contains(name));
    let fixed = match kind {
        TOPIC => {
            let topics = &context.broker.topics;
            check_name(name)?;
            let topic = topics.demand(name)?;
            let (settings, kept) = (topic.settings(), topic.kept());
            let wanted = SETTINGS.iter().filter(|setting| is_wanted(setting.name));
            let shown = wanted.map(|setting| {
                let own = settings.own.get(setting.name).map(String::as_str);
                // The volume's actual class, even if it differs from the settings.
                let value = settings.value(setting, &topics.defaults);
                let own = kept.value(setting.name).filter(|kept| *kept != value).or(own);
                show(setting, &values(setting, own, &topics.defaults), request)
            });
            return Ok(shown.collect());
        }
        BROKER if name.is_empty() => fixed::set_for_all(&context.broker),
        BROKER => {
            check_node(name)?;
            fixed::of_broker(&context.broker)
        }
        GROUP => fixed::of_groups(&context.broker.coordinator_options.groups),
        CLIENT_METRICS => Vec::new(),
        _ => return Err(no_such_resource()),
    };
    Ok(fixed.into_iter().filter(|it| is_wanted(it.name)).map(|it| it.show()).collect())
}

/// Checks that the client is authorized for the settings of a resource, and that the resource's
/// name is valid.
fn check(context: &Context, operation: Operation, kind: i8, name: &str) -> Result<(), Refusal> {
    let (resource, error) = match kind {
        TOPIC => (Resource::topic(name), ResponseError::TopicAuthorizationFailed),
        GROUP => (Resource::group(name), ResponseError::GroupAuthorizationFailed),
        _ => (Resource::cluster(), ResponseError::ClusterAuthorizationFailed),
    };
    let checked = context.check(operation, resource, error);
    checked.map_err(|error| Refusal::new(error, denied(operation, resource)))?;
    // Settings of all topics are determined by the broker's options.
    let is_for_all = kind == TOPIC && operation == Operation::AlterConfigs;
    if (is_for_all || matches!(kind, GROUP | CLIENT_METRICS)) && name.is_empty() {
        let what = format!("a {} resource requires a name", kind_name(kind));
        return Err(Refusal::new(ResponseError::InvalidRequest, what));
    }
    Ok(())
}

fn kind_name(kind: i8) -> &'static str {
    match kind {
        TOPIC => "topic",
        BROKER => "broker",
        LOGGER => "logger",
        CLIENT_METRICS => "subscription of clients' metrics",
        GROUP => "group",
        _ => "resource",
    }
}

fn check_node(name: &str) -> Result<(), Refusal> {
    if name.parse() == Ok(NODE_ID) {
        return Ok(());
    }
    let what = format!("broker {name:?} does not exist; the only broker is {NODE_ID}");
    Err(Refusal::new(ResponseError::InvalidRequest, what))
}

fn no_such_resource() -> Refusal {
    let what = "only topics, brokers and groups have settings";
    Refusal::new(ResponseError::InvalidRequest, what)
}

fn type_of(kind: Kind) -> i8 {
    match kind {
        Kind::Boolean => BOOLEAN,
        Kind::Choice(_) | Kind::Text => STRING,
        Kind::Long(_, most) if i32::try_from(most).is_ok() => INT,
        Kind::Long(..) => LONG,
        Kind::Double => DOUBLE,
        Kind::Choices(_) | Kind::Replicas => LIST,
    }
}

fn show(
    setting: &'static Setting,
    values: &[(&str, i8)],
    request: &DescribeConfigsRequest,
) -> DescribeConfigsResourceResult {
    let (value, source) = values[0];
    let values = values.iter().filter(|_| request.include_synonyms);
    let synonyms = values.map(|(value, source)| {
        DescribeConfigsSynonym::default()
            .with_name(text(setting.name))
            .with_value(Some(text(*value)))
            .with_source(*source)
    });
    let documentation = match (request.include_documentation, setting.meaning) {
        (false, _) => None,
        (true, "") => Some(text("accepted for compatibility with clients; it has no effect")),
        (true, meaning) => Some(text(meaning)),
    };
    DescribeConfigsResourceResult::default()
        .with_name(text(setting.name))
        .with_value(Some(text(value)))
        .with_config_source(source)
        .with_config_type(type_of(setting.kind))
        .with_synonyms(synonyms.collect())
        .with_documentation(documentation)
}
