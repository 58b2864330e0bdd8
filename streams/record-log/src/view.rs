//! Readers' view of a partition: its segments, start and stable offset.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use block_device::BlockDevice;

use crate::error::{LogError, LogErrorKind};
use crate::producers::Aborted;
use crate::records::EpochStart;
use crate::segment::{Segment, Wanted};
use crate::volume::TopicVolume;

#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) start_offset: i64,
    /// Records before it are visible.
    pub(crate) stable_offset: i64,
    /// Ordered by base offset. The last one is appended to.
    pub(crate) segments: Vec<Arc<Segment>>,
    pub(crate) epochs: Vec<EpochStart>,
}

impl View {
    /// Fails if an offset is out of range.
    pub(crate) fn check(&self, partition: u32, offset: i64) -> Result<(), LogError> {
        match (self.start_offset..=self.stable_offset).contains(&offset) {
            true => Ok(()),
            false => Err(self.out_of_range(partition, offset)),
        }
    }

    pub(crate) fn out_of_range(&self, partition: u32, offset: i64) -> LogError {
        let what = format!(
            "offset {offset} is out of range of partition {partition}: {} to {}",
            self.start_offset, self.stable_offset
        );
        LogError::new(LogErrorKind::OffsetOutOfRange, what)
    }

    /// Returns the segment that may contain an offset, and the base offset of the next one.
    pub(crate) fn segment_at(&self, offset: i64) -> Option<(Arc<Segment>, Option<i64>)> {
        let after = self.segments.partition_point(|it| it.header.base_offset <= offset);
        let segment = self.segments.get(after.saturating_sub(1))?;
        let next = self.segments.get(after).map(|next| next.header.base_offset);
        Some((Arc::clone(segment), next))
    }

    /// Returns the aborted transactions with records in a range of offsets.
    pub(crate) fn aborted(&self, offsets: Range<i64>) -> Vec<Aborted> {
        let mut found = Vec::new();
        // A transaction is listed in the segment of its marker, which may be any later one.
        for segment in &self.segments {
            let extent = segment.extent();
            let meets =
                |it: &&Aborted| it.first_offset < offsets.end && it.last_offset >= offsets.start;
            found.extend(extent.aborted.iter().filter(meets));
        }
        found
    }

    /// Returns the remaining ones of `segments`, and their range in the view.
    pub(crate) fn place_of<'a>(
        &self,
        segments: &'a [Arc<Segment>],
    ) -> Option<(Range<usize>, &'a [Arc<Segment>])> {
        let last = segments.last()?;
        let end = 1 + self.segments.iter().position(|it| Arc::ptr_eq(it, last))?;
        let left = &segments[segments.len().saturating_sub(end)..];
        let place = end - left.len()..end;
        let are_same =
            self.segments[place.clone()].iter().zip(left).all(|(it, other)| Arc::ptr_eq(it, other));
        assert!(are_same, "segments go from the front, or by a compaction, of which there is one");
        Some((place, left))
    }
}

/// Reads whole batches as [`crate::Partition::read`] does, from the segments that `segment_at`
/// finds.
pub(crate) fn read(
    device: &dyn BlockDevice,
    mut wanted: Wanted,
    buffer: &mut Vec<u8>,
    segment_at: impl Fn(i64) -> Option<(Arc<Segment>, Option<i64>)>,
) -> Result<Range<usize>, LogError> {
    loop {
        let Some((segment, next_base)) = segment_at(wanted.offset) else { return Ok(0..0) };
        let Some(range) = segment.read(device, &wanted, buffer)? else { return Ok(0..0) };
        match next_base.filter(|next| range.is_empty() && *next < wanted.end_offset) {
            // All records up to the end of the segment were removed.
            Some(next) => wanted.offset = next,
            None if range.is_empty() => return Ok(0..0),
            None => return Ok(range),
        }
    }
}

/// A pinned partition, which deletions and compaction do not affect. The memory that they free is
/// retained until this is dropped, so it must be short-lived.
#[derive(Clone)]
pub struct PinnedLog {
    number: u32,
    volume: Arc<TopicVolume>,
    view: View,
    /// While it exists, no segment is cut.
    _pin: Arc<()>,
}

impl PinnedLog {
    pub(crate) fn new(number: u32, volume: Arc<TopicVolume>, view: View, pin: Arc<()>) -> Self {
        Self { number, volume, view, _pin: pin }
    }

    /// Returns the number of the partition.
    pub fn partition(&self) -> u32 {
        self.number
    }

    pub fn start_offset(&self) -> i64 {
        self.view.start_offset
    }

    /// Returns the high watermark when the log was pinned.
    pub fn end_offset(&self) -> i64 {
        self.view.stable_offset
    }

    /// Same as [`crate::Partition::read`].
    pub fn read(
        &self,
        offset: i64,
        bytes_max: usize,
        buffer: &mut Vec<u8>,
    ) -> Result<Range<usize>, LogError> {
        self.view.check(self.number, offset)?;
        let end_offset = self.view.stable_offset;
        let wanted = Wanted { end_offset, ..Wanted::new(offset, bytes_max) };
        read(&*self.volume.device, wanted, buffer, |offset| self.view.segment_at(offset))
    }

    /// Same as [`crate::Partition::aborted`].
    pub fn aborted(&self, offsets: Range<i64>) -> Vec<Aborted> {
        self.view.aborted(offsets)
    }
}

impl fmt::Debug for PinnedLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedLog")
            .field("partition", &self.number)
            .field("start_offset", &self.view.start_offset)
            .field("end_offset", &self.view.stable_offset)
            .finish_non_exhaustive()
    }
}
