//! Reconstruction of the values at an earlier offset, as far as the log still contains them.
//!
//! A key whose current value is older than the offset had the same value then. The values of other
//! keys are found by reading the log up to the offset. Therefore memory is needed for keys that
//! have changed or lost their value since, and time for one read of the log.

use std::sync::Arc;

use record_batch::Records;
use record_log::RECORDS_BYTES_MAX;

use crate::error::ValuesError;
use crate::index::Index;
use crate::key_hash::KeyHash;
use crate::replay::{NO_VALUE, Replay};
use crate::snapshot::Snapshot;
use crate::values::Values;

/// Maximum bytes of the log that one step reads. A larger batch is read whole.
const STEP_BYTES: usize = 1 << 20;

/// Incremental search for the values at an earlier offset.
#[derive(Debug)]
pub struct AsOf {
    values: Arc<Values>,
    offset: i64,
    bytes_max: usize,
    snapshot: Snapshot,
    /// Keys changed since the offset, with the values at the offset found so far.
    changed: Index,
    /// The log was read up to this offset.
    next: i64,
    buffer: Vec<u8>,
}

impl AsOf {
    /// Starts a search for the values that result from all committed records before `offset`.
    /// `bytes_max` bounds the memory for keys that have changed since: 20 to 27 bytes each. The
    /// offset must not be before the start of the log or before the end of its compacted part.
    /// Values that were deleted with the start of the log are not found.
    pub fn begin(values: &Arc<Values>, offset: i64, bytes_max: usize) -> Result<Self, ValuesError> {
        Self::begin_before(values, values.snapshot()?, offset, bytes_max)
    }

    /// Same as [`AsOf::begin`], relative to a snapshot of these values. The result also contains a
    /// replay of the changes up to the snapshot, see [`Snapshot::take_replay`].
    pub fn begin_before(
        values: &Arc<Values>,
        mut snapshot: Snapshot,
        offset: i64,
        bytes_max: usize,
    ) -> Result<Self, ValuesError> {
        // Read after the log was pinned, so it covers all that compaction has removed from the
        // pinned log.
        let compacted_before = values.partition.compacted_before();
        let (first, last) = (snapshot.log.start_offset().max(compacted_before), snapshot.applied);
        if !(first..=last).contains(&offset) {
            let partition = values.partition.number();
            return Err(ValuesError::OutOfReach { partition, offset, first, last });
        }
        snapshot.live.limit(0..offset);
        let is_now = offset == last;
        let next = if is_now { offset } else { snapshot.log.start_offset() };
        let (values, changed, buffer) = (Arc::clone(values), Index::default(), Vec::new());
        Ok(Self { values, offset, bytes_max, snapshot, changed, next, buffer })
    }

    /// Reads up to a mebibyte of the log, or one batch. Returns `Found` when the search is
    /// complete.
    pub fn step(mut self) -> Result<AsOfStep, ValuesError> {
        if self.next >= self.offset {
            return Ok(self.end());
        }
        self.next = self.read()?;
        if self.changed.size_bytes() > self.bytes_max {
            let (partition, offset) = (self.values.partition.number(), self.offset);
            let bytes_max = self.bytes_max;
            return Err(ValuesError::TooMuchMemory { partition, offset, bytes_max });
        }
        Ok(AsOfStep::More(self))
    }

    /// Collects the values of keys that have changed since. Returns the offset that was reached.
    fn read(&mut self) -> Result<i64, ValuesError> {
        let (from, end, log) = (self.next, self.offset, &self.snapshot.log);
        let mut batches = log.committed(from..end, STEP_BYTES, &mut self.buffer)?;
        for (header, batch) in &mut batches {
            // As in the follower, a batch that cannot be decoded contributes no values.
            let Ok(records) = Records::decode(&header, batch, RECORDS_BYTES_MAX) else { continue };
            if records.check().is_err() {
                continue;
            }
            let state = self.values.state();
            for record in records.iter().map_while(Result::ok) {
                let is_in = (from..end).contains(&record.offset);
                let Some(key) = record.key.filter(|_| is_in) else { continue };
                let hash = KeyHash::of(&self.values.secret, key);
                let is_same = state.index.get(hash).is_some_and(|now| now < end);
                if !is_same || self.changed.get(hash).is_some() {
                    let is_value = record.value.is_some();
                    self.changed.insert(hash, if is_value { record.offset } else { NO_VALUE });
                }
            }
        }
        Ok(batches.next_offset())
    }

    fn end(self) -> AsOfStep {
        let mut snapshot = self.snapshot;
        let replay = Replay {
            log: snapshot.log.clone(),
            secret: self.values.secret,
            next: self.offset,
            end: snapshot.applied,
            values: Index::default(),
            buffer: Vec::new(),
        };
        for offset in self.changed.offsets().filter(|it| *it != NO_VALUE) {
            // Only sweeps use the oldest time, and snapshots are not swept.
            snapshot.live.insert(offset, i64::MIN);
        }
        snapshot.applied = self.offset;
        snapshot.since = Some(Box::new(Replay { values: self.changed, ..replay }));
        AsOfStep::Found(snapshot)
    }
}

/// Result of a step.
#[derive(Debug)]
pub enum AsOfStep {
    More(AsOf),
    Found(Snapshot),
}
