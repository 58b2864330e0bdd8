//! Behaviour of Kafka's brokers that clients rely on, at the limits of each request.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::{self as of, ApiKey, BrokerId, GroupId, RequestKind, ResponseKind};
use kafka_protocol::protocol::{Encodable, StrBytes};
use record_batch::{
    BatchHeader, BatchOptions, BatchProducer, HEADER_BYTES, NewRecord, encode_batch,
};
use system::{Broker, Daemon, DaemonOptions};
use uuid::Uuid;

/// Kafka's error codes.
const OFFSET_OUT_OF_RANGE: i16 = 1;
const CORRUPT_MESSAGE: i16 = 2;
const UNKNOWN_TOPIC: i16 = 3;
const INVALID_TOPIC: i16 = 17;
const INVALID_SESSION_TIMEOUT: i16 = 26;
const TOPIC_AUTHORIZATION_FAILED: i16 = 29;
const UNSUPPORTED_VERSION: i16 = 35;
const TOPIC_ALREADY_EXISTS: i16 = 36;
const INVALID_PARTITIONS: i16 = 37;
const INVALID_REPLICA_ASSIGNMENT: i16 = 39;
const INVALID_CONFIG: i16 = 40;
const INVALID_REQUEST: i16 = 42;
const POLICY_VIOLATION: i16 = 44;
const OUT_OF_ORDER: i16 = 45;
const INVALID_TRANSACTION_TIMEOUT: i16 = 50;
const NO_RIGHT_TO_TRANSACTION: i16 = 53;
const MEMBER_ID_REQUIRED: i16 = 79;
const INVALID_RECORD: i16 = 87;

const NEWEST: i64 = -3;

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn topic(name: &str) -> of::TopicName {
    of::TopicName(text(name))
}

fn now_ms() -> Result<i64> {
    Ok(i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?)
}

fn send(stream: &mut TcpStream, key: ApiKey, version: i16, request: &RequestKind) -> Result<()> {
    let mut frame = BytesMut::new();
    of::RequestHeader::default()
        .with_request_api_key(key as i16)
        .with_request_api_version(version)
        .encode(&mut frame, key.request_header_version(version))?;
    request.encode(&mut frame, version)?;
    let length = u32::try_from(frame.len())?.to_be_bytes();
    Ok(stream.write_all(&[&length[..], &frame].concat())?)
}

fn ask(
    broker: &Broker,
    key: ApiKey,
    version: i16,
    request: impl Into<RequestKind>,
) -> Result<ResponseKind> {
    ask_on(&mut broker.connect()?, key, version, request)
}

/// Same, on an existing connection.
fn ask_on(
    stream: &mut TcpStream,
    key: ApiKey,
    version: i16,
    request: impl Into<RequestKind>,
) -> Result<ResponseKind> {
    send(stream, key, version, &request.into())?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut answer = vec![0; usize::try_from(u32::from_be_bytes(length))?];
    stream.read_exact(&mut answer)?;
    let header_bytes = if key.response_header_version(version) >= 1 { 5 } else { 4 };
    let mut body = Bytes::copy_from_slice(&answer[header_bytes..]);
    ResponseKind::decode(key, &mut body, version)
}

/// Creates one topic. Returns the error code.
fn create(broker: &Broker, made: of::create_topics_request::CreatableTopic) -> Result<i16> {
    let request = of::CreateTopicsRequest::default().with_topics(vec![made]);
    let ResponseKind::CreateTopics(it) = ask(broker, ApiKey::CreateTopics, 7, request)? else {
        panic!("another answer")
    };
    Ok(it.topics[0].error_code)
}

fn plain(name: &str) -> of::create_topics_request::CreatableTopic {
    of::create_topics_request::CreatableTopic::default()
        .with_name(topic(name))
        .with_num_partitions(1)
        .with_replication_factor(1)
}

fn configured(name: &str, set: &[(&str, &str)]) -> of::create_topics_request::CreatableTopic {
    let config = |(name, value): &(&str, &str)| {
        of::create_topics_request::CreatableTopicConfig::default()
            .with_name(text(name))
            .with_value(Some(text(value)))
    };
    plain(name).with_configs(set.iter().map(config).collect())
}

fn produced(name: &str, times: &[i64]) -> Result<of::ProduceRequest> {
    let record = |time: &i64| NewRecord {
        timestamp_ms: *time,
        value: Some(vec![b'v'; 100].into()),
        ..NewRecord::default()
    };
    let records: Vec<_> = times.iter().map(record).collect();
    Ok(sent(name, &encode_batch(&records, &BatchOptions::default())?))
}

/// Returns a Produce request with these bytes as the records of the first partition.
fn sent(name: &str, records: &[u8]) -> of::ProduceRequest {
    let partition = of::produce_request::PartitionProduceData::default()
        .with_records(Some(Bytes::copy_from_slice(records)));
    let data = of::produce_request::TopicProduceData::default()
        .with_name(topic(name))
        .with_partition_data(vec![partition]);
    let request = of::ProduceRequest::default().with_acks(-1).with_timeout_ms(30_000);
    request.with_topic_data(vec![data])
}

fn produce(broker: &Broker, name: &str, times: &[i64]) -> Result<i16> {
    let answer = ask(broker, ApiKey::Produce, 9, produced(name, times)?)?;
    let ResponseKind::Produce(it) = answer else { panic!("{answer:?}") };
    Ok(it.responses[0].partition_responses[0].error_code)
}

fn delete_records(broker: &Broker, name: &str, before: i64) -> Result<(i16, i64)> {
    let partition =
        of::delete_records_request::DeleteRecordsPartition::default().with_offset(before);
    let topic = of::delete_records_request::DeleteRecordsTopic::default()
        .with_name(topic(name))
        .with_partitions(vec![partition]);
    let request = of::DeleteRecordsRequest::default().with_topics(vec![topic]);
    let answer = ask(broker, ApiKey::DeleteRecords, 2, request)?;
    let ResponseKind::DeleteRecords(it) = answer else { panic!("{answer:?}") };
    let partition = &it.topics[0].partitions[0];
    Ok((partition.error_code, partition.low_watermark))
}

fn newest(broker: &Broker, name: &str) -> Result<(i64, i64)> {
    let found = listed(broker, name, 7, NEWEST)?;
    Ok((found.offset, found.timestamp))
}

#[test]
fn deleted_records_are_neither_the_newest_nor_named_by_negative_offsets() -> Result<()> {
    let mut broker = Broker::start("--embedded 128M")?;
    let now = now_ms()?;
    ensure!(create(&broker, plain("times"))? == 0, "it is made");
    for time in [now - 4, now, now - 3, now - 2] {
        ensure!(produce(&broker, "times", &[time, time])? == 0, "it is taken");
    }
    ensure!(newest(&broker, "times")? == (2, now), "{:?}", newest(&broker, "times")?);
    for bad in [-2, i64::MIN, 9] {
        let refused = delete_records(&broker, "times", bad)?;
        ensure!(refused.0 == OFFSET_OUT_OF_RANGE, "{bad}: {refused:?}");
    }
    ensure!(delete_records(&broker, "times", 4)? == (0, 4), "two batches are gone");
    ensure!(newest(&broker, "times")? == (6, now - 2), "{:?}", newest(&broker, "times")?);
    ensure!(delete_records(&broker, "times", -1)? == (0, 8), "all are gone");
    ensure!(newest(&broker, "times")? == (-1, -1), "{:?}", newest(&broker, "times")?);
    broker.stop()
}

type Listed = of::list_offsets_response::ListOffsetsPartitionResponse;

