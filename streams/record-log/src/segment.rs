//! A segment: consecutive batches in one slot, appended at the end, read anywhere.
//!
//! One writer appends. Readers see the batches that were complete when they looked. Batches are
//! contiguous and are sent to clients without conversion.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use block_device::{BLOCK_BYTES, BlockDevice};
use record_batch::{BatchHeader, HEADER_BYTES, Marker, has_valid_checksum};

use crate::error::{LogError, LogErrorKind};
use crate::index::Index;
use crate::layout::{BLOCK, SEGMENT_BYTES_MAX, Slot};
use crate::producers::{Aborted, Noted, Producers, TIME_UNKNOWN};
use crate::records::{Checkpoint, SegmentHeader};
use crate::reserve;

/// Maximum size of a batch. With the blocks at its ends, one call of a device transfers it.
pub const BATCH_BYTES_MAX: usize = 31 << 20;

/// Maximum bytes of one read, except for a single batch that is longer.
const READ_BYTES_MAX: usize = 16 << 20;

/// Maximum decompressed size of the records of one batch.
pub const RECORDS_BYTES_MAX: usize = 128 << 20;

/// Initial and maximum read sizes of a walk over batches.
const WALK_BYTES: usize = 64 << 10;
const WALK_BYTES_MAX: usize = 4 << 20;

/// State of a segment that changes with appends.
#[derive(Clone, Debug)]
pub(crate) struct Extent {
    /// Bytes of batches.
    pub(crate) position: u64,
    /// Offset after the last record.
    pub(crate) next_offset: i64,
    pub(crate) index: Index,
    pub(crate) aborted: Vec<Aborted>,
    /// Append time of the last batch without timestamps: `i64::MIN` without any, `TIME_UNKNOWN` if
    /// it was found by an opening.
    undated_unix_ms: i64,
}

#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) slot: Slot,
    pub(crate) header: SegmentHeader,
    extent: RwLock<Extent>,
    /// Shared by readers that use positions from the index.
    reading: RwLock<()>,
    kept: Mutex<Kept>,
    left: Mutex<Option<NewestLeft>>,
}

/// Cached maximum timestamp of the remaining records of a segment whose first records were deleted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewestLeft {
    /// First remaining record.
    pub(crate) start_offset: i64,
    /// Batches before this position were examined.
    pub(crate) position: u64,
    pub(crate) unix_ms: i64,
}

/// State of the slot's contents on the volume, besides its batches.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// Sequence number of the next checkpoint, which does not overwrite the newest.
    next_sequence: u64,
    /// Bytes of batches that the newest checkpoint covers.
    pub(crate) position: u64,
    /// Bytes of batches that were freed.
    pub(crate) cut: u64,
    /// Blocks of batches before this position have memory, including reserved ones.
    pub(crate) filled: u64,
}

/// Limits of a recovery.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Until {
    /// Leader epoch of the partition: no batch has a later one.
    pub(crate) epoch: i32,
    /// Base offset of the next segment.
    pub(crate) next_base: Option<i64>,
}

/// Request of a reader.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) offset: i64,
    /// Batches from here on are not returned.
    pub(crate) end_offset: i64,
    /// Maximum size of the returned batches.
    pub(crate) bytes_max: usize,
    /// Return the first batch even if it is longer.
    pub(crate) takes_longer: bool,
}

impl Wanted {
    /// Creates a request from an offset on. The end is set later.
    pub(crate) fn new(offset: i64, bytes_max: usize) -> Self {
        let bytes_max = bytes_max.min(READ_BYTES_MAX);
        Self { offset, end_offset: 0, bytes_max, takes_longer: true }
    }
}

impl Segment {
    pub(crate) fn new(slot: Slot, header: SegmentHeader) -> Self {
        let extent = Extent {
            position: 0,
            next_offset: header.base_offset,
            index: Index::default(),
            aborted: Vec::new(),
            undated_unix_ms: i64::MIN,
        };
        let (reading, kept, left) = Default::default();
        Self { slot, header, extent: RwLock::new(extent), reading, kept, left }
    }

