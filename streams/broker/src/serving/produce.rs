//! Produce: appends records from the connection's buffer to the log. The reply follows when they
//! are stable.

use std::sync::Arc;

use access::{Operation, Resource};
use kafka::produce::{self, Appender, Checked, ProduceStart, Produced};
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::ApiKey;
use record_batch::{BatchHeader, Codec, HEADER_BYTES, declared_size};
use record_log::{Batch, LogError, LogErrorKind};

use super::answer::{Answer, ProducedAnswer, Wait};
use super::asked::Asked;
use super::client::Client;
use super::ending::Ending;
use super::transactional::Admission;
use super::validation::{Refusal, validate};
use crate::broker::Broker;
use crate::clock;
use crate::operation::Flow;
use crate::topics::{
    OpenPartition, OpenTopic, Pending, TopicSettings, error_of, is_of_full_pool, pool_is_full,
};

/// Position of the version (magic byte) of a batch.
const MAGIC_AT: usize = 16;

/// Processes a request: on return, all of its batches are appended or rejected. Returns `None` if
/// the client wants no reply.
pub(super) fn serve(
    broker: &Arc<Broker>,
    client: &Client,
    asked: Asked,
    body: &mut [u8],
    (checked, admission): &(Checked, Admission),
) -> Result<Option<Answer>, Ending> {
    let start = ProduceStart::read(body, asked.version)?;
    let (acks, timeout_ms) = (start.acks, start.timeout_ms);
    let mut frame = Vec::with_capacity(128);
    kafka::begin_response(asked.key, asked.version, asked.correlation_id, &mut frame);
    let mut appender = ProduceAppender {
        broker,
        client,
        now_ms: clock::unix_ms(),
        refusal: match acks {
            -1..=1 => admission.refusal,
            _ => Some(ResponseError::InvalidRequiredAcks),
        },
        is_transactional: start.transactional_id.is_some(),
        admission,
        topic: None,
        appended: Vec::new(),
        first_error: None,
        request_bytes: body.len(),
    };
    produce::serve(body, checked, &mut frame, &mut appender)?;
    if let (0, Some(error)) = (acks, appender.first_error) {
        stabilize(broker, appender.appended, &mut frame);
        // Closing the connection is the only way to tell the client that records were rejected.
        return Err(Ending::Unacknowledged(error));
    }
    let waits = stabilize(broker, appender.appended, &mut frame);
    kafka::end_response(&mut frame, 0);
    Ok(match (acks, waits.is_empty()) {
        (0, _) => None,
        (_, true) => Some(Answer::Ready(frame)),
        (_, false) => Some(Answer::Produced(ProducedAnswer { frame, waits, timeout_ms })),
    })
}

/// Result of an append to a partition.
struct AppendedTo {
    topic: Arc<OpenTopic>,
    partition: Arc<OpenPartition>,
    end_offset: i64,
    error_at: usize,
}

/// State of a request in progress.
struct ProduceAppender<'a> {
    broker: &'a Arc<Broker>,
    client: &'a Client,
    now_ms: i64,
    /// Error for all records of the request.
    refusal: Option<ResponseError>,
    is_transactional: bool,
    admission: &'a Admission,
    /// Topic of the last lookup.
    topic: Option<Arc<OpenTopic>>,
    appended: Vec<AppendedTo>,
    first_error: Option<ResponseError>,
    request_bytes: usize,
}

impl Appender for ProduceAppender<'_> {
    fn append(
        &mut self,
        topic: &str,
        partition: i32,
        records: Option<&mut [u8]>,
        error_at: usize,
    ) -> Produced {
        match self.try_append(topic, partition, records, error_at) {
            Ok(produced) => produced,
            Err(refusal) => {
                self.broker.counters.error(ApiKey::Produce, refusal.error.code());
                self.first_error.get_or_insert(refusal.error);
                refusal.into_produced()
            }
        }
    }

    fn throttle_time_ms(&mut self) -> i32 {
        self.client.charge(self.broker, Flow::Produce, self.request_bytes)
    }
}

