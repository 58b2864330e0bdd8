//! Validation of produced records: acknowledged records can be decoded by all consumers, are
//! indexed by the correct time, and survive compaction.
//!
//! Rules and error codes are those of Kafka's `LogValidator`.

use std::cell::RefCell;

use kafka::produce::{Produced, RecordError};
use kafka_protocol::error::ResponseError;
use record_batch::{BatchHeader, Codec, HEADER_BYTES, ProducedRecord, Undecodable, each_produced};
use record_log::{Batch, RECORDS_BYTES_MAX};

use super::recompression::Recompression;
use crate::topics::{RecordRules, TopicSettings, WITHOUT_KEY};

/// Maximum number of records listed in a rejection.
const RECORD_ERRORS_MAX: usize = 100;

/// Size above which only a few compressed batches are decompressed concurrently.
const AT_ONCE_BYTES_MAX: usize = 64 << 10;

/// Maximum decompressed size of a small batch that need not wait for its turn.
const SCRATCH_BYTES: usize = 1 << 20;

thread_local! {
    /// Buffer for the records of one batch, reused by the next one.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Reason why a batch is rejected.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) error: ResponseError,
    message: Option<String>,
    records: Vec<RecordError>,
    log_start_offset: i64,
}

impl Refusal {
    pub(super) fn new(error: ResponseError, message: impl Into<String>) -> Self {
        Self { message: Some(message.into()), ..Self::from(error) }
    }

    /// Adds the log start offset. As in Kafka, it is omitted if the batch is too long or damaged,
    /// or the log is damaged.
    pub(super) fn of_log_from(self, start_offset: i64) -> Self {
        match self.error {
            ResponseError::CorruptMessage
            | ResponseError::MessageTooLarge
            | ResponseError::KafkaStorageError => self,
            _ => Self { log_start_offset: start_offset, ..self },
        }
    }

    pub(super) fn into_produced(self) -> Produced {
        let Self { error, message, records: record_errors, log_start_offset } = self;
        Produced { message, record_errors, log_start_offset, ..Produced::error(error.code()) }
    }
}

impl From<ResponseError> for Refusal {
    fn from(error: ResponseError) -> Self {
        Self { error, message: None, records: Vec::new(), log_start_offset: -1 }
    }
}

/// Validates all records of a batch against the topic's settings, and sets the maximum timestamp in
/// its header.
pub(super) fn validate(
    batch: &mut Batch<'_>,
    settings: &TopicSettings,
    turns: &Recompression,
    now_ms: i64,
) -> Result<(), Refusal> {
    let header = *batch.header();
    let mut rules = Rules::new(&header, settings, now_ms)?;
    let codec = Codec::of(header.attributes).ok_or_else(|| {
        let number = header.attributes & 7;
        Refusal::new(ResponseError::InvalidRecord, format!("unknown compression codec {number}"))
    })?;
    let records = &batch.bytes()[HEADER_BYTES..];
    codec.check_frame(records).map_err(unreadable)?;
    let mut visit = |record| rules.visit(record);
    let is_small = records.len() <= AT_ONCE_BYTES_MAX;
    let seen = match codec {
        Codec::None => each_produced(&header, records, &mut visit),
        _ => match is_small.then(|| in_scratch(codec, &header, records, &mut visit)) {
            // A long batch, or a small one that decompresses to a large size.
            None | Some(Err(Undecodable::TooLong(_))) => turns.take(|| {
                let decoded = codec.decompress(records, RECORDS_BYTES_MAX)?;
                each_produced(&header, &decoded, &mut visit)
            }),
            Some(seen) => seen,
        },
    };
    seen.map_err(unreadable)?;
    let newest_ms = rules.finish()?;
    if !settings.has_append_time {
        batch.set_max_timestamp(newest_ms);
    }
    Ok(())
}

fn in_scratch(
    codec: Codec,
    header: &BatchHeader,
    records: &[u8],
    visit: impl FnMut(ProducedRecord),
) -> Result<(), Undecodable> {
    SCRATCH.with_borrow_mut(|scratch| {
        codec.decompress_into(records, SCRATCH_BYTES, scratch)?;
        each_produced(header, scratch, visit)
    })
}

fn unreadable(error: Undecodable) -> Refusal {
    let code = match error {
        Undecodable::TooLong(_) => ResponseError::MessageTooLarge,
        _ => ResponseError::InvalidRecord,
    };
    Refusal::new(code, error.to_string())
}

/// Requirements of a topic on each record.
struct Rules {
    of_record: RecordRules,
    newest_ms: i64,
    error: ResponseError,
    refused: Vec<RecordError>,
}

impl Rules {
    fn new(header: &BatchHeader, settings: &TopicSettings, now_ms: i64) -> Result<Self, Refusal> {
        if header.has_delete_horizon() {
            let what = "invalid record batch: producers must not set a delete horizon";
            return Err(Refusal::new(ResponseError::InvalidRecord, what));
        }
        if header.has_append_time() {
            let what = "invalid record batch: producers must not set LogAppendTime";
            return Err(Refusal::new(ResponseError::InvalidTimestamp, what));
        }
        Ok(Self {
            of_record: RecordRules::of(settings, now_ms),
            newest_ms: -1,
            error: ResponseError::InvalidRecord,
            refused: Vec::new(),
        })
    }

    fn visit(&mut self, record: ProducedRecord) {
        let time = record.timestamp_ms;
        self.newest_ms = self.newest_ms.max(time);
        let has_good_time = self.of_record.take_time(time);
        if has_good_time && self.of_record.take_key(record.has_key) {
            return;
        }
        self.refuse(record, has_good_time);
    }

    #[cold]
    fn refuse(&mut self, record: ProducedRecord, has_good_time: bool) {
        let message = if has_good_time {
            WITHOUT_KEY.to_owned()
        } else {
            self.error = ResponseError::InvalidTimestamp;
            self.of_record.bad_time(record.timestamp_ms)
        };
        if self.refused.len() < RECORD_ERRORS_MAX {
            self.refused.push(RecordError { index: record.index, message });
        }
    }

    fn finish(self) -> Result<i64, Refusal> {
        if self.refused.is_empty() {
            return Ok(self.newest_ms);
        }
        let message = "records of the batch violate the topic's settings".to_owned();
        Err(Refusal { records: self.refused, ..Refusal::new(self.error, message) })
    }
}
