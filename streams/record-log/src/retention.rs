//! Deletion of what is old, or too much.

use std::sync::Arc;

use crate::error::LogError;
use crate::partition::Partition;
use crate::segment::{Extent, Segment};
use crate::view::View;

/// A partition has at least so many bytes too much, and a quarter more than it is to keep, when
/// records of a part of a segment are deleted. Shorter segments are deleted whole.
const EXCESS_BYTES_MIN: u64 = 1 << 20;

/// Limits of what a partition keeps; `None` is no limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Retention {
    /// Whole segments are deleted while the others hold as many bytes as this. Of a segment that
    /// is longer than new ones are, so many records are deleted that about as many bytes are left.
    pub bytes_max: Option<u64>,
    /// Segments whose newest record is older than this are deleted.
    pub oldest_unix_ms: Option<i64>,
    /// True if all records of the segment that is appended to may be deleted too, where it is as
    /// old. The segment stays, for [`Partition::cut`] or a new one behind it.
    pub empties_last: bool,
}

impl Partition {
    /// When the newest record was made, Unix milliseconds; when it was appended, where its producer
    /// gave no time. `None` where there is no record. Appends of which an opening does not know the
    /// time count from the first call on, so that it comes before each call of
    /// [`Partition::retain`].
    pub fn newest_unix_ms(&self, now_unix_ms: i64) -> Option<i64> {
        let view = self.view();
        let newest = view.segments.iter().map(|segment| {
            segment.date(now_unix_ms);
            segment.extent().newest_unix_ms()
        });
        newest.max().filter(|it| *it != i64::MIN)
    }

    /// Deletes the oldest segments that the policy does not keep; the one that is appended to
    /// stays, although its first records may go. Returns the first offset that is left.
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

    /// The offset up to which records of a segment are too much, where it is longer than new ones
    /// are and `left_bytes`, which it begins, are more than are to be kept.
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
