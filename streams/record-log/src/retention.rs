//! Deletion of what is old, or too much.

use crate::error::LogError;
use crate::partition::Partition;
use crate::segment::Extent;

/// Limits of what a partition keeps; `None` is no limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Retention {
    /// Whole segments are deleted while the others hold as many bytes as this.
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
    /// stays. Returns the first offset that is left.
    pub fn retain(&self, policy: Retention) -> Result<i64, LogError> {
        let boundary = {
            let view = self.view();
            let mut left_bytes: u64 =
                view.segments.iter().map(|segment| segment.extent().size_bytes()).sum();
            let mut boundary = view.start_offset;
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
                boundary = next_base;
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
}
