//! Reads selected records of a log in order, and each batch once.

use std::ops::Range;

use record_batch::{BatchHeader, Record, Records};
use record_log::{PinnedLog, RECORDS_BYTES_MAX};

use crate::error::ValuesError;
use crate::live::Live;

/// Initial read size: fits a typical batch, or the distance from the nearest entry of the log's
/// index.
pub(crate) const FIRST_BYTES: usize = 24 << 10;

/// Maximum read size. Reads grow up to it while wanted records are close together.
const BYTES_MAX: usize = 1 << 20;

/// Maximum distance in offsets between two reads that counts as close.
const CLOSE_OFFSETS: i64 = 4_096;

/// Result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Picked {
    pub(crate) is_done: bool,
    /// Offset of the first wanted record that is no longer in the log.
    pub(crate) missing: Option<i64>,
    /// Number of bytes read.
    pub(crate) bytes: usize,
}

/// State of a scan, and its buffer.
#[derive(Debug)]
pub(crate) struct Picker {
    next: i64,
    end: i64,
    bytes_max: usize,
    buffer: Vec<u8>,
}

impl Picker {
    pub(crate) fn new(offsets: Range<i64>) -> Self {
        let (next, end) = (offsets.start, offsets.end);
        Self { next, end, bytes_max: FIRST_BYTES, buffer: Vec::new() }
    }

    /// Reads once, up to a mebibyte or one batch, and passes records whose offsets are in `live` to
    /// `visit`.
    pub(crate) fn step(
        &mut self,
        log: &PinnedLog,
        live: &Live,
        visit: &mut dyn FnMut(&Record<'_>),
    ) -> Result<Picked, ValuesError> {
        let partition = log.partition();
        let from = self.next.max(log.start_offset());
        let mut picked = Picked { is_done: true, missing: None, bytes: 0 };
        let Some(mut wanted) = live.next(from).filter(|it| *it < self.end) else {
            return Ok(picked);
        };
        let range = log.read(wanted, self.bytes_max, &mut self.buffer)?;
        let mut bytes = &self.buffer[range];
        if bytes.is_empty() {
            // All records from this offset on were removed.
            return Ok(Picked { missing: Some(wanted), ..picked });
        }
        picked.bytes = bytes.len();
        let mut after = wanted;
        for header in record_batch::headers(bytes) {
            let (batch, rest) = bytes.split_at(header.size_bytes);
            bytes = rest;
            after = header.next_offset();
            if wanted < header.base_offset {
                picked.missing = picked.missing.or(Some(wanted));
            }
            let next = live.next(wanted.max(header.base_offset));
            let Some(next) = next.filter(|it| *it < self.end) else { break };
            wanted = next;
            if wanted >= after {
                continue;
            }
            let damaged = || ValuesError::Damaged { partition, offset: header.base_offset };
            let records =
                Records::decode(&header, batch, RECORDS_BYTES_MAX).map_err(|_| damaged())?;
            for record in records.iter() {
                let record = record.map_err(|_| damaged())?;
                if record.offset < wanted {
                    continue;
                }
                match record.offset == wanted {
                    true => visit(&record),
                    false => picked.missing = picked.missing.or(Some(wanted)),
                }
                wanted = live.next(record.offset + 1).unwrap_or(i64::MAX);
                if wanted >= after.min(self.end) {
                    break;
                }
            }
            if wanted < after.min(self.end) {
                picked.missing = picked.missing.or(Some(wanted));
                wanted = after;
            }
        }
        self.next = after;
        let next = live.next(after).filter(|it| *it < self.end);
        picked.is_done = next.is_none();
        let is_close = next.is_some_and(|next| next - after < CLOSE_OFFSETS);
        self.bytes_max = if is_close { (2 * self.bytes_max).min(BYTES_MAX) } else { FIRST_BYTES };
        Ok(picked)
    }

    /// Returns the offset before which all records were passed on.
    pub(crate) fn position(&self) -> i64 {
        self.next
    }
}

/// Passes one record of a log to `show`. Returns `None` if it no longer exists. `buffer` is reused.
pub fn read_record<T>(
    log: &PinnedLog,
    offset: i64,
    buffer: &mut Vec<u8>,
    show: impl FnOnce(&Record<'_>) -> T,
) -> Result<Option<T>, ValuesError> {
    if offset < log.start_offset() {
        return Ok(None);
    }
    let range = log.read(offset, FIRST_BYTES, buffer)?;
    show_record(log.partition(), &buffer[range], offset, show)
}

/// Passes the record at an offset to `show`. `batches` were read from this offset on. Returns
/// `None` if the record was removed.
pub(crate) fn show_record<T>(
    partition: u32,
    batches: &[u8],
    offset: i64,
    show: impl FnOnce(&Record<'_>) -> T,
) -> Result<Option<T>, ValuesError> {
    let header = BatchHeader::read(batches);
    let Some(header) = header.filter(|it| it.base_offset <= offset) else { return Ok(None) };
    let damaged = || ValuesError::Damaged { partition, offset: header.base_offset };
    let records = Records::decode(&header, batches, RECORDS_BYTES_MAX).map_err(|_| damaged())?;
    for record in records.iter() {
        let record = record.map_err(|_| damaged())?;
        if record.offset == offset {
            return Ok(Some(show(&record)));
        }
    }
    Ok(None)
}

/// Returns whether a record has exceeded the time to live.
pub(crate) fn has_expired(record: &Record<'_>, ttl_ms: Option<i64>, now_ms: i64) -> bool {
    ttl_ms.is_some_and(|ttl_ms| record.timestamp_ms.saturating_add(ttl_ms) <= now_ms)
}