fn listed(broker: &Broker, name: &str, version: i16, time: i64) -> Result<Listed> {
    let partition = of::list_offsets_request::ListOffsetsPartition::default().with_timestamp(time);
    let topic = of::list_offsets_request::ListOffsetsTopic::default()
        .with_name(topic(name))
        .with_partitions(vec![partition]);
    let request =
        of::ListOffsetsRequest::default().with_replica_id(BrokerId(-1)).with_topics(vec![topic]);
    let answer = ask(broker, ApiKey::ListOffsets, version, request)?;
    let ResponseKind::ListOffsets(it) = answer else { panic!("{answer:?}") };
    Ok(it.topics[0].partitions[0].clone())
}

#[test]
fn times_that_stand_for_places_are_known_from_their_versions_on() -> Result<()> {
    let mut broker = Broker::start("--embedded 128M")?;
    let now = now_ms()?;
    ensure!(create(&broker, plain("times"))? == 0, "it is made");
    ensure!(produce(&broker, "times", &[now - 1, now])? == 0, "it is taken");
    for (time, since, offset) in
        [(-1, 1, 2), (-2, 1, 0), (-3, 7, 1), (-4, 8, 0), (-5, 9, -1), (-6, 11, 0), (-7, 11, 0)]
    {
        for version in 1..=10 {
            let found = listed(&broker, "times", version, time)?;
            let wanted = match version < since {
                true => (UNSUPPORTED_VERSION, -1),
                false => (0, offset),
            };
            ensure!((found.error_code, found.offset) == wanted, "{version}: {time}: {found:?}");
        }
    }
    // The existence of the topic is not checked.
    let found = listed(&broker, "none", 6, -3)?;
    ensure!(found.error_code == UNSUPPORTED_VERSION, "{found:?}");
    for time in [now + 1, -5] {
        let found = listed(&broker, "times", 9, time)?;
        ensure!((found.offset, found.leader_epoch) == (-1, -1), "{time}: {found:?}");
    }
    let found = listed(&broker, "times", 9, now)?;
    ensure!(found.offset == 1 && found.leader_epoch >= 0, "{found:?}");
    broker.stop()
}

#[test]
fn offsets_of_a_partition_that_is_named_twice_are_refused_once() -> Result<()> {
    let mut broker = Broker::start("--embedded 128M")?;
    for name in ["twice", "once"] {
        ensure!(create(&broker, plain(name))? == 0, "it is made");
    }
    let partition = of::list_offsets_request::ListOffsetsPartition::default().with_timestamp(-1);
    let topic = |name| {
        of::list_offsets_request::ListOffsetsTopic::default()
            .with_name(topic(name))
            .with_partitions(vec![partition.clone()])
    };
    let request = of::ListOffsetsRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_topics(vec![topic("twice"), topic("once"), topic("twice")]);
    let answer = ask(&broker, ApiKey::ListOffsets, 7, request)?;
    let ResponseKind::ListOffsets(it) = answer else { panic!("{answer:?}") };
    let answered = it.topics.iter().map(|topic| {
        let codes: Vec<i16> = topic.partitions.iter().map(|it| it.error_code).collect();
        (&**topic.name, codes)
    });
    let answered: Vec<_> = answered.collect();
    ensure!(answered == [("twice", vec![INVALID_REQUEST]), ("once", vec![0])], "{answered:?}");
    broker.stop()
}

/// Returns a batch with one record of a producer with an id, and with this base offset.
fn numbered(sequence: i32, base_offset: i64) -> Result<Vec<u8>> {
    let record = NewRecord { value: Some("v".into()), ..NewRecord::default() };
    let producer = Some(BatchProducer { id: 5_000_000_000, epoch: 0, sequence });
    let options = BatchOptions { producer, ..BatchOptions::default() };
    let mut batch = encode_batch(&[record], &options)?.to_vec();
    batch[..8].copy_from_slice(&base_offset.to_be_bytes());
    Ok(batch)
}

type Taken = of::produce_response::PartitionProduceResponse;

fn ask_to_take(broker: &Broker, name: &str, records: &[u8]) -> Result<Taken> {
    let answer = ask(broker, ApiKey::Produce, 9, sent(name, records))?;
    let ResponseKind::Produce(it) = answer else { panic!("{answer:?}") };
    Ok(it.responses[0].partition_responses[0].clone())
}

#[test]
fn a_batch_that_comes_again_is_answered_as_the_first_time() -> Result<()> {
    let mut broker = Broker::start("--embedded 128M")?;
    let settings = [("message.timestamp.type", "LogAppendTime")];
    ensure!(create(&broker, configured("appended", &settings))? == 0, "it is made");
    let first = ask_to_take(&broker, "appended", &numbered(0, 0)?)?;
    ensure!(first.error_code == 0 && first.log_append_time_ms > 0, "{first:?}");
    ask_to_take(&broker, "appended", &numbered(1, 0)?)?;
    while now_ms()? <= first.log_append_time_ms {
        std::thread::yield_now();
    }
    let again = ask_to_take(&broker, "appended", &numbered(0, 0)?)?;
    ensure!(again == first, "{again:?} is not {first:?}");
    // The time of a deleted batch is unknown.
    ensure!(delete_records(&broker, "appended", 2)? == (0, 2), "both are gone");
    let again = ask_to_take(&broker, "appended", &numbered(0, 0)?)?;
    ensure!((again.error_code, again.base_offset) == (0, 0), "{again:?}");
    broker.stop()
}

#[test]
fn refused_batches_name_the_start_of_the_log() -> Result<()> {
    let mut broker = Broker::start("--embedded 128M")?;
    ensure!(create(&broker, plain("cut"))? == 0, "it is made");
    for sequence in 0..3 {
        let taken = ask_to_take(&broker, "cut", &numbered(sequence, 0)?)?;
        ensure!(taken.error_code == 0, "{taken:?}");
    }
    ensure!(delete_records(&broker, "cut", 2)? == (0, 2), "two are gone");
    for (sequence, base_offset, error) in [(9, 0, OUT_OF_ORDER), (3, 7, INVALID_RECORD)] {
        let refused = ask_to_take(&broker, "cut", &numbered(sequence, base_offset)?)?;
        let answered = (refused.error_code, refused.base_offset, refused.log_start_offset);
        ensure!(answered == (error, -1, 2), "{refused:?}");
    }
    let missing = ask_to_take(&broker, "none", &numbered(0, 0)?)?;
    ensure!((missing.error_code, missing.log_start_offset) == (UNKNOWN_TOPIC, -1), "{missing:?}");
    broker.stop()
}

#[test]
fn bytes_that_are_not_one_whole_batch_are_refused_before_the_log_is_looked_at() -> Result<()> {
    const LENGTH: usize = 11;
    const VERSION: usize = 16;
    const CHECKSUM: usize = 20;
    const ATTRIBUTES: usize = 22;
    const IS_TRANSACTIONAL: u8 = 1 << 4;
    let mut broker = Broker::start("--embedded 128M")?;
    ensure!(create(&broker, plain("whole"))? == 0, "it is made");
    let batch = numbered(0, 0)?;
    let with = |at: usize, byte: u8| {
        let mut batch = batch.clone();
        batch[at] = byte;
        batch
    };
    let cases = [
        ("nothing", Vec::new(), INVALID_RECORD),
        ("a part of a header", batch[..40].to_vec(), INVALID_RECORD),
        ("a part of the records", batch[..batch.len() - 1].to_vec(), INVALID_RECORD),
        ("two batches", [&batch[..], &batch].concat(), INVALID_RECORD),
        ("version 0", with(VERSION, 0), INVALID_RECORD),
        ("version 1", with(VERSION, 1), INVALID_RECORD),
        ("version 3", with(VERSION, 3), CORRUPT_MESSAGE),
        ("no length of a batch", with(LENGTH, 20), CORRUPT_MESSAGE),
        ("another sum", with(CHECKSUM, !batch[CHECKSUM]), CORRUPT_MESSAGE),
        ("of no transaction", with(ATTRIBUTES, IS_TRANSACTIONAL), NO_RIGHT_TO_TRANSACTION),
    ];
    for (what, records, error) in cases {
        let refused = ask_to_take(&broker, "whole", &records)?;
        let answered = (refused.error_code, refused.base_offset, refused.log_start_offset);
        ensure!(answered == (error, -1, -1), "{what}: {refused:?}");
    }
    let taken = ask_to_take(&broker, "whole", &batch)?;
    ensure!((taken.error_code, taken.base_offset) == (0, 0), "{taken:?}");
    broker.stop()
}

