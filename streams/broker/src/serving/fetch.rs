//! Fetch: returns records of partitions, immediately or when enough are available.

use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use access::{Operation, Resource};
use kafka::fetch::{AbortedTransaction, FetchBegin, FetchStart, FetchWriter, Fetched};
use kafka::{RequestHeader, WireError};
use kafka_protocol::error::ResponseError;
use record_log::LogErrorKind;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::asked::Asked;
use super::buffers::Buffers;
use super::client::Client;
use super::session::{Changes, Tracked};
use super::session_cache::Sessions;
use crate::broker::Broker;
use crate::operation::Flow;
use crate::topics::{OpenPartition, error_of};
use crate::waiting;

/// Maximum bytes of records in a response, except for a single batch that is longer.
const RESPONSE_BYTES_MAX: usize = 16 << 20;

/// Limits of unused space in the buffers of a response's records: a buffer is copied if it is
/// longer than this and longer than `SLACK_SHARE` times its records.
const SLACK_BYTES_MAX: usize = 16 << 10;
const SLACK_SHARE: usize = 4;

/// Maximum wait that a client can request.
const WAIT_MAX: Duration = Duration::from_secs(300);

/// An undecoded request that waits for its turn. The decoded request takes more memory, and exists
/// for only one request of a connection at a time.
#[derive(Debug)]
pub(crate) struct FetchJob {
    asked: Asked,
    frame: Box<[u8]>,
    body_at: usize,
}

impl FetchJob {
    pub(super) fn new(asked: Asked, frame: &[u8], body_at: usize) -> Self {
        Self { asked, frame: frame.into(), body_at }
    }

    /// Decodes the request. If that fails, the client is logged.
    fn read(&self, client: &Client) -> Result<(FetchStart, Changes), WireError> {
        let mut changes = Changes::default();
        let body = &self.frame[self.body_at..];
        match kafka::fetch::read(body, self.asked.version, &mut changes) {
            Ok(start) => Ok((start, changes)),
            Err(error) => {
                let client_id = RequestHeader::read(&self.frame)?.client_id;
                client.note_unreadable(self.asked, client_id, &error);
                Err(error)
            }
        }
    }
}

/// A response: encoded bytes with records in between, which are sent from the buffers into which
/// they were read.
#[derive(Debug, Default)]
pub(crate) struct FetchFrame {
    head: Vec<u8>,
    /// Position in `head` of each run of records.
    records: Vec<(usize, Records)>,
}

/// Records of one partition, in a buffer.
#[derive(Debug)]
struct Records {
    buffer: Vec<u8>,
    range: Range<usize>,
    record_count: u64,
}

impl FetchFrame {
    /// Returns the slices of the frame in the order of transmission.
    pub(crate) fn slices(&self) -> Vec<IoSlice<'_>> {
        let mut slices = Vec::with_capacity(2 * self.records.len() + 1);
        let mut at = 0;
        for (position, records) in &self.records {
            slices.push(IoSlice::new(&self.head[at..*position]));
            slices.push(IoSlice::new(&records.buffer[records.range.clone()]));
            at = *position;
        }
        slices.push(IoSlice::new(&self.head[at..]));
        slices
    }

    /// Returns the buffers to the pool.
    pub(crate) fn recycle(self, broker: &Broker) {
        for (_, records) in self.records {
            broker.buffers.give(records.buffer);
        }
    }
}

/// Result for a partition.
#[derive(Debug)]
struct Found {
    error: Option<ResponseError>,
    high_watermark: i64,
    last_stable_offset: i64,
    log_start_offset: i64,
    aborted: Vec<AbortedTransaction>,
    records: Option<Records>,
    /// Bytes that count towards the minimum of the request. For a partition with more records than
    /// one response can contain, the maximum for the partition counts.
    counted_bytes: usize,
    /// Bytes that were read of a batch that exceeds the limit of the request.
    vain_bytes: usize,
}

impl Found {
    fn error(error: ResponseError) -> Self {
        Self {
            error: Some(error),
            high_watermark: -1,
            last_stable_offset: -1,
            log_start_offset: -1,
            aborted: Vec::new(),
            records: None,
            counted_bytes: 0,
            vain_bytes: 0,
        }
    }

