//! Writer of a partition, used by one thread at a time: the active segment, the producer state at
//! its end, and due checkpoints.

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

/// Minimum ratio of the bytes of batches between two checkpoints to the size of the next one.
const BATCHES_A_CHECKPOINT: u64 = 8;

/// Maximum aborted transactions of a segment, all of which its checkpoint lists.
pub(crate) const ABORTED_COUNT_MAX: usize = 100_000;

/// Maximum staging memory that a thread keeps between appends.
const STAGING_BYTES_KEPT: usize = 1 << 20;

thread_local! {
    /// Staging buffer for the block in which a batch begins, and the batch. It is thread-local, so
    /// its memory depends on the number of threads instead of partitions.
    static STAGING: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

#[derive(Debug)]
pub(crate) struct Writer {
    /// Number of the partition.
    number: u32,
    pub(crate) record: PartitionRecord,
    pub(crate) producers: Producers,
    pub(crate) next_offset: i64,
    active: Option<Active>,
    /// True if there was never a segment.
    is_unbegun: bool,
    /// True if the next batch begins a new segment.
    is_rolling: bool,
    /// Checkpoints of segments that were completed since the last flush.
    sealed: Vec<SealedCheckpoint>,
    /// True if batches were appended since the last flush began.
    pub(crate) is_dirty: bool,
}

/// The active segment.
#[derive(Debug)]
struct Active {
    segment: Arc<Segment>,
    /// The last batch's part of its block.
    tail: Vec<u8>,
    /// True if a write failed, so that there may be garbage behind the end.
    is_torn: bool,
    /// Position covered by the newest checkpoint.
    checkpoint_position: u64,
}

/// A checkpoint that is written when the batches it covers are durable.
#[derive(Debug)]
struct SealedCheckpoint {
    segment: Arc<Segment>,
    checkpoint: Checkpoint,
}

/// Part that a flush in progress will make stable.
#[derive(Debug)]
pub(crate) struct FlushedPart {
    /// Offset after the last record.
    pub(crate) offset: i64,
    checkpoints: Vec<SealedCheckpoint>,
}

impl FlushedPart {
    /// Writes the checkpoints of batches that are durable now. Continues after errors, and returns
    /// the first. Checkpoints only shorten openings: one without memory is skipped, and a later one
    /// covers its batches.
    pub(crate) fn write_checkpoints(self, volume: &TopicVolume) -> Result<(), LogError> {
        let mut result = Ok(());
        for SealedCheckpoint { segment, checkpoint } in self.checkpoints {
            let saved = segment.save_checkpoint(&*volume.device, checkpoint);
            result = result.and(saved.or_else(LogError::ignore_no_space));
        }
        result
    }
}

/// A partition as recovered by an opening.
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
    /// Continues after the last recovered segment, in a new epoch. Required writes to the volume
    /// are done, but not flushed.
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
                // Reserved memory is kept, until the owner sets its amount.
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

    /// Ensures that producer state is not lost with the segments before the last one, whose first
    /// checkpoint a crash may have prevented. The checkpoint is written once the recovered batches
    /// are durable.
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

    /// Ensures that the active segment has room for `size_bytes`, and no garbage behind its end.
    /// Returns the segment if it is new. If none can begin before a flush ends, the current one
    /// exceeds its maximum size instead of waiting.
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
        // Producer state must not be lost with the segments before this one.
        let first = self.checkpoint(&segment);
        let made = header.save(device, slot);
        let made = made.and_then(|()| segment.save_checkpoint(device, first));
        if let Err(error) = made {
            // A remaining header would be recovered as an empty segment.
            volume.give_up(slot, 0, filled)?;
            volume.lock_slots().give_back(slot);
            return Err(error);
        }
        if std::mem::take(&mut self.is_unbegun) {
            volume.lock_slots().note_begun();
        }
        // Last, because without room for the new segment the previous one must continue.
        self.seal();
        self.is_rolling = false;
        let (tail, is_torn, checkpoint_position) = (Vec::new(), false, 0);
        let active = Active { segment: Arc::clone(&segment), tail, is_torn, checkpoint_position };
        self.active = Some(active);
        Ok(segment)
    }

    /// Fills the reserved blocks behind the end while memory is available. Returns the position
    /// reached.
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

    /// Writes a batch to the active segment, in which room was made.
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

    /// Makes the next batch begin a new segment, unless the last one is empty.
    pub(crate) fn roll(&mut self) {
        let position = self.active.as_ref().map(|it| it.segment.extent().position);
        self.is_rolling |= position.is_some_and(|it| it > 0);
    }

    /// Completes the active segment.
    fn seal(&mut self) {
        if let Some(active) = self.active.take() {
            let checkpoint = self.checkpoint(&active.segment);
            self.sealed.push(SealedCheckpoint { segment: active.segment, checkpoint });
        }
    }

    /// Returns the part that a starting flush will make stable.
    pub(crate) fn begin_flush(&mut self, volume: &TopicVolume) -> FlushedPart {
        self.is_dirty = false;
        let mut checkpoints = std::mem::take(&mut self.sealed);
        checkpoints.extend(self.checkpoint_if_due(volume.checkpoint_bytes()));
        FlushedPart { offset: self.next_offset, checkpoints }
    }

    /// Restores a part after a failed flush.
    pub(crate) fn fail_flush(&mut self, part: FlushedPart) {
        self.sealed.extend(part.checkpoints);
    }

    /// Drops checkpoints of segments that are no longer part of the log.
    pub(crate) fn drop_checkpoints_of(&mut self, segments: &[Arc<Segment>]) {
        self.sealed.retain(|it| !segments.iter().any(|gone| Arc::ptr_eq(gone, &it.segment)));
    }

    /// Returns a checkpoint if one is due: after `checkpoint_bytes` of batches, or when it is worth
    /// its size. The first flush of a segment also writes one. A segment with a checkpoint of
    /// batches is then known to follow a complete one.
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

    /// Returns a checkpoint of the whole active segment; `None` for other segments.
    pub(crate) fn checkpoint_of(&self, segment: &Segment) -> Option<Checkpoint> {
        let active = self.active.as_ref()?;
        std::ptr::eq(&raw const *active.segment, segment).then(|| self.checkpoint(segment))
    }

    /// Builds a checkpoint of a whole segment at whose end the writer is. It is numbered when it is
    /// saved.
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
    /// Writes a batch after the last one, together with the existing part of the last block.
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
