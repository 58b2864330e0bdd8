//! Retention: deletion of old records, and of records beyond a size limit.

use std::sync::Arc;

use crate::error::LogError;
use crate::partition::Partition;
use crate::segment::{Extent, Segment};
use crate::view::View;

/// Minimum excess, besides a quarter of the size limit, before a part of a segment is deleted.
/// Shorter segments are deleted whole.
const EXCESS_BYTES_MIN: u64 = 1 << 20;

/// Limits of retention; `None` disables a limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Retention {
    /// Whole segments are deleted while the others have at least this many bytes. If a segment is
    /// longer than the current segment size, its first records are deleted to reach about this
    /// size.
    pub bytes_max: Option<u64>,
    /// Segments whose newest record is older are deleted.
    pub oldest_unix_ms: Option<i64>,
    /// True if all records of the active segment may be deleted, too, if they are old enough. The
    /// segment itself remains, for [`Partition::cut`] or a new segment.
    pub empties_last: bool,
}

impl Partition {
    /// Returns the timestamp of the newest record in Unix milliseconds, or its append time if its
    /// producer set none; `None` without records. Append times that an opening cannot know count as
    /// the first call's `now_unix_ms`. Therefore call this before each [`Partition::retain`].
    pub fn newest_unix_ms(&self, now_unix_ms: i64) -> Option<i64> {
        let view = self.view();
        let newest = view.segments.iter().map(|segment| {
            segment.date(now_unix_ms);
            segment.extent().newest_unix_ms()
        });
        newest.max().filter(|it| *it != i64::MIN)
    }

    /// Deletes the oldest segments according to the policy. The active segment remains, though its
    /// first records may be deleted. Returns the new start offset.
    pub fn retain(&self, policy: Retention) -> Result<i64, LogError> {
        let boundary = {
            let view = self.view();
            let mut left_bytes: u64 =
                view.segments.iter().map(|segment| segment.extent().size_bytes()).sum();
            let (mut boundary, mut first_left) = (view.start_offset, view.segments.first());
            let is_too_old = |extent: &Extent| {
                policy.oldest_unix_ms.is_some_and(|oldest| extent.newest_unix_ms() < oldest)
            };
            let mut goes_on = true;
            for pair in view.segments.windows(2) {
                let extent = pair[0].extent();
                let is_too_much =
                    policy.bytes_max.is_some_and(|most| left_bytes - extent.size_bytes() >= most);
                let next_base = pair[1].header.base_offset;
                goes_on = (is_too_much || is_too_old(&extent)) && next_base <= view.stable_offset;
                if !goes_on {
                    break;
                }
                left_bytes -= extent.size_bytes();
                (boundary, first_left) = (next_base, Some(&pair[1]));
            }
            if let Some((segment, most)) = first_left.zip(policy.bytes_max) {
                let part = self.first_part_beyond(&view, segment, (left_bytes, most));
                boundary = part.map_or(boundary, |offset| offset.max(boundary));
            }
            let last = view.segments.last().filter(|_| goes_on && policy.empties_last);
            let end_offset = last.and_then(|segment| {
                let extent = segment.extent();
                let is_gone = is_too_old(&extent) && extent.next_offset <= view.stable_offset;
                is_gone.then_some(extent.next_offset)
            });
            end_offset.map_or(boundary, |end_offset| end_offset.max(boundary))
        };
        self.delete_before(boundary)
    }

    /// Returns the offset before which the records of a long segment are to be deleted, if
    /// `left_bytes`, from this segment on, exceed the limit.
    fn first_part_beyond(
        &self,
        view: &View,
        segment: &Arc<Segment>,
        (left_bytes, bytes_max): (u64, u64),
    ) -> Option<i64> {
        let extent = segment.extent();
        let excess_bytes = left_bytes.checked_sub(bytes_max)?;
        let is_whole = excess_bytes >= extent.size_bytes() && bytes_max > 0;
        let segment_bytes = self.volume().segment_bytes();
        let allowed_bytes = segment_bytes.min(EXCESS_BYTES_MIN.max(bytes_max / 4));
        if is_whole || excess_bytes <= allowed_bytes {
            return None;
        }
        let offset = extent.index.offset_before(extent.index.head() + excess_bytes)?;
        (offset <= view.stable_offset).then_some(offset)
    }
}