    fn records_bytes(&self) -> usize {
        self.records.as_ref().map_or(0, |records| records.range.len())
    }
}

/// Serves a request. If too few records are available, waits as long as the request allows.
pub(super) async fn serve(
    broker: &Broker,
    client: &Client,
    sessions: &Sessions,
    job: FetchJob,
) -> Result<FetchFrame, WireError> {
    let (start, changes) = job.read(client)?;
    let asked = job.asked;
    drop(job);
    let mut session = match sessions.begin(&start, changes, client.owner()) {
        Ok(session) => session,
        Err(error) => {
            broker.counters.error(asked.key, error.code());
            let begin = FetchBegin { error_code: error.code(), ..FetchBegin::default() };
            return Ok(bare(asked, begin));
        }
    };
    let owed_ms = client.charge(broker, Flow::Fetch, 0);
    if owed_ms > 0 {
        // Other clients of the principal have used up its rate: no records are returned until the
        // throttle time has passed. As in Kafka, an existing session continues, and no new one is
        // created.
        let session_id = if session.is_incremental { session.id } else { 0 };
        if session.is_incremental {
            sessions.keep(session);
        }
        let throttle_time_ms = owed_ms;
        let begin = FetchBegin { throttle_time_ms, session_id, ..FetchBegin::default() };
        return Ok(bare(asked, begin));
    }
    session.resolve(|topic| find(broker, client, topic));
    let found = find_enough(broker, client, &session.tracked, &start).await;
    for it in found.iter().filter_map(|it| it.error) {
        broker.counters.error(asked.key, it.code());
    }
    let bytes = found.iter().map(Found::records_bytes).sum();
    let throttle_time_ms = client.charge(broker, Flow::Fetch, bytes);
    let frame = write(asked, &mut session, found, throttle_time_ms);
    session.turn();
    sessions.keep(session);
    Ok(frame)
}

/// Waits until the minimum bytes are available, or the time is up.
async fn find_enough(
    broker: &Broker,
    client: &Client,
    tracked: &[Tracked],
    start: &FetchStart,
) -> Vec<Found> {
    let wait = Duration::from_millis(u64::try_from(start.max_wait_ms).unwrap_or(0)).min(WAIT_MAX);
    let deadline = Instant::now() + wait;
    let bytes_min = bytes_min(tracked, start);
    let watcher = Arc::new(Notify::new());
    let mut stops = broker.stops.clone();
    loop {
        watch(tracked, &watcher);
        let (mut seen, found) = {
            let _place = waiting::place(client.owner()).await;
            (Seen::before_a_look(tracked, start), look(broker, tracked, start))
        };
        let counted = found.iter().fold(0, |sum: usize, it| sum.saturating_add(it.counted_bytes));
        let is_enough = counted >= bytes_min.max(1) || found.iter().any(|it| it.error.is_some());
        // A request without partitions, such as the last one of a consumer, need not wait.
        let is_last = bytes_min == 0 || tracked.is_empty() || *stops.borrow();
        if is_enough || is_last || Instant::now() >= deadline {
            return found;
        }
        seen.note(&found);
        found.into_iter().filter_map(|it| it.records).for_each(|it| broker.buffers.give(it.buffer));
        // The records are read again if there may be enough, the time is up or the broker stops.
        loop {
            tokio::select! {
                _either = tokio::time::timeout_at(deadline, watcher.notified()) => {}
                _stops = stops.wait_for(|stops| *stops) => {}
            }
            watch(tracked, &watcher);
            let is_last = *stops.borrow() || Instant::now() >= deadline;
            let _place = waiting::place(client.owner()).await;
            if is_last || seen.may_be_enough(tracked, start, bytes_min) {
                break;
            }
        }
    }
}

fn limit(bytes: i32) -> usize {
    usize::try_from(bytes).unwrap_or(0)
}

/// Returns the maximum bytes of records in the response.
fn response_bytes_max(start: &FetchStart) -> usize {
    limit(start.max_bytes).min(RESPONSE_BYTES_MAX)
}

/// Returns the minimum bytes for which the client waits, capped by the limits of the response.
fn bytes_min(tracked: &[Tracked], start: &FetchStart) -> usize {
    let of_each = tracked.iter().map(|it| limit(it.want.max_bytes));
    let of_all = of_each.fold(0, usize::saturating_add);
    limit(start.min_bytes).min(response_bytes_max(start).min(of_all).max(1))
}

