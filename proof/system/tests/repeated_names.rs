//! Names repeated many times in a request are looked up and answered once.

use std::io::{Read, Write};

use anyhow::{Result, ensure};
use bytes::{Bytes, BytesMut};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::{self as of, ApiKey, RequestKind, ResponseKind};
use kafka_protocol::protocol::{Encodable, StrBytes};
use system::Broker;

/// Number of repetitions in one request. The broker accepts 200,000 elements.
const REPEATED: usize = 60_000;

fn name() -> of::TopicName {
    of::TopicName(StrBytes::from_static_str("topic"))
}

fn group() -> of::GroupId {
    of::GroupId(StrBytes::from_static_str("group"))
}

/// Returns the answer to a request, and its length.
fn ask(broker: &Broker, key: ApiKey, request: &RequestKind) -> Result<(usize, ResponseKind)> {
    let served = kafka::SERVED.iter().find(|it| it.0 == key);
    let version = served.map_or(0, |it| it.2);
    let mut frame = BytesMut::new();
    of::RequestHeader::default()
        .with_request_api_key(key as i16)
        .with_request_api_version(version)
        .encode(&mut frame, key.request_header_version(version))?;
    request.encode(&mut frame, version)?;
    let mut stream = broker.connect()?;
    stream.write_all(&[&u32::try_from(frame.len())?.to_be_bytes()[..], &frame].concat())?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut answer = vec![0; usize::try_from(u32::from_be_bytes(length))?];
    stream.read_exact(&mut answer)?;
    let header_bytes = if key.response_header_version(version) >= 1 { 5 } else { 4 };
    let mut body = Bytes::copy_from_slice(&answer[header_bytes..]);
    Ok((answer.len(), ResponseKind::decode(key, &mut body, version)?))
}

#[test]
fn what_a_request_names_again_and_again_is_answered_once() -> Result<()> {
    let mut broker = Broker::start("--embedded 128M --partitions 20 --log debug")?;
    let topic = of::metadata_request::MetadataRequestTopic::default().with_name(Some(name()));
    let metadata = of::MetadataRequest::default().with_topics(Some(vec![topic; REPEATED]));
    let (bytes, answer) = ask(&broker, ApiKey::Metadata, &metadata.into())?;
    let ResponseKind::Metadata(it) = answer else { panic!("{answer:?}") };
    ensure!(it.topics.len() == 1 && it.topics[0].partitions.len() == 20, "{bytes} bytes");

    let groups =
        of::ConsumerGroupDescribeRequest::default().with_group_ids(vec![group(); REPEATED]);
    let (bytes, answer) = ask(&broker, ApiKey::ConsumerGroupDescribe, &groups.into())?;
    let ResponseKind::ConsumerGroupDescribe(it) = answer else { panic!("{answer:?}") };
    ensure!(it.groups.len() == 1, "{bytes} bytes");

    let topic = of::offset_fetch_request::OffsetFetchRequestTopics::default()
        .with_name(name())
        .with_partition_indexes(vec![0; 2]);
    let asked = of::offset_fetch_request::OffsetFetchRequestGroup::default()
        .with_group_id(group())
        .with_member_epoch(-1)
        .with_topics(Some(vec![topic; REPEATED / 4]));
    let fetch = of::OffsetFetchRequest::default().with_groups(vec![asked; 2]);
    let (bytes, answer) = ask(&broker, ApiKey::OffsetFetch, &fetch.into())?;
    let ResponseKind::OffsetFetch(it) = answer else { panic!("{answer:?}") };
    let is_once = it.groups.len() == 1
        && it.groups[0].topics.len() == 1
        && it.groups[0].topics[0].partitions.len() == 1;
    ensure!(is_once, "{bytes} bytes");

    let topic = of::describe_producers_request::TopicRequest::default()
        .with_name(name())
        .with_partition_indexes(vec![0; REPEATED]);
    let producers = of::DescribeProducersRequest::default().with_topics(vec![topic; 2]);
    let (bytes, answer) = ask(&broker, ApiKey::DescribeProducers, &producers.into())?;
    let ResponseKind::DescribeProducers(it) = answer else { panic!("{answer:?}") };
    ensure!(it.topics.len() == 1 && it.topics[0].partitions.len() == 1, "{bytes} bytes");

    // The log of this broker records the requests of clients.
    let said = broker.log();
    ensure!(said.contains("request=DescribeProducers"), "{said}");
    broker.stop()
}

#[test]
fn the_last_of_repeated_offsets_counts_and_a_topic_named_twice_is_not_widened() -> Result<()> {
    let mut broker = Broker::start("--embedded 128M --partitions 20")?;
    let topic = of::metadata_request::MetadataRequestTopic::default().with_name(Some(name()));
    let metadata = of::MetadataRequest::default().with_topics(Some(vec![topic]));
    ask(&broker, ApiKey::Metadata, &metadata.clone().into())?;
    let partition = |offset: usize| -> Result<_> {
        Ok(of::offset_commit_request::OffsetCommitRequestPartition::default()
            .with_partition_index(0)
            .with_committed_offset(i64::try_from(offset)?))
    };
    let topic = of::offset_commit_request::OffsetCommitRequestTopic::default()
        .with_name(name())
        .with_partitions((0..REPEATED).map(partition).collect::<Result<_>>()?);
    let commit = of::OffsetCommitRequest::default()
        .with_group_id(group())
        .with_generation_id_or_member_epoch(-1)
        .with_topics(vec![topic]);
    let (bytes, answer) = ask(&broker, ApiKey::OffsetCommit, &commit.into())?;
    let ResponseKind::OffsetCommit(it) = answer else { panic!("{answer:?}") };
    ensure!(it.topics.len() == 1 && it.topics[0].partitions.len() == 1, "{bytes} bytes");
    let asked = of::offset_fetch_request::OffsetFetchRequestTopics::default()
        .with_name(name())
        .with_partition_indexes(vec![0]);
    let asked = of::offset_fetch_request::OffsetFetchRequestGroup::default()
        .with_group_id(group())
        .with_member_epoch(-1)
        .with_topics(Some(vec![asked]));
    let fetch = of::OffsetFetchRequest::default().with_groups(vec![asked]);
    let (_, answer) = ask(&broker, ApiKey::OffsetFetch, &fetch.into())?;
    let ResponseKind::OffsetFetch(it) = answer else { panic!("{answer:?}") };
    let committed = it.groups[0].topics[0].partitions[0].committed_offset;
    ensure!(committed == i64::try_from(REPEATED)? - 1, "{committed}");

    let topic = |count| {
        of::create_partitions_request::CreatePartitionsTopic::default()
            .with_name(name())
            .with_count(count)
            .with_assignments(None)
    };
    let more = of::CreatePartitionsRequest::default().with_topics(vec![topic(21), topic(22)]);
    let (_, answer) = ask(&broker, ApiKey::CreatePartitions, &more.into())?;
    let ResponseKind::CreatePartitions(it) = answer else { panic!("{answer:?}") };
    let codes: Vec<i16> = it.results.iter().map(|it| it.error_code).collect();
    ensure!(codes == [ResponseError::InvalidRequest.code()], "{codes:?}");
    let (_, answer) = ask(&broker, ApiKey::Metadata, &metadata.into())?;
    let ResponseKind::Metadata(it) = answer else { panic!("{answer:?}") };
    ensure!(it.topics[0].partitions.len() == 20, "it was widened: {:?}", it.topics[0]);
    broker.stop()
}