#[test]
fn nothing_is_written_of_a_request_that_names_no_transaction_and_has_a_batch_of_one() -> Result<()>
{
    let mut broker = Broker::start("--embedded 128M")?;
    let good = produced("mixed", &[now_ms()?])?.topic_data.remove(0);
    let mut bytes = good.partition_data[0].records.clone().expect("a batch").to_vec();
    let mut header = BatchHeader::read(&bytes).expect("a header");
    header.attributes |= 1 << 4;
    bytes = header.with_records(&bytes[HEADER_BYTES..]);
    let of_transaction = sent("other", &bytes).topic_data.remove(0);
    for name in ["mixed", "other"] {
        ensure!(create(&broker, plain(name))? == 0, "it is made");
    }
    let request = of::ProduceRequest::default().with_acks(-1).with_timeout_ms(30_000);
    let request = request.with_topic_data(vec![good, of_transaction]);
    let answer = ask(&broker, ApiKey::Produce, 9, request)?;
    let ResponseKind::Produce(it) = answer else { panic!("{answer:?}") };
    let codes = it.responses.iter().map(|it| it.partition_responses[0].error_code);
    ensure!(codes.eq([NO_RIGHT_TO_TRANSACTION; 2]), "{:?}", it.responses);
    ensure!(listed(&broker, "mixed", 7, -1)?.offset == 0, "nothing was written");
    broker.stop()
}

#[test]
fn of_a_partition_that_a_producer_names_twice_the_last_records_count() -> Result<()> {
    let mut broker = Broker::start("--embedded 128M")?;
    let two = configured("twice", &[]).with_num_partitions(2);
    ensure!(create(&broker, two)? == 0, "it is made");
    let now = now_ms()?;
    let part = |index: i32, times: &[i64]| {
        let data = produced("twice", times)?.topic_data.remove(0).partition_data.remove(0);
        Ok::<_, anyhow::Error>(data.with_index(index))
    };
    let of = |parts| {
        of::produce_request::TopicProduceData::default()
            .with_name(topic("twice"))
            .with_partition_data(parts)
    };
    let request = of::ProduceRequest::default().with_acks(-1).with_timeout_ms(30_000);
    for version in [7, 9] {
        let before = listed(&broker, "twice", 7, -1)?.offset;
        let first = of(vec![part(0, &[now])?, part(1, &[now])?, part(0, &[now; 2])?]);
        let second = of(vec![part(0, &[now; 3])?]);
        let request = request.clone().with_topic_data(vec![first, second]);
        let answer = ask(&broker, ApiKey::Produce, version, request)?;
        let ResponseKind::Produce(it) = answer else { panic!("{answer:?}") };
        let answered = it.responses.iter().flat_map(|it| &it.partition_responses);
        let answered: Vec<_> = answered.map(|it| (it.index, it.error_code)).collect();
        ensure!(answered == [(1, 0), (0, 0)], "{answered:?}");
        let end = listed(&broker, "twice", 7, -1)?.offset;
        ensure!(end == before + 3, "{} records were written", end - before);
    }
    broker.stop()
}

#[test]
fn a_batch_of_no_transaction_is_written_beside_those_of_one() -> Result<()> {
    let mut broker = Broker::start("--embedded 128M")?;
    ensure!(create(&broker, plain("beside"))? == 0, "it is made");
    let id = of::TransactionalId(text("t"));
    let request = produced("beside", &[now_ms()?])?.with_transactional_id(Some(id));
    let answer = ask(&broker, ApiKey::Produce, 9, request)?;
    let ResponseKind::Produce(it) = answer else { panic!("{answer:?}") };
    let code = it.responses[0].partition_responses[0].error_code;
    ensure!(code == 0 && listed(&broker, "beside", 7, -1)?.offset == 1, "{code}");
    broker.stop()
}

#[test]
fn a_request_that_cannot_be_read_ends_the_connection_and_is_in_the_log() -> Result<()> {
    let mut broker = Broker::start("--embedded 128M")?;
    let partition = of::list_offsets_request::ListOffsetsPartition::default();
    let topic = of::list_offsets_request::ListOffsetsTopic::default()
        .with_name(topic("any"))
        .with_partitions(vec![partition; 200_001]);
    let long = of::ListOffsetsRequest::default().with_topics(vec![topic]);
    let mut stream = broker.connect()?;
    send(&mut stream, ApiKey::ListOffsets, 7, &long.into())?;
    ensure!(stream.read(&mut [0; 4])? == 0, "it is answered");
    ensure!(broker.log().contains("request=ListOffsets"), "{}", broker.log());
    // Of an array of topics, only the length.
    for (key, version) in [(ApiKey::Metadata, 1_u8), (ApiKey::Fetch, 4), (ApiKey::Produce, 3)] {
        let mut stream = broker.connect()?;
        let header = [0, key as u8, 0, version, 0, 0, 0, 9, 0, 4, b'c', b'u', b't', b'!'];
        let body = [0, 0, 0];
        let length = u32::try_from(header.len() + body.len())?.to_be_bytes();
        stream.write_all(&[&length[..], &header, &body].concat())?;
        ensure!(stream.read(&mut [0; 4])? == 0, "{key:?} is answered");
        let log = broker.log();
        let named = format!("request={key:?}");
        let line = log.lines().find(|it| it.contains(&named) && it.contains("cut!"));
        ensure!(line.is_some(), "{key:?}: {log}");
    }
    broker.stop()
}

/// Returns the offset that a group has committed in a topic, if any.
fn committed(broker: &Broker, group: &str) -> Result<Option<i64>> {
    let of_group = of::offset_fetch_request::OffsetFetchRequestGroup::default()
        .with_group_id(GroupId(text(group)))
        .with_member_epoch(-1)
        .with_topics(None);
    let request = of::OffsetFetchRequest::default().with_groups(vec![of_group]);
    let answer = ask(broker, ApiKey::OffsetFetch, 9, request)?;
    let ResponseKind::OffsetFetch(it) = answer else { panic!("{answer:?}") };
    ensure!(it.groups[0].error_code == 0, "{it:?}");
    Ok(it.groups[0].topics.first().map(|it| it.partitions[0].committed_offset))
}

fn commit(broker: &Broker, group: &str, name: &str) -> Result<i16> {
    let partition =
        of::offset_commit_request::OffsetCommitRequestPartition::default().with_committed_offset(3);
    let topic = of::offset_commit_request::OffsetCommitRequestTopic::default()
        .with_name(topic(name))
        .with_partitions(vec![partition]);
    let request = of::OffsetCommitRequest::default()
        .with_group_id(GroupId(text(group)))
        .with_generation_id_or_member_epoch(-1)
        .with_topics(vec![topic]);
    let answer = ask(broker, ApiKey::OffsetCommit, 8, request)?;
    let ResponseKind::OffsetCommit(it) = answer else { panic!("{answer:?}") };
    Ok(it.topics[0].partitions[0].error_code)
}