/// Registers the task to be woken by appends from now on.
fn watch(tracked: &[Tracked], watcher: &Arc<Notify>) {
    for partition in tracked.iter().filter_map(|it| it.partition.as_ref().ok()) {
        partition.watchers.add(watcher);
    }
}

/// Progress of a waiting request in each partition, so that partitions are read again only if there
/// may be enough records.
struct Seen(Vec<SeenPartition>);

struct SeenPartition {
    end_offset: i64,
    bytes: usize,
}

impl Seen {
    fn before_a_look(tracked: &[Tracked], start: &FetchStart) -> Self {
        let end = |it: &Tracked| {
            let partition = it.partition.as_ref().ok();
            partition.map_or(-1, |it| end_offset(it, start.is_committed_only))
        };
        let seen = |it: &Tracked| SeenPartition { end_offset: end(it), bytes: 0 };
        Self(tracked.iter().map(seen).collect())
    }

    fn note(&mut self, found: &[Found]) {
        for (seen, found) in self.0.iter_mut().zip(found) {
            seen.bytes = found.counted_bytes;
        }
    }

    /// Returns whether enough records may be available, or another change must be reported. Reads
    /// no records.
    fn may_be_enough(&self, tracked: &[Tracked], start: &FetchStart, bytes_min: usize) -> bool {
        let mut bytes: usize = 0;
        for (seen, it) in self.0.iter().zip(tracked) {
            let Ok(partition) = &it.partition else { continue };
            let log = &partition.log;
            if it.want.offset < log.start_offset() || it.want.offset > log.stable_offset() {
                return true;
            }
            let end_offset = end_offset(partition, start.is_committed_only);
            let from = seen.end_offset.max(it.want.offset);
            let more = if end_offset > from { log.bytes_between(from, end_offset) } else { 0 };
            let all = seen.bytes.saturating_add(usize::try_from(more).unwrap_or(usize::MAX));
            bytes = bytes.saturating_add(all.min(limit(it.want.max_bytes).max(1)).max(seen.bytes));
        }
        bytes >= bytes_min.max(1)
    }
}

/// Returns the end of the records that the client may read.
fn end_offset(partition: &OpenPartition, is_committed_only: bool) -> i64 {
    match is_committed_only {
        true => partition.log.last_stable_offset(),
        false => partition.log.stable_offset(),
    }
}

/// Looks up the current partition for a request.
fn find(
    broker: &Broker,
    client: &Client,
    tracked: &mut Tracked,
) -> Result<Arc<OpenPartition>, ResponseError> {
    let check = |name: &str| match client.may(broker, Operation::Read, Resource::topic(name)) {
        true => Ok(()),
        false => Err(ResponseError::TopicAuthorizationFailed),
    };
    let topic = match tracked.is_by_id {
        true => {
            // As in Kafka, which keeps the name once the id was resolved.
            let unknown = match tracked.was_found {
                true => ResponseError::UnknownTopicOrPartition,
                false => ResponseError::UnknownTopicId,
            };
            let topic = broker.topics.by_id(tracked.id).ok_or(unknown)?;
            tracked.was_found = true;
            check(&topic.name)?;
            topic
        }
        false => {
            check(&tracked.name)?;
            broker.topics.by_name(&tracked.name).ok_or(ResponseError::UnknownTopicOrPartition)?
        }
    };
    topic.partition(tracked.want.index).ok_or(ResponseError::UnknownTopicOrPartition)
}

/// Reads the available records, up to the limits of the request.
fn look(broker: &Broker, tracked: &[Tracked], start: &FetchStart) -> Vec<Found> {
    let mut left = Left::new(response_bytes_max(start));
    let mut all = Vec::with_capacity(tracked.len());
    for it in tracked {
        let partition = match &it.partition {
            Ok(partition) => partition,
            Err(error) => {
                all.push(Found::error(*error));
                continue;
            }
        };
        let wanted = Wanted {
            bytes_max: left.of(it.want.max_bytes),
            is_negative: it.want.max_bytes.min(start.max_bytes) < 0,
            is_first: left.is_first,
            is_committed_only: start.is_committed_only,
        };
        let found = read(broker, partition, it, &wanted);
        left.take(found.records_bytes(), found.vain_bytes);
        all.push(found);
    }
    all
}

