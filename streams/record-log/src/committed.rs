//! Reads that leave batches out: those whose records do not count, or a first one that is too long.

use std::ops::Range;

use record_batch::BatchHeader;

use crate::error::LogError;
use crate::partition::Partition;
use crate::producers::{Aborted, is_committed};
use crate::segment::Wanted;
use crate::view::PinnedLog;

/// Committed batches, each with its header, in order. The first may hold records before the offset
/// that was asked for.
#[derive(Debug)]
pub struct CommittedBatches<'a> {
    bytes: &'a [u8],
    aborted: Vec<Aborted>,
    next: i64,
    end: i64,
}

impl<'a> CommittedBatches<'a> {
    fn new(bytes: &'a [u8], offsets: Range<i64>, aborted: Vec<Aborted>) -> Self {
        // Where nothing was read, compaction took out all the rest.
        let next = if bytes.is_empty() { offsets.end } else { offsets.start };
        Self { bytes, aborted, next, end: offsets.end }
    }

    /// The offset behind the batches that were given, or passed over since they do not count.
    pub fn next_offset(&self) -> i64 {
        self.next
    }
}

impl<'a> Iterator for CommittedBatches<'a> {
    type Item = (BatchHeader, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        while let Some(header) = record_batch::headers(self.bytes).next() {
            if header.base_offset >= self.end {
                // What was taken out before it needs no waiting for.
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
    /// Reads as [`Partition::read`] does, but nothing comes where the first batch is longer, of
    /// which no more than `bytes_max` or a block are looked at.
    pub fn read_within(
        &self,
        offset: i64,
        bytes_max: usize,
        buffer: &mut Vec<u8>,
    ) -> Result<Range<usize>, LogError> {
        let wanted = Wanted { takes_longer: false, ..Wanted::new(offset, bytes_max) };
        self.read_wanted(wanted, buffer)
    }

    /// Reads once into `buffer`, as [`Partition::read`] does: what is committed among these
    /// offsets, of which the last is before the last stable one.
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
    /// Reads as [`Partition::committed`] does, of the log as it was pinned.
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