    /// Locks the segment for a read at a position from the index. While it is held, no indexed
    /// batches are freed.
    pub(crate) fn begin_reading(&self) -> RwLockReadGuard<'_, ()> {
        self.reading.read().expect("nothing panics while batches are read")
    }

    pub(crate) fn extent(&self) -> RwLockReadGuard<'_, Extent> {
        self.extent.read().expect("nothing panics with an extent locked")
    }

    /// Returns the cached maximum timestamp of the records from an offset on.
    pub(crate) fn newest_left(&self, start_offset: i64) -> Option<NewestLeft> {
        self.lock_left().filter(|it| it.start_offset == start_offset)
    }

    pub(crate) fn note_newest_left(&self, found: NewestLeft) {
        *self.lock_left() = Some(found);
    }

    fn lock_left(&self) -> MutexGuard<'_, Option<NewestLeft>> {
        self.left.lock().expect("nothing panics with it locked")
    }

    /// Locks the extent for a change. Only the segment's writer may call this.
    pub(crate) fn extent_to_change(&self) -> RwLockWriteGuard<'_, Extent> {
        self.extent.write().expect("nothing panics with an extent locked")
    }

    /// Loads a checkpoint that covers the whole segment.
    pub(crate) fn set_extent(&self, checkpoint: Checkpoint) {
        let (next_sequence, position) = (checkpoint.sequence + 1, checkpoint.position);
        *self.lock_kept() = Kept { next_sequence, position, cut: 0, filled: 0 };
        let mut extent = self.extent_to_change();
        extent.position = checkpoint.position;
        extent.next_offset = checkpoint.next_offset;
        extent.index = checkpoint.index;
        extent.aborted = checkpoint.aborted;
        if extent.position > 0 && extent.index.max_timestamp() < 0 {
            extent.undated_unix_ms = TIME_UNKNOWN;
        }
    }

    /// Sets the time of batches that an opening found without one, unless that was done before.
    pub(crate) fn date(&self, unix_ms: i64) {
        let is_unknown = self.extent().undated_unix_ms == TIME_UNKNOWN;
        if is_unknown {
            self.extent_to_change().undated_unix_ms = unix_ms;
        }
    }

    /// Waits for readers that may use positions from a former index.
    pub(crate) fn await_readers(&self) {
        drop(self.reading.write().expect("nothing panics while batches are read"));
    }

    /// Writes a checkpoint of durable batches, unless there is a newer one.
    pub(crate) fn save_checkpoint(
        &self,
        device: &dyn BlockDevice,
        checkpoint: Checkpoint,
    ) -> Result<(), LogError> {
        self.save_next(device, checkpoint, &mut self.lock_kept())
    }

    pub(crate) fn save_next(
        &self,
        device: &dyn BlockDevice,
        mut checkpoint: Checkpoint,
        kept: &mut Kept,
    ) -> Result<(), LogError> {
        if kept.next_sequence > 0 && checkpoint.position < kept.position {
            return Ok(());
        }
        checkpoint.sequence = kept.next_sequence;
        checkpoint.save(device, self.slot)?;
        (kept.next_sequence, kept.position) = (checkpoint.sequence + 1, checkpoint.position);
        Ok(())
    }

    pub(crate) fn has_checkpoint(&self) -> bool {
        self.lock_kept().next_sequence > 0
    }

    /// Removes index entries before an offset. Returns whether whole blocks can be freed because of
    /// that.
    pub(crate) fn cut_index(&self, offset: i64) -> bool {
        let head = {
            let mut extent = self.extent_to_change();
            extent.index.cut_before(offset);
            extent.index.head()
        };
        head / BLOCK * BLOCK > self.lock_kept().cut
    }

    pub(crate) fn lock_kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().expect("nothing panics while a checkpoint is written")
    }

    /// Reads whole batches, starting with the one that contains `wanted.offset`. Returns their
    /// range in `buffer`, which is empty if there are none.
    pub(crate) fn read(
        &self,
        device: &dyn BlockDevice,
        wanted: &Wanted,
        buffer: &mut Vec<u8>,
    ) -> Result<Option<Range<usize>>, LogError> {
        let _reading = self.begin_reading();
        let (from, end) = {
            let extent = self.extent();
            (extent.index.position_of_offset(wanted.offset), extent.position)
        };
        let mut length = wanted.bytes_max.max(usize::try_from(BLOCK).expect("small"));
        loop {
            let filled = self.fill(device, from..end, length, buffer)?;
            match self.select(&buffer[..filled], (from, end), wanted)? {
                Selection::Batches(range) => return Ok(Some(range)),
                Selection::TooLong => return Ok(None),
                // All available bytes were examined.
                Selection::Needs(_) if filled < length => return Err(self.damaged(from)),
                Selection::Needs(more) => length = more,
            }
        }
    }

    /// Reads at most `length` bytes of the batches to the start of the buffer.
    fn fill(
        &self,
        device: &dyn BlockDevice,
        positions: Range<u64>,
        length: usize,
        buffer: &mut Vec<u8>,
    ) -> Result<usize, LogError> {
        let left = usize::try_from(positions.end - positions.start).unwrap_or(usize::MAX);
        let length = length.min(left);
        if buffer.len() < length {
            buffer.resize(length, 0);
        }
        let at = self.slot.batches(positions.start);
        device
            .read(at, &mut buffer[..length])
            .map_err(|error| LogError::device(format!("cannot read {}", self.place()), error))?;
        Ok(length)
    }

    /// Selects the requested batches in the bytes from position `from` on.
    fn select(
        &self,
        bytes: &[u8],
        (from, end): (u64, u64),
        wanted: &Wanted,
    ) -> Result<Selection, LogError> {
        let (mut at, mut first) = (0, None);
        loop {
            let position = from + at as u64;
            let done = Selection::Batches(first.unwrap_or(at)..at);
            if position >= end {
                return Ok(done);
            }
            if bytes.len() < at + HEADER_BYTES {
                return Ok(if first.is_some() {
                    done
                } else {
                    Selection::Needs(at + HEADER_BYTES)
                });
            }
            let batch = BatchHeader::read(&bytes[at..])
                .filter(|batch| position + batch.size_bytes as u64 <= end)
                .ok_or_else(|| self.damaged(position))?;
            if batch.base_offset >= wanted.end_offset {
                return Ok(done);
            }
            let after = at + batch.size_bytes;
            if batch.last_offset() < wanted.offset {
                at = after;
                continue;
            }
            let begin = first.unwrap_or(at);
            if batch.size_bytes > wanted.bytes_max && first.is_none() && !wanted.takes_longer {
                return Ok(Selection::TooLong);
            }
            if after - begin > wanted.bytes_max && first.is_some() {
                return Ok(done);
            }
            if after > bytes.len() {
                return Ok(if first.is_some() { done } else { Selection::Needs(after) });
            }
            (first, at) = (Some(begin), after);
        }
    }

    /// Calls `visit` with each whole batch from a position on, until it returns `Enough` or no
    /// valid batch follows. Returns the position at which the walk ended.
    pub(crate) fn walk(
        &self,
        device: &dyn BlockDevice,
        positions: Range<u64>,
        visit: &mut dyn FnMut(&BatchHeader, &[u8]) -> Walk,
    ) -> Result<u64, LogError> {
        let mut buffer = Vec::new();
        let mut position = positions.start;
        let mut length = WALK_BYTES;
        loop {
            let filled = self.fill(device, position..positions.end, length, &mut buffer)?;
            let mut at = 0;
            let needed = loop {
                let rest = &buffer[at..filled];
                let Some(batch) = BatchHeader::read(rest) else {
                    break HEADER_BYTES.saturating_sub(rest.len());
                };
                if batch.size_bytes > BATCH_BYTES_MAX {
                    break 0;
                }
                if batch.size_bytes > rest.len() {
                    break batch.size_bytes;
                }
                match visit(&batch, &rest[..batch.size_bytes]) {
                    Walk::On => at += batch.size_bytes,
                    Walk::Enough => break 0,
                }
            };
            position += at as u64;
            if needed == 0 || filled < length {
                return Ok(position);
            }
            length = (2 * length).min(WALK_BYTES_MAX).max(needed);
        }
    }

    /// Recovers the contents of the segment from its newest checkpoint on: consecutive whole
    /// batches up to the start of the next segment. `producers` must be the state at the end of the
    /// previous segment, and becomes that at the end of this one.
    pub(crate) fn recover(
        &self,
        device: &dyn BlockDevice,
        producers: &mut Producers,
        until: &Until,
    ) -> Result<(), LogError> {
        let checkpoint = Checkpoint::load_newest(device, self.slot, &self.header)?;
        if let Some(replacement) = self.header.replacement {
            let whole = checkpoint.filter(|it| it.position == replacement.size_bytes);
            return self.recover_replacement(device, whole, producers);
        }
        if let Some(mut found) = checkpoint {
            *producers = std::mem::take(&mut found.producers);
            self.set_extent(found);
        }
        let mut extent = self.extent_to_change();
        if until.next_base == Some(extent.next_offset) {
            return Ok(());
        }
        let mut last_epoch = self.header.epoch;
        let walked = extent.position..SEGMENT_BYTES_MAX;
        let extent = &mut *extent;
        let end = self.walk(device, walked, &mut |batch, bytes| {
            let follows = batch.base_offset == extent.next_offset
                && (last_epoch..=until.epoch).contains(&batch.epoch)
                && has_valid_checksum(bytes);
            if !follows {
                return Walk::Enough;
            }
            last_epoch = batch.epoch;
            extent.note(batch, bytes, producers, Noted::FOUND);
            Walk::On
        })?;
        debug_assert_eq!(end, extent.position, "every batch was noted");
        Ok(())
    }

    /// Same for a segment that compaction wrote, which must be complete.
    fn recover_replacement(
        &self,
        device: &dyn BlockDevice,
        checkpoint: Option<Checkpoint>,
        producers: &mut Producers,
    ) -> Result<(), LogError> {
        let replacement = self.header.replacement.expect("the caller has seen it");
        if let Some(mut found) = checkpoint {
            *producers = std::mem::take(&mut found.producers);
            self.set_extent(found);
            return Ok(());
        }
        let mut extent = self.extent_to_change();
        let extent = &mut *extent;
        self.walk(device, 0..replacement.size_bytes, &mut |batch, bytes| {
            // Removed records leave gaps.
            if batch.base_offset < extent.next_offset || !has_valid_checksum(bytes) {
                return Walk::Enough;
            }
            extent.note(batch, bytes, producers, Noted::FOUND);
            Walk::On
        })?;
        if extent.position < replacement.size_bytes {
            return Err(self.damaged(extent.position));
        }
        extent.next_offset = replacement.end_offset;
        Ok(())
    }

    /// Clears the bytes after the last batch, so that they are never mistaken for a batch. Memory
    /// of up to `reserved` bytes of batches is kept. Returns the last batch's part of its block.
    pub(crate) fn cut_tail(
        &self,
        device: &dyn BlockDevice,
        reserved: u64,
    ) -> Result<Vec<u8>, LogError> {
        let failed =
            |error| LogError::device(format!("cannot truncate the end of {}", self.place()), error);
        let position = self.extent().position;
        let block_start = position / BLOCK * BLOCK;
        let mut block = [0; BLOCK_BYTES];
        let kept = usize::try_from(position - block_start).expect("less than a block");
        device.read(self.slot.batches(block_start), &mut block).map_err(failed)?;
        if block[kept..].iter().any(|byte| *byte != 0) {
            block[kept..].fill(0);
            device.write(self.slot.batches(block_start), &block).map_err(failed)?;
        }
        let after = position.next_multiple_of(BLOCK);
        let filled = reserve::fill_or_give_back(device, self.slot, after..reserved)?;
        self.lock_kept().filled = filled;
        Ok(block[..kept].to_vec())
    }

    pub(crate) fn place(&self) -> String {
        format!(
            "the segment from offset {} of partition {}",
            self.header.base_offset, self.header.partition
        )
    }

    fn damaged(&self, position: u64) -> LogError {
        let what = format!("{} is corrupt: no record batch at byte {position}", self.place());
        LogError::new(LogErrorKind::Damaged, what)
    }
}