impl ProduceAppender<'_> {
    fn try_append(
        &mut self,
        name: &str,
        number: i32,
        records: Option<&mut [u8]>,
        error_at: usize,
    ) -> Result<Produced, Refusal> {
        if let Some(error) = self.refusal {
            return Err(error.into());
        }
        let topic = self.find(name)?;
        let partition = topic.partition(number).ok_or(ResponseError::UnknownTopicOrPartition)?;
        let bytes = self.only_batch(records)?;
        let of_log = |refusal: Refusal| refusal.of_log_from(partition.log.start_offset());
        let settings = topic.settings();
        let mut recompressed = Vec::new();
        let mut batch = self.check(bytes, &settings, &mut recompressed).map_err(of_log)?;
        // As in Kafka, non-transactional batches of the request are written as usual.
        let is_transactional = self.is_transactional && batch.header().is_transactional();
        let admitted_at = is_transactional.then(|| self.admission.of(name, &partition, number));
        let admitted_at = admitted_at.transpose();
        let admitted_at =
            admitted_at.inspect_err(|_| partition.log.note_refused(batch.header()))?;
        let appended = match admitted_at {
            Some(at) => partition.log.append_to_transaction(&mut batch, self.now_ms, at),
            None => partition.log.append(&mut batch, self.now_ms),
        };
        let appended = appended.map_err(|error| of_log(self.not_appended(name, number, error)))?;
        let header = batch.header();
        if !appended.was_there {
            partition.traffic.count_in(header.size_bytes, header.record_count);
        }
        let end_offset = appended.base_offset + i64::from(header.last_offset_delta) + 1;
        let produced = Produced {
            base_offset: appended.base_offset,
            log_append_time_ms: match (settings.has_append_time, appended.was_there) {
                (false, _) => -1,
                (true, false) => self.now_ms,
                (true, true) => append_time_ms(&partition, appended.base_offset),
            },
            log_start_offset: partition.log.start_offset(),
            ..Produced::error(0)
        };
        self.appended.push(AppendedTo { topic, partition, end_offset, error_at });
        Ok(produced)
    }

    fn not_appended(&self, topic: &str, partition: i32, error: LogError) -> Refusal {
        if error.kind == LogErrorKind::NoSpace {
            self.broker.counters.refused_by_full_pool();
        }
        if matches!(error.kind, LogErrorKind::Device | LogErrorKind::Damaged) {
            tracing::error!(topic, partition, error = error.with_causes(), "cannot append");
        }
        match error.kind {
            // Clients show the reason while they retry.
            _ if is_of_full_pool(&error) => Refusal::new(error_of(error.kind), pool_is_full()),
            LogErrorKind::NoSpace | LogErrorKind::TooManyProducers => {
                Refusal::new(error_of(error.kind), error.what)
            }
            _ => error_of(error.kind).into(),
        }
    }

    /// Looks up a topic. Caches the last one, because most requests contain several partitions of a
    /// topic.
    fn find(&mut self, name: &str) -> Result<Arc<OpenTopic>, ResponseError> {
        if let Some(topic) = self.topic.as_ref().filter(|topic| *topic.name == *name) {
            return Ok(Arc::clone(topic));
        }
        if !self.client.may(self.broker, Operation::Write, Resource::topic(name)) {
            return Err(ResponseError::TopicAuthorizationFailed);
        }
        let topic =
            self.broker.topics.by_name(name).ok_or(ResponseError::UnknownTopicOrPartition)?;
        if topic.is_derived {
            return Err(ResponseError::PolicyViolation);
        }
        self.topic = Some(Arc::clone(&topic));
        Ok(topic)
    }

    /// Returns the single batch of a partition, the maximum of a request. As in Kafka, an
    /// incomplete batch counts as none.
    fn only_batch<'b>(&self, records: Option<&'b mut [u8]>) -> Result<&'b mut [u8], Refusal> {
        let records = records.ok_or(ResponseError::CorruptMessage)?;
        let refuse = |what: &str| Err(Refusal::new(ResponseError::InvalidRecord, what));
        // An invalid length is detected as damage later.
        let Some(end) = declared_size(records).filter(|end| *end <= records.len()) else {
            return refuse("invalid record batch: it is incomplete");
        };
        if records.get(MAGIC_AT).is_none_or(|magic| *magic < 2) {
            return refuse("unsupported record format: the batch must have version 2");
        }
        if (HEADER_BYTES..records.len()).contains(&end) {
            return refuse("invalid records: more than one batch for a partition");
        }
        Ok(records)
    }

    /// Validates a batch. Compresses it again if the topic requires another codec.
    fn check<'b>(
        &self,
        bytes: &'b mut [u8],
        settings: &TopicSettings,
        recompressed: &'b mut Vec<u8>,
    ) -> Result<Batch<'b>, Refusal> {
        let base_offset = bytes.first_chunk().map_or(0, |it| i64::from_be_bytes(*it));
        if base_offset != 0 {
            let what = format!("invalid record batch: base offset {base_offset} instead of 0");
            return Err(Refusal::new(ResponseError::InvalidRecord, what));
        }
        if bytes.len() > settings.batch_bytes_max {
            return Err(ResponseError::MessageTooLarge.into());
        }
        let (mut batch, _) = Batch::split_first(bytes).map_err(|error| error_of(error.kind))?;
        if batch.header().is_control() {
            return Err(ResponseError::InvalidRecord.into());
        }
        if batch.header().is_transactional() && !self.is_transactional {
            return Err(ResponseError::InvalidTxnState.into());
        }
        validate(&mut batch, settings, &self.broker.recompression, self.now_ms)?;
        let is_other = |codec: &Codec| Codec::of(batch.header().attributes) != Some(*codec);
        if let Some(codec) = settings.compression.filter(is_other) {
            let running = &self.broker.recompression;
            *recompressed = running.run(&batch, codec, settings.batch_bytes_max)?;
            (batch, _) = Batch::split_first(recompressed).map_err(|error| error_of(error.kind))?;
        }
        if settings.has_append_time {
            batch.set_append_time(self.now_ms);
        }
        batch.set_owner(self.client.owner());
        Ok(batch)
    }
}

