//! Reads committed records of a partition's log, from an offset on.

use std::ops::ControlFlow;
use std::sync::Arc;

use record_batch::{Codec, Record, Records};
use record_log::{CommittedBatches, LogError, LogErrorKind, Partition, RECORDS_BYTES_MAX};
use sql::{SqlError, SqlState};

/// What one step reads at most, or one batch.
const STEP_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct LogCursor {
    partition: Arc<Partition>,
    next: i64,
    buffer: Vec<u8>,
    glances: Glances,
}

/// Whether glances at the bytes of values pay: each costs a part of what reading a record does.
#[derive(Clone, Copy, Debug, Default)]
struct Glances {
    /// Of the last ones, how many there were, and how many told that a record is not wanted.
    count: u32,
    useful: u32,
    /// Records that are read without a glance, before it is tried again.
    rest: u32,
}

impl Glances {
    const TRIED: u32 = 64;
    const REST: u32 = 2_048;

    /// Whether a record is wanted, as `is_wanted` tells, or may be.
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

    /// All records before it were shown.
    pub(super) fn next(&self) -> i64 {
        self.next
    }

    pub(super) fn set_next(&mut self, next: i64) {
        self.next = next;
    }

    /// Reads once, and shows the committed records before `end`, an offset that is not behind the
    /// last stable one, until `visit` breaks off: at that record it goes on the next time. Batches
    /// that cannot be decoded hold no records. `is_wanted` tells whether anything among some bytes
    /// can be wanted, of a batch or of a value: others are passed over. Returns how many records
    /// were shown or passed over.
    ///
    /// # Errors
    /// The log was deleted up to behind the next offset, or cannot be read.
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

    /// Error as a client is told it.
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
        let what = format!("cannot read partition {number} of {topic:?} at offset {next}: {error}");
        SqlError::new(SqlState::IO, what)
    }
}
