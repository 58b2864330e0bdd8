//! Committed records of a partition, read from an offset on.

use record_batch::{Record, Records};
use record_log::{LogError, Partition, RECORDS_BYTES_MAX};

/// What is read of a partition in one turn.
const READ_BYTES: usize = 1 << 20;

/// Position to which one partition was read.
#[derive(Debug, Default)]
pub(super) struct Committed {
    /// Records before it were shown.
    pub(super) position: i64,
    buffer: Vec<u8>,
}

/// Result of one read.
#[derive(Debug, Default)]
pub(super) struct ReadOutcome {
    /// The offset that comes next.
    pub(super) next: i64,
    /// Where the log begins, if that is behind the position: what was before it is gone.
    pub(super) gone_before: Option<i64>,
    /// Records of batches that could not be read.
    pub(super) undecodable: u64,
    pub(super) is_behind: bool,
}

impl Committed {
    pub(super) fn from(position: i64) -> Self {
        Self { position, buffer: Vec::new() }
    }

    /// Reads once, and shows what is committed and not before the position, which stays: the caller
    /// moves it when it is done with the records.
    pub(super) fn read(
        &mut self,
        log: &Partition,
        show: &mut dyn FnMut(&Record<'_>),
    ) -> Result<ReadOutcome, LogError> {
        self.read_to(log.last_stable_offset(), log, show)
    }

    /// The same as far as an offset that was the last stable one.
    pub(super) fn read_to(
        &mut self,
        end: i64,
        log: &Partition,
        show: &mut dyn FnMut(&Record<'_>),
    ) -> Result<ReadOutcome, LogError> {
        // After the end was known: what is pinned holds all before it.
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

    /// Offsets that are committed and not read.
    pub(super) fn lag(&self, log: &Partition) -> u64 {
        u64::try_from(log.last_stable_offset().saturating_sub(self.position)).unwrap_or(0)
    }
}
