//! The end of a partition, where one thread at a time appends: the segment that grows, what is
//! known of producers there, and the checkpoints that are due.

use std::cell::RefCell;
use std::sync::Arc;

use crate::batch::Batch;
use crate::error::LogError;
use crate::layout::{BLOCK, SEGMENT_BYTES_MAX};
use crate::producers::{Noted, Producers};
use crate::records::{Checkpoint, PartitionRecord, SegmentHeader};
use crate::reserve;
use crate::segment::Segment;
use crate::slots::Spare;
use crate::volume::{TopicVolume, no_slot_ready};

/// So many bytes of batches come between two checkpoints for each byte of the next one, at least.
const BATCHES_A_CHECKPOINT: u64 = 8;

/// A segment with so many aborted transactions is full: a checkpoint lists them all.
pub(crate) const ABORTED_COUNT_MAX: usize = 100_000;

/// A thread keeps so much memory for staging from one append to the next.
const STAGING_BYTES_KEPT: usize = 1 << 20;

thread_local! {
    /// The block where a batch begins, and the batch. A thread's own, so that a thousand partitions
    /// take no more of them than threads append.
    static STAGING: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

#[derive(Debug)]
pub(crate) struct Writer {
    /// Of the partition.
    number: u32,
    pub(crate) record: PartitionRecord,
    pub(crate) producers: Producers,
    pub(crate) next_offset: i64,
    active: Option<Active>,
    /// Whether there was never a segment.
    is_unbegun: bool,
    /// Whether the next batch begins a new segment.
    is_rolling: bool,
    /// Checkpoints of segments that were filled since the last flush.
    sealed: Vec<SealedCheckpoint>,
    /// True if batches were appended since the last flush began.
    pub(crate) is_dirty: bool,
}

/// The segment that is appended to.
#[derive(Debug)]
struct Active {
    segment: Arc<Segment>,
    /// The last batch's part of its block.
    tail: Vec<u8>,
    /// Whether a write failed, so that there may be bytes past the end.
    is_torn: bool,
    /// Of the newest checkpoint.
    checkpoint_position: u64,
}

/// A checkpoint that is written when what it speaks of is durable.
#[derive(Debug)]
struct SealedCheckpoint {
    segment: Arc<Segment>,
    checkpoint: Checkpoint,
}

/// Part that a flush that has begun will make stable.
#[derive(Debug)]
pub(crate) struct FlushedPart {
    /// After the last record.
    pub(crate) offset: i64,
    checkpoints: Vec<SealedCheckpoint>,
}

impl FlushedPart {
    /// Writes the checkpoints of what is durable now: all that can be written, and the first error.
    /// They only make openings shorter: one that finds no room is left out, and the next one speaks
    /// for it.
    pub(crate) fn write_checkpoints(self, volume: &TopicVolume) -> Result<(), LogError> {
        let mut result = Ok(());
        for SealedCheckpoint { segment, checkpoint } in self.checkpoints {
            let saved = segment.save_checkpoint(&*volume.device, checkpoint);
            result = result.and(saved.or_else(LogError::ignore_no_space));
        }
        result
    }
}

/// Partition as an opening found it.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) record: PartitionRecord,
    pub(crate) segments: Vec<Arc<Segment>>,
    pub(crate) producers: Producers,
}

impl Found {
    pub(crate) fn nothing(record: PartitionRecord) -> Self {
        Self { record, segments: Vec::new(), producers: Producers::default() }
    }
}

impl Writer {
    /// Goes on after the last segment that was found, in an epoch of its own. What that needs on
    /// the volume is written, and not yet flushed.
    pub(crate) fn open(
        volume: &TopicVolume,
        number: u32,
        found: &mut Found,
    ) -> Result<Self, LogError> {
        let mut record = std::mem::take(&mut found.record);
        let active = match found.segments.last() {
            None => None,
            Some(segment) if segment.header.replacement.is_some() => None,
            Some(segment) => {
                // Memory that is kept waits for the owner to say how much.
                let is_torn = volume.lock_slots().keeps_memory;
                let tail = match is_torn {
                    true => Vec::new(),
                    false => segment.cut_tail(&*volume.device, 0)?,
                };
                let checkpoint_position = segment.extent().position;
                let segment = Arc::clone(segment);
                Some(Active { segment, tail, is_torn, checkpoint_position })
            }
        };
        let next_offset =
            found.segments.last().map_or(record.start_offset, |last| last.extent().next_offset);
        record.begin_epoch(next_offset, volume.least_epoch);
        record.save(&*volume.device, number)?;
        let mut writer = Self {
            number,
            record,
            producers: std::mem::take(&mut found.producers),
            next_offset,
            active: None,
            is_unbegun: found.segments.is_empty(),
            is_rolling: false,
            sealed: Vec::new(),
            is_dirty: false,
        };
        if let Some(active) = &active {
            writer.ensure_checkpoint(volume, &active.segment)?;
        }
        writer.active = active;
        if writer.is_unbegun {
            volume.lock_slots().note_unbegun();
        }
        Ok(writer)
    }

