//! Applies the committed records of a partition to its current values.

mod checkpoint;
mod sweep;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use record_batch::{BatchHeader, Record, Records};
use record_log::{CompactionHold, Partition, PinnedLog, RECORDS_BYTES_MAX};

use crate::change::{Change, OnChange};
use crate::error::ValuesError;
use crate::key_hash::{KeyHash, Secret};
use crate::pick::Picker;
use crate::values::{State, Values};

use self::checkpoint::Checkpoints;
use self::sweep::Sweep;

pub use self::checkpoint::{CheckpointStep, Opening};
pub use self::sweep::SweepStep;

/// Result of one call of [`Follower::follow`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Followed {
    pub record_count: usize,
    /// More work is available immediately.
    pub is_behind: bool,
}

/// Writer of the current values of a partition, for one thread. While it exists, compaction stays
/// behind the offset that it has reached. If a partition has several followers, only one of them
/// may write checkpoints.
#[derive(Debug)]
pub struct Follower {
    values: Arc<Values>,
    hold: CompactionHold,
    /// Pinned logs from before each move of the log's start. The last one is followed. Values that
    /// were deleted with the start of the log are read from the earlier ones.
    pins: VecDeque<PinnedLog>,
    leaving: Option<Picker>,
    sweep: Sweep,
    checkpoints: Checkpoints,
    /// Offset at which the parts of a loaded checkpoint become consistent. `None` afterwards.
    live_from: Option<i64>,
    undecodable_count: u64,
    buffer: Vec<u8>,
    entries: Vec<Entry>,
}

/// A record with a key, prepared for the index.
#[derive(Clone, Copy, Debug)]
struct Entry {
    hash: KeyHash,
    offset: i64,
    timestamp_ms: i64,
    is_tombstone: bool,
    /// Offset of the key's previous value.
    old: Option<i64>,
}

impl Follower {
    /// Loads the newest checkpoint that matches the log, or starts at the start of the log.
    /// `secret` is used if there is no checkpoint. A checkpoint contains its own secret.
    pub fn open(partition: Arc<Partition>, secret: Secret) -> Result<(Self, Opening), ValuesError> {
        // First, so that the log pinned below is not compacted beyond the follower's position.
        let hold = partition.hold_compaction(partition.start_offset());
        let serves_from = partition.last_stable_offset();
        let pin = partition.pin();
        let (checkpoints, found, opening) = Checkpoints::open(&partition)?;
        let (secret, state, live_from) = match found {
            Some(found) => {
                let serves_from = serves_from.max(found.live_from);
                (found.secret, State { serves_from, ..found.state }, Some(found.live_from))
            }
            None => {
                let applied = pin.start_offset();
                (secret, State { serves_from, applied, ..State::default() }, None)
            }
        };
        let follower = Self {
            values: Arc::new(Values::new(partition, secret, state)),
            hold,
            pins: VecDeque::from([pin]),
            leaving: None,
            sweep: Sweep::default(),
            checkpoints,
            live_from,
            undecodable_count: 0,
            buffer: Vec::new(),
            entries: Vec::new(),
        };
        Ok((follower, opening))
    }

    /// Returns the values that the follower maintains, for readers.
    pub fn values(&self) -> &Arc<Values> {
        &self.values
    }

    /// Returns the number of undecodable batches since the opening. They contribute no values.
    pub fn undecodable_count(&self) -> u64 {
        self.undecodable_count
    }

