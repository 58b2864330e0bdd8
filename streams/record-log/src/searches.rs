//! Searches of a partition by time and by size, without a copy of the searched batches.

use record_batch::{BatchHeader, Record, Records};

use crate::error::LogError;
use crate::partition::Partition;
use crate::segment::{NewestLeft, RECORDS_BYTES_MAX, Segment, Walk};

/// Record found by a search for a timestamp, and its batch. Times are Unix milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimePlace {
    /// Base offset of the batch.
    pub base_offset: i64,
    pub max_timestamp: i64,
    /// Offset of the first record with a timestamp from the given one on. If the batch cannot be
    /// decoded, the offset is that of its first record, and the timestamp its maximum.
    pub offset: i64,
    pub timestamp: i64,
}

impl Partition {
    /// Finds the first record with a timestamp from `unix_ms` on. Returns `None` if all are older.
    pub fn find_time(&self, unix_ms: i64) -> Result<Option<TimePlace>, LogError> {
        let (segments, start_offset, end_offset) = {
            let view = self.view();
            (view.segments.clone(), view.start_offset, view.stable_offset)
        };
        for segment in segments {
            let _reading = segment.begin_reading();
            let (range, is_older) = {
                let extent = segment.extent();
                let from = extent.index.position_of_time(unix_ms);
                (from..extent.position, extent.index.max_timestamp() < unix_ms)
            };
            if is_older {
                continue;
            }
            let mut found = None;
            segment.walk(&*self.volume().device, range, &mut |batch, bytes| {
                let is_shown =
                    batch.last_offset() >= start_offset && batch.base_offset < end_offset;
                if is_shown && batch.max_timestamp >= unix_ms {
                    found = place_of_time(batch, bytes, unix_ms, start_offset);
                }
                if found.is_some() { Walk::Enough } else { Walk::On }
            })?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Returns the maximum timestamp of all records, or `None` without records. If records of a
    /// segment were deleted, the first call may have to read the rest of it.
    pub fn max_timestamp(&self) -> Result<Option<i64>, LogError> {
        let (segments, start_offset) = {
            let view = self.view();
            (view.segments.clone(), view.start_offset)
        };
        let mut newest = i64::MIN;
        for segment in segments {
            let is_whole = segment.header.base_offset >= start_offset;
            let (of_all, of_rest) = {
                let index = &segment.extent().index;
                (index.max_timestamp(), index.newest_from(start_offset))
            };
            newest = newest.max(match (is_whole, of_rest) {
                (true, _) => of_all,
                (false, Some(of_rest)) => of_rest,
                (false, None) => self.newest_of_rest(&segment, start_offset)?,
            });
        }
        Ok(Some(newest).filter(|it| *it != i64::MIN))
    }

    /// Returns the maximum timestamp of the remaining records of a segment. The result is cached: a
    /// later call reads only records appended since.
    fn newest_of_rest(&self, segment: &Segment, start_offset: i64) -> Result<i64, LogError> {
        let _reading = segment.begin_reading();
        let known = segment.newest_left(start_offset);
        let mut unix_ms = known.map_or(i64::MIN, |it| it.unix_ms);
        let range = {
            let extent = segment.extent();
            let begin = known
                .map_or_else(|| extent.index.position_of_offset(start_offset), |it| it.position);
            begin..extent.position
        };
        let position = range.end;
        if !range.is_empty() {
            segment.walk(&*self.volume().device, range, &mut |batch, bytes| {
                if batch.last_offset() >= start_offset {
                    unix_ms = unix_ms.max(newest_of(batch, bytes, start_offset));
                }
                Walk::On
            })?;
            segment.note_newest_left(NewestLeft { start_offset, position, unix_ms });
        }
        Ok(unix_ms)
    }

    /// Returns an upper bound of the bytes of batches between two offsets, without reading the log.
    pub fn bytes_between(&self, from: i64, to: i64) -> u64 {
        let view = self.view();
        let after = view.segments.partition_point(|it| it.header.base_offset <= from);
        let segments = view.segments[after.saturating_sub(1)..].iter();
        let bytes = segments.take_while(|it| it.header.base_offset < to).map(|segment| {
            let extent = segment.extent();
            let begin = match from < extent.next_offset {
                true => extent.index.position_of_offset(from),
                false => extent.position,
            };
            let end = extent.index.position_from(to).unwrap_or(extent.position);
            end.saturating_sub(begin)
        });
        bytes.sum()
    }
}

/// Returns the maximum timestamp of the remaining records of a batch.
fn newest_of(batch: &BatchHeader, bytes: &[u8], start_offset: i64) -> i64 {
    if batch.base_offset >= start_offset {
        return batch.max_timestamp;
    }
    let records = Records::decode(batch, bytes, RECORDS_BYTES_MAX);
    let Some(records) = records.ok().filter(|it| it.check().is_ok()) else {
        return batch.max_timestamp;
    };
    let left = records.iter().flatten().filter(|it| it.offset >= start_offset);
    left.map(|it| it.timestamp_ms).max().unwrap_or(i64::MIN)
}

/// Finds the first remaining record of a batch with a timestamp from `unix_ms` on. The batch's
/// maximum timestamp must be at least `unix_ms`.
fn place_of_time(
    batch: &BatchHeader,
    bytes: &[u8],
    unix_ms: i64,
    start_offset: i64,
) -> Option<TimePlace> {
    let (base_offset, max_timestamp) = (batch.base_offset, batch.max_timestamp);
    let place = |offset, timestamp| TimePlace { base_offset, max_timestamp, offset, timestamp };
    let records = Records::decode(batch, bytes, RECORDS_BYTES_MAX);
    let Some(records) = records.ok().filter(|it| it.check().is_ok()) else {
        return Some(place(base_offset.max(start_offset), max_timestamp));
    };
    let is_found = |it: &Record<'_>| it.offset >= start_offset && it.timestamp_ms >= unix_ms;
    let found = records.iter().flatten().find(is_found)?;
    Some(place(found.offset, found.timestamp_ms))
}
