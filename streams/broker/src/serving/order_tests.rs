//! Pipelined requests of one connection.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsTopic,
};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    ApiKey, CreateTopicsRequest, DeleteRecordsRequest, FetchRequest, ProduceRequest, RequestHeader,
    RequestKind,
};
use kafka_protocol::protocol::Encodable;
use record_batch::{BatchOptions, NewRecord, encode_batch};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use super::listen;
use super::test_broker::{broker, create_topic, name, storage};

/// Maximum wait of the fetch for a record of a later request.
const WAIT_MS: i32 = 300;

fn frame(id: i32, key: ApiKey, version: i16, request: &RequestKind) -> Vec<u8> {
    let header = RequestHeader::default()
        .with_request_api_key(key as i16)
        .with_request_api_version(version)
        .with_correlation_id(id);
    let mut bytes = BytesMut::new();
    header.encode(&mut bytes, key.request_header_version(version)).expect("it is plain");
    request.encode(&mut bytes, version).expect("it is plain");
    let length = i32::try_from(bytes.len()).expect("it is short");
    [&length.to_be_bytes()[..], &bytes].concat()
}

fn produce(id: i32, topic: &str) -> Vec<u8> {
    let record = NewRecord { value: Some("v".into()), ..NewRecord::default() };
    let batch = encode_batch(&[record], &BatchOptions::default()).expect("a batch");
    let partition =
        PartitionProduceData::default().with_records(Some(Bytes::copy_from_slice(&batch)));
    let topic =
        TopicProduceData::default().with_name(name(topic)).with_partition_data(vec![partition]);
    let request = ProduceRequest::default()
        .with_acks(-1)
        .with_timeout_ms(60_000)
        .with_topic_data(vec![topic]);
    frame(id, ApiKey::Produce, 8, &request.into())
}

/// Encodes a fetch that waits for the record at this offset.
fn fetch(id: i32, topic: &str, offset: i64) -> Vec<u8> {
    let partition =
        FetchPartition::default().with_fetch_offset(offset).with_partition_max_bytes(1 << 20);
    let topic = FetchTopic::default().with_topic(name(topic)).with_partitions(vec![partition]);
    let request = FetchRequest::default()
        .with_max_wait_ms(WAIT_MS)
        .with_min_bytes(1)
        .with_topics(vec![topic]);
    frame(id, ApiKey::Fetch, 11, &request.into())
}

/// Encodes a request that deletes all records.
fn delete_records(id: i32, topic: &str) -> Vec<u8> {
    let partition = DeleteRecordsPartition::default().with_offset(-1);
    let topic =
        DeleteRecordsTopic::default().with_name(name(topic)).with_partitions(vec![partition]);
    let request = DeleteRecordsRequest::default().with_timeout_ms(60_000).with_topics(vec![topic]);
    frame(id, ApiKey::DeleteRecords, 1, &request.into())
}

fn create(id: i32, topic: &str) -> Vec<u8> {
    let topic = CreatableTopic::default()
        .with_name(name(topic))
        .with_num_partitions(1)
        .with_replication_factor(1);
    let request = CreateTopicsRequest::default().with_timeout_ms(60_000).with_topics(vec![topic]);
    frame(id, ApiKey::CreateTopics, 4, &request.into())
}

/// Reads a response. Returns its correlation id and body.
fn answer(client: &mut TcpStream) -> (i32, Vec<u8>) {
    let mut head = [0; 8];
    client.read_exact(&mut head).expect("there is an answer");
    let number = |at: usize| i32::from_be_bytes(head[at..at + 4].try_into().expect("four bytes"));
    let mut body = vec![0; usize::try_from(number(0)).expect("a length") - 4];
    client.read_exact(&mut body).expect("it is whole");
    (number(4), body)
}

#[test]
fn requests_of_a_connection_take_effect_in_their_order() {
    let (_folder, storage) = storage();
    let (stop, stops) = watch::channel(false);
    let broker = Arc::new(broker(&storage, stops));
    let old = create_topic(&broker, "old");
    let runtime = Runtime::new().expect("it starts");
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
    let address = listener.local_addr().expect("it has one");
    let listening = runtime.spawn(listen(Arc::clone(&broker), listener));
    let mut client = TcpStream::connect(address).expect("it listens");
    let requests = [
        produce(0, "old"),
        fetch(1, "old", 1),
        delete_records(2, "old"),
        produce(3, "old"),
        create(4, "new"),
        produce(5, "new"),
        fetch(6, "new", 0),
    ];
    client.write_all(&requests.concat()).expect("it is taken");
    let answers: Vec<_> = requests.iter().map(|_| answer(&mut client)).collect();
    let ids: Vec<i32> = answers.iter().map(|(id, _)| *id).collect();
    assert_eq!(ids, [0, 1, 2, 3, 4, 5, 6]);
    let log = old.partition(0).expect("there is one");
    let ends = (log.log.start_offset(), log.log.next_offset());
    assert_eq!(ends, (1, 2), "the record after the deletion is there");
    let new = broker.topics.by_name("new").expect("it was made");
    assert_eq!(new.partition(0).expect("there is one").log.next_offset(), 1);
    stop.send_replace(true);
    drop(client);
    runtime.block_on(listening).expect("it ends");
}
