//! Compares the crate's parsers of Produce and Fetch with the decoders of `kafka-protocol`. The
//! parsers must return the same contents, but may accept more, such as null for an empty name.

use kafka::fetch::{self, FetchVisitor, TopicRef};
use kafka::produce::{self, Appender, Checked, ProduceStart, Produced};
use kafka_protocol::messages::{FetchRequest, ProduceRequest, ProduceResponse};
use kafka_protocol::protocol::Decodable;

/// Topic, partition and records.
type Records = (String, i32, Option<Vec<u8>>);

#[derive(Default)]
struct Recorder {
    appended: Vec<Records>,
}

impl Appender for Recorder {
    fn append(
        &mut self,
        topic: &str,
        partition: i32,
        records: Option<&mut [u8]>,
        _error_at: usize,
    ) -> Produced {
        self.appended.push((topic.to_owned(), partition, records.as_deref().map(<[u8]>::to_vec)));
        // Modified records must not affect the following partitions.
        records.into_iter().for_each(|it| it.fill(0xFF));
        Produced::error(0)
    }

    fn throttle_time_ms(&mut self) -> i32 {
        0
    }
}

/// Serves a Produce request. `decoded` is the result of `kafka-protocol`, if decoding succeeded.
pub(crate) fn produce(version: i16, body: &[u8], decoded: Option<&ProduceRequest>) {
    let mut recorder = Recorder::default();
    let (mut own_body, mut response) = (body.to_vec(), Vec::new());
    let start = ProduceStart::read(body, version);
    let served = start.and_then(|start| {
        let checked = Checked::read(body, version, &start, &mut |_, _, _| ())?;
        produce::serve(&mut own_body, &checked, &mut response, &mut recorder)
    });
    if served.is_err() {
        assert!(recorder.appended.is_empty(), "nothing is appended of a broken request");
        assert!(decoded.is_none(), "version {version}: {served:?}: {body:?}");
        return;
    }
    check_response(version, &response, &recorder.appended);
    let Some(decoded) = decoded else { return };
    let start = start.expect("a request that was served begins well");
    let id = decoded.transactional_id.as_ref().map(|it| it.0.as_str());
    assert_eq!(start.transactional_id, id);
    assert_eq!((start.acks, start.timeout_ms), (decoded.acks, decoded.timeout_ms));
    let mut expected = Vec::new();
    for topic in &decoded.topic_data {
        for it in &topic.partition_data {
            let records = it.records.as_deref().map(<[u8]>::to_vec);
            expected.push((topic.name.to_string(), it.index, records));
        }
    }
    assert_eq!(recorder.appended, expected);
}

/// Checks that the response contains each partition of the request, in order.
fn check_response(version: i16, response: &[u8], appended: &[Records]) {
    let mut left = response;
    let response = ProduceResponse::decode(&mut left, version).expect("a good response");
    assert!(left.is_empty());
    let mut expected = appended.iter();
    for topic in &response.responses {
        for it in &topic.partition_responses {
            let (name, index, _) = expected.next().expect("it was in the request");
            assert_eq!((topic.name.as_str(), it.index), (name.as_str(), *index));
        }
    }
    assert!(expected.next().is_none(), "each partition is answered");
}

/// Name or id of a topic in bytes.
type Name = Vec<u8>;

/// Topic, partition, leader epoch, offset, last fetched epoch, and maximum bytes.
type Wanted = (Name, i32, i32, i64, i32, i32);

#[derive(Default)]
struct Visited {
    wanted: Vec<Wanted>,
    forgotten: Vec<(Name, i32)>,
}

fn name_of(topic: TopicRef<'_>) -> Name {
    match topic {
        TopicRef::Name(name) => name.as_bytes().to_vec(),
        TopicRef::Id(id) => id.to_vec(),
    }
}

impl FetchVisitor for Visited {
    fn want(&mut self, topic: TopicRef<'_>, it: fetch::FetchPartition) {
        self.wanted.push((
            name_of(topic),
            it.index,
            it.leader_epoch,
            it.offset,
            it.last_fetched_epoch,
            it.max_bytes,
        ));
    }

    fn forget(&mut self, topic: TopicRef<'_>, index: i32) {
        self.forgotten.push((name_of(topic), index));
    }
}

/// First version of Fetch that identifies topics by id.
const IDS_FROM: i16 = 13;

/// Parses a Fetch request. `decoded` is the result of `kafka-protocol`, if decoding succeeded.
pub(crate) fn fetch(version: i16, body: &[u8], decoded: Option<&FetchRequest>) {
    let mut visited = Visited::default();
    let read = fetch::read(body, version, &mut visited);
    let Some(decoded) = decoded else { return };
    let start = read.unwrap_or_else(|it| panic!("version {version}: {it:?}: {body:?}"));
    let limits = (start.max_wait_ms, start.min_bytes, start.max_bytes);
    assert_eq!(limits, (decoded.max_wait_ms, decoded.min_bytes, decoded.max_bytes));
    assert_eq!(start.is_committed_only, decoded.isolation_level == 1);
    let session = (start.session_id, start.session_epoch);
    assert_eq!(session, (decoded.session_id, decoded.session_epoch));
    let name = |name: &str, id: &[u8; 16]| {
        if version >= IDS_FROM { id.to_vec() } else { name.as_bytes().to_vec() }
    };
    let mut expected = Visited::default();
    for topic in &decoded.topics {
        for it in &topic.partitions {
            expected.wanted.push((
                name(&topic.topic, topic.topic_id.as_bytes()),
                it.partition,
                it.current_leader_epoch,
                it.fetch_offset,
                it.last_fetched_epoch,
                it.partition_max_bytes,
            ));
        }
    }
    for topic in &decoded.forgotten_topics_data {
        for index in &topic.partitions {
            expected.forgotten.push((name(&topic.topic, topic.topic_id.as_bytes()), *index));
        }
    }
    assert_eq!(visited.wanted, expected.wanted);
    assert_eq!(visited.forgotten, expected.forgotten);
}