    /// What is known of producers must not go with the segments before the last one, whose first
    /// checkpoint a crash may have taken. It is written when what was found is durable.
    fn ensure_checkpoint(
        &mut self,
        volume: &TopicVolume,
        segment: &Arc<Segment>,
    ) -> Result<(), LogError> {
        if segment.has_checkpoint() {
            return Ok(());
        }
        let checkpoint = self.checkpoint(segment);
        if volume.lock_slots().awaits_flush {
            self.sealed.push(SealedCheckpoint { segment: Arc::clone(segment), checkpoint });
            return Ok(());
        }
        let saved = segment.save_checkpoint(&*volume.device, checkpoint);
        saved.or_else(LogError::ignore_no_space)
    }

    /// Makes sure of a segment that has room for so many bytes, and of nothing past its end.
    /// Returns the segment if it is new. Where none can begin before a flush has ended, the one
    /// that is there grows beyond its size rather than that anybody waits.
    pub(crate) fn make_room(
        &mut self,
        volume: &TopicVolume,
        size_bytes: u64,
    ) -> Result<Option<Arc<Segment>>, LogError> {
        let segment_bytes = volume.segment_bytes();
        let is_full = self.active.as_ref().is_some_and(|active| {
            let extent = active.segment.extent();
            let is_too_long = extent.position + size_bytes > segment_bytes;
            extent.position > 0 && is_too_long || extent.aborted.len() >= ABORTED_COUNT_MAX
        });
        if self.active.is_none() || is_full || self.is_rolling {
            if let Some(spare) = volume.take_slot()? {
                return self.begin_segment(volume, spare).map(Some);
            }
            let position = self.active.as_ref().map(|it| it.segment.extent().position);
            if position.is_none_or(|it| it + size_bytes > SEGMENT_BYTES_MAX) {
                return Err(no_slot_ready());
            }
        }
        if let Some(active) = self.active.as_mut().filter(|it| it.is_torn) {
            active.tail = active.segment.cut_tail(&*volume.device, volume.reserved())?;
            active.is_torn = false;
        }
        Ok(None)
    }

    fn begin_segment(
        &mut self,
        volume: &TopicVolume,
        Spare { slot, filled }: Spare,
    ) -> Result<Arc<Segment>, LogError> {
        let device = &*volume.device;
        let header = SegmentHeader {
            topic: volume.id,
            partition: self.number,
            base_offset: self.next_offset,
            epoch: self.record.epoch(),
            replacement: None,
        };
        let segment = Arc::new(Segment::new(slot, header));
        segment.lock_kept().filled = filled;
        // What is known of producers must not go with the segments before this one.
        let first = self.checkpoint(&segment);
        let made = header.save(device, slot);
        let made = made.and_then(|()| segment.save_checkpoint(device, first));
        if let Err(error) = made {
            // A header that is there would make an empty segment of it.
            volume.give_up(slot, 0, filled)?;
            volume.lock_slots().give_back(slot);
            return Err(error);
        }
        if std::mem::take(&mut self.is_unbegun) {
            volume.lock_slots().note_begun();
        }
        // Where there is no room for it, the one before goes on.
        self.seal();
        self.is_rolling = false;
        let (tail, is_torn, checkpoint_position) = (Vec::new(), false, 0);
        let active = Active { segment: Arc::clone(&segment), tail, is_torn, checkpoint_position };
        self.active = Some(active);
        Ok(segment)
    }

    /// Has the blocks behind the end hold something, as far as there is memory for what is
    /// reserved. Returns how far they do.
    pub(crate) fn reserve(&self, volume: &TopicVolume) -> Result<u64, LogError> {
        let segment = &self.active.as_ref().expect("room was made").segment;
        let begin = segment.extent().position.next_multiple_of(BLOCK);
        let filled = segment.lock_kept().filled.max(begin);
        let reserved = volume.reserved();
        if filled >= reserved {
            return Ok(filled);
        }
        let filled = reserve::fill_or_give_back(&*volume.device, segment.slot, filled..reserved)?;
        segment.lock_kept().filled = filled;
        Ok(filled)
    }

