//! One partition: an endless row of records, in segments of one topic's volume.
//!
//! One thread at a time appends; readers take no part in that and see what is stable, which means
//! what survives all that the volume's durability class promises to survive.
//!
//! Lock order: writer, slots, view, extent of a segment.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::batch::{Batch, BatchHeader};
use crate::error::{LogError, LogErrorKind};
use crate::layout::{BLOCK, SEGMENT_BYTES_MAX};
use crate::producers::{Aborted, Producers};
use crate::records::{Checkpoint, EpochStart, PartitionRecord, SegmentHeader};
use crate::segment::{BATCH_BYTES_MAX, Segment, Walk, Wanted};
use crate::slots;
use crate::volume::TopicVolume;

/// A checkpoint is written after so many bytes of batches: an opening looks at no more of them.
const CHECKPOINT_BYTES: u64 = 64 << 20;

/// A segment with so many aborted transactions is full: a checkpoint lists them all.
const ABORTED_COUNT_MAX: usize = 100_000;

/// Where a batch came to lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Of its first record.
    pub base_offset: i64,
    /// Whether it was appended before, and nothing was done now.
    pub was_there: bool,
}

/// What a partition keeps; `None` is no limit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Retention {
    /// Whole segments are deleted while the others hold as many bytes as this.
    pub bytes_max: Option<u64>,
    /// Segments whose newest record is older than this are deleted.
    pub oldest_unix_ms: Option<i64>,
}

/// The batch that a search for a time found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimePlace {
    pub base_offset: i64,
    pub max_timestamp: i64,
}

#[derive(Debug)]
pub struct Partition {
    number: u32,
    volume: Arc<TopicVolume>,
    writer: Mutex<Writer>,
    view: RwLock<View>,
}

/// What readers see.
#[derive(Debug)]
struct View {
    start_offset: i64,
    /// Records before it are shown.
    stable_offset: i64,
    /// By base offset. The last one is appended to.
    segments: Vec<Arc<Segment>>,
    epochs: Vec<EpochStart>,
}

#[derive(Debug)]
struct Writer {
    record: PartitionRecord,
    producers: Producers,
    next_offset: i64,
    active: Option<Active>,
    /// Checkpoints of segments that were filled since the last flush.
    sealed: Vec<(Arc<Segment>, Checkpoint)>,
    /// The block where the next batch begins, and the batch.
    staging: Vec<u8>,
    is_dirty: bool,
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
    sequence: Option<u64>,
    checkpoint_position: u64,
}

/// What a flush that has begun will make stable.
#[derive(Debug)]
pub(crate) struct FlushedPart {
    offset: i64,
    checkpoints: Vec<(Arc<Segment>, Checkpoint)>,
}

impl Partition {
    fn with(
        volume: Arc<TopicVolume>,
        number: u32,
        record: PartitionRecord,
        segments: Vec<Arc<Segment>>,
    ) -> Self {
        let next_offset =
            segments.last().map_or(record.start_offset, |last| last.extent().next_offset);
        let view = View {
            start_offset: record.start_offset,
            stable_offset: next_offset,
            segments,
            epochs: record.epochs.clone(),
        };
        let writer = Writer {
            record,
            producers: Producers::default(),
            next_offset,
            active: None,
            sealed: Vec::new(),
            staging: Vec::new(),
            is_dirty: false,
        };
        Self { number, volume, writer: Mutex::new(writer), view: RwLock::new(view) }
    }

    /// The partition whose segments were recovered, the last one to be appended to. What it needs
    /// on the volume is written, and not yet flushed.
    pub(crate) fn open(
        volume: Arc<TopicVolume>,
        number: u32,
        found: Found,
    ) -> Result<Self, LogError> {
        let Found { mut record, segments, producers, sequence } = found;
        let active = match segments.last() {
            None => None,
            Some(segment) => Some(Active {
                segment: Arc::clone(segment),
                tail: segment.cut_tail(&*volume.device)?,
                is_torn: false,
                sequence,
                checkpoint_position: segment.extent().position,
            }),
        };
        let next_offset =
            segments.last().map_or(record.start_offset, |last| last.extent().next_offset);
        record.begin_epoch(next_offset);
        record.save(&*volume.device, number)?;
        let partition = Self::with(volume, number, record, segments);
        {
            let mut writer = partition.lock_writer();
            writer.producers = producers;
            writer.active = active;
        }
        Ok(partition)
    }

