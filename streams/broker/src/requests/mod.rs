//! Requests that carry no records: decoding, handling, encoding.

mod acls;
mod cluster;
mod configs;
mod coordinated;
mod offsets;
mod once;
mod placement;
mod records;
mod topics;
mod users;

use std::sync::Arc;

use access::{Operation, Resource, ResourceKind};
use bytes::Bytes;
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::api_versions_response::{
    ApiVersion, FinalizedFeatureKey, SupportedFeatureKey,
};
use kafka_protocol::messages::{ApiKey, ApiVersionsResponse, RequestKind, ResponseKind};
use kafka_protocol::protocol::StrBytes;
use shares::Owner;

use crate::broker::Broker;
use crate::operation::error_code_of;
use crate::serving::{Asked, Client};
use crate::topics::{OpenPartition, OpenTopic};
use crate::waiting::{self, Place};

/// Maximum number of elements of all arrays in a request. A decoded element takes about 200 bytes.
const ELEMENTS_MAX: usize = 200_000;

/// First version of ApiVersions whose response contains features.
const FEATURES_FROM: i16 = 3;

/// Operations on topics, groups and the cluster.
const OF_TOPICS: [Operation; 8] = [
    Operation::Read,
    Operation::Write,
    Operation::Create,
    Operation::Delete,
    Operation::Alter,
    Operation::Describe,
    Operation::DescribeConfigs,
    Operation::AlterConfigs,
];
const OF_GROUPS: [Operation; 3] = [Operation::Read, Operation::Delete, Operation::Describe];
const OF_THE_CLUSTER: [Operation; 7] = [
    Operation::Create,
    Operation::Alter,
    Operation::Describe,
    Operation::ClusterAction,
    Operation::DescribeConfigs,
    Operation::AlterConfigs,
    Operation::IdempotentWrite,
];

/// A request and its origin.
pub(crate) struct Context {
    pub(crate) broker: Arc<Broker>,
    pub(crate) client: Client,
    pub(crate) client_id: String,
    pub(crate) asked: Asked,
}

impl Context {
    pub(crate) fn may(&self, operation: Operation, resource: Resource<'_>) -> bool {
        self.client.may(&self.broker, operation, resource)
    }

    /// Returns the error if the client is not authorized.
    fn check(
        &self,
        operation: Operation,
        resource: Resource<'_>,
        error: ResponseError,
    ) -> Result<(), ResponseError> {
        if self.may(operation, resource) { Ok(()) } else { Err(error) }
    }

    /// Returns the client's authorized operations as a bit set of Kafka's codes (KIP-430). Returns
    /// `i32::MIN` if the client did not request them.
    fn operations(&self, is_wanted: bool, all: &[Operation], resource: Resource<'_>) -> i32 {
        match is_wanted {
            false => i32::MIN,
            true => {
                let allowed = all.iter().filter(|operation| self.may(**operation, resource));
                allowed.fold(0, |bits, operation| bits | 1 << operation.code())
            }
        }
    }

    /// Returns authorized operations on the cluster. As in Kafka, none if the client may not
    /// describe it.
    fn cluster_operations(&self, is_wanted: bool) -> i32 {
        match is_wanted && !self.may(Operation::Describe, Resource::cluster()) {
            true => 0,
            false => self.operations(is_wanted, &OF_THE_CLUSTER, Resource::cluster()),
        }
    }

    fn topic_operations(&self, is_wanted: bool, name: &str) -> i32 {
        self.operations(is_wanted, &OF_TOPICS, Resource::topic(name))
    }

    fn check_topic(&self, operation: Operation, name: &str) -> Result<(), ResponseError> {
        let error = ResponseError::TopicAuthorizationFailed;
        self.check(operation, Resource::topic(name), error)
    }

    /// Returns the topic, if the client is authorized.
    fn topic(&self, operation: Operation, name: &str) -> Result<Arc<OpenTopic>, ResponseError> {
        self.check_topic(operation, name)?;
        self.broker.topics.demand(name).map_err(|refusal| refusal.error)
    }