#[test]
fn offsets_are_gone_when_the_deletion_of_their_topic_is_answered() -> Result<()> {
    let mut broker = Broker::start("--embedded 128M")?;
    for round in 0..20 {
        let group = format!("group-{round}");
        ensure!(create(&broker, plain("short"))? == 0, "it is made");
        ensure!(committed(&broker, &group)?.is_none(), "of a topic of before");
        ensure!(commit(&broker, &group, "short")? == 0, "it is taken");
        ensure!(committed(&broker, &group)? == Some(3), "{:?}", committed(&broker, &group)?);
        let request = of::DeleteTopicsRequest::default().with_topic_names(vec![topic("short")]);
        let answer = ask(&broker, ApiKey::DeleteTopics, 5, request)?;
        let ResponseKind::DeleteTopics(it) = answer else { panic!("{answer:?}") };
        ensure!(it.responses[0].error_code == 0, "{it:?}");
        ensure!(committed(&broker, &group)?.is_none(), "{:?}", committed(&broker, &group)?);
        ensure!(commit(&broker, &group, "short")? == UNKNOWN_TOPIC, "there is no such topic");
    }
    broker.stop()
}

#[test]
fn times_of_members_and_transactions_are_bounded_by_options() -> Result<()> {
    let join = |broker: &Broker, session_ms: i32| {
        let protocol = of::join_group_request::JoinGroupRequestProtocol::default()
            .with_name(text("range"))
            .with_metadata(Bytes::new());
        let request = of::JoinGroupRequest::default()
            .with_group_id(GroupId(text("readers")))
            .with_session_timeout_ms(session_ms)
            .with_rebalance_timeout_ms(60_000)
            .with_protocol_type(text("consumer"))
            .with_protocols(vec![protocol]);
        let answer = ask(broker, ApiKey::JoinGroup, 5, request)?;
        let ResponseKind::JoinGroup(it) = answer else { panic!("{answer:?}") };
        Ok::<i16, anyhow::Error>(it.error_code)
    };
    let init = |broker: &Broker, timeout_ms: i32| {
        let request = of::InitProducerIdRequest::default()
            .with_transactional_id(Some(of::TransactionalId(text("writer"))))
            .with_transaction_timeout_ms(timeout_ms);
        let answer = ask(broker, ApiKey::InitProducerId, 4, request)?;
        let ResponseKind::InitProducerId(it) = answer else { panic!("{answer:?}") };
        Ok::<i16, anyhow::Error>(it.error_code)
    };
    let hour = 3_600_000;
    let mut broker = Broker::start("--embedded 128M")?;
    ensure!(init(&broker, hour)? == 0, "an hour, as Flink asks for");
    ensure!(init(&broker, hour + 1)? == INVALID_TRANSACTION_TIMEOUT, "more than an hour");
    ensure!(join(&broker, 5_999)? == INVALID_SESSION_TIMEOUT, "less than 6 s");
    broker.stop()?;
    let limits = "--transaction-time-max 7200000 --group-session-min 1000 --group-session-max 2000";
    let mut broker = Broker::start(&format!("--embedded 128M {limits}"))?;
    ensure!(init(&broker, 2 * hour)? == 0, "two hours");
    ensure!(init(&broker, 2 * hour + 1)? == INVALID_TRANSACTION_TIMEOUT, "more");
    ensure!(join(&broker, 1_000)? == MEMBER_ID_REQUIRED, "a second");
    for bad in [999, 2_001] {
        ensure!(join(&broker, bad)? == INVALID_SESSION_TIMEOUT, "{bad}");
    }
    broker.stop()
}

#[test]
fn common_settings_without_a_meaning_are_taken_and_the_log_names_them() -> Result<()> {
    let mut broker = Broker::start("--embedded 128M")?;
    let common = [
        ("remote.storage.enable", "false"),
        ("leader.replication.throttled.replicas", "*"),
        ("follower.replication.throttled.replicas", "0:1,1:1"),
        ("compression.zstd.level", "5"),
        ("message.timestamp.difference.max.ms", "3600000"),
        ("message.format.version", "2.8-IV1"),
        ("min.insync.replicas", "2"),
    ];
    ensure!(create(&broker, configured("common", &common))? == 0, "they are taken");
    let said = broker.log();
    let told = said
        .lines()
        .find(|line| line.contains("settings accepted without effect"))
        .unwrap_or_default();
    for (name, _) in &common {
        // The difference of timestamps combines two settings, and takes effect.
        let has_effect = *name == "message.timestamp.difference.max.ms";
        ensure!(told.contains(name) != has_effect, "{name}: {told:?} of {said}");
    }
    let now = now_ms()?;
    ensure!(produce(&broker, "common", &[now - 3_700_000])? != 0, "the difference counts");
    ensure!(produce(&broker, "common", &[now - 60_000])? == 0, "it is within it");
    let bad = configured("bad", &[("retention.hours", "1")]);
    ensure!(create(&broker, bad)? == INVALID_CONFIG, "it is no setting");
    let lags = [("min.compaction.lag.ms", "10"), ("max.compaction.lag.ms", "9")];
    ensure!(create(&broker, configured("lags", &lags))? == INVALID_CONFIG, "they contradict");
    broker.stop()
}

#[test]
fn names_and_places_of_topics_that_cannot_be_are_refused() -> Result<()> {
    let mut broker = Broker::start("--embedded 128M")?;
    let name_of = |name: &str, version: i16| {
        let asked =
            of::metadata_request::MetadataRequestTopic::default().with_name(Some(topic(name)));
        let request = of::MetadataRequest::default()
            .with_topics(Some(vec![asked]))
            .with_allow_auto_topic_creation(false);
        let answer = ask(&broker, ApiKey::Metadata, version, request)?;
        let ResponseKind::Metadata(it) = answer else { panic!("{answer:?}") };
        Ok::<i16, anyhow::Error>(it.topics[0].error_code)
    };
    for bad in ["a b", "", "..", "a/b", &"n".repeat(250)] {
        ensure!(name_of(bad, 8)? == INVALID_TOPIC, "{bad:?}");
    }
    ensure!(name_of("none", 8)? == UNKNOWN_TOPIC, "it is not there");
    ensure!(create(&broker, plain("a.b"))? == 0, "it is made");
    ensure!(create(&broker, plain("a_b"))? == INVALID_TOPIC, "they collide");
    let reserved = "__cluster_metadata";
    ensure!(create(&broker, plain(reserved))? == TOPIC_AUTHORIZATION_FAILED, "it is reserved");
    ensure!(name_of(reserved, 8)? == UNKNOWN_TOPIC, "it was not made");
    let placed = |name: &str, places: &[(i32, i32)]| {
        let place = |(partition, node): &(i32, i32)| {
            of::create_topics_request::CreatableReplicaAssignment::default()
                .with_partition_index(*partition)
                .with_broker_ids(vec![BrokerId(*node)])
        };
        let made = plain(name).with_num_partitions(-1).with_replication_factor(-1);
        made.with_assignments(places.iter().map(place).collect())
    };
    let here = {
        let answer =
            ask(&broker, ApiKey::DescribeCluster, 0, of::DescribeClusterRequest::default())?;
        let ResponseKind::DescribeCluster(it) = answer else { panic!("{answer:?}") };
        it.brokers[0].broker_id.0
    };
    let elsewhere = [(0, here), (1, here + 4)];
    ensure!(create(&broker, placed("far", &elsewhere))? == INVALID_REPLICA_ASSIGNMENT, "no node");
    let gap = [(0, here), (2, here)];
    ensure!(create(&broker, placed("gap", &gap))? == INVALID_REPLICA_ASSIGNMENT, "a gap");
    ensure!(create(&broker, placed("near", &[(0, here), (1, here)]))? == 0, "it is made");
    let widen = |places: &[i32]| {
        let place = |node: &i32| {
            of::create_partitions_request::CreatePartitionsAssignment::default()
                .with_broker_ids(vec![BrokerId(*node)])
        };
        let wider = of::create_partitions_request::CreatePartitionsTopic::default()
            .with_name(topic("near"))
            .with_count(3)
            .with_assignments(Some(places.iter().map(place).collect()));
        let request = of::CreatePartitionsRequest::default().with_topics(vec![wider]);
        let answer = ask(&broker, ApiKey::CreatePartitions, 3, request)?;
        let ResponseKind::CreatePartitions(it) = answer else { panic!("{answer:?}") };
        Ok::<i16, anyhow::Error>(it.results[0].error_code)
    };
    for bad in [&[here + 4][..], &[here, here]] {
        ensure!(widen(bad)? == INVALID_REPLICA_ASSIGNMENT, "{bad:?}");
    }
    ensure!(widen(&[here])? == 0, "it has three");
    broker.stop()
}

