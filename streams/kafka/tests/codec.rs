//! Interoperability of Produce and Fetch with `kafka-protocol`: requests that it encodes are
//! parsed, and it decodes the responses, in all supported versions.

use bytes::{Bytes, BytesMut};
use kafka::fetch::{
    self, AbortedTransaction, FetchBegin, FetchPartition, FetchStart, FetchVisitor, FetchWriter,
    Fetched, TopicRef,
};
use kafka::produce::{self, Appender, Checked, ProduceStart, Produced};
use kafka_protocol::messages::fetch_request::{FetchTopic, ForgottenTopic};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    ApiKey, FetchRequest, FetchResponse, ProduceRequest, ProduceResponse, TopicName,
    TransactionalId,
};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};

fn versions(key: ApiKey) -> std::ops::RangeInclusive<i16> {
    let (_, lowest, highest) = *kafka::SERVED.iter().find(|it| it.0 == key).expect("it is served");
    lowest..=highest
}

fn name(text: &'static str) -> TopicName {
    TopicName(StrBytes::from_static_str(text))
}

fn encode(message: &impl Encodable, version: i16) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    message.encode(&mut bytes, version).expect("a good message");
    bytes.to_vec()
}

/// Records the arguments of `append`, and modifies the records.
#[derive(Default)]
struct Recorder {
    seen: Vec<(String, i32, Option<Vec<u8>>)>,
    error_places: Vec<usize>,
}

impl Appender for Recorder {
    fn append(
        &mut self,
        topic: &str,
        partition: i32,
        records: Option<&mut [u8]>,
        error_at: usize,
    ) -> Produced {
        self.seen.push((topic.to_owned(), partition, records.as_deref().map(<[u8]>::to_vec)));
        self.error_places.push(error_at);
        if let Some(records) = records {
            records.fill(0xff);
        }
        Produced {
            base_offset: 100 + i64::from(partition),
            log_start_offset: 3,
            ..Produced::error(0)
        }
    }

    fn throttle_time_ms(&mut self) -> i32 {
        250
    }
}

/// Checks and serves a request.
fn serve(
    body: &mut [u8],
    version: i16,
    into: &mut Vec<u8>,
    recorder: &mut Recorder,
) -> Result<(), kafka::WireError> {
    let start = ProduceStart::read(body, version)?;
    let checked = Checked::read(body, version, &start, &mut |_, _, _| ())?;
    produce::serve(body, &checked, into, recorder)
}

fn produce_request() -> ProduceRequest {
    let partition = |index: i32, records: Option<&'static [u8]>| {
        PartitionProduceData::default()
            .with_index(index)
            .with_records(records.map(Bytes::from_static))
    };
    let topic = |text, partitions| {
        TopicProduceData::default().with_name(name(text)).with_partition_data(partitions)
    };
    ProduceRequest::default()
        .with_transactional_id(Some(TransactionalId(StrBytes::from_static_str("transfer"))))
        .with_acks(-1)
        .with_timeout_ms(1_500)
        .with_topic_data(vec![
            topic("orders", vec![partition(0, Some(b"first")), partition(7, Some(b""))]),
            topic("empty", Vec::new()),
            topic("prices", vec![partition(1, None)]),
        ])
}

#[test]
fn produce_is_read_in_place_and_answered() {
    for version in versions(ApiKey::Produce) {
        let mut body = encode(&produce_request(), version);
        let start = ProduceStart::read(&body, version).expect("a good request");
        assert_eq!(start.transactional_id, Some("transfer"));
        assert_eq!((start.acks, start.timeout_ms), (-1, 1_500));

        let mut recorder = Recorder::default();
        let mut response = Vec::new();
        serve(&mut body, version, &mut response, &mut recorder).expect("a good request");
        let expected = [
            ("orders".to_owned(), 0, Some(b"first".to_vec())),
            ("orders".to_owned(), 7, Some(Vec::new())),
            ("prices".to_owned(), 1, None),
        ];
        assert_eq!(recorder.seen, expected, "version {version}");

        // Overwrites the error code of a partition after the response was written.
        let late = recorder.error_places[1];
        response[late..late + 2].copy_from_slice(&56_i16.to_be_bytes());
        let mut bytes = Bytes::from(response);
        let response = ProduceResponse::decode(&mut bytes, version).expect("a good response");
        assert!(bytes.is_empty(), "version {version}");
        let seen: Vec<_> = response
            .responses
            .iter()
            .flat_map(|topic| {
                topic
                    .partition_responses
                    .iter()
                    .map(|it| (topic.name.0.to_string(), it.index, it.error_code, it.base_offset))
            })
            .collect();
        let answered = [
            ("orders".to_owned(), 0, 0, 100),
            ("orders".to_owned(), 7, 56, 107),
            ("prices".to_owned(), 1, 0, 101),
        ];
        assert_eq!(seen, answered, "version {version}");
        assert_eq!(response.throttle_time_ms, 250, "version {version}");
    }
}

