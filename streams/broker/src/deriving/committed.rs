//! Reader of committed records of a partition.

use record_batch::{Record, Records};
use record_log::{LogError, Partition, RECORDS_BYTES_MAX};

/// Maximum bytes of one read.
const READ_BYTES: usize = 1 << 20;

/// Position in a partition.
#[derive(Debug, Default)]
pub(super) struct Committed {
    /// Offset of the next record to process.
    pub(super) position: i64,
    buffer: Vec<u8>,
}

/// Result of one read.
#[derive(Debug, Default)]
pub(super) struct ReadOutcome {
    /// Next offset.
    pub(super) next: i64,
    /// Start of the log if it is after the position, which means that records were deleted unread.
    pub(super) gone_before: Option<i64>,
    /// Number of records in batches that could not be decoded.
    pub(super) undecodable: u64,
    pub(super) is_behind: bool,
}

impl Committed {
    pub(super) fn from(position: i64) -> Self {
        Self { position, buffer: Vec::new() }
    }

    /// Reads once, and calls `show` with committed records from the position on. The caller
    /// advances the position after processing.
    pub(super) fn read(
        &mut self,
        log: &Partition,
        show: &mut dyn FnMut(&Record<'_>),
    ) -> Result<ReadOutcome, LogError> {
        self.read_to(log.last_stable_offset(), log, show)
    }

    /// Same, up to an earlier last stable offset.
    pub(super) fn read_to(
        &mut self,
        end: i64,
        log: &Partition,
        show: &mut dyn FnMut(&Record<'_>),
    ) -> Result<ReadOutcome, LogError> {
        // Pinned after the end was determined, so that the pin includes all records before it.
        let pin = log.pin();
        let start = pin.start_offset();
        let gone_before = (self.position < start).then_some(start);
        let from = self.position.max(start);
        let mut outcome = ReadOutcome { next: from, gone_before, undecodable: 0, is_behind: false };
        if from >= end {
            return Ok(outcome);
        }
        let mut batches = pin.committed(from..end, READ_BYTES, &mut self.buffer)?;
        for (header, batch) in &mut batches {
            let records = Records::decode(&header, batch, RECORDS_BYTES_MAX);
            let Some(records) = records.ok().filter(|it| it.check().is_ok()) else {
                outcome.undecodable += u64::try_from(header.record_count).unwrap_or(0);
                continue;
            };
            records.iter().flatten().filter(|it| it.offset >= from).for_each(|it| show(&it));
        }
        outcome.next = batches.next_offset();
        outcome.is_behind = outcome.next < end;
        Ok(outcome)
    }

    /// Returns the number of committed offsets that were not read.
    pub(super) fn lag(&self, log: &Partition) -> u64 {
        u64::try_from(log.last_stable_offset().saturating_sub(self.position)).unwrap_or(0)
    }
}