/// Creates these topics, or only validates them.
fn create_all(
    broker: &Broker,
    made: Vec<of::create_topics_request::CreatableTopic>,
    validate_only: bool,
) -> Result<Vec<of::create_topics_response::CreatableTopicResult>> {
    let request =
        of::CreateTopicsRequest::default().with_topics(made).with_validate_only(validate_only);
    let ResponseKind::CreateTopics(it) = ask(broker, ApiKey::CreateTopics, 7, request)? else {
        panic!("another answer")
    };
    Ok(it.topics)
}

/// Deletes these topics. Returns the error codes.
fn delete_all(broker: &Broker, asked: &[(Option<&str>, Uuid)]) -> Result<Vec<i16>> {
    let asked = asked.iter().map(|(name, id)| {
        of::delete_topics_request::DeleteTopicState::default()
            .with_name(name.map(topic))
            .with_topic_id(*id)
    });
    let request = of::DeleteTopicsRequest::default().with_topics(asked.collect());
    let ResponseKind::DeleteTopics(it) = ask(broker, ApiKey::DeleteTopics, 6, request)? else {
        panic!("another answer")
    };
    Ok(it.responses.iter().map(|it| it.error_code).collect())
}

/// Adds partitions to these topics. Returns the error codes.
fn widen_all(broker: &Broker, asked: &[(&str, i32, usize)]) -> Result<Vec<i16>> {
    let asked = asked.iter().map(|&(name, count, places)| {
        let place = of::create_partitions_request::CreatePartitionsAssignment::default();
        let places = (places > 0).then(|| vec![place.with_broker_ids(vec![BrokerId(1)]); places]);
        of::create_partitions_request::CreatePartitionsTopic::default()
            .with_name(topic(name))
            .with_count(count)
            .with_assignments(places)
    });
    let request = of::CreatePartitionsRequest::default().with_topics(asked.collect());
    let answer = ask(broker, ApiKey::CreatePartitions, 3, request)?;
    let ResponseKind::CreatePartitions(it) = answer else { panic!("{answer:?}") };
    Ok(it.results.iter().map(|it| it.error_code).collect())
}

#[test]
fn a_topic_that_is_only_checked_is_described_and_not_made() -> Result<()> {
    let mut broker = Broker::start("--embedded 128M")?;
    let wanted = configured("seen", &[("retention.ms", " 1000 ")]);
    let wanted = wanted.with_num_partitions(-1).with_replication_factor(-1);
    let mut answers = Vec::new();
    for validate_only in [true, true, false] {
        let mut answer = create_all(&broker, vec![wanted.clone()], validate_only)?.remove(0);
        ensure!(answer.topic_id.is_nil() == validate_only, "nothing has no id");
        answer.topic_id = Uuid::nil();
        answers.push(answer);
    }
    ensure!(answers[0] == answers[2] && answers[1] == answers[2], "{answers:?}");
    ensure!(answers[0].error_code == 0 && answers[0].num_partitions == 1, "{:?}", answers[0]);
    let configs = answers[0].configs.as_deref().unwrap_or_default();
    let retention = configs.iter().find(|it| &*it.name == "retention.ms");
    ensure!(retention.and_then(|it| it.value.as_deref()) == Some("1000"), "{configs:?}");
    let both = plain("both").with_num_partitions(-1).with_assignments(vec![
        of::create_topics_request::CreatableReplicaAssignment::default()
            .with_broker_ids(vec![BrokerId(1)]),
    ]);
    for validate_only in [true, false] {
        let answer = create_all(&broker, vec![both.clone()], validate_only)?;
        ensure!(answer[0].error_code == INVALID_REQUEST, "a number of replicas, and places");
    }
    broker.stop()
}

#[test]
fn what_names_a_topic_twice_changes_nothing() -> Result<()> {
    let mut broker = Broker::start("--embedded 128M")?;
    let twice = vec![plain("a"), plain("b"), plain("a").with_num_partitions(2)];
    let made = create_all(&broker, twice, false)?;
    let errors: Vec<i16> = made.iter().map(|it| it.error_code).collect();
    ensure!(errors == [INVALID_REQUEST, 0], "{errors:?}");
    ensure!(create(&broker, plain("a"))? == 0, "it was not made");

    let widened = widen_all(&broker, &[("a", 2, 0), ("a", 3, 0), ("b", 2, 0)])?;
    ensure!(widened == [INVALID_REQUEST, 0], "{widened:?}");
    ensure!(widen_all(&broker, &[("a", 1, 1)])? == [INVALID_PARTITIONS], "no more than it has");
    ensure!(widen_all(&broker, &[("a", 2, 1)])? == [0], "it was not widened");

    let asked = of::metadata_request::MetadataRequestTopic::default().with_name(Some(topic("a")));
    let request = of::MetadataRequest::default().with_topics(Some(vec![asked]));
    let ResponseKind::Metadata(it) = ask(&broker, ApiKey::Metadata, 12, request)? else {
        panic!("another answer")
    };
    let (id, nobody, nil) = (it.topics[0].topic_id, Uuid::from_u128(9), Uuid::nil());
    let a = Some("a");
    for wrong in
        [vec![(a, nil), (a, nil)], vec![(None, id), (None, id)], vec![(a, nil), (None, id)]]
    {
        let errors = delete_all(&broker, &wrong)?;
        ensure!(errors == [INVALID_REQUEST], "{wrong:?}: {errors:?}");
    }
    for wrong in [(a, id), (a, nobody), (None, nil)] {
        let errors = delete_all(&broker, &[wrong])?;
        ensure!(errors == [INVALID_REQUEST], "{wrong:?}: {errors:?}");
    }
    let errors = delete_all(&broker, &[(None, id), (Some("b"), nil), (Some("b"), nil)])?;
    ensure!(errors == [0, INVALID_REQUEST], "{errors:?}");
    broker.stop()
}

/// Number of topics that exceeds the records in front of a pool's slabs.
const TOPICS_MANY: usize = 1_600;

#[test]
fn more_topics_than_the_first_places_of_a_pool_outlive_kills_and_are_deleted() -> Result<()> {
    let folder = tempfile::tempdir_in("/dev/shm")?;
    let file = folder.path().join("pool");
    let mut broker = Broker::start(&format!("--embedded 256M --pool-file {}", file.display()))?;
    let names: Vec<_> = (0..TOPICS_MANY).map(|it| format!("topic-{it}")).collect();
    for some in names.chunks(100) {
        let made = create_all(&broker, some.iter().map(|it| plain(it)).collect(), false)?;
        let refused = made.iter().find(|it| it.error_code != 0);
        ensure!(refused.is_none(), "{refused:?}");
    }
    let last = names.last().expect("there are many");
    ensure!(produce(&broker, last, &[now_ms()?])? == 0, "it takes records");
    broker.kill()?;
    let took = broker.start_again()?;
    eprintln!("started again with {TOPICS_MANY} topics in {took:?}");
    ensure!(create(&broker, plain(last))? == TOPIC_ALREADY_EXISTS, "it is there");
    ensure!(produce(&broker, last, &[now_ms()?])? == 0, "it takes records");
    for some in names.chunks(100) {
        let asked: Vec<_> = some.iter().map(|it| (Some(it.as_str()), Uuid::nil())).collect();
        let errors = delete_all(&broker, &asked)?;
        ensure!(errors.iter().all(|&it| it == 0), "{errors:?}");
    }
    ensure!(create(&broker, plain(last))? == 0, "there is a place");
    broker.stop()
}

