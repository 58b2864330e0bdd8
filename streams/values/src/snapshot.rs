//! All values at one offset, read while the log goes on.

use std::fmt;
use std::ops::Range;

use record_batch::Record;
use record_log::PinnedLog;

use crate::error::ValuesError;
use crate::live::Live;
use crate::pick::{Picker, has_expired};
use crate::replay::Replay;

/// The current values as they were at [`Snapshot::applied`]. Publishing, deletion and compaction do
/// not touch it. It holds memory of the log that was deleted meanwhile, so it must not be kept for
/// long; of its own it takes 2 bytes for each value at most, and those only when they change.
#[derive(Clone)]
pub struct Snapshot {
    pub(crate) log: PinnedLog,
    pub(crate) live: Live,
    pub(crate) applied: i64,
    pub(crate) ttl_ms: Option<i64>,
    /// Replay of a snapshot at an earlier offset.
    pub(crate) since: Option<Box<Replay>>,
}

impl Snapshot {
    /// All committed records before this offset count, and none from it on: a subscriber goes on
    /// with the changes from here.
    pub fn applied(&self) -> i64 {
        self.applied
    }

    /// Takes the changes from an earlier offset up to the snapshot before which its values were
    /// looked for; `None` of others, and the second time.
    pub fn take_replay(&mut self) -> Option<Box<Replay>> {
        self.since.take()
    }

    /// Values, those included that have expired and were not swept yet.
    pub fn count(&self) -> usize {
        self.live.count()
    }

    /// Reads the values whose records have these offsets, in the order of the log.
    pub fn scan(&self, offsets: Range<i64>) -> Scan<'_> {
        Scan { snapshot: self, picker: Picker::new(offsets) }
    }

    /// Reads all values, in the order of the log.
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

/// Decision of a scan to go on or to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanStep {
    More,
    Done,
}

/// A walk over a snapshot.
#[derive(Debug)]
pub struct Scan<'a> {
    snapshot: &'a Snapshot,
    picker: Picker,
}

impl Scan<'_> {
    /// Reads once, a mebibyte or one batch at most, and shows the values in it that have not
    /// expired by `now_ms`.
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

    /// Values before this offset were shown; another scan may go on here.
    pub fn position(&self) -> i64 {
        self.picker.position()
    }
}
