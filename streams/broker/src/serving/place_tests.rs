//! Requests of a client that block, and its other requests that need not wait.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    AlterClientQuotasRequest, AlterUserScramCredentialsRequest, ApiKey, CreateAclsRequest,
    DeleteAclsRequest, DescribeAclsRequest, DescribeClientQuotasRequest,
    DescribeUserScramCredentialsRequest, ProduceRequest, RequestKind, TransactionalId,
};
use kafka_protocol::protocol::StrBytes;
use record_batch::{BatchOptions, BatchProducer, NewRecord, encode_batch};
use tokio::sync::watch;

use super::asked::Asked;
use super::client::Client;
use super::test_broker::{broker, client, create_topic, name, storage};
use super::transactional;
use crate::access_rules::{AccessFiles, AccessRules};
use crate::broker::Broker;
use crate::coordinator::Coordinator;
use crate::requests::{self, Context};
use crate::waiting::{self, PLACE_COUNT_MAX, Place};

/// Time limit, far above the usual duration.
const TIME_LIMIT: Duration = Duration::from_secs(60);

const PRODUCE: Asked = Asked { key: ApiKey::Produce, version: 8, correlation_id: 0 };

/// Encodes a record for an unknown transaction.
fn produce(topic: &str) -> Bytes {
    let record = NewRecord { value: Some("v".into()), ..NewRecord::default() };
    let producer = Some(BatchProducer { id: 7, epoch: 0, sequence: 0 });
    let options = BatchOptions { producer, is_transactional: true, ..BatchOptions::default() };
    let batch = encode_batch(&[record], &options).expect("a batch");
    let partition =
        PartitionProduceData::default().with_records(Some(Bytes::copy_from_slice(&batch)));
    let data =
        TopicProduceData::default().with_name(name(topic)).with_partition_data(vec![partition]);
    let request = ProduceRequest::default()
        .with_transactional_id(Some(TransactionalId(StrBytes::from_static_str("id"))))
        .with_acks(-1)
        .with_topic_data(vec![data]);
    let mut body = BytesMut::new();
    RequestKind::from(request).encode(&mut body, PRODUCE.version).expect("it is plain");
    body.freeze()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_has_no_place_while_the_coordinator_is_asked() {
    let (_folder, storage) = storage();
    let (_stop, stops) = watch::channel(false);
    let running = broker(&storage, stops);
    create_topic(&running, "some");
    let (coordinator, _queue) = Coordinator::standing();
    let broker = Arc::new(Broker { coordinator, ..running });
    let client = client(&broker, [192, 0, 2, 1]);
    let body = produce("some");
    let _alone = waiting::tests::ALONE.lock().await;
    let held = waiting::tests::hold_up().await;
    for _ in 0..PLACE_COUNT_MAX / 2 {
        let (broker, client, body) = (Arc::clone(&broker), client.clone(), body.clone());
        tokio::spawn(async move {
            transactional::check(&broker, &client, PRODUCE, &body).await.map(drop)
        });
    }
    let others = async {
        while broker.coordinator.waiting_count() < PLACE_COUNT_MAX / 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        waiting::place(client.owner()).await
    };
    let place = tokio::time::timeout(TIME_LIMIT, others).await;
    drop(held);
    place.expect("the client's other requests wait");
}

/// Answers each request about users and access lists.
async fn ask_about_users_and_access_lists(broker: &Arc<Broker>, client: &Client) {
    let all: [(ApiKey, RequestKind); 7] = [
        (ApiKey::DescribeAcls, DescribeAclsRequest::default().into()),
        (ApiKey::CreateAcls, CreateAclsRequest::default().into()),
        (ApiKey::DeleteAcls, DeleteAclsRequest::default().into()),
        (
            ApiKey::DescribeUserScramCredentials,
            DescribeUserScramCredentialsRequest::default().into(),
        ),
        (ApiKey::AlterUserScramCredentials, AlterUserScramCredentialsRequest::default().into()),
        (ApiKey::DescribeClientQuotas, DescribeClientQuotasRequest::default().into()),
        (ApiKey::AlterClientQuotas, AlterClientQuotasRequest::default().into()),
    ];
    for (key, request) in all {
        let version = key.valid_versions().max.min(2);
        let (broker, client, client_id) = (Arc::clone(broker), client.clone(), String::new());
        let asked = Asked { key, version, correlation_id: 0 };
        let mut body = BytesMut::new();
        request.encode(&mut body, version).expect("it is plain");
        let context = Context { broker, client, client_id, asked };
        let answer = tokio::time::timeout(TIME_LIMIT, requests::serve(context, body.freeze()));
        let answer = answer.await.unwrap_or_else(|_| panic!("{key:?} waits"));
        assert!(answer.is_some(), "{key:?} is answered");
    }
}

/// Takes all places that there are for a client.
async fn take_all<F: Future<Output = Place>>(take: impl Fn() -> F) -> Vec<Place> {
    const SOON: Duration = Duration::from_millis(100);
    let mut places = Vec::new();
    while let Ok(place) = tokio::time::timeout(SOON, take()).await {
        places.push(place);
    }
    assert!(!places.is_empty(), "there are places");
    places
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_about_users_and_access_lists_wait_for_no_volume() {
    let (_folder, storage) = storage();
    let (_stop, stops) = watch::channel(false);
    let broker = Arc::new(broker(&storage, stops));
    let client = client(&broker, [192, 0, 2, 3]);
    let _alone = waiting::tests::ALONE.lock().await;
    let _places = take_all(|| waiting::place_on_a_thread(client.owner())).await;
    ask_about_users_and_access_lists(&broker, &client).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_may_not_see_users_and_access_lists_is_refused_without_a_wait_for_their_files() {
    let (folder, storage) = storage();
    let (_stop, stops) = watch::channel(false);
    // A file that is not there allows nothing.
    let acls = Some(folder.path().join("acls"));
    let rules = AccessRules::of_this_host(AccessFiles { acls, ..AccessFiles::default() });
    let broker = Arc::new(Broker { rules, ..broker(&storage, stops) });
    let client = client(&broker, [192, 0, 2, 3]);
    let _alone = waiting::tests::ALONE.lock().await;
    let _places = take_all(|| waiting::place_for_a_file(client.owner())).await;
    ask_about_users_and_access_lists(&broker, &client).await;
}