/// Remaining limits of a response.
#[derive(Debug)]
struct Left {
    bytes: usize,
    /// Remaining bytes that may be read without result: one request may name many partitions whose
    /// batches are too long.
    vain_bytes: usize,
    /// True until records were found.
    is_first: bool,
}

impl Left {
    fn new(bytes: usize) -> Self {
        Self { bytes, vain_bytes: RESPONSE_BYTES_MAX, is_first: true }
    }

    /// Returns the limit for a partition for which the client requests `bytes_max`.
    fn of(&self, bytes_max: i32) -> usize {
        if self.vain_bytes == 0 {
            return 0;
        }
        limit(bytes_max).min(self.bytes)
    }

    fn take(&mut self, records_bytes: usize, vain_bytes: usize) {
        self.bytes = self.bytes.saturating_sub(records_bytes);
        self.vain_bytes = self.vain_bytes.saturating_sub(vain_bytes);
        self.is_first &= records_bytes == 0;
    }
}

struct Wanted {
    bytes_max: usize,
    /// True if the client's limit is negative.
    is_negative: bool,
    /// True if the response has no records yet: the first batch is returned even above the limit.
    is_first: bool,
    is_committed_only: bool,
}

fn read(broker: &Broker, partition: &OpenPartition, it: &Tracked, wanted: &Wanted) -> Found {
    let log = &partition.log;
    let (start_offset, stable_offset) = (log.start_offset(), log.stable_offset());
    let epoch = log.epoch();
    if it.want.leader_epoch >= 0 && it.want.leader_epoch != epoch {
        return Found::error(match it.want.leader_epoch < epoch {
            true => ResponseError::FencedLeaderEpoch,
            false => ResponseError::UnknownLeaderEpoch,
        });
    }
    if !(start_offset..=stable_offset).contains(&it.want.offset) {
        return Found::error(ResponseError::OffsetOutOfRange);
    }
    let last_stable_offset = log.last_stable_offset();
    let mut found = Found {
        error: None,
        high_watermark: stable_offset,
        last_stable_offset,
        log_start_offset: start_offset,
        aborted: Vec::new(),
        records: None,
        counted_bytes: 0,
        vain_bytes: 0,
    };
    let end = if wanted.is_committed_only { last_stable_offset } else { stable_offset };
    if it.want.offset < end && wanted.is_negative {
        // The same error as in Kafka.
        return Found::error(ResponseError::UnknownServerError);
    }
    if it.want.offset >= end || (wanted.bytes_max == 0 && !wanted.is_first) {
        return found;
    }
    let mut buffer = broker.buffers.take();
    let read = match wanted.is_first {
        true => log.read(it.want.offset, wanted.bytes_max, &mut buffer),
        false => log.read_within(it.want.offset, wanted.bytes_max, &mut buffer),
    };
    match read {
        Ok(range) => {
            let CutRecords { range, record_count, next_offset } = cut(&buffer, range, end);
            // Counted even if no records are returned because the batch is too long.
            found.counted_bytes = match next_offset < end {
                true => range.len().max(wanted.bytes_max),
                false => range.len(),
            };
            if range.is_empty() {
                found.vain_bytes = wanted.bytes_max;
                broker.buffers.give(buffer);
                return found;
            }
            if wanted.is_committed_only {
                found.aborted = aborted(partition, &buffer[range.clone()]);
            }
            let (buffer, range) = fit(&broker.buffers, buffer, range);
            found.records = Some(Records { buffer, range, record_count });
            found
        }
        Err(error) => {
            broker.buffers.give(buffer);
            if error.kind != LogErrorKind::OffsetOutOfRange {
                let error = error.with_causes();
                tracing::error!(partition = log.number(), error, "cannot read");
            }
            Found::error(error_of(error.kind))
        }
    }
}