#[test]
fn of_a_partition_that_is_named_again_the_last_records_count_and_are_answered_alone() {
    // Numbers of partitions below, at and above the bound of the linear search, with duplicates in
    // the same topic entry and in another one.
    for (count, again) in [(1, 1), (2, 0), (7, 3), (8, 8), (9, 1), (9, 9), (40, 17)] {
        let partition = |number: i32, records: u8| {
            let records = Some(Bytes::copy_from_slice(&[records]));
            PartitionProduceData::default().with_index(number % count).with_records(records)
        };
        let topic = |text: &str, partitions: Vec<_>| {
            let name = TopicName(StrBytes::from_string(text.to_owned()));
            TopicProduceData::default().with_name(name).with_partition_data(partitions)
        };
        let first = (0..count).map(|number| partition(number, 1)).collect();
        let more = (0..again).map(|number| partition(number, 2)).collect();
        let other = vec![partition(0, 1), partition(0, 3)];
        let topics = vec![topic("a", first), topic("b", other), topic("a", more)];
        let request = ProduceRequest::default().with_acks(-1).with_topic_data(topics);
        for version in versions(ApiKey::Produce) {
            let case = format!("{count} and {again} again, version {version}");
            let mut body = encode(&request, version);
            let (mut recorder, mut response) = (Recorder::default(), Vec::new());
            serve(&mut body, version, &mut response, &mut recorder).expect("a good request");
            let seen = |text: &str, number: i32, records: u8| {
                (text.to_owned(), number, Some(vec![records]))
            };
            let again = again.min(count);
            let first = (again..count).map(|number| seen("a", number, 1));
            let more = (0..again).map(|number| seen("a", number, 2));
            let expected: Vec<_> = first.chain([seen("b", 0, 3)]).chain(more).collect();
            assert_eq!(recorder.seen, expected, "{case}");
            let mut bytes = Bytes::from(response);
            let response = ProduceResponse::decode(&mut bytes, version).expect("a good response");
            let counts = response.responses.iter().map(|it| it.partition_responses.len());
            let expected = [count - again, 1, again].map(|it| usize::try_from(it).expect("few"));
            assert_eq!(counts.collect::<Vec<_>>(), expected, "{case}");
        }
    }
}

#[test]
fn a_produce_request_that_is_cut_appends_nothing() {
    for version in versions(ApiKey::Produce) {
        let whole = encode(&produce_request(), version);
        for length in 0..whole.len() {
            let mut recorder = Recorder::default();
            let mut body = whole[..length].to_vec();
            let served = serve(&mut body, version, &mut Vec::new(), &mut recorder);
            assert!(served.is_err(), "version {version}, {length} bytes");
            assert!(recorder.seen.is_empty(), "version {version}, {length} bytes");
        }
    }
}

#[derive(Default)]
struct Wanted {
    wanted: Vec<(String, FetchPartition)>,
    forgotten: Vec<(String, i32)>,
}

fn text(topic: TopicRef<'_>) -> String {
    match topic {
        TopicRef::Name(name) => name.to_owned(),
        TopicRef::Id(id) => format!("id {}", id[15]),
    }
}

impl FetchVisitor for Wanted {
    fn want(&mut self, topic: TopicRef<'_>, partition: FetchPartition) {
        self.wanted.push((text(topic), partition));
    }

    fn forget(&mut self, topic: TopicRef<'_>, index: i32) {
        self.forgotten.push((text(topic), index));
    }
}

