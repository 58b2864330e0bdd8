//! A broker that is paused completely, like with its machine: group members and transactional
//! producers, which it could not hear, keep their state.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use bytes::{Bytes, BytesMut};
use kafka_client::{Client, NewTopic, Settings};
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::{self as of, ApiKey, RequestKind, ResponseKind};
use kafka_protocol::protocol::{Encodable, StrBytes};
use rustix::process::Signal;
use system::Broker;
use tokio::runtime::Runtime;

/// Minimum session timeout of the broker, also used as a transaction timeout.
const SESSION: Duration = Duration::from_secs(6);

/// Returns a version with plain response headers.
fn version(key: ApiKey) -> i16 {
    match key {
        ApiKey::JoinGroup | ApiKey::SyncGroup | ApiKey::Heartbeat => 3,
        _ => 1,
    }
}

fn send(stream: &mut TcpStream, key: ApiKey, request: &RequestKind) -> Result<()> {
    let mut frame = BytesMut::new();
    of::RequestHeader::default()
        .with_request_api_key(key as i16)
        .with_request_api_version(version(key))
        .encode(&mut frame, key.request_header_version(version(key)))?;
    request.encode(&mut frame, version(key))?;
    stream.write_all(&[&u32::try_from(frame.len())?.to_be_bytes()[..], &frame].concat())?;
    Ok(())
}

fn receive(stream: &mut TcpStream, key: ApiKey) -> Result<ResponseKind> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut answer = vec![0; usize::try_from(u32::from_be_bytes(length))?];
    stream.read_exact(&mut answer)?;
    // After the correlation id.
    ResponseKind::decode(key, &mut Bytes::from(answer.split_off(4)), version(key))
}

fn group() -> of::GroupId {
    of::GroupId(StrBytes::from_static_str("group"))
}

#[test]
fn members_of_a_broker_that_stands_still_for_longer_than_their_sessions_stay_members() -> Result<()>
{
    let mut broker = Broker::start("--embedded 64M")?;
    let mut stream = broker.connect()?;
    let range = JoinGroupRequestProtocol::default().with_name(StrBytes::from_static_str("range"));
    let join = of::JoinGroupRequest::default()
        .with_group_id(group())
        .with_session_timeout_ms(i32::try_from(SESSION.as_millis())?)
        .with_rebalance_timeout_ms(60_000)
        .with_protocol_type(StrBytes::from_static_str("consumer"))
        .with_protocols(vec![range]);
    send(&mut stream, ApiKey::JoinGroup, &join.into())?;
    let answer = receive(&mut stream, ApiKey::JoinGroup)?;
    let ResponseKind::JoinGroup(joined) = answer else { panic!("{answer:?}") };
    let sync = of::SyncGroupRequest::default()
        .with_group_id(group())
        .with_member_id(joined.member_id.clone())
        .with_generation_id(joined.generation_id);
    send(&mut stream, ApiKey::SyncGroup, &sync.into())?;
    receive(&mut stream, ApiKey::SyncGroup)?;

    broker.signal(Signal::STOP)?;
    // The test requires that this time passes.
    thread::sleep(SESSION + Duration::from_secs(1));
    broker.signal(Signal::CONT)?;
    let heartbeat = of::HeartbeatRequest::default().with_group_id(group());
    // When this is answered, all due timeouts have been processed.
    send(&mut stream, ApiKey::Heartbeat, &heartbeat.clone().into())?;
    receive(&mut stream, ApiKey::Heartbeat)?;
    let heartbeat =
        heartbeat.with_member_id(joined.member_id).with_generation_id(joined.generation_id);
    send(&mut stream, ApiKey::Heartbeat, &heartbeat.into())?;
    let answer = receive(&mut stream, ApiKey::Heartbeat)?;
    let ResponseKind::Heartbeat(it) = answer else { panic!("{answer:?}") };
    ensure!(it.error_code == 0, "the heartbeat got the error {}", it.error_code);
    let said = broker.log();
    ensure!(said.contains("the broker was paused"), "{said}");
    broker.stop()
}

#[test]
fn a_transaction_goes_on_whose_broker_stands_still_for_longer_than_it_may_take() -> Result<()> {
    let mut broker = Broker::start("--embedded 64M")?;
    let client = Client::new(broker.address(), Settings::default());
    let topic = NewTopic { name: "t".to_owned(), partitions: Some(1), configs: Vec::new() };
    Runtime::new()?.block_on(client.create_topic(&topic))?;
    let mut stream = broker.connect()?;
    let id = of::TransactionalId(StrBytes::from_static_str("writer"));
    let init = of::InitProducerIdRequest::default()
        .with_transactional_id(Some(id.clone()))
        .with_transaction_timeout_ms(i32::try_from(SESSION.as_millis())?);
    send(&mut stream, ApiKey::InitProducerId, &init.into())?;
    let answer = receive(&mut stream, ApiKey::InitProducerId)?;
    let ResponseKind::InitProducerId(writer) = answer else { panic!("{answer:?}") };
    let partition = AddPartitionsToTxnTopic::default()
        .with_name(of::TopicName(StrBytes::from_static_str("t")))
        .with_partitions(vec![0]);
    let add = of::AddPartitionsToTxnRequest::default()
        .with_v3_and_below_transactional_id(id.clone())
        .with_v3_and_below_producer_id(writer.producer_id)
        .with_v3_and_below_producer_epoch(writer.producer_epoch)
        .with_v3_and_below_topics(vec![partition]);
    send(&mut stream, ApiKey::AddPartitionsToTxn, &add.into())?;
    let answer = receive(&mut stream, ApiKey::AddPartitionsToTxn)?;
    let ResponseKind::AddPartitionsToTxn(added) = answer else { panic!("{answer:?}") };
    let code = added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code;
    ensure!(code == 0, "the transaction did not begin: {code}");

    broker.signal(Signal::STOP)?;
    // The test requires that this time passes.
    thread::sleep(SESSION + Duration::from_secs(1));
    broker.signal(Signal::CONT)?;
    let heartbeat = of::HeartbeatRequest::default().with_group_id(group());
    // When this is answered, all due timeouts have been processed.
    send(&mut stream, ApiKey::Heartbeat, &heartbeat.into())?;
    receive(&mut stream, ApiKey::Heartbeat)?;
    let end = of::EndTxnRequest::default()
        .with_transactional_id(id)
        .with_producer_id(writer.producer_id)
        .with_producer_epoch(writer.producer_epoch)
        .with_committed(true);
    send(&mut stream, ApiKey::EndTxn, &end.into())?;
    let answer = receive(&mut stream, ApiKey::EndTxn)?;
    let ResponseKind::EndTxn(it) = answer else { panic!("{answer:?}") };
    ensure!(it.error_code == 0, "the commit got the error {}", it.error_code);
    broker.stop()
}