    pub fn number(&self) -> u32 {
        self.number
    }

    /// The first offset that there is.
    pub fn start_offset(&self) -> i64 {
        self.view().start_offset
    }

    /// The offset after the last record that readers see (the high watermark).
    pub fn stable_offset(&self) -> i64 {
        self.view().stable_offset
    }

    /// The offset of the next record.
    pub fn next_offset(&self) -> i64 {
        self.lock_writer().next_offset
    }

    /// The offset after the last record whose transaction is known to be committed or aborted.
    pub fn last_stable_offset(&self) -> i64 {
        let open = self.lock_writer().producers.first_open_offset();
        let stable_offset = self.stable_offset();
        open.map_or(stable_offset, |open| open.min(stable_offset))
    }

    /// Bytes of batches, those included that were deleted with a part of their segment.
    pub fn size_bytes(&self) -> u64 {
        self.view().segments.iter().map(|segment| segment.extent().position).sum()
    }

    /// The leader epoch: it grows with each opening.
    pub fn epoch(&self) -> i32 {
        self.view().epochs.last().map_or(-1, |last| last.epoch)
    }

    /// The last epoch that is not after `epoch`, and the offset after its last record.
    pub fn end_of_epoch(&self, epoch: i32) -> Option<(i32, i64)> {
        let view = self.view();
        let after = view.epochs.partition_point(|it| it.epoch <= epoch);
        let found = view.epochs.get(after.checked_sub(1)?)?;
        let end = view.epochs.get(after).map_or(view.stable_offset, |next| next.offset);
        Some((found.epoch, end))
    }

    /// Appends a batch after the last record. It is on the volume when this returns, and stable
    /// after the next flush of the topic.
    pub fn append(&self, batch: &mut Batch<'_>, unix_ms: i64) -> Result<Appended, LogError> {
        let size_bytes = batch.header().size_bytes;
        if size_bytes > BATCH_BYTES_MAX {
            let what = format!(
                "cannot append a batch of {size_bytes} bytes to partition {}: it may have \
                 {BATCH_BYTES_MAX}",
                self.number
            );
            return Err(LogError::new(LogErrorKind::TooLarge, what));
        }
        let mut writer = self.lock_writer();
        if let Some(base_offset) = writer.producers.check(batch.header())? {
            return Ok(Appended { base_offset, was_there: true });
        }
        self.make_room(&mut writer, size_bytes as u64)?;
        let base_offset = writer.next_offset;
        batch.place(base_offset, writer.record.epoch());
        self.write(&mut writer, batch, unix_ms)?;
        if !std::mem::replace(&mut writer.is_dirty, true) {
            self.volume.note_dirty(self.number);
        }
        Ok(Appended { base_offset, was_there: false })
    }

    /// Has the next batch begin a new segment, so that retention may delete what is there.
    pub fn roll(&self) {
        let mut writer = self.lock_writer();
        if writer.active.as_ref().is_some_and(|it| it.segment.extent().position > 0) {
            writer.seal();
        }
    }