    /// Returns a partition, if the client is authorized for its topic.
    fn partition(
        &self,
        operation: Operation,
        name: &str,
        number: i32,
    ) -> Result<Arc<OpenPartition>, ResponseError> {
        let topic = self.topic(operation, name)?;
        topic.partition(number).ok_or(ResponseError::UnknownTopicOrPartition)
    }
}

/// Message for a client that lacks a right.
fn denied(operation: Operation, resource: Resource<'_>) -> String {
    let Resource { kind, name } = resource;
    let kind = match kind {
        ResourceKind::Cluster => {
            return format!("permission denied: requires {operation:?} on the cluster");
        }
        ResourceKind::Topic => "topic",
        ResourceKind::Group => "group",
        ResourceKind::TransactionalId => "transactional id",
    };
    format!("permission denied: requires {operation:?} on {kind} {name:?}")
}

/// Handles a request with a supported key and version. Returns `None` for a request that cannot be
/// decoded, because the format of its response is unknown. As in Kafka, the connection is closed.
pub(crate) async fn serve(context: Context, mut body: Bytes) -> Option<Vec<u8>> {
    let asked = context.asked;
    let mut request = match decode(asked, &mut body) {
        Ok(request) => request,
        Err(error) => {
            context.client.note_unreadable(asked, &context.client_id, &error);
            let code = ResponseError::InvalidRequest.code();
            context.broker.counters.error(asked.key, code);
            return None;
        }
    };
    once::name_once(&mut request);
    let broker = Arc::clone(&context.broker);
    let response = answer(context, request).await;
    broker.counters.error(asked.key, error_code_of(&response));
    Some(asked.frame(&response))
}

/// Decodes a request. The number of elements is checked first, because the decoder allocates memory
/// for as many as the request claims to have.
pub(crate) fn decode(asked: Asked, body: &mut Bytes) -> anyhow::Result<RequestKind> {
    kafka::shapes::check(asked.key, asked.version, body, ELEMENTS_MAX)?;
    RequestKind::decode(asked.key, body, asked.version)
}

async fn answer(context: Context, request: RequestKind) -> ResponseKind {
    match request {
        RequestKind::ApiVersions(_) => api_versions(context.asked.version, 0).into(),
        RequestKind::Metadata(it) => cluster::metadata(&context, it).await.into(),
        RequestKind::DescribeCluster(it) => cluster::describe(&context, &it).into(),
        RequestKind::FindCoordinator(it) => cluster::find_coordinator(&context, &it).into(),
        RequestKind::DescribeTopicPartitions(it) => cluster::partitions(&context, &it).into(),
        RequestKind::ListPartitionReassignments(_) => placement::reassignments(&context).into(),
        RequestKind::AlterPartitionReassignments(it) => placement::reassign(&context, &it).into(),
        RequestKind::ElectLeaders(it) => placement::elect(&context, &it).into(),
        RequestKind::AlterReplicaLogDirs(it) => placement::move_to_folder(&context, &it).into(),
        RequestKind::DescribeQuorum(it) => placement::quorum(&context, &it).into(),
        RequestKind::ListOffsets(it) => offsets::list(context, it).await.into(),
        RequestKind::OffsetForLeaderEpoch(it) => offsets::for_epoch(&context, it).into(),
        RequestKind::DeleteRecords(it) => records::delete(context, it).await.into(),
        RequestKind::DescribeProducers(it) => {
            let _place = waiting::place(context.client.owner()).await;
            records::producers(&context, it).into()
        }
        RequestKind::DescribeLogDirs(it) => records::log_dirs(&context, it).into(),
        RequestKind::CreateTopics(it) => topics::create(context, it).await.into(),
        RequestKind::DeleteTopics(it) => topics::delete(context, it).await.into(),
        RequestKind::CreatePartitions(it) => topics::add_partitions(context, it).await.into(),
        RequestKind::DescribeConfigs(it) => configs::describe(&context, it).into(),
        RequestKind::IncrementalAlterConfigs(it) => configs::alter(context, it).await.into(),
        RequestKind::AlterConfigs(it) => configs::replace(context, it).await.into(),
        RequestKind::ListConfigResources(it) => configs::list(&context, &it).into(),
        RequestKind::DescribeAcls(it) => acls::describe(context, it).await.into(),
        RequestKind::CreateAcls(it) => acls::create(context, it).await.into(),
        RequestKind::DeleteAcls(it) => acls::delete(context, it).await.into(),
        RequestKind::DescribeUserScramCredentials(it) => {
            users::describe_scram(context, it).await.into()
        }
        RequestKind::AlterUserScramCredentials(it) => users::alter_scram(context, it).await.into(),
        RequestKind::DescribeClientQuotas(it) => users::describe_quotas(context, it).await.into(),
        RequestKind::AlterClientQuotas(it) => users::alter_quotas(context, it).await.into(),
        other => coordinated::serve(context, other).await,
    }
}