    /// Reads committed records, up to `bytes_max` bytes or one batch, and applies them. Changes are
    /// passed to `on_change` once readers are served. Must be called every few seconds even without
    /// new records: between calls, the follower holds the memory of deleted segments.
    pub fn follow(
        &mut self,
        bytes_max: usize,
        mut on_change: Option<OnChange<'_>>,
    ) -> Result<Followed, ValuesError> {
        // Read first, so that the log pinned below contains all records before it.
        let mut end = self.values.partition.last_stable_offset();
        self.check_agreement();
        match self.values.ready().map(drop) {
            Ok(()) => self.pin(),
            // A compaction that started before the opening may still run. The log pinned at the
            // opening has a tombstone after each value that it deletes.
            Err(_) => end = self.values.state().serves_from,
        }
        let is_retiring = self.retire(&mut on_change)?;
        let applied = self.values.applied().max(self.pinned().start_offset());
        if applied >= end {
            return Ok(Followed { record_count: 0, is_behind: is_retiring });
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        let taken = self.take_in(applied..end, (bytes_max, &mut buffer), &mut on_change);
        self.buffer = buffer;
        let record_count = taken?;
        self.check_agreement();
        let applied = self.values.applied();
        self.hold.set(applied);
        let is_behind = is_retiring || applied < self.values.partition.last_stable_offset();
        Ok(Followed { record_count, is_behind })
    }

    /// Applies the records of a range. Returns the number of records applied.
    fn take_in(
        &mut self,
        offsets: Range<i64>,
        (bytes_max, buffer): (usize, &mut Vec<u8>),
        on_change: &mut Option<OnChange<'_>>,
    ) -> Result<usize, ValuesError> {
        let from = offsets.start;
        let mut batches = self.pinned().committed(offsets, bytes_max, buffer)?;
        let mut record_count = 0;
        for (header, batch) in &mut batches {
            match Records::decode(&header, batch, RECORDS_BYTES_MAX) {
                Ok(records) if self.note_entries(&records, from) => {
                    record_count += self.entries.len();
                    self.apply(&header);
                    if let Some(on_change) = on_change
                        && self.values.ready().is_ok()
                    {
                        self.tell(&records, on_change);
                    }
                }
                _ => {
                    self.undecodable_count += 1;
                    self.values.state_to_change().applied = header.next_offset();
                }
            }
        }
        self.values.state_to_change().applied = batches.next_offset();
        Ok(record_count)
    }

    /// Collects records with a key from an offset on. Returns `false` if a record is malformed.
    fn note_entries(&mut self, records: &Records<'_>, from: i64) -> bool {
        self.entries.clear();
        for record in records.iter() {
            let Ok(record) = record else { return false };
            let Some(key) = record.key.filter(|_| record.offset >= from) else { continue };
            self.entries.push(Entry {
                hash: KeyHash::of(&self.values.secret, key),
                offset: record.offset,
                timestamp_ms: record.timestamp_ms,
                is_tombstone: record.value.is_none(),
                old: None,
            });
        }
        true
    }

    fn apply(&mut self, header: &BatchHeader) {
        let mut state = self.values.state_to_change();
        let keeps_live = self.live_from.is_none_or(|from| header.base_offset >= from);
        for entry in &mut self.entries {
            let Entry { hash, offset, timestamp_ms, .. } = *entry;
            entry.old = match (entry.is_tombstone, keeps_live) {
                (true, true) => state.delete(hash),
                (false, true) => state.put(hash, offset, timestamp_ms),
                (true, false) => state.index.remove(hash),
                (false, false) => state.index.insert(hash, offset),
            };
        }
        state.applied = header.next_offset();
    }

    fn tell(&self, records: &Records<'_>, on_change: &mut OnChange<'_>) {
        let mut entries = self.entries.iter().peekable();
        for record in records.iter().map_while(Result::ok) {
            let Some(entry) = entries.next_if(|it| it.offset == record.offset) else { continue };
            match (entry.is_tombstone, entry.old) {
                (false, old) => on_change(Change::Published { record, old }, self.pinned()),
                (true, Some(old)) => on_change(Change::Deleted { record, old }, self.pinned()),
                (true, None) => {}
            }
        }
    }

    /// Checks that the parts of a checkpoint agree where they become consistent. If they do not,
    /// the values are rebuilt from the start of the log.
    fn check_agreement(&mut self) {
        let values = Arc::clone(&self.values);
        let mut state = values.state_to_change();
        if self.live_from.is_none_or(|from| state.applied < from) {
            return;
        }
        self.live_from = None;
        if state.index.count() != state.live.count() {
            let serves_from = self.values.partition.last_stable_offset();
            let pin = self.values.partition.pin();
            let applied = pin.start_offset();
            self.pins = VecDeque::from([pin]);
            *state = State { serves_from, applied, ..State::default() };
        }
    }

    /// Returns whether a checkpoint is being written.
    pub fn is_writing_checkpoint(&self) -> bool {
        self.checkpoints.is_writing()
    }

    /// Returns the run of live offsets that a sweep is reading.
    fn swept_run(&self) -> Option<i64> {
        self.sweep.visited_run()
    }

    /// Pins the current log. Earlier pins are kept if the start of the log has moved.
    fn pin(&mut self) {
        let pin = self.values.partition.pin();
        let is_same = self.pinned().start_offset() == pin.start_offset();
        if is_same {
            self.pins.pop_back();
        }
        self.pins.push_back(pin);
    }

    fn pinned(&self) -> &PinnedLog {
        self.pins.back().expect("one is always there")
    }

    /// Removes values whose records were deleted with the start of the log, in one read. Returns
    /// whether more remain.
    fn retire(&mut self, on_change: &mut Option<OnChange<'_>>) -> Result<bool, ValuesError> {
        let is_idle = self.pins.len() < 2 || self.is_writing_checkpoint();
        if is_idle || self.live_from.is_some() {
            return Ok(false);
        }
        let (log, until) = (&self.pins[0], self.pins[1].start_offset());
        let picker = self.leaving.get_or_insert_with(|| Picker::new(0..until));
        let part = self.values.state().live.part(0..until);
        let is_ready = self.values.ready().is_ok();
        let values = &self.values;
        let picked = picker.step(log, &part, &mut |record| {
            if let Some(at) = delete(values, record)
                && is_ready
                && let Some(on_change) = on_change
            {
                on_change(Change::Retired { record: *record, at }, log);
            }
        })?;
        if picked.is_done || picked.missing.is_some() && picked.bytes == 0 {
            self.leaving = None;
            self.pins.pop_front();
        }
        Ok(self.pins.len() > 1)
    }
}

/// Removes a value if it is still the current one of its key. Returns the offset before which all
/// records were applied.
fn delete(values: &Values, record: &Record<'_>) -> Option<i64> {
    let hash = KeyHash::of(&values.secret, record.key?);
    let mut state = values.state_to_change();
    state.delete_at(hash, record.offset).then_some(state.applied)
}
