//! Publishing of records by the broker itself: SQL's INSERT, and derived records.

use bytes::Bytes;
use record_batch::{BatchOptions, NewRecord, encode_batch};
use record_log::{Batch, LogErrorKind};
use sql::{PublishedRecord, SqlError, SqlState};

use crate::clock;
use crate::topics::{OpenTopic, RecordRules, TopicSettings, WITHOUT_KEY};

/// Maximum overhead of a record in a batch besides its key, value and headers.
const RECORD_BYTES_EXTRA: usize = 64;

/// Checks records from SQL by the topic's rules for producers, before any is appended.
pub(crate) fn check(topic: &OpenTopic, records: &[PublishedRecord]) -> Result<(), SqlError> {
    let settings = topic.settings();
    let rules = RecordRules::of(&settings, clock::unix_ms());
    for record in records {
        check_key(topic, &rules, record.key.is_some())?;
        if let Some(time_ms) = record.time_ms.filter(|it| !rules.take_time(*it)) {
            let what = format!("topic {:?}: {}", topic.name, rules.bad_time(time_ms));
            return Err(SqlError::new(SqlState::CHECK, what));
        }
        // The encoded size of short records need not be checked.
        if 2 * record.size_bytes() > settings.batch_bytes_max {
            let PublishedRecord { key, value, headers, .. } = record;
            let (key, value, headers) = (key.clone(), value.clone(), headers.clone());
            let alone = NewRecord { key, value, headers, ..NewRecord::default() };
            encode(topic, &[alone], &settings)?;
        }
    }
    Ok(())
}

fn check_key(topic: &OpenTopic, rules: &RecordRules, has_key: bool) -> Result<(), SqlError> {
    if rules.take_key(has_key) {
        return Ok(());
    }
    let what = format!("topic {:?}: {WITHOUT_KEY}", topic.name);
    Err(SqlError::new(SqlState::NOT_NULL, what))
}

/// Returns whether an error concerns a single record, so that others can be appended without it.
pub(crate) fn is_of_record(error: &SqlError) -> bool {
    [SqlState::TOO_LARGE, SqlState::NOT_NULL].contains(&error.state)
}

/// Appends records to one partition, in batches up to the topic's maximum size. Calls `appended`
/// with the offset after each batch. Batches before an error remain appended. An error with
/// [`is_of_record`] concerns the first record after them.
pub(crate) fn append(
    topic: &OpenTopic,
    number: i32,
    records: &[NewRecord],
    mut appended: impl FnMut(i64),
) -> Result<(), SqlError> {
    let partition = topic.partition(number).ok_or_else(|| {
        let what = format!("topic {:?} has no partition {number}", topic.name);
        SqlError::new(SqlState::INVALID_PARAMETER, what)
    })?;
    let settings = topic.settings();
    let bytes_max = settings.batch_bytes_max.saturating_sub(record_batch::HEADER_BYTES);
    let now_ms = clock::unix_ms();
    let rules = RecordRules::of(&settings, now_ms);
    let mut rest = records;
    while !rest.is_empty() {
        let mut bytes = 0;
        let count = rest.iter().take_while(|record| {
            bytes += size_bytes(record);
            bytes <= bytes_max && rules.take_key(record.key.is_some())
        });
        // A single record that is too long is rejected as such.
        let count = count.count().max(1);
        check_key(topic, &rules, rest[0].key.is_some())?;
        let (part, after) = rest.split_at(count);
        rest = after;
        let mut bytes = encode(topic, part, &settings)?;
        let (mut batch, _) = Batch::split_first(&mut bytes)?;
        if settings.has_append_time {
            batch.set_append_time(now_ms);
        }
        let done = partition.log.append(&mut batch, now_ms).inspect_err(|error| {
            if matches!(error.kind, LogErrorKind::Device | LogErrorKind::Damaged) {
                let (topic, error) = (&topic.name, error.with_causes());
                tracing::error!(%topic, partition = number, error, "cannot append");
            }
        })?;
        let header = batch.header();
        partition.traffic.count_in(header.size_bytes, header.record_count);
        appended(done.base_offset + i64::from(header.last_offset_delta) + 1);
    }
    Ok(())
}

/// Encodes one batch. Fails if it is too long for the topic.
fn encode(
    topic: &OpenTopic,
    records: &[NewRecord],
    settings: &TopicSettings,
) -> Result<Vec<u8>, SqlError> {
    let compression = settings.compression.unwrap_or_default();
    let options = BatchOptions { compression, ..BatchOptions::default() };
    let batch = encode_batch(records, &options)
        .map_err(|error| SqlError::new(SqlState::TOO_LARGE, error.to_string()))?;
    if batch.len() > settings.batch_bytes_max {
        let (length, most, name) = (batch.len(), settings.batch_bytes_max, &topic.name);
        let what = format!(
            "batch too large: {length} bytes; the maximum of topic {name:?} is {most} \
             (max.message.bytes)"
        );
        return Err(SqlError::new(SqlState::TOO_LARGE, what));
    }
    Ok(batch.into())
}

fn size_bytes(record: &NewRecord) -> usize {
    let length = |it: &Option<Bytes>| it.as_ref().map_or(0, Bytes::len);
    let headers = record.headers.iter();
    let headers: usize = headers.map(|it| it.name.len() + length(&it.value) + 20).sum();
    RECORD_BYTES_EXTRA + length(&record.key) + length(&record.value) + headers
}