/// Finalized features and their levels, which never change.
const FEATURES: [(&str, i16); 3] = [
    // Consumer groups exist (KIP-848).
    ("group.version", 1),
    // 4.3-IV0, from which tools derive the version of Kafka. Without it they assume an old one, and
    // use requests of that. There is no metadata log.
    ("metadata.version", 30),
    // Clients that support level 2 add partitions to a transaction implicitly, and use a new epoch
    // for each transaction (KIP-890).
    ("transaction.version", 2),
];

/// Returns the supported requests and versions, and the finalized features in response versions
/// that have them.
fn api_versions(version: i16, error_code: i16) -> ApiVersionsResponse {
    let versions = kafka::SERVED.iter().map(|(key, lowest, highest)| {
        let lowest = if *key == ApiKey::Produce { 0 } else { *lowest };
        ApiVersion::default()
            .with_api_key(*key as i16)
            .with_min_version(lowest)
            .with_max_version(*highest)
    });
    let response = ApiVersionsResponse::default()
        .with_error_code(error_code)
        .with_api_keys(versions.collect());
    if version < FEATURES_FROM {
        return response;
    }
    let supported = FEATURES.map(|(name, level)| {
        SupportedFeatureKey::default()
            .with_name(text(name))
            .with_min_version(level)
            .with_max_version(level)
    });
    let finalized = FEATURES.map(|(name, level)| {
        FinalizedFeatureKey::default()
            .with_name(text(name))
            .with_min_version_level(level)
            .with_max_version_level(level)
    });
    response
        .with_supported_features(supported.into())
        .with_finalized_features(finalized.into())
        .with_finalized_features_epoch(0)
}

/// Responds to a request in an unsupported version. A client whose ApiVersions request is too new
/// gets the supported versions in version 0 (KIP-511).
pub(crate) fn not_served(asked: Asked) -> Vec<u8> {
    let error = ResponseError::UnsupportedVersion.code();
    match asked.key {
        ApiKey::ApiVersions => Asked { version: 0, ..asked }.frame(&api_versions(0, error).into()),
        _ => asked.refusal(error),
    }
}

/// Returns the error code, or 0.
fn code<T>(result: &Result<T, ResponseError>) -> i16 {
    result.as_ref().err().map_or(0, |error| error.code())
}

fn text(text: impl Into<String>) -> StrBytes {
    StrBytes::from_string(text.into())
}

/// Runs work that may block on a volume on a blocking thread, once the owner has a place.
async fn on_blocking_thread<T: Send + 'static>(
    owner: Owner,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    on_thread_of(waiting::place_on_a_thread(owner).await, work).await
}

/// Same, for work that may block on files of users or access lists only.
async fn on_file_thread<T: Send + 'static>(
    owner: Owner,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    on_thread_of(waiting::place_for_a_file(owner).await, work).await
}

async fn on_thread_of<T: Send + 'static>(
    place: Place,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    // The place belongs to the thread, which may still be blocked after the client has
    // disconnected.
    let work = move || {
        let _place = place;
        work()
    };
    tokio::task::spawn_blocking(work).await.expect("the work does not panic")
}