    /// Reads whole batches from the one that holds `offset` on, those of one segment at most, as
    /// long as they are stable and have `bytes_max` bytes; the first one comes even if it is
    /// longer. They lie in the returned part of `buffer`, which is reused.
    pub fn read(
        &self,
        offset: i64,
        bytes_max: usize,
        buffer: &mut Vec<u8>,
    ) -> Result<Range<usize>, LogError> {
        let (segments, end_offset) = {
            let view = self.view();
            if offset < view.start_offset || offset > view.stable_offset {
                return Err(self.out_of_range(offset, &view));
            }
            let after = view.segments.partition_point(|it| it.header.base_offset <= offset);
            let first = after.saturating_sub(1);
            // The next one too: an offset may be in neither where records were taken out.
            let end = (first + 2).min(view.segments.len());
            let segments: Vec<_> = view.segments[first..end].iter().map(Arc::clone).collect();
            (segments, view.stable_offset)
        };
        let bytes_max = bytes_max.min(BATCH_BYTES_MAX);
        let wanted = Wanted { offset, end_offset, bytes_max };
        for segment in segments {
            let range = segment.read(&*self.volume.device, &wanted, buffer)?;
            if !range.is_empty() {
                return Ok(range);
            }
        }
        Ok(0..0)
    }

    /// Finds the first batch with a record that is as new as this; `None` where all are older.
    pub fn find_time(&self, unix_ms: i64) -> Result<Option<TimePlace>, LogError> {
        let (segments, start_offset, end_offset) = {
            let view = self.view();
            (view.segments.clone(), view.start_offset, view.stable_offset)
        };
        for segment in segments {
            let (range, is_older) = {
                let extent = segment.extent();
                let from = extent.index.position_of_time(unix_ms);
                (from..extent.position, extent.index.max_timestamp() < unix_ms)
            };
            if is_older {
                continue;
            }
            let mut found = None;
            segment.walk(&*self.volume.device, range, &mut |batch, _| {
                let is_shown =
                    batch.last_offset() >= start_offset && batch.base_offset < end_offset;
                if !is_shown || batch.max_timestamp < unix_ms {
                    return Walk::On;
                }
                let (base_offset, max_timestamp) = (batch.base_offset, batch.max_timestamp);
                found = Some(TimePlace { base_offset, max_timestamp });
                Walk::Enough
            })?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// The time of the newest record; `None` where there is none.
    pub fn max_timestamp(&self) -> Option<i64> {
        let view = self.view();
        let newest = view.segments.iter().map(|it| it.extent().index.max_timestamp()).max();
        newest.filter(|it| *it != i64::MIN)
    }

    /// The aborted transactions with records in a run of offsets.
    pub fn aborted(&self, offsets: Range<i64>) -> Vec<Aborted> {
        let mut found = Vec::new();
        // A transaction is noted in the segment with its marker, which may be any after this.
        for segment in &self.view().segments {
            let extent = segment.extent();
            let meets =
                |it: &&Aborted| it.first_offset < offsets.end && it.last_offset >= offsets.start;
            found.extend(extent.aborted.iter().filter(meets));
        }
        found
    }

    /// Deletes the records before an offset, as far as they are stable, for good. Returns the first
    /// offset that is left. Memory is given back in whole segments, when the topic is flushed and
    /// nobody reads them any more.
    pub fn delete_before(&self, offset: i64) -> Result<i64, LogError> {
        let mut writer = self.lock_writer();
        let (start_offset, stable_offset) = {
            let view = self.view();
            (view.start_offset, view.stable_offset)
        };
        if offset > stable_offset {
            return Err(self.out_of_range(offset, &self.view()));
        }
        if offset <= start_offset {
            return Ok(start_offset);
        }
        let record = PartitionRecord { start_offset: offset, ..writer.record.clone() };
        record.save(&*self.volume.device, self.number)?;
        // What is given back must not be missed by an opening that still has the old record.
        self.volume.flush_device()?;
        writer.record = record;
        let mut view = self.view_to_change();
        view.start_offset = offset;
        let mut kept = std::mem::take(&mut view.segments);
        let ends: Vec<i64> = kept.iter().skip(1).map(|it| it.header.base_offset).collect();
        let gone = ends.partition_point(|end| *end <= offset);
        view.segments = kept.split_off(gone);
        drop(view);
        writer.sealed.retain(|(segment, _)| !kept.iter().any(|it| Arc::ptr_eq(it, segment)));
        let mut slots = self.volume.lock_slots();
        kept.into_iter().for_each(|segment| slots.retire(segment));
        Ok(offset)
    }

    /// Deletes the oldest segments that the policy does not keep; the one that is appended to
    /// stays. Returns the first offset that is left.
    pub fn retain(&self, policy: Retention) -> Result<i64, LogError> {
        let boundary = {
            let view = self.view();
            let mut left_bytes: u64 =
                view.segments.iter().map(|segment| segment.extent().position).sum();
            let mut boundary = view.start_offset;
            for pair in view.segments.windows(2) {
                let extent = pair[0].extent();
                let is_too_much =
                    policy.bytes_max.is_some_and(|most| left_bytes - extent.position >= most);
                let is_too_old = policy
                    .oldest_unix_ms
                    .is_some_and(|oldest| extent.index.max_timestamp() < oldest);
                let next_base = pair[1].header.base_offset;
                if !(is_too_much || is_too_old) || next_base > view.stable_offset {
                    break;
                }
                left_bytes -= extent.position;
                boundary = next_base;
            }
            boundary
        };
        self.delete_before(boundary)
    }

    /// Forgets producers that wrote nothing since.
    pub fn forget_producers_before(&self, unix_ms: i64) {
        self.lock_writer().producers.forget_before(unix_ms);
    }

    /// What the flush that begins now makes stable.
    pub(crate) fn begin_flush(&self) -> FlushedPart {
        let mut writer = self.lock_writer();
        writer.is_dirty = false;
        let mut checkpoints = std::mem::take(&mut writer.sealed);
        let offset = writer.next_offset;
        checkpoints.extend(writer.checkpoint_if_due());
        FlushedPart { offset, checkpoints }
    }

    /// The flush has ended well. Checkpoints only make openings shorter: one that finds no room is
    /// left out, and the next one speaks for it.
    pub(crate) fn end_flush(&self, part: FlushedPart) -> Result<(), LogError> {
        {
            let mut view = self.view_to_change();
            view.stable_offset = view.stable_offset.max(part.offset);
        }
        for (segment, checkpoint) in part.checkpoints {
            match checkpoint.save(&*self.volume.device, segment.slot) {
                Err(error) if error.kind != LogErrorKind::NoSpace => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// The flush has failed: all of it is to be flushed again.
    pub(crate) fn fail_flush(&self, part: FlushedPart) {
        let mut writer = self.lock_writer();
        if !std::mem::replace(&mut writer.is_dirty, true) {
            self.volume.note_dirty(self.number);
        }
        writer.sealed.extend(part.checkpoints);
    }

    /// Makes sure of a segment that has room for so many bytes, and of nothing past its end.
    fn make_room(&self, writer: &mut Writer, size_bytes: u64) -> Result<(), LogError> {
        let segment_bytes = self.volume.options.segment_bytes.min(SEGMENT_BYTES_MAX);
        let is_full = writer.active.as_ref().is_some_and(|active| {
            let extent = active.segment.extent();
            let is_too_long = extent.position + size_bytes > segment_bytes;
            extent.position > 0 && is_too_long || extent.aborted.len() >= ABORTED_COUNT_MAX
        });
        if is_full {
            writer.seal();
        }
        if writer.active.is_none() {
            self.begin_segment(writer)?;
        }
        let active = writer.active.as_mut().expect("there is one now");
        if active.is_torn {
            active.tail = active.segment.cut_tail(&*self.volume.device)?;
            active.is_torn = false;
        }
        Ok(())
    }

    fn begin_segment(&self, writer: &mut Writer) -> Result<(), LogError> {
        let device = &*self.volume.device;
        let slot = self.volume.lock_slots().take(device)?;
        let header = SegmentHeader {
            topic: self.volume.id,
            partition: self.number,
            base_offset: writer.next_offset,
            epoch: writer.record.epoch(),
        };
        let segment = Arc::new(Segment::new(slot, header));
        let (tail, is_torn, sequence, checkpoint_position) = (Vec::new(), false, None, 0);
        let mut active =
            Active { segment: Arc::clone(&segment), tail, is_torn, sequence, checkpoint_position };
        // What is known of producers must not go with the segments before this one.
        let first = writer.checkpoint(&mut active);
        let made = header.save(device, slot).and_then(|()| first.save(device, slot));
        if let Err(error) = made {
            // A header that is there would make an empty segment of it.
            slots::discard(device, slot)?;
            self.volume.lock_slots().give_back(slot);
            return Err(error);
        }
        self.view_to_change().segments.push(segment);
        writer.active = Some(active);
        Ok(())
    }

    fn write(&self, writer: &mut Writer, batch: &Batch<'_>, unix_ms: i64) -> Result<(), LogError> {
        let Writer { active, staging, producers, next_offset, .. } = writer;
        let active = active.as_mut().expect("room was made");
        let position = active.segment.extent().position;
        staging.clear();
        staging.extend_from_slice(&active.tail);
        staging.extend_from_slice(batch.bytes());
        let length = staging.len();
        let block = usize::try_from(BLOCK).expect("it fits memory");
        staging.resize(length.next_multiple_of(block), 0);
        let at = active.segment.slot.batches(position / BLOCK * BLOCK);
        if let Err(error) = self.volume.device.write(at, staging) {
            active.is_torn = true;
            let what = format!("cannot append to {}", active.segment.place());
            return Err(LogError::device(what, error));
        }
        active.tail.clear();
        active.tail.extend_from_slice(&staging[length / block * block..length]);
        let mut extent = active.segment.extent_to_change();
        extent.note(batch.header(), batch.bytes(), producers, unix_ms);
        *next_offset = extent.next_offset;
        Ok(())
    }

    fn out_of_range(&self, offset: i64, view: &View) -> LogError {
        let what = format!(
            "offset {offset} is not in partition {}, which goes from {} to {}",
            self.number, view.start_offset, view.stable_offset
        );
        LogError::new(LogErrorKind::OffsetOutOfRange, what)
    }

    fn lock_writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn view(&self) -> RwLockReadGuard<'_, View> {
        self.view.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn view_to_change(&self) -> RwLockWriteGuard<'_, View> {
        self.view.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Writer {
    /// Ends the segment that is appended to.
    fn seal(&mut self) {
        if let Some(mut active) = self.active.take() {
            let checkpoint = self.checkpoint(&mut active);
            self.sealed.push((active.segment, checkpoint));
        }
    }

    /// The first flush of a segment writes one too: a segment with a checkpoint of some batches is
    /// known to follow a complete one.
    fn checkpoint_if_due(&mut self) -> Option<(Arc<Segment>, Checkpoint)> {
        let mut active = self.active.take()?;
        let position = active.segment.extent().position;
        let is_due = position > 0 && active.checkpoint_position == 0
            || position >= active.checkpoint_position + CHECKPOINT_BYTES;
        let due = is_due.then(|| {
            let checkpoint = self.checkpoint(&mut active);
            (Arc::clone(&active.segment), checkpoint)
        });
        self.active = Some(active);
        due
    }

    fn checkpoint(&self, active: &mut Active) -> Checkpoint {
        let sequence = active.sequence.map_or(0, |sequence| sequence + 1);
        let extent = active.segment.extent();
        active.sequence = Some(sequence);
        active.checkpoint_position = extent.position;
        Checkpoint {
            sequence,
            base_offset: active.segment.header.base_offset,
            epoch: active.segment.header.epoch,
            position: extent.position,
            next_offset: extent.next_offset,
            index: extent.index.clone(),
            aborted: extent.aborted.clone(),
            producers: self.producers.clone(),
        }
    }
}

/// What an opening found of a partition.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) record: PartitionRecord,
    pub(crate) segments: Vec<Arc<Segment>>,
    pub(crate) producers: Producers,
    /// Of the last segment's newest checkpoint.
    pub(crate) sequence: Option<u64>,
}

/// The headers of all batches in bytes that [`Partition::read`] returned.
pub fn headers(bytes: &[u8]) -> impl Iterator<Item = BatchHeader> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let header = BatchHeader::read(bytes.get(at..)?)?;
        at += header.size_bytes;
        Some(header)
    })
}