impl Extent {
    /// Returns the bytes of batches, without freed ones.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.position - self.index.head()
    }

    /// Returns the maximum timestamp or, without one, append time of the records; `i64::MIN`
    /// without records, and `i64::MAX` if it is unknown.
    pub(crate) fn newest_unix_ms(&self) -> i64 {
        self.undated_unix_ms.max(self.index.max_timestamp())
    }

    /// Updates the state with a batch at the end.
    pub(crate) fn note(
        &mut self,
        batch: &BatchHeader,
        bytes: &[u8],
        producers: &mut Producers,
        noted: Noted,
    ) {
        let position = self.position;
        let marker = if batch.is_control() { Marker::read(bytes) } else { None };
        self.aborted.extend(producers.note(batch, marker, noted));
        self.index.note(batch, position);
        if batch.max_timestamp < 0 {
            self.undated_unix_ms = self.undated_unix_ms.max(noted.unix_ms);
        }
        self.position = position + batch.size_bytes as u64;
        self.next_offset = batch.next_offset();
    }
}

enum Selection {
    Batches(Range<usize>),
    /// The given number of bytes from the start is needed.
    Needs(usize),
    /// The first batch exceeds the reader's limit.
    TooLong,
}

/// Result of visiting a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Walk {
    On,
    Enough,
}
