//! Lookup of the description of a request.

use kafka_protocol::messages::ApiKey;

use super::cluster_requests::CLUSTER_REQUESTS;
use super::group_requests::GROUP_REQUESTS;
use super::schema::RequestShape;
use super::topic_requests::TOPIC_REQUESTS;
use super::transaction_requests::TRANSACTION_REQUESTS;

const TABLES: [&[RequestShape]; 4] =
    [TOPIC_REQUESTS, GROUP_REQUESTS, TRANSACTION_REQUESTS, CLUSTER_REQUESTS];

/// Iterates over all descriptions, one for each API key.
pub fn requests() -> impl Iterator<Item = &'static RequestShape> {
    TABLES.into_iter().flatten()
}

/// Returns the description of a request, or `None` if it does not cover `version`.
pub fn describe(api_key: ApiKey, version: i16) -> Option<&'static RequestShape> {
    requests().find(|it| it.api_key == api_key).filter(|it| it.versions().contains(&version))
}
