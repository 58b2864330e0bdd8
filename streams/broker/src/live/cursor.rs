//! Reads committed records of a partition's log, from an offset on.

use std::ops::ControlFlow;
use std::sync::Arc;

use record_batch::{Record, Records};
use record_log::{CommittedBatches, LogError, LogErrorKind, Partition, RECORDS_BYTES_MAX};
use sql::{SqlError, SqlState};

/// What one step reads at most, or one batch.
const STEP_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct LogCursor {
    partition: Arc<Partition>,
    next: i64,
    buffer: Vec<u8>,
}

impl LogCursor {
    pub(super) fn new(partition: Arc<Partition>, next: i64) -> Self {
        Self { partition, next, buffer: Vec::new() }
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
    /// that cannot be decoded hold no records. Returns how many were shown.
    ///
    /// # Errors
    /// The log was deleted up to behind the next offset, or cannot be read.
    pub(super) fn step(
        &mut self,
        end: i64,
        visit: &mut dyn FnMut(&Record<'_>) -> ControlFlow<()>,
    ) -> Result<usize, LogError> {
        if self.next >= end {
            return Ok(0);
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        let read = self.partition.committed(self.next..end, STEP_BYTES, &mut buffer);
        let count = read.map(|batches| self.show(batches, visit));
        self.buffer = buffer;
        count
    }

    fn show(
        &mut self,
        mut batches: CommittedBatches<'_>,
        visit: &mut dyn FnMut(&Record<'_>) -> ControlFlow<()>,
    ) -> usize {
        let mut count = 0;
        for (header, batch) in &mut batches {
            let Ok(records) = Records::decode(&header, batch, RECORDS_BYTES_MAX) else { continue };
            for record in records.iter().map_while(Result::ok) {
                if record.offset < self.next {
                    continue;
                }
                if visit(&record).is_break() {
                    self.next = record.offset;
                    return count;
                }
                self.next = record.offset + 1;
                count += 1;
            }
        }
        self.next = batches.next_offset();
        count
    }

    /// What a client is told of an error.
    pub(super) fn explain(&self, topic: &str, error: LogError) -> SqlError {
        let (number, next, start) =
            (self.partition.number(), self.next, self.partition.start_offset());
        if error.kind == LogErrorKind::OffsetOutOfRange && start > next {
            let what = format!(
                "records of partition {number} of {topic:?} were deleted before they were taken: \
                 from offset {next} to {start}"
            );
            let hint = "Subscribe again, read faster, or have the topic keep its records longer.";
            return SqlError::new(SqlState::SERIALIZATION, what).with_hint(hint);
        }
        let what = format!("cannot read partition {number} of {topic:?} at offset {next}: {error}");
        SqlError::new(SqlState::IO, what)
    }
}
