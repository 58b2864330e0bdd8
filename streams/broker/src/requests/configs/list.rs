//! ListConfigResources (KIP-1142): resources with settings.

use access::{Operation, Resource};
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::list_config_resources_response::ConfigResource;
use kafka_protocol::messages::{ListConfigResourcesRequest, ListConfigResourcesResponse};
use kafka_protocol::protocol::StrBytes;

use super::super::{Context, text};
use super::{BROKER, CLIENT_METRICS, GROUP, LOGGER, TOPIC};
use crate::broker::NODE_ID;

const KINDS: [i8; 5] = [TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP];

/// Lists topics and the broker. Loggers, groups and subscriptions of client metrics have no
/// settings of their own.
pub(in super::super) fn list(
    context: &Context,
    request: &ListConfigResourcesRequest,
) -> ListConfigResourcesResponse {
    let response = ListConfigResourcesResponse::default();
    if !context.may(Operation::DescribeConfigs, Resource::cluster()) {
        return response.with_error_code(ResponseError::ClusterAuthorizationFailed.code());
    }
    // Version 0 requests client metrics subscriptions only.
    if context.asked.version == 0 {
        return response;
    }
    if request.resource_types.iter().any(|kind| !KINDS.contains(kind)) {
        return response.with_error_code(ResponseError::UnsupportedVersion.code());
    }
    let asks_for =
        |kind| request.resource_types.is_empty() || request.resource_types.contains(&kind);
    let resource = |kind: i8, name: StrBytes| {
        ConfigResource::default().with_resource_type(kind).with_resource_name(name)
    };
    let mut found = Vec::new();
    if asks_for(TOPIC) {
        let topics = context.broker.topics.all();
        found.extend(topics.iter().map(|topic| resource(TOPIC, text(&*topic.name))));
    }
    if asks_for(BROKER) {
        found.push(resource(BROKER, text(NODE_ID.to_string())));
    }
    response.with_config_resources(found)
}
