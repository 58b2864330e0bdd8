//! Finding the description of a request.

use kafka_protocol::messages::ApiKey;

use super::cluster_requests::CLUSTER_REQUESTS;
use super::group_requests::GROUP_REQUESTS;
use super::schema::RequestShape;
use super::topic_requests::TOPIC_REQUESTS;
use super::transaction_requests::TRANSACTION_REQUESTS;

const TABLES: [&[RequestShape]; 4] =
    [TOPIC_REQUESTS, GROUP_REQUESTS, TRANSACTION_REQUESTS, CLUSTER_REQUESTS];

/// All descriptions, each of another request.
pub fn requests() -> impl Iterator<Item = &'static RequestShape> {
    TABLES.into_iter().flatten()
}

/// The description of a request, if `version` of it is described.
pub fn describe(api_key: ApiKey, version: i16) -> Option<&'static RequestShape> {
    requests().find(|it| it.api_key == api_key).filter(|it| it.versions().contains(&version))
}