/// Number of volumes of class image with 23 snapshots each: 2,040 of the 2,048 that may be durable.
const IMAGED_COUNT: usize = 85;

#[test]
fn durable_topics_beyond_those_that_a_journal_can_name_are_refused_with_their_number() -> Result<()>
{
    let daemon = Daemon::start(DaemonOptions { pool_size: "256MiB", flags: "--no-fuse" })?;
    let mut broker = Broker::on_daemon(&daemon.run_dir(), "")?;
    for number in 0..IMAGED_COUNT {
        daemon.memlane(&format!("volume create v{number} --size 1MiB --durability image"))?;
    }
    for at in 0..23 {
        let names: Vec<_> = (0..IMAGED_COUNT).map(|number| format!("v{number}@s{at}")).collect();
        daemon.memlane(&format!("snapshot create {}", names.join(" ")))?;
    }
    let imaged = |name: &str| configured(name, &[("memlane.durability", "image")]);
    let many = (0..20).map(|it| imaged(&format!("topic-{it}"))).collect();
    let made = create_all(&broker, many, false)?;
    let count = made.iter().take_while(|it| it.error_code == 0).count();
    // The broker's state is durable too.
    ensure!((5..=8).contains(&count), "{count} topics were made: {made:?}");
    for refused in &made[count..] {
        let what = refused.error_message.as_deref().unwrap_or_default();
        ensure!(refused.error_code == POLICY_VIOLATION, "{refused:?}");
        ensure!(what.contains("is 2048; delete one"), "{what}");
    }
    ensure!(create(&broker, plain("in-ram"))? == 0, "it is made");
    ensure!(produce(&broker, "topic-0", &[now_ms()?])? == 0, "those that are there go on");
    ensure!(delete_all(&broker, &[(Some("topic-1"), Uuid::nil())])? == [0], "it is deleted");
    ensure!(create(&broker, imaged("another"))? == 0, "there is a place");
    broker.stop()?;
    daemon.finish()
}

/// Types of resources with settings.
const TOPIC: i8 = 2;
const BROKER: i8 = 4;

/// Changes one setting of a resource. Returns the error code.
fn change(
    broker: &Broker,
    (kind, name): (i8, &str),
    setting: &str,
    (operation, value): (i8, Option<&str>),
) -> Result<i16> {
    let config = of::incremental_alter_configs_request::AlterableConfig::default()
        .with_name(text(setting))
        .with_config_operation(operation)
        .with_value(value.map(text));
    let resource = of::incremental_alter_configs_request::AlterConfigsResource::default()
        .with_resource_type(kind)
        .with_resource_name(text(name))
        .with_configs(vec![config]);
    let request = of::IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
    let answer = ask(broker, ApiKey::IncrementalAlterConfigs, 1, request)?;
    let ResponseKind::IncrementalAlterConfigs(it) = answer else { panic!("{answer:?}") };
    Ok(it.responses[0].error_code)
}

type Shown = of::describe_configs_response::DescribeConfigsResourceResult;

/// Returns a setting of a resource as described, if it is.
fn shown(broker: &Broker, (kind, name): (i8, &str), setting: &str) -> Result<Option<Shown>> {
    let resource = of::describe_configs_request::DescribeConfigsResource::default()
        .with_resource_type(kind)
        .with_resource_name(text(name))
        .with_configuration_keys(Some(vec![text(setting)]));
    let request = of::DescribeConfigsRequest::default()
        .with_resources(vec![resource])
        .with_include_synonyms(true);
    let answer = ask(broker, ApiKey::DescribeConfigs, 4, request)?;
    let ResponseKind::DescribeConfigs(it) = answer else { panic!("{answer:?}") };
    Ok(it.results[0].configs.first().cloned())
}

#[test]
fn a_default_of_the_broker_is_told_from_kafkas_and_from_the_topics_own_value() -> Result<()> {
    const OF_KAFKA: (&str, i8) = ("604800000", 5);
    const OF_BROKER: (&str, i8) = ("1000", 4);
    let mut broker = Broker::start("--embedded 128M --topic-default retention.ms=1000")?;
    ensure!(create(&broker, plain("a"))? == 0, "it is made");
    let is_now = |setting: &str, values: &[(&str, i8)]| -> Result<()> {
        let shown = shown(&broker, (TOPIC, "a"), setting)?.context("the setting")?;
        let first = (shown.value.as_deref().unwrap_or(""), shown.config_source);
        ensure!(first == values[0], "{first:?} is not the first of {values:?}");
        let synonyms = shown.synonyms.iter();
        let found: Vec<_> =
            synonyms.map(|it| (it.value.as_deref().unwrap_or(""), it.source)).collect();
        ensure!(found == values, "{found:?} is not {values:?}");
        Ok(())
    };
    is_now("segment.ms", &[OF_KAFKA])?;
    is_now("retention.ms", &[OF_BROKER, OF_KAFKA])?;
    ensure!(change(&broker, (TOPIC, "a"), "retention.ms", (0, Some("2000")))? == 0, "it is set");
    is_now("retention.ms", &[("2000", 1), OF_BROKER, OF_KAFKA])?;
    broker.stop()
}

#[test]
fn settings_of_the_broker_without_a_meaning_are_taken_and_shown() -> Result<()> {
    let [set, delete] = [0_i8, 1];
    let mut broker = Broker::start("--embedded 128M")?;
    let (this, all) = ((BROKER, "1"), (BROKER, ""));
    let rate = "leader.replication.throttled.rate";
    let [for_this, for_all] = [2, 3];
    let is_now = |resource, value: Option<(&str, i8)>| -> Result<()> {
        let shown = shown(&broker, resource, rate)?;
        let found = shown.as_ref().map(|it| (it.value.as_deref().unwrap_or(""), it.config_source));
        ensure!(found == value, "{found:?} is not {value:?}");
        Ok(())
    };
    is_now(this, None)?;
    ensure!(change(&broker, all, rate, (set, Some("1000")))? == 0, "for all");
    is_now(this, Some(("1000", for_all)))?;
    ensure!(change(&broker, this, rate, (set, Some("2000")))? == 0, "for this one");
    is_now(this, Some(("2000", for_this)))?;
    is_now(all, Some(("1000", for_all)))?;
    ensure!(change(&broker, this, rate, (set, Some("fast")))? == INVALID_CONFIG, "no number");
    is_now(this, Some(("2000", for_this)))?;
    ensure!(change(&broker, this, rate, (delete, None))? == 0, "it is set no more");
    is_now(this, Some(("1000", for_all)))?;
    for (resource, setting) in [(this, "log.retention.ms"), ((BROKER, "2"), rate)] {
        let refused = change(&broker, resource, setting, (set, Some("1000")))?;
        ensure!(refused == INVALID_REQUEST, "{resource:?} {setting}: {refused}");
    }
    let log = broker.log();
    ensure!(log.contains("without effect") && log.contains(rate), "{log}");
    broker.stop()
}

