//! Reads that skip batches which are not committed, or reject a first batch that is too long.

use std::ops::Range;

use record_batch::BatchHeader;

use crate::error::LogError;
use crate::partition::Partition;
use crate::producers::{Aborted, is_committed};
use crate::segment::Wanted;
use crate::view::PinnedLog;

/// Iterator over committed batches and their headers, in order. The first batch may contain records
/// before the requested offset.
#[derive(Debug)]
pub struct CommittedBatches<'a> {
    bytes: &'a [u8],
    aborted: Vec<Aborted>,
    next: i64,
    end: i64,
}

impl<'a> CommittedBatches<'a> {
    fn new(bytes: &'a [u8], offsets: Range<i64>, aborted: Vec<Aborted>) -> Self {
        // If nothing was read, compaction has removed all remaining records.
        let next = if bytes.is_empty() { offsets.end } else { offsets.start };
        Self { bytes, aborted, next, end: offsets.end }
    }

    /// Returns the offset after the batches that were returned or skipped.
    pub fn next_offset(&self) -> i64 {
        self.next
    }
}

impl<'a> Iterator for CommittedBatches<'a> {
    type Item = (BatchHeader, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        while let Some(header) = record_batch::headers(self.bytes).next() {
            if header.base_offset >= self.end {
                // Offsets up to the end may have been removed by compaction. They count as read.
                self.next = self.end;
                self.bytes = &[];
                return None;
            }
            let (batch, rest) = self.bytes.split_at(header.size_bytes);
            self.bytes = rest;
            self.next = header.next_offset();
            if is_committed(&header, &self.aborted) {
                return Some((header, batch));
            }
        }
        None
    }
}

impl Partition {
    /// Same as [`Partition::read`], but returns nothing if the first batch exceeds `bytes_max`. In
    /// that case, no more than `bytes_max` or a block of it is read.
    pub fn read_within(
        &self,
        offset: i64,
        bytes_max: usize,
        buffer: &mut Vec<u8>,
    ) -> Result<Range<usize>, LogError> {
        let wanted = Wanted { takes_longer: false, ..Wanted::new(offset, bytes_max) };
        self.read_wanted(wanted, buffer)
    }

    /// Reads once into `buffer`, as [`Partition::read`] does. Returns the committed batches with
    /// these offsets, which must end at or before the last stable offset.
    pub fn committed<'a>(
        &self,
        offsets: Range<i64>,
        bytes_max: usize,
        buffer: &'a mut Vec<u8>,
    ) -> Result<CommittedBatches<'a>, LogError> {
        let range = self.read(offsets.start, bytes_max, buffer)?;
        let aborted = self.aborted(offsets.clone());
        Ok(CommittedBatches::new(&buffer[range], offsets, aborted))
    }
}

impl PinnedLog {
    /// Same as [`Partition::committed`], for the pinned log.
    pub fn committed<'a>(
        &self,
        offsets: Range<i64>,
        bytes_max: usize,
        buffer: &'a mut Vec<u8>,
    ) -> Result<CommittedBatches<'a>, LogError> {
        let range = self.read(offsets.start, bytes_max, buffer)?;
        let aborted = self.aborted(offsets.clone());
        Ok(CommittedBatches::new(&buffer[range], offsets, aborted))
    }
}