/// Returns when a duplicate batch was appended first, or -1 if it was deleted.
fn append_time_ms(partition: &OpenPartition, base_offset: i64) -> i64 {
    let mut buffer = Vec::new();
    let read = partition.log.read_appended(base_offset, HEADER_BYTES, &mut buffer);
    let header = read.ok().and_then(|range| BatchHeader::read(&buffer[range]));
    header.filter(|it| it.base_offset == base_offset).map_or(-1, |it| it.max_timestamp)
}

/// Flushes appended records, once per topic. Immediate failures are written into the response.
/// Returns flushes that wait for a disk.
fn stabilize(broker: &Broker, appended: Vec<AppendedTo>, frame: &mut [u8]) -> Vec<Wait> {
    let mut waits = Vec::new();
    let mut flushed: Option<(Arc<OpenTopic>, Flushed)> = None;
    for AppendedTo { topic, partition, end_offset, error_at } in appended {
        let outcome = match &flushed {
            Some((last, outcome)) if Arc::ptr_eq(last, &topic) => *outcome,
            _ => {
                let outcome = match topic.stabilize() {
                    Ok(None) => Flushed::Now,
                    Ok(Some(flush)) => Flushed::AfterFlush(flush),
                    Err(error) => Flushed::Failed(error.kind),
                };
                flushed = Some((Arc::clone(&topic), outcome));
                outcome
            }
        };
        partition.watchers.wake();
        match outcome {
            Flushed::AfterFlush(flush) => {
                let pending = Pending { topic, partition, end_offset, flush };
                waits.push(Wait { pending, error_at });
            }
            Flushed::Failed(kind) if partition.log.stable_offset() < end_offset => {
                if kind == LogErrorKind::NoSpace {
                    broker.counters.refused_by_full_pool();
                }
                broker.counters.error(ApiKey::Produce, error_of(kind).code());
                set_error(frame, error_at, error_of(kind));
            }
            Flushed::Now | Flushed::Failed(_) => {}
        }
    }
    waits
}

#[derive(Clone, Copy)]
enum Flushed {
    Now,
    AfterFlush(crate::topics::FlushNumber),
    Failed(LogErrorKind),
}

/// Replaces the error code of a partition in an encoded response.
pub(super) fn set_error(frame: &mut [u8], error_at: usize, error: ResponseError) {
    frame[error_at..error_at + 2].copy_from_slice(&error.code().to_be_bytes());
}
