//! Snapshot of all values at one offset, which remains readable while the log grows.

use std::fmt;
use std::ops::Range;

use record_batch::Record;
use record_log::PinnedLog;

use crate::error::ValuesError;
use crate::live::Live;
use crate::pick::{Picker, has_expired};
use crate::replay::Replay;

/// Current values at the offset [`Snapshot::applied`]. Later records, deletions and compaction do
/// not affect it. A snapshot holds the memory of log segments that were deleted since, so it must
/// be short-lived. Its own memory is at most 2 bytes for each value, and only for runs that have
/// changed.
#[derive(Clone)]
pub struct Snapshot {
    pub(crate) log: PinnedLog,
    pub(crate) live: Live,
    pub(crate) applied: i64,
    pub(crate) ttl_ms: Option<i64>,
    /// Changes since, if this snapshot was reconstructed at an earlier offset.
    pub(crate) since: Option<Box<Replay>>,
}

impl Snapshot {
    /// Returns the offset of the snapshot: all committed records before it are included, and none
    /// from it on. A subscriber continues with the changes from here.
    pub fn applied(&self) -> i64 {
        self.applied
    }

    /// Takes the replay of the changes up to the snapshot relative to which this one was
    /// reconstructed. Returns `None` for other snapshots, and at the second call.
    pub fn take_replay(&mut self) -> Option<Box<Replay>> {
        self.since.take()
    }

    /// Returns the number of values, including expired ones that were not swept yet.
    pub fn count(&self) -> usize {
        self.live.count()
    }

    /// Scans the values at these offsets, in log order.
    pub fn scan(&self, offsets: Range<i64>) -> Scan<'_> {
        Scan { snapshot: self, picker: Picker::new(offsets) }
    }

    /// Scans all values, in log order.
    pub fn scan_all(&self) -> Scan<'_> {
        self.scan(0..self.applied)
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("partition", &self.log.partition())
            .field("applied", &self.applied)
            .field("count", &self.count())
            .finish_non_exhaustive()
    }
}

/// Result of a step of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanStep {
    More,
    Done,
}

/// A scan of a snapshot.
#[derive(Debug)]
pub struct Scan<'a> {
    snapshot: &'a Snapshot,
    picker: Picker,
}

impl Scan<'_> {
    /// Reads once, up to a mebibyte or one batch, and passes values that have not expired by
    /// `now_ms` to `visit`.
    pub fn step(
        &mut self,
        now_ms: i64,
        visit: &mut dyn FnMut(&Record<'_>),
    ) -> Result<ScanStep, ValuesError> {
        let Snapshot { log, live, ttl_ms, .. } = self.snapshot;
        let picked = self.picker.step(log, live, &mut |record| {
            if !has_expired(record, *ttl_ms, now_ms) {
                visit(record);
            }
        })?;
        match picked.missing {
            Some(offset) => Err(ValuesError::Overtaken { partition: log.partition(), offset }),
            None if picked.is_done => Ok(ScanStep::Done),
            None => Ok(ScanStep::More),
        }
    }

    /// Returns the offset before which all values were passed on. Another scan can resume here.
    pub fn position(&self) -> i64 {
        self.picker.position()
    }
}