/// Copies the records to a smaller buffer if too much of the buffer is unused: the buffers of all
/// partitions of a response exist at the same time.
fn fit(buffers: &Buffers, buffer: Vec<u8>, range: Range<usize>) -> (Vec<u8>, Range<usize>) {
    if buffer.capacity() <= SLACK_BYTES_MAX || buffer.capacity() / SLACK_SHARE <= range.len() {
        return (buffer, range);
    }
    let fitting = buffer[range].to_vec();
    buffers.give(buffer);
    let whole = 0..fitting.len();
    (fitting, whole)
}

/// Complete batches before an offset.
struct CutRecords {
    range: Range<usize>,
    record_count: u64,
    /// Offset after the last batch.
    next_offset: i64,
}

fn cut(buffer: &[u8], range: Range<usize>, end_offset: i64) -> CutRecords {
    let (start, mut end, mut record_count) = (range.start, range.start, 0);
    let mut next_offset = -1;
    for batch in record_batch::headers(&buffer[range]) {
        if batch.base_offset >= end_offset {
            break;
        }
        end += batch.size_bytes;
        record_count += u64::try_from(batch.record_count).unwrap_or(0);
        next_offset = batch.next_offset();
    }
    CutRecords { range: start..end, record_count, next_offset }
}

fn aborted(partition: &OpenPartition, batches: &[u8]) -> Vec<AbortedTransaction> {
    let mut headers = record_batch::headers(batches);
    let Some(first) = headers.next() else { return Vec::new() };
    let last = headers.last().unwrap_or(first);
    let aborted = partition.log.aborted(first.base_offset..last.next_offset());
    aborted
        .iter()
        .map(|it| AbortedTransaction { producer_id: it.producer_id, first_offset: it.first_offset })
        .collect()
}

/// Encodes the results. An incremental session omits partitions without changes.
fn write(
    asked: Asked,
    session: &mut super::session::Session,
    found: Vec<Found>,
    throttle_time_ms: i32,
) -> FetchFrame {
    let mut frame = FetchFrame::default();
    kafka::begin_response(asked.key, asked.version, asked.correlation_id, &mut frame.head);
    let mut shown: Vec<(usize, Found)> = Vec::new();
    for (index, found) in found.into_iter().enumerate() {
        let news = (found.high_watermark, found.log_start_offset, found.last_stable_offset);
        let is_news = session.tracked[index].sent != Some(news)
            || found.records.is_some()
            || found.error.is_some();
        if !session.is_incremental || is_news {
            session.tracked[index].sent = found.error.is_none().then_some(news);
            shown.push((index, found));
        }
    }
    // Partitions of the same topic must be adjacent.
    shown.sort_by(|(a, _), (b, _)| {
        let key = |index: usize| (&session.tracked[index].name, session.tracked[index].id);
        key(*a).cmp(&key(*b))
    });
    let runs: Vec<usize> = shown
        .chunk_by(|(a, _), (b, _)| session.tracked[*a].is_same_topic(&session.tracked[*b]))
        .map(<[_]>::len)
        .collect();
    let mut writer = FetchWriter::new(&mut frame.head, asked.version);
    writer.begin(FetchBegin {
        throttle_time_ms,
        error_code: 0,
        session_id: session.id,
        topic_count: runs.len(),
    });
    let mut shown = shown.into_iter();
    for count in runs {
        for (nth, (index, found)) in shown.by_ref().take(count).enumerate() {
            let tracked = &session.tracked[index];
            let mut writer = FetchWriter::new(&mut frame.head, asked.version);
            if nth == 0 {
                writer.begin_topic(&tracked.name, tracked.id.into_bytes(), count);
            }
            writer.begin_partition(&Fetched {
                index: tracked.want.index,
                error_code: found.error.map_or(0, |error| error.code()),
                high_watermark: found.high_watermark,
                last_stable_offset: found.last_stable_offset,
                log_start_offset: found.log_start_offset,
                aborted: session.is_committed_only.then_some(&found.aborted),
                records_bytes: found.records_bytes(),
            });
            if let Ok(partition) = &tracked.partition {
                let record_count = found.records.as_ref().map_or(0, |it| it.record_count);
                partition.traffic.count_out(found.records_bytes(), record_count);
            }
            if let Some(records) = found.records {
                frame.records.push((frame.head.len(), records));
            }
            FetchWriter::new(&mut frame.head, asked.version).end_partition();
        }
        FetchWriter::new(&mut frame.head, asked.version).end_topic();
    }
    FetchWriter::new(&mut frame.head, asked.version).end();
    let records_bytes = frame.records.iter().map(|(_, records)| records.range.len()).sum();
    kafka::end_response(&mut frame.head, records_bytes);
    frame
}

