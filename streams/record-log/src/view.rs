//! View of readers on a partition: which segments there are, from where to where.

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
    /// Records before it are shown.
    pub(crate) stable_offset: i64,
    /// By base offset. The last one is appended to.
    pub(crate) segments: Vec<Arc<Segment>>,
    pub(crate) epochs: Vec<EpochStart>,
}

impl View {
    /// Refuses an offset that there is not.
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

    /// The segment to look for an offset in, and where the next one begins.
    pub(crate) fn segment_at(&self, offset: i64) -> Option<(Arc<Segment>, Option<i64>)> {
        let after = self.segments.partition_point(|it| it.header.base_offset <= offset);
        let segment = self.segments.get(after.saturating_sub(1))?;
        let next = self.segments.get(after).map(|next| next.header.base_offset);
        Some((Arc::clone(segment), next))
    }

    /// The aborted transactions with records in a run of offsets.
    pub(crate) fn aborted(&self, offsets: Range<i64>) -> Vec<Aborted> {
        let mut found = Vec::new();
        // A transaction is noted in the segment with its marker, which may be any after this.
        for segment in &self.segments {
            let extent = segment.extent();
            let meets =
                |it: &&Aborted| it.first_offset < offsets.end && it.last_offset >= offsets.start;
            found.extend(extent.aborted.iter().filter(meets));
        }
        found
    }

    /// Where those of the segments are that were not deleted, and which.
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

/// Reads whole batches as [`crate::Partition::read`] says, of the segments that `segment_at` finds.
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
            // Records were taken out up to the end of the segment.
            Some(next) => wanted.offset = next,
            None if range.is_empty() => return Ok(0..0),
            None => return Ok(range),
        }
    }
}

/// A partition as it was when this was made: deletions and compaction do not touch it. Their memory
/// is given back when it was dropped, so it must not be kept for long.
#[derive(Clone)]
pub struct PinnedLog {
    number: u32,
    volume: Arc<TopicVolume>,
    view: View,
    /// As long as it is there, no segment is cut.
    _pin: Arc<()>,
}

impl PinnedLog {
    pub(crate) fn new(number: u32, volume: Arc<TopicVolume>, view: View, pin: Arc<()>) -> Self {
        Self { number, volume, view, _pin: pin }
    }

    /// Its number.
    pub fn partition(&self) -> u32 {
        self.number
    }

    pub fn start_offset(&self) -> i64 {
        self.view.start_offset
    }

    /// The offset after the last record that was stable.
    pub fn end_offset(&self) -> i64 {
        self.view.stable_offset
    }

    /// Reads as [`crate::Partition::read`] does.
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

    /// Lists as [`crate::Partition::aborted`] does.
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