fn fetch_request(version: i16) -> FetchRequest {
    let partition = kafka_protocol::messages::fetch_request::FetchPartition::default()
        .with_partition(3)
        .with_current_leader_epoch(if version >= 9 { 5 } else { -1 })
        .with_fetch_offset(1_000)
        .with_last_fetched_epoch(if version >= 12 { 4 } else { -1 })
        .with_partition_max_bytes(1 << 20);
    let mut topic = FetchTopic::default().with_partitions(vec![partition]);
    let mut forgotten = ForgottenTopic::default().with_partitions(vec![8, 9]);
    if version >= 13 {
        topic = topic.with_topic_id(uuid::Uuid::from_u128(1));
        forgotten = forgotten.with_topic_id(uuid::Uuid::from_u128(2));
    } else {
        topic = topic.with_topic(name("orders"));
        forgotten = forgotten.with_topic(name("old"));
    }
    let request = FetchRequest::default()
        .with_max_wait_ms(500)
        .with_min_bytes(1)
        .with_max_bytes(50 << 20)
        .with_isolation_level(1)
        .with_topics(vec![topic]);
    if version < 7 {
        return request;
    }
    request.with_session_id(77).with_session_epoch(2).with_forgotten_topics_data(vec![forgotten])
}

#[test]
fn fetch_is_read() {
    for version in versions(ApiKey::Fetch) {
        let body = encode(&fetch_request(version), version);
        let mut wanted = Wanted::default();
        let start = fetch::read(&body, version, &mut wanted).expect("a good request");
        let (session_id, session_epoch) = if version >= 7 { (77, 2) } else { (0, -1) };
        let expected = FetchStart {
            max_wait_ms: 500,
            min_bytes: 1,
            max_bytes: 50 << 20,
            is_committed_only: true,
            session_id,
            session_epoch,
            is_by_id: version >= 13,
        };
        assert_eq!(start, expected, "version {version}");
        let partition = FetchPartition {
            index: 3,
            leader_epoch: if version >= 9 { 5 } else { -1 },
            offset: 1_000,
            last_fetched_epoch: if version >= 12 { 4 } else { -1 },
            max_bytes: 1 << 20,
        };
        let (name, old) = if version >= 13 { ("id 1", "id 2") } else { ("orders", "old") };
        assert_eq!(wanted.wanted, [(name.to_owned(), partition)], "version {version}");
        if version >= 7 {
            assert_eq!(wanted.forgotten, [(old.to_owned(), 8), (old.to_owned(), 9)]);
        }
        for length in 0..body.len() {
            let cut = fetch::read(&body[..length], version, &mut Wanted::default());
            assert!(cut.is_err(), "version {version}, {length} bytes");
        }
    }
}

#[test]
fn fetch_is_answered() {
    for version in versions(ApiKey::Fetch) {
        let mut bytes = Vec::new();
        let aborted = [AbortedTransaction { producer_id: 6, first_offset: 12 }];
        let mut writer = FetchWriter::new(&mut bytes, version);
        writer.begin(FetchBegin {
            throttle_time_ms: 250,
            error_code: 0,
            session_id: 77,
            topic_count: 1,
        });
        writer.begin_topic("orders", [1; 16], 1);
        writer.begin_partition(&Fetched {
            index: 3,
            error_code: 0,
            high_watermark: 20,
            last_stable_offset: 19,
            log_start_offset: 2,
            aborted: Some(&aborted),
            records_bytes: 7,
        });
        bytes.extend(b"records");
        let mut writer = FetchWriter::new(&mut bytes, version);
        writer.end_partition();
        writer.end_topic();
        writer.end();
        let mut bytes = Bytes::from(bytes);
        let response = FetchResponse::decode(&mut bytes, version).expect("a good response");
        assert!(bytes.is_empty(), "version {version}");
        assert_eq!(response.throttle_time_ms, 250, "version {version}");
        assert_eq!(response.session_id, if version >= 7 { 77 } else { 0 }, "version {version}");
        let partition = &response.responses[0].partitions[0];
        assert_eq!(partition.records.as_deref(), Some(&b"records"[..]));
        assert_eq!((partition.partition_index, partition.high_watermark), (3, 20));
        assert_eq!(partition.last_stable_offset, 19);
        let found = partition.aborted_transactions.as_ref().expect("they were written");
        assert_eq!((found[0].producer_id.0, found[0].first_offset), (6, 12));
    }
}