#[test]
fn lists_of_settings_grow_and_shrink_by_whole_words() -> Result<()> {
    let [set, delete, append, subtract] = [0_i8, 1, 2, 3];
    let mut broker = Broker::start("--embedded 128M")?;
    ensure!(create(&broker, plain("a"))? == 0, "it is made");
    let change = |name: &str, setting: &str, operation: i8, value: Option<&str>| {
        change(&broker, (TOPIC, name), setting, (operation, value))
    };
    let shown = |setting: &str| -> Result<String> {
        let shown = shown(&broker, (TOPIC, "a"), setting)?;
        Ok(shown.and_then(|it| it.value).as_deref().unwrap_or_default().to_owned())
    };
    let replicas = "leader.replication.throttled.replicas";
    for (operation, value, after) in [
        (set, "10:1", "10:1"),
        (append, "0:1", "10:1,0:1"),
        (append, "0:1, 10:1,,0:1", "10:1,0:1"),
        (subtract, "10:1,1:1", "0:1"),
    ] {
        let error = change("a", replicas, operation, Some(value))?;
        let now = shown(replicas)?;
        ensure!(error == 0 && now == after, "{value}: {error}, {now}");
    }
    ensure!(change("a", replicas, append, Some("all"))? == INVALID_CONFIG, "no partition");
    ensure!(change("a", "cleanup.policy", subtract, Some("delete"))? == 0, "all is kept");
    ensure!(shown("cleanup.policy")?.is_empty(), "no policy is left");
    ensure!(change("a", "of.another.release", delete, None)? == 0, "it is not set");
    ensure!(change("a", "of.another.release", set, Some("1"))? == INVALID_CONFIG, "no setting");
    ensure!(change("", "retention.ms", set, Some("1"))? == INVALID_REQUEST, "topics have names");
    broker.stop()
}

#[test]
fn a_refusal_that_nobody_waits_for_ends_the_connection() -> Result<()> {
    let mut broker = Broker::start("--embedded 128M")?;
    ensure!(create(&broker, plain("taken"))? == 0, "it is made");
    let now = now_ms()?;
    let mut stream = broker.connect()?;
    let unacknowledged = |name: &str| Ok::<_, anyhow::Error>(produced(name, &[now])?.with_acks(0));
    send(&mut stream, ApiKey::Produce, 9, &unacknowledged("taken")?.into())?;
    // The next answer is that of a later request, so there was none for the records.
    let asked = of::DescribeClusterRequest::default();
    send(&mut stream, ApiKey::DescribeCluster, 0, &asked.into())?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut answer = vec![0; usize::try_from(u32::from_be_bytes(length))?];
    stream.read_exact(&mut answer)?;
    send(&mut stream, ApiKey::Produce, 9, &unacknowledged("nowhere")?.into())?;
    ensure!(stream.read(&mut length)? == 0, "the connection goes on");
    broker.stop()
}

#[test]
fn a_client_is_told_what_it_may_do_where_it_asks() -> Result<()> {
    let mut broker = Broker::start("--embedded 128M")?;
    ensure!(create(&broker, plain("shown"))? == 0, "it is made");
    for (is_wanted, of_topic, of_cluster, of_group) in [
        (true, 0b1101_1111_1000, 0b1_1111_1010_0000, 0b1_0100_1000),
        (false, i32::MIN, i32::MIN, i32::MIN),
    ] {
        let asked =
            of::metadata_request::MetadataRequestTopic::default().with_name(Some(topic("shown")));
        let request = of::MetadataRequest::default()
            .with_topics(Some(vec![asked]))
            .with_include_cluster_authorized_operations(is_wanted)
            .with_include_topic_authorized_operations(is_wanted);
        let answer = ask(&broker, ApiKey::Metadata, 8, request)?;
        let ResponseKind::Metadata(it) = answer else { panic!("{answer:?}") };
        let found = (it.topics[0].topic_authorized_operations, it.cluster_authorized_operations);
        ensure!(found == (of_topic, of_cluster), "{found:?}");
        let request = of::DescribeClusterRequest::default()
            .with_include_cluster_authorized_operations(is_wanted);
        let answer = ask(&broker, ApiKey::DescribeCluster, 0, request)?;
        let ResponseKind::DescribeCluster(it) = answer else { panic!("{answer:?}") };
        ensure!(it.cluster_authorized_operations == of_cluster, "{it:?}");
        let request = of::DescribeGroupsRequest::default()
            .with_groups(vec![GroupId(text("some"))])
            .with_include_authorized_operations(is_wanted);
        let answer = ask(&broker, ApiKey::DescribeGroups, 5, request)?;
        let ResponseKind::DescribeGroups(it) = answer else { panic!("{answer:?}") };
        ensure!(it.groups[0].authorized_operations == of_group, "{it:?}");
    }
    broker.stop()
}

#[test]
fn who_may_not_describe_the_cluster_is_told_no_operation_of_it() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("acls.toml");
    for (operation, expected) in [("Alter", 0b1_1000_0000), ("Create", 0)] {
        std::fs::write(
            &path,
            format!(
                "version = 1\n[[acl]]\nprincipal = \"User:*\"\npermission = \"Allow\"\n\
                 operation = \"{operation}\"\nresource = \"Cluster\"\nname = \"kafka-cluster\"\n"
            ),
        )?;
        let options = format!("--embedded 128M --acl-file {}", path.display());
        let mut broker = Broker::start(&options)?;
        let request =
            of::DescribeClusterRequest::default().with_include_cluster_authorized_operations(true);
        let answer = ask(&broker, ApiKey::DescribeCluster, 0, request)?;
        let ResponseKind::DescribeCluster(it) = answer else { panic!("{answer:?}") };
        ensure!(it.cluster_authorized_operations == expected, "{operation}: {it:?}");
        broker.stop()?;
    }
    Ok(())
}

/// Goal: the size of a Fetch response is bounded, whatever limits a client sets.
/// Method: more partitions than fit, each with a batch of 1 MB, in one request.
#[test]
fn an_answer_to_a_fetch_is_bounded_however_many_partitions_it_names() -> Result<()> {
    const PARTITIONS: i32 = 40;
    const ANSWER_BYTES_MAX: usize = 16 << 20;
    let mut broker = Broker::start("--embedded 256M")?;
    ensure!(create(&broker, plain("wide").with_num_partitions(PARTITIONS))? == 0, "it is made");
    let record = NewRecord { value: Some(vec![b'v'; 1_000_000].into()), ..NewRecord::default() };
    let batch = encode_batch(&[record], &BatchOptions::default())?;
    for number in 0..PARTITIONS {
        let partition = of::produce_request::PartitionProduceData::default()
            .with_index(number)
            .with_records(Some(Bytes::copy_from_slice(&batch)));
        let data = of::produce_request::TopicProduceData::default()
            .with_name(topic("wide"))
            .with_partition_data(vec![partition]);
        let request = of::ProduceRequest::default().with_acks(-1).with_timeout_ms(30_000);
        let answer = ask(&broker, ApiKey::Produce, 9, request.with_topic_data(vec![data]))?;
        let ResponseKind::Produce(it) = answer else { panic!("{answer:?}") };
        ensure!(it.responses[0].partition_responses[0].error_code == 0, "{it:?}");
    }
    let partitions = (0..PARTITIONS).map(|number| {
        of::fetch_request::FetchPartition::default()
            .with_partition(number)
            .with_partition_max_bytes(i32::MAX)
    });
    let all = of::fetch_request::FetchTopic::default()
        .with_topic(topic("wide"))
        .with_partitions(partitions.collect());
    let request = of::FetchRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_min_bytes(1)
        .with_max_bytes(i32::MAX)
        .with_topics(vec![all]);
    let answer = ask(&broker, ApiKey::Fetch, 11, request)?;
    let ResponseKind::Fetch(it) = answer else { panic!("{answer:?}") };
    let lengths =
        it.responses[0].partitions.iter().map(|it| it.records.as_ref().map_or(0, Bytes::len));
    let lengths: Vec<usize> = lengths.collect();
    let (whole, all): (usize, usize) =
        (lengths.iter().filter(|it| **it == batch.len()).count(), lengths.iter().sum());
    ensure!(lengths.len() == 40 && whole >= 10, "{lengths:?}");
    ensure!(all <= ANSWER_BYTES_MAX, "an answer of {all} bytes: {lengths:?}");
    broker.stop()
}