/// Encodes a response without topics: an error of the whole request, or a throttle time.
fn bare(asked: Asked, begin: FetchBegin) -> FetchFrame {
    let mut frame = FetchFrame::default();
    kafka::begin_response(asked.key, asked.version, asked.correlation_id, &mut frame.head);
    let mut writer = FetchWriter::new(&mut frame.head, asked.version);
    writer.begin(begin);
    writer.end();
    kafka::end_response(&mut frame.head, 0);
    frame
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use access::{Principal, QuotaLimits};
    use bytes::BytesMut;
    use kafka_protocol::messages::{ApiKey, FetchRequest, FetchResponse, fetch_request};
    use kafka_protocol::protocol::{Decodable, Encodable};
    use record_batch::{BatchOptions, NewRecord, encode_batch};
    use record_log::Batch;
    use tokio::sync::watch;

    use super::super::test_broker::{broker, client, create_topic, name, storage};
    use super::*;

    /// A version with names of topics.
    const VERSION: i16 = 11;

    async fn ask(
        broker: &Broker,
        client: &Client,
        sessions: &Sessions,
        (request, version): (&FetchRequest, i16),
    ) -> FetchResponse {
        let mut frame = BytesMut::new();
        request.encode(&mut frame, version).expect("it is plain");
        let asked = Asked { key: ApiKey::Fetch, version, correlation_id: 0 };
        let job = FetchJob::new(asked, &frame, 0);
        let answer = serve(broker, client, sessions, job).await.expect("a good request");
        // Behind the length, the correlation id and tags.
        let header_bytes = if version > VERSION { 9 } else { 8 };
        let bytes = answer.slices().iter().flat_map(|it| it.to_vec()).collect::<Vec<u8>>();
        FetchResponse::decode(&mut bytes::Bytes::from(bytes).slice(header_bytes..), version)
            .expect("an answer")
    }

    /// Asks for a topic in a session: the throttle time of the answer and the session's id there.
    async fn fetch(
        broker: &Broker,
        client: &Client,
        sessions: &Sessions,
        (id, epoch): (i32, i32),
    ) -> (i32, i32) {
        let partition = fetch_request::FetchPartition::default().with_partition_max_bytes(1);
        let topic = fetch_request::FetchTopic::default().with_topic(name("some"));
        let request = FetchRequest::default()
            .with_session_id(id)
            .with_session_epoch(epoch)
            .with_topics(vec![topic.with_partitions(vec![partition])]);
        let answer = ask(broker, client, sessions, (&request, VERSION)).await;
        (answer.throttle_time_ms, answer.session_id)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_topic_that_is_deleted_in_a_session_is_unknown_by_the_name_that_it_had() {
        const BY_ID: i16 = 13;
        let (_folder, storage) = storage();
        let (_stop, stops) = watch::channel(false);
        let broker = broker(&storage, stops);
        let id = create_topic(&broker, "some").id;
        let client = client(&broker, [192, 0, 2, 3]);
        let sessions = Sessions::new(&broker.sessions);
        let begin = |id| {
            let partition = fetch_request::FetchPartition::default();
            let topic = fetch_request::FetchTopic::default().with_topic_id(id);
            let topics = vec![topic.with_partitions(vec![partition])];
            FetchRequest::default().with_session_epoch(0).with_topics(topics)
        };
        let began = ask(&broker, &client, &sessions, (&begin(id), BY_ID)).await;
        let code = |answer: &FetchResponse| answer.responses[0].partitions[0].error_code;
        assert_eq!((began.session_id > 0, code(&began)), (true, 0));
        broker.topics.delete("some").expect("it is there");
        let next = FetchRequest::default().with_session_id(began.session_id).with_session_epoch(1);
        let went_on = ask(&broker, &client, &sessions, (&next, BY_ID)).await;
        assert_eq!(code(&went_on), ResponseError::UnknownTopicOrPartition.code());
        let anew = ask(&broker, &client, &sessions, (&begin(id), BY_ID)).await;
        assert_eq!(code(&anew), ResponseError::UnknownTopicId.code());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn limits_below_zero_are_refused_where_there_are_records() {
        let (_folder, storage) = storage();
        let (_stop, stops) = watch::channel(false);
        let broker = broker(&storage, stops);
        let topic = create_topic(&broker, "some");
        let record = NewRecord { value: Some("v".into()), ..NewRecord::default() };
        let bytes = encode_batch(&[record], &BatchOptions::default()).expect("a batch");
        let mut bytes = bytes.to_vec();
        let (mut batch, _) = Batch::split_first(&mut bytes).expect("a batch");
        topic.partition(0).expect("it is there").log.append(&mut batch, 0).expect("room");
        topic.stabilize().expect("there is no disk");
        let client = client(&broker, [192, 0, 2, 4]);
        let sessions = Sessions::new(&broker.sessions);
        let refused = ResponseError::UnknownServerError.code();
        for (all_bytes, own_bytes, offset, code) in
            [(-1, 9, 0, refused), (9, -1, 0, refused), (-1, -1, 1, 0), (0, 0, 0, 0)]
        {
            let partition = fetch_request::FetchPartition::default()
                .with_fetch_offset(offset)
                .with_partition_max_bytes(own_bytes);
            let topic = fetch_request::FetchTopic::default().with_topic(name("some"));
            let request = FetchRequest::default()
                .with_session_epoch(-1)
                .with_max_bytes(all_bytes)
                .with_topics(vec![topic.with_partitions(vec![partition])]);
            let answer = ask(&broker, &client, &sessions, (&request, VERSION)).await;
            assert_eq!(answer.responses[0].partitions[0].error_code, code, "{request:?}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_session_goes_on_while_its_client_is_throttled_and_none_begins() {
        let (_folder, storage) = storage();
        let (_stop, stops) = watch::channel(false);
        let broker = broker(&storage, stops);
        create_topic(&broker, "some");
        let client = client(&broker, [192, 0, 2, 2]);
        let sessions = Sessions::new(&broker.sessions);
        let (_, id) = fetch(&broker, &client, &sessions, (0, 0)).await;
        assert_ne!(id, 0);
        let memory = broker.sessions.taken();
        let slow = NonZeroU64::new(1);
        let limits = broker.rules.users().quota_of(&Principal::anonymous());
        let limits = QuotaLimits { fetch_bytes_per_second: slow, ..limits };
        broker.rules.quotas.set_limits(|_| limits);
        client.charge(&broker, Flow::Fetch, 1_000);
        let (throttle_ms, next) = fetch(&broker, &client, &sessions, (id, 1)).await;
        assert_eq!((throttle_ms > 0, next), (true, id));
        let (throttle_ms, none) = fetch(&broker, &client, &sessions, (0, 0)).await;
        assert_eq!((throttle_ms > 0, none), (true, 0));
        assert_eq!(broker.sessions.taken(), memory, "a session that its client does not know");
    }

    #[test]
    fn what_is_read_in_vain_for_one_request_is_bounded() {
        let mut left = Left::new(RESPONSE_BYTES_MAX);
        assert_eq!((left.of(1 << 20), left.is_first), (1 << 20, true));
        left.take(100, 0);
        assert!(!left.is_first);
        let mut vain = 0;
        for _ in 0..10_000 {
            let bytes = left.of(1 << 20);
            left.take(0, bytes);
            vain += bytes;
        }
        assert_eq!(vain, RESPONSE_BYTES_MAX);
        assert_eq!(left.of(1 << 20), 0);
    }

    #[test]
    fn a_few_records_do_not_hold_the_buffer_that_many_were_read_into() {
        let buffers = Buffers::default();
        let long = vec![7; 1 << 20];
        let (fitting, range) = fit(&buffers, long, 5..105);
        assert_eq!((&fitting[range], fitting.capacity()), (&[7; 100][..], 100));
        assert_eq!(buffers.take().len(), 1 << 20, "it is used again");
        let (full, range) = fit(&buffers, vec![7; 1 << 20], 5..(1 << 19));
        assert_eq!((full.len(), range), (1 << 20, 5..(1 << 19)), "nothing is copied");
    }
}