    /// Writes a batch to the place that was made for it.
    pub(crate) fn write(
        &mut self,
        volume: &TopicVolume,
        batch: &Batch<'_>,
        unix_ms: i64,
    ) -> Result<(), LogError> {
        let active = self.active.as_mut().expect("room was made");
        STAGING.with_borrow_mut(|staging| {
            let written = active.write(volume, batch, staging);
            staging.shrink_to(STAGING_BYTES_KEPT);
            written
        })?;
        let mut extent = active.segment.extent_to_change();
        let noted = Noted { unix_ms, owner: batch.owner() };
        extent.note(batch.header(), batch.bytes(), &mut self.producers, noted);
        self.next_offset = extent.next_offset;
        Ok(())
    }

    /// Has the next batch begin a new segment, unless the last one is empty.
    pub(crate) fn roll(&mut self) {
        let position = self.active.as_ref().map(|it| it.segment.extent().position);
        self.is_rolling |= position.is_some_and(|it| it > 0);
    }

    /// Ends the segment that is appended to.
    fn seal(&mut self) {
        if let Some(active) = self.active.take() {
            let checkpoint = self.checkpoint(&active.segment);
            self.sealed.push(SealedCheckpoint { segment: active.segment, checkpoint });
        }
    }

    /// Part that the flush that begins now makes stable.
    pub(crate) fn begin_flush(&mut self, volume: &TopicVolume) -> FlushedPart {
        self.is_dirty = false;
        let mut checkpoints = std::mem::take(&mut self.sealed);
        checkpoints.extend(self.checkpoint_if_due(volume.checkpoint_bytes()));
        FlushedPart { offset: self.next_offset, checkpoints }
    }

    /// The flush has failed: all of it is to be flushed again.
    pub(crate) fn fail_flush(&mut self, part: FlushedPart) {
        self.sealed.extend(part.checkpoints);
    }

    /// Segments that are no longer part of the log need no checkpoint.
    pub(crate) fn drop_checkpoints_of(&mut self, segments: &[Arc<Segment>]) {
        self.sealed.retain(|it| !segments.iter().any(|gone| Arc::ptr_eq(gone, &it.segment)));
    }

    /// One is due after `checkpoint_bytes` of batches, or when it is worth its length. The first
    /// flush of a segment writes one too: a segment with a checkpoint of some batches is known to
    /// follow a complete one.
    fn checkpoint_if_due(&mut self, checkpoint_bytes: u64) -> Option<SealedCheckpoint> {
        let active = self.active.as_ref()?;
        let (position, size_bytes) = {
            let extent = active.segment.extent();
            let aborted_bytes = size_of_val(&extent.aborted[..]);
            let size_bytes =
                extent.index.size_bytes() + aborted_bytes + self.producers.size_bytes();
            (extent.position, size_bytes as u64)
        };
        let since = position - active.checkpoint_position;
        let is_due = position > 0 && active.checkpoint_position == 0
            || since >= checkpoint_bytes.max(BATCHES_A_CHECKPOINT * size_bytes);
        if !is_due {
            return None;
        }
        let segment = Arc::clone(&active.segment);
        let checkpoint = self.checkpoint(&segment);
        self.active.as_mut()?.checkpoint_position = position;
        Some(SealedCheckpoint { segment, checkpoint })
    }

    /// One of all of the segment that is appended to; `None` for others.
    pub(crate) fn checkpoint_of(&self, segment: &Segment) -> Option<Checkpoint> {
        let active = self.active.as_ref()?;
        std::ptr::eq(&raw const *active.segment, segment).then(|| self.checkpoint(segment))
    }

    /// One of all of a segment at whose end this is. It is numbered when it is saved.
    fn checkpoint(&self, segment: &Segment) -> Checkpoint {
        let extent = segment.extent();
        Checkpoint {
            sequence: 0,
            base_offset: segment.header.base_offset,
            epoch: segment.header.epoch,
            position: extent.position,
            next_offset: extent.next_offset,
            index: extent.index.clone(),
            aborted: extent.aborted.clone(),
            producers: self.producers.clone(),
        }
    }
}

impl Active {
    /// Writes the batch after the last one, with the part of the last block that is there.
    fn write(
        &mut self,
        volume: &TopicVolume,
        batch: &Batch<'_>,
        staging: &mut Vec<u8>,
    ) -> Result<(), LogError> {
        let position = self.segment.extent().position;
        staging.clear();
        staging.extend_from_slice(&self.tail);
        staging.extend_from_slice(batch.bytes());
        let length = staging.len();
        let block = usize::try_from(BLOCK).expect("it fits memory");
        staging.resize(length.next_multiple_of(block), 0);
        let at = self.segment.slot.batches(position / BLOCK * BLOCK);
        if let Err(error) = volume.device.write(at, staging) {
            self.is_torn = true;
            let what = format!("cannot append to {}", self.segment.place());
            return Err(LogError::device(what, error));
        }
        self.tail.clear();
        self.tail.extend_from_slice(&staging[length / block * block..length]);
        Ok(())
    }
}