/// Returns a Fetch request for all records of the topic `some`, which waits up to five minutes.
fn fetch(bytes_min: i32, bytes_max: i32, of_partition: i32) -> of::FetchRequest {
    let partition =
        of::fetch_request::FetchPartition::default().with_partition_max_bytes(of_partition);
    let topic = of::fetch_request::FetchTopic::default()
        .with_topic(topic("some"))
        .with_partitions(vec![partition]);
    of::FetchRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_max_wait_ms(300_000)
        .with_min_bytes(bytes_min)
        .with_max_bytes(bytes_max)
        .with_topics(vec![topic])
}

/// Returns the number of bytes that the broker has read from the topic's volume.
fn read_bytes(daemon: &Daemon, name: &str) -> Result<u64> {
    let page = daemon.ask(api::METRICS_PATH)?;
    let counter = format!("memlane_volume_read_bytes_total{{volume=\"topic.{name}\"}} ");
    let count = page.lines().find_map(|line| line.strip_prefix(&counter));
    Ok(count.context("each volume has one")?.parse()?)
}

/// Goal: the cost of a waiting fetch does not grow with each batch that arrives.
/// Method: as many batches arrive as the fetch waits for; reading all records after each would read
/// the response dozens of times.
#[test]
fn a_fetch_that_waits_reads_records_again_only_when_there_may_be_enough() -> Result<()> {
    const BATCH_COUNT: usize = 100;
    let daemon = Daemon::start(DaemonOptions { pool_size: "256MiB", flags: "--no-fuse" })?;
    let mut broker = Broker::on_daemon(&daemon.run_dir(), "")?;
    ensure!(create(&broker, plain("some"))? == 0, "it is made");
    let times = vec![now_ms()?; 20];
    let batch_bytes = {
        let request = produced("some", &times)?;
        let records = &request.topic_data[0].partition_data[0].records;
        records.as_ref().map_or(0, Bytes::len)
    };
    let all = batch_bytes * BATCH_COUNT;
    let mut stream = broker.connect()?;
    let request = fetch(i32::try_from(all)?, 1 << 20, 1 << 20);
    send(&mut stream, ApiKey::Fetch, 11, &request.into())?;
    let before = read_bytes(&daemon, "some")?;
    for _ in 0..BATCH_COUNT {
        ensure!(produce(&broker, "some", &times)? == 0, "it is taken");
    }
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    ensure!(usize::try_from(u32::from_be_bytes(length))? >= all, "{length:?}, of {all} bytes");
    let read = read_bytes(&daemon, "some")? - before;
    ensure!((1..=10).contains(&(read / all as u64)), "{read} bytes were read for {all}");
    broker.stop()?;
    daemon.finish()
}

/// Sends a Fetch request that does not wait, for all partitions or for those of a session. Returns
/// the error code, the session and the number of topics in the response.
fn fetch_in(
    stream: &mut TcpStream,
    (version, names_all): (i16, bool),
    (id, epoch): (i32, i32),
) -> Result<(i16, i32, usize)> {
    let request = fetch(0, 1 << 20, 1 << 20).with_session_id(id).with_session_epoch(epoch);
    let request = if names_all { request } else { request.with_topics(Vec::new()) };
    let answer = ask_on(stream, ApiKey::Fetch, version, request)?;
    let ResponseKind::Fetch(it) = answer else { panic!("{answer:?}") };
    Ok((it.error_code, it.session_id, it.responses.len()))
}

/// Fetch sessions (KIP-227) as in Kafka: requests with the epochs 0 and -1 name all partitions, and
/// any other epoch belongs to the named session.
#[test]
fn sessions_go_on_beside_fetches_without_one_until_their_last_fetch() -> Result<()> {
    const UNKNOWN_SESSION: i16 = 70;
    const WRONG_EPOCH: i16 = 71;
    let mut broker = Broker::start("--embedded 128M")?;
    ensure!(create(&broker, plain("some"))? == 0, "it is made");
    let mut stream = broker.connect()?;
    let mut fetch = |names_all, session| fetch_in(&mut stream, (11, names_all), session);
    let (error, id, _) = fetch(true, (0, 0))?;
    ensure!((error, id != 0) == (0, true), "a session begins: {error}, {id}");
    ensure!(fetch(true, (0, -1))? == (0, 0, 1), "a fetch without one");
    ensure!(fetch(false, (id, 1))? == (0, id, 0), "the session goes on");
    ensure!(fetch(false, (id, -2))?.0 == WRONG_EPOCH, "no epoch is below -1");
    ensure!(fetch(false, (id, 2))? == (0, id, 0), "and on");
    ensure!(fetch(false, (id, -1))? == (0, 0, 0), "its last fetch");
    ensure!(fetch(false, (id, 3))?.0 == UNKNOWN_SESSION, "it has ended");
    broker.stop()
}

/// Sessions belong to the broker and not to a connection, as behind a proxy that multiplexes the
/// requests of several clients.
#[test]
fn sessions_share_a_connection_and_go_on_over_another_one() -> Result<()> {
    const TOPIC_IDS: i16 = 106;
    let mut broker = Broker::start("--embedded 128M")?;
    ensure!(create(&broker, plain("some"))? == 0, "it is made");
    let (mut one, mut other) = (broker.connect()?, broker.connect()?);
    let (_, first, _) = fetch_in(&mut one, (11, true), (0, 0))?;
    let (_, second, _) = fetch_in(&mut one, (11, true), (0, 0))?;
    ensure!(first != 0 && second != 0 && first != second, "sessions {first} and {second}");
    for epoch in [1, 2] {
        for id in [first, second] {
            let found = fetch_in(&mut one, (11, false), (id, epoch))?;
            ensure!(found == (0, id, 0), "session {id} at {epoch}: {found:?}");
        }
    }
    ensure!(fetch_in(&mut other, (11, false), (first, 3))? == (0, first, 0), "over another one");
    let by_id = fetch_in(&mut one, (13, false), (second, 3))?;
    ensure!(by_id.0 == TOPIC_IDS, "a session with names goes on with ids: {by_id:?}");
    ensure!(fetch_in(&mut one, (11, false), (second, 3))? == (0, second, 0), "it is as it was");
    let (_, third, _) = fetch_in(&mut one, (13, true), (0, 0))?;
    let by_name = fetch_in(&mut one, (12, false), (third, 1))?;
    ensure!(by_name.0 == TOPIC_IDS, "a session with ids goes on with names: {by_name:?}");
    broker.stop()
}

#[test]
fn a_fetch_waits_for_no_more_than_its_answer_may_have() -> Result<()> {
    let mut broker = Broker::start("--embedded 128M")?;
    ensure!(create(&broker, plain("some"))? == 0, "it is made");
    let now = now_ms()?;
    for _ in 0..10 {
        ensure!(produce(&broker, "some", &[now])? == 0, "it is taken");
    }
    let records = |answer: ResponseKind| {
        let ResponseKind::Fetch(it) = answer else { panic!("{answer:?}") };
        it.responses[0].partitions[0].records.as_ref().map_or(0, Bytes::len)
    };
    for (of_all, of_partition) in [(300, 1 << 20), (1 << 20, 300)] {
        let request = fetch(i32::MAX, of_all, of_partition);
        let bytes = records(ask(&broker, ApiKey::Fetch, 11, request)?);
        ensure!((1..=300).contains(&bytes), "{bytes} bytes");
    }
    // A waiting fetch is answered when there is enough data, and not before.
    let mut stream = broker.connect()?;
    send(&mut stream, ApiKey::Fetch, 11, &fetch(4_000, 1 << 20, 1 << 20).into())?;
    for _ in 0..30 {
        ensure!(produce(&broker, "some", &[now])? == 0, "it is taken");
    }
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    ensure!(u32::from_be_bytes(length) >= 4_000, "{length:?}");
    broker.stop()
}
