//! Replay of past changes of current values.

use std::fmt;

use record_batch::Records;
use record_log::{PinnedLog, RECORDS_BYTES_MAX};

use crate::change::{Change, OnChange};
use crate::error::ValuesError;
use crate::index::Index;
use crate::key_hash::{KeyHash, Secret};

/// Maximum bytes of the log that one step reads. A larger batch is read whole.
const STEP_BYTES: usize = 1 << 20;

/// Placeholder for an offset: the key had no value.
pub(crate) const NO_VALUE: i64 = i64::MAX;

/// Changes made by the records between an earlier offset and a snapshot. Expiries, and deletions
/// with the start of the log, are not replayed.
#[derive(Clone)]
pub struct Replay {
    pub(crate) log: PinnedLog,
    pub(crate) secret: Secret,
    pub(crate) next: i64,
    pub(crate) end: i64,
    /// Values of changed keys at the position of the replay.
    pub(crate) values: Index,
    pub(crate) buffer: Vec<u8>,
}

impl Replay {
    /// Reads up to a mebibyte of the log, or one batch. Returns whether more remains.
    pub fn step(&mut self, on_change: OnChange<'_>) -> Result<bool, ValuesError> {
        let (from, end) = (self.next, self.end);
        if from >= end {
            return Ok(false);
        }
        let mut batches = self.log.committed(from..end, STEP_BYTES, &mut self.buffer)?;
        for (header, batch) in &mut batches {
            let Ok(records) = Records::decode(&header, batch, RECORDS_BYTES_MAX) else { continue };
            if records.check().is_err() {
                continue;
            }
            for record in records.iter().map_while(Result::ok) {
                let Some(key) = record.key.filter(|_| record.offset >= from) else { continue };
                let hash = KeyHash::of(&self.secret, key);
                let is_value = record.value.is_some();
                let now = if is_value { record.offset } else { NO_VALUE };
                let old = self.values.insert(hash, now).filter(|it| *it != NO_VALUE);
                match (is_value, old) {
                    (true, old) => on_change(Change::Published { record, old }, &self.log),
                    (false, Some(old)) => on_change(Change::Deleted { record, old }, &self.log),
                    (false, None) => {}
                }
            }
        }
        self.next = batches.next_offset();
        Ok(self.next < end)
    }
}

impl fmt::Debug for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replay").field("next", &self.next).field("end", &self.end).finish()
    }
}
