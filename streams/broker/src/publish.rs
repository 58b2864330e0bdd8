//! Records that the broker itself appends: what SQL inserts, and what is derived.

use bytes::Bytes;
use record_batch::{BatchOptions, NewRecord, encode_batch};
use record_log::{Batch, LogErrorKind};
use sql::{SqlError, SqlState};

use crate::clock;
use crate::topics::OpenTopic;

/// What a record takes in a batch besides its key, value and headers, at most.
const RECORD_BYTES_EXTRA: usize = 64;

/// Appends records to one partition, in batches as long as the topic allows; `appended` is told of
/// the offset after each. What was appended before an error stays.
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
    let compression = settings.compression.unwrap_or_default();
    let options = BatchOptions { compression, ..BatchOptions::default() };
    let mut rest = records;
    while !rest.is_empty() {
        let mut bytes = 0;
        let count = rest.iter().take_while(|record| {
            bytes += size_bytes(record);
            bytes <= bytes_max
        });
        // One that is too long alone is refused for what it is.
        let count = count.count().max(1);
        let (part, after) = rest.split_at(count);
        rest = after;
        let batch = encode_batch(part, &options)
            .map_err(|error| SqlError::new(SqlState::TOO_LARGE, error.to_string()))?;
        if batch.len() > settings.batch_bytes_max {
            let (length, most) = (batch.len(), settings.batch_bytes_max);
            let name = &topic.name;
            let what = format!("a batch of {length} bytes: topic {name:?} takes {most} at most");
            return Err(SqlError::new(SqlState::TOO_LARGE, what));
        }
        let mut bytes = Vec::from(batch);
        let (mut batch, _) = Batch::split_first(&mut bytes)?;
        if settings.has_append_time {
            batch.set_append_time(now_ms);
        }
        let done = partition.log.append(&mut batch, now_ms).inspect_err(|error| {
            if matches!(error.kind, LogErrorKind::Device | LogErrorKind::Damaged) {
                tracing::error!(topic = %topic.name, partition = number, %error, "cannot append");
            }
        })?;
        let header = batch.header();
        partition.traffic.count_in(header.size_bytes, header.record_count);
        appended(done.base_offset + i64::from(header.last_offset_delta) + 1);
    }
    Ok(())
}

fn size_bytes(record: &NewRecord) -> usize {
    let length = |it: &Option<Bytes>| it.as_ref().map_or(0, Bytes::len);
    let headers = record.headers.iter();
    let headers: usize = headers.map(|it| it.name.len() + length(&it.value) + 20).sum();
    RECORD_BYTES_EXTRA + length(&record.key) + length(&record.value) + headers
}
