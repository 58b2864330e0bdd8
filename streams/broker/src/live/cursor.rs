//! Cursor over committed records of a partition's log.

use std::ops::ControlFlow;
use std::sync::Arc;

use record_batch::{Codec, Record, Records};
use record_log::{CommittedBatches, LogError, LogErrorKind, Partition, RECORDS_BYTES_MAX};
use sql::{SqlError, SqlState};

/// Maximum bytes of one step, except for a single longer batch.
const STEP_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct LogCursor {
    partition: Arc<Partition>,
    next: i64,
    buffer: Vec<u8>,
    glances: Glances,
}

/// Statistics about prefiltering by the raw bytes of values, which costs a part of decoding a
/// record.
#[derive(Clone, Copy, Debug, Default)]
struct Glances {
    /// Number of recent checks, and of those that rejected a record.
    count: u32,
    useful: u32,
    /// Records to be decoded without a check before it is tried again.
    rest: u32,
}

impl Glances {
    const TRIED: u32 = 64;
    const REST: u32 = 2_048;

    /// Returns whether a record may be wanted. `is_wanted` performs the check.
    #[inline]
    fn tell(&mut self, is_wanted: impl FnOnce() -> bool) -> bool {
        if self.rest > 0 {
            self.rest -= 1;
            return true;
        }
        let is_wanted = is_wanted();
        self.count += 1;
        self.useful += u32::from(!is_wanted);
        if self.count == Self::TRIED {
            let pays = self.useful >= Self::TRIED / 2;
            *self = Self { rest: if pays { 0 } else { Self::REST }, ..Self::default() };
        }
        is_wanted
    }
}

impl LogCursor {
    pub(super) fn new(partition: Arc<Partition>, next: i64) -> Self {
        Self { partition, next, buffer: Vec::new(), glances: Glances::default() }
    }

    pub(super) fn partition(&self) -> &Partition {
        &self.partition
    }

    pub(super) fn number(&self) -> i32 {
        i32::try_from(self.partition.number()).expect("partitions have a limit")
    }

    /// Returns the next offset. All records before it were visited.
    pub(super) fn next(&self) -> i64 {
        self.next
    }

    pub(super) fn set_next(&mut self, next: i64) {
        self.next = next;
    }

    /// Reads once, and visits the committed records before `end`, which must not exceed the last
    /// stable offset. If `visit` breaks, that record is visited again by the next step. Batches
    /// that cannot be decoded count as empty. `is_wanted` tells whether the bytes of a batch or
    /// value may contain wanted records; others are skipped. Returns the number of records visited
    /// or skipped.
    ///
    /// # Errors
    /// The log was deleted beyond the next offset, or cannot be read.
    pub(super) fn step(
        &mut self,
        end: i64,
        is_wanted: &dyn Fn(&[u8]) -> bool,
        visit: &mut dyn FnMut(&Record<'_>) -> ControlFlow<()>,
    ) -> Result<usize, LogError> {
        if self.next >= end {
            return Ok(0);
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        let read = self.partition.committed(self.next..end, STEP_BYTES, &mut buffer);
        let count = read.map(|batches| self.show((batches, end), is_wanted, visit));
        self.buffer = buffer;
        count
    }

    fn show(
        &mut self,
        (mut batches, end): (CommittedBatches<'_>, i64),
        is_wanted: &dyn Fn(&[u8]) -> bool,
        visit: &mut dyn FnMut(&Record<'_>) -> ControlFlow<()>,
    ) -> usize {
        let mut count = 0;
        for (header, batch) in &mut batches {
            let is_plain = Codec::of(header.attributes) == Some(Codec::None);
            if is_plain && !is_wanted(batch) {
                count += usize::try_from(header.record_count).unwrap_or_default();
                continue;
            }
            let Ok(records) = Records::decode(&header, batch, RECORDS_BYTES_MAX) else { continue };
            for record in records.iter().map_while(Result::ok) {
                if record.offset < self.next {
                    continue;
                }
                if record.offset >= end {
                    break;
                }
                let is_wanted = || is_wanted(record.value.unwrap_or_default());
                if self.glances.tell(is_wanted) && visit(&record).is_break() {
                    self.next = record.offset;
                    return count;
                }
                self.next = record.offset + 1;
                count += 1;
            }
        }
        // The end may be within a batch.
        self.next = batches.next_offset().min(end);
        count
    }

    /// Converts a log error to an error for the client.
    pub(super) fn explain(&self, topic: &str, error: LogError) -> SqlError {
        let (number, next, start) =
            (self.partition.number(), self.next, self.partition.start_offset());
        if error.kind == LogErrorKind::OffsetOutOfRange && start > next {
            let what = format!(
                "the subscription fell behind retention: offsets {next} to {start} of partition \
                 {number} of {topic:?} were deleted"
            );
            let hint = "Subscribe again and read faster, or raise retention.ms of the topic.";
            return SqlError::new(SqlState::SERIALIZATION, what).with_hint(hint);
        }
        let cause = error.with_causes();
        let what = format!("cannot read partition {number} of {topic:?} at offset {next}: {cause}");
        SqlError::new(SqlState::IO, what)
    }
}
