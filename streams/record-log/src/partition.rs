//! One partition: an endless row of records, in segments of one topic's volume.
//!
//! One thread at a time appends; readers take no part in that and see what is stable, which means
//! what survives all that the volume's durability class promises to survive.
//!
//! Lock order: restructuring, writer, slots, view, extent of a segment.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use record_batch::BatchHeader;

use crate::batch::Batch;
use crate::derived_area::DerivedArea;
use crate::error::{LogError, LogErrorKind};
use crate::holds::{CompactionHold, Holds};
use crate::layout::BLOCK;
use crate::producers::{Aborted, LastBatch, ProducerState};
use crate::records::{self, PartitionRecord, Stale, TopicId};
use crate::segment::{BATCH_BYTES_MAX, Segment, Wanted};
use crate::view::{PinnedLog, View, read};
use crate::volume::TopicVolume;
use crate::waits::lock;
use crate::writer::{FlushedPart, Found, Writer};

/// Where a batch came to lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Offset of its first record.
    pub base_offset: i64,
    /// True if it was appended before, and nothing was done now.
    pub was_there: bool,
}

#[derive(Debug)]
pub struct Partition {
    number: u32,
    volume: Arc<TopicVolume>,
    compaction: Mutex<CompactionState>,
    holds: Arc<Holds>,
    /// Shared with those who have the log as it was.
    pub(crate) pins: Arc<()>,
    /// Held by the thread that takes segments out of the log.
    restructuring: Mutex<()>,
    writer: Mutex<Writer>,
    view: RwLock<View>,
}

#[derive(Debug)]
struct CompactionState {
    is_running: bool,
    /// Of the newest segment that compaction made.
    generation: u64,
    /// Of the records before it, those may have been taken out that others before it replace.
    reach_offset: i64,
    /// When the last pass wants another one for tombstones and markers, if it knows.
    next_horizon_ms: Option<i64>,
}

impl Partition {
    /// The partition whose segments were recovered, the last one to be appended to. What it needs
    /// on the volume is written, and not yet flushed.
    pub(crate) fn open(
        volume: Arc<TopicVolume>,
        number: u32,
        mut found: Found,
    ) -> Result<Self, LogError> {
        let mut writer = Writer::open(&volume, number, &mut found)?;
        let awaits_flush = volume.lock_slots().awaits_flush;
        let stable_offset =
            if awaits_flush { writer.record.start_offset } else { writer.next_offset };
        writer.producers.note_stable(stable_offset);
        let generations = found.segments.iter().map(|segment| segment.header.generation());
        let generation = generations.max().unwrap_or(0);
        // How far the last pass had come when the process died is not known.
        let reach_offset = if generation > 0 { writer.next_offset } else { 0 };
        let compaction = Mutex::new(CompactionState {
            is_running: false,
            generation,
            reach_offset,
            next_horizon_ms: None,
        });
        let view = View {
            start_offset: writer.record.start_offset,
            stable_offset,
            segments: found.segments,
            epochs: writer.record.epochs.clone(),
        };
        let (restructuring, writer, view) =
            (Mutex::default(), Mutex::new(writer), RwLock::new(view));
        let (holds, pins) = Default::default();
        let opened = Self { number, volume, compaction, holds, pins, restructuring, writer, view };
        if awaits_flush {
            opened.note_dirty(&mut opened.lock_writer());
        }
        Ok(opened)
    }

    pub fn number(&self) -> u32 {
        self.number
    }

    /// Id of the topic.
    pub fn topic_id(&self) -> TopicId {
        self.volume.id
    }

    /// Where on the topic's volume the owner may keep what it derives from this partition. The log
    /// neither reads nor writes there.
    pub fn derived_area(&self) -> DerivedArea {
        DerivedArea::new(Arc::clone(&self.volume.device), self.number)
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

    /// The offset after the last record whose transaction is known to be committed or aborted, by
    /// a marker that is stable.
    pub fn last_stable_offset(&self) -> i64 {
        // First: of a transaction that begins meanwhile nothing is below it.
        let stable_offset = self.stable_offset();
        let open = {
            let producers = &mut self.lock_writer().producers;
            producers.note_stable(stable_offset);
            producers.first_open_offset()
        };
        let decided_offset = open.map_or(stable_offset, |open| open.min(stable_offset));
        // The beginning of a transaction may have been deleted.
        decided_offset.max(self.start_offset())
    }

    /// Bytes of batches, those included that were deleted with a part of their segment and lie
    /// close before the first that is left.
    pub fn size_bytes(&self) -> u64 {
        self.view().segments.iter().map(|segment| segment.extent().size_bytes()).sum()
    }

    /// The leader epoch: it grows with each opening.
    pub fn epoch(&self) -> i32 {
        self.view().epochs.last().map_or(-1, |last| last.epoch)
    }

    /// The last epoch with records that is not after `epoch`, and the offset after its last record;
    /// `None` for an epoch that is negative or after all that are known. One before all of these
    /// lost nothing: it ends where the first of them begins, as in Kafka's
    /// `LeaderEpochFileCache.endOffsetFor`.
    pub fn end_of_epoch(&self, epoch: i32) -> Option<(i32, i64)> {
        let view = self.view();
        // Those of which all records are deleted are forgotten, as in Kafka.
        let gone = view.epochs.partition_point(|it| it.offset <= view.start_offset);
        let epochs = &view.epochs[gone.saturating_sub(1)..];
        let after = epochs.partition_point(|it| it.epoch <= epoch);
        let next = epochs.get(after).map(|next| next.offset.max(view.start_offset));
        let found = after.checked_sub(1).map_or(epoch, |last| epochs[last].epoch);
        let last = view.epochs.last().map_or(-1, |last| last.epoch);
        (0..=last).contains(&epoch).then_some((found, next.unwrap_or(view.stable_offset)))
    }

    /// Appends a batch after the last record. It is on the volume when this returns, and stable
    /// after the next flush of the topic.
    pub fn append(&self, batch: &mut Batch<'_>, unix_ms: i64) -> Result<Appended, LogError> {
        self.append_if(batch, unix_ms, |_| Ok(()))
    }

    /// Appends as [`Partition::append`] does, a batch for a transaction. If none of the producer is
    /// open here, its coordinator has admitted the batch after [`Partition::next_offset`] was
    /// `admitted_at`: a marker since then means that the transaction is over, and the batch is
    /// refused, for no marker would ever follow it.
    pub fn append_to_transaction(
        &self,
        batch: &mut Batch<'_>,
        unix_ms: i64,
        admitted_at: i64,
    ) -> Result<Appended, LogError> {
        let (id, epoch) = (batch.header().producer_id, batch.header().producer_epoch);
        self.append_if(batch, unix_ms, |writer| {
            let producers = &writer.producers;
            let is_admitted = producers.is_in_transaction(id, epoch)
                || producers.has_ended_none_since(id, admitted_at);
            if is_admitted {
                return Ok(());
            }
            let what = format!("the transaction of producer {id} ended before its batch came");
            Err(LogError::new(LogErrorKind::TransactionState, what))
        })
    }

    /// Notes that the owner has refused a batch: what its producer sends behind it is refused too,
    /// until it has come again.
    pub fn note_refused(&self, batch: &BatchHeader) {
        self.lock_writer().producers.note_refused(batch);
    }

    fn append_if(
        &self,
        batch: &mut Batch<'_>,
        unix_ms: i64,
        check: impl FnOnce(&Writer) -> Result<(), LogError>,
    ) -> Result<Appended, LogError> {
        let size_bytes = batch.header().size_bytes;
        if size_bytes > BATCH_BYTES_MAX {
            let what = format!(
                "cannot append a batch of {size_bytes} bytes to partition {}: the maximum is \
                 {BATCH_BYTES_MAX}",
                self.number
            );
            return Err(LogError::new(LogErrorKind::TooLarge, what));
        }
        let mut writer = self.lock_writer();
        if let Some(base_offset) = writer.producers.check(batch.header(), batch.owner())? {
            return Ok(Appended { base_offset, was_there: true });
        }
        check(&writer)?;
        let written = self.write(&mut writer, batch, unix_ms);
        if written.is_err() {
            writer.producers.note_refused(batch.header());
        } else if batch.header().is_control() {
            writer.producers.note_marker(batch.header());
        }
        Ok(Appended { base_offset: written?, was_there: false })
    }

    /// Has the segment that is appended to, and a spare one that follows it, find memory for so
    /// many bytes of batches each, from now on. Returns for how many both of them do: fewer where
    /// the pool is full, until the next call. For logs of one partition that were opened by
    /// [`crate::Topic::open_reserved`].
    pub fn reserve(&self, bytes: u64) -> Result<u64, LogError> {
        let bytes = bytes.next_multiple_of(BLOCK);
        self.volume.set_reserved(bytes);
        let filled = self.reserve_active()?;
        Ok(filled.min(self.volume.reserve_spare()?))
    }

    /// Has the next batch begin a new segment, so that retention may delete what is there.
    pub fn roll(&self) {
        self.lock_writer().roll();
    }

    /// Begins a new segment at once, so that retention may delete all that is there before another
    /// batch comes. Where the pool is full, the next batch begins it.
    pub fn roll_now(&self) -> Result<(), LogError> {
        let mut writer = self.lock_writer();
        writer.roll();
        match writer.make_room(&self.volume, 0) {
            Ok(Some(begun)) => self.view_to_change().segments.push(begun),
            Ok(None) => {}
            Err(error) => error.ignore_no_space()?,
        }
        Ok(())
    }

    /// Reads whole batches from the one that holds `offset` on, those of one segment at most, as
    /// long as they are stable and have `bytes_max` bytes; the first one comes even if it is
    /// longer. They lie in the returned part of `buffer`, which is reused. It is empty at the end,
    /// and where all records from `offset` on were taken out by compaction.
    pub fn read(
        &self,
        offset: i64,
        bytes_max: usize,
        buffer: &mut Vec<u8>,
    ) -> Result<Range<usize>, LogError> {
        self.read_wanted(Wanted::new(offset, bytes_max), buffer)
    }

    pub(crate) fn read_wanted(
        &self,
        mut wanted: Wanted,
        buffer: &mut Vec<u8>,
    ) -> Result<Range<usize>, LogError> {
        wanted.end_offset = {
            let view = self.view();
            view.check(self.number, wanted.offset)?;
            view.stable_offset
        };
        read(&*self.volume.device, wanted, buffer, |offset| self.view().segment_at(offset))
    }

    /// Reads as [`Partition::read`] does, but also what is not stable yet.
    pub fn read_appended(
        &self,
        offset: i64,
        bytes_max: usize,
        buffer: &mut Vec<u8>,
    ) -> Result<Range<usize>, LogError> {
        let wanted = Wanted { end_offset: self.next_offset(), ..Wanted::new(offset, bytes_max) };
        read(&*self.volume.device, wanted, buffer, |offset| self.view().segment_at(offset))
    }

    /// The log as it is now, for a reader that must not miss what is deleted or compacted later.
    pub fn pin(&self) -> PinnedLog {
        // Before what it shows may be cut.
        let view = self.view();
        let pin = Arc::clone(&self.pins);
        PinnedLog::new(self.number, Arc::clone(&self.volume), view.clone(), pin)
    }

    /// The aborted transactions with records in a run of offsets.
    pub fn aborted(&self, offsets: Range<i64>) -> Vec<Aborted> {
        self.view().aborted(offsets)
    }

    /// Deletes the records before an offset, as far as they are stable, for good. Returns the first
    /// offset that is left. Memory of whole segments is given back: now, or with the first flush
    /// after their last reader has left. That of a segment's beginning by [`Partition::cut`].
    pub fn delete_before(&self, offset: i64) -> Result<i64, LogError> {
        let _one = self.lock_restructuring();
        let (start_offset, stable_offset) = {
            let view = self.view();
            (view.start_offset, view.stable_offset)
        };
        if offset > stable_offset {
            return Err(self.view().out_of_range(self.number, offset));
        }
        if offset < start_offset {
            return Ok(start_offset);
        }
        let mut record = self.lock_writer().record.clone();
        if offset > start_offset {
            record.start_offset = offset;
            record.save(&*self.volume.device, self.number)?;
            // What is given back must not be missed by an opening that still has the old record.
            self.volume.flush_device()?;
        }
        let mut writer = self.lock_writer();
        writer.record = record;
        let mut view = self.view_to_change();
        view.start_offset = offset;
        let mut gone = std::mem::take(&mut view.segments);
        let ends: Vec<i64> = gone.iter().skip(1).map(|it| it.header.base_offset).collect();
        view.segments = gone.split_off(ends.partition_point(|end| *end <= offset));
        drop(view);
        writer.drop_checkpoints_of(&gone);
        drop(writer);
        self.volume.retire(gone);
        Ok(offset)
    }

    /// The producers that are remembered.
    pub fn producers(&self) -> Vec<ProducerState> {
        self.lock_writer().producers.states().collect()
    }

    /// Returns whether a producer's transaction is open here, so that the records that it appends
    /// now belong to it.
    pub fn is_in_transaction(&self, producer_id: i64, epoch: i16) -> bool {
        self.lock_writer().producers.is_in_transaction(producer_id, epoch)
    }

    /// Forgets producers that wrote nothing for `idle_ms`, but for those with an open transaction.
    /// What the opening found counts from the first call on.
    pub fn forget_idle_producers(&self, now_unix_ms: i64, idle_ms: i64) {
        self.lock_writer().producers.forget_idle(now_unix_ms, idle_ms);
    }

    pub(crate) fn volume(&self) -> &Arc<TopicVolume> {
        &self.volume
    }

    /// The state of the keys at any offset from here on can be told from the log: of the records
    /// before it, compaction may have taken out those that others before it replace.
    pub fn compacted_before(&self) -> i64 {
        self.lock_compaction().reach_offset
    }

    /// Generation of the newest segment that compaction put in the place of others; 0 where there
    /// is none. While it stays the same, no record was taken out.
    pub fn compaction_generation(&self) -> u64 {
        self.lock_compaction().generation
    }

    /// Has no pass of compaction begin that would see records from an offset on, so that one who
    /// follows the log up to there misses no tombstone; as long as the hold is there.
    pub fn hold_compaction(&self, before_offset: i64) -> CompactionHold {
        self.holds.add(before_offset)
    }

    /// A block in which the owner of the topic notes what belongs to this partition, at most
    /// [`NOTE_BYTES_MAX`], replaced as a whole. The flush of the topic makes it durable.
    pub fn set_note(&self, note: &[u8]) -> Result<(), LogError> {
        records::save_note(&*self.volume.device, self.number, note)
    }

    /// Note that was last set; `None` where nothing was.
    pub fn note(&self) -> Result<Option<Vec<u8>>, LogError> {
        records::load_note(&*self.volume.device, self.number)
    }

    /// From now on segments may be replaced by a pass that has seen all before the offset.
    pub(crate) fn extend_compaction(&self, offset: i64) {
        let mut compaction = self.lock_compaction();
        compaction.reach_offset = compaction.reach_offset.max(offset);
    }

    /// Returns whether no compaction was going on. The caller ends it.
    pub(crate) fn begin_compacting(&self) -> bool {
        !std::mem::replace(&mut self.lock_compaction().is_running, true)
    }

    pub(crate) fn end_compacting(&self) {
        self.lock_compaction().is_running = false;
    }

    pub(crate) fn next_horizon_ms(&self) -> Option<i64> {
        self.lock_compaction().next_horizon_ms
    }

    pub(crate) fn set_next_horizon(&self, unix_ms: Option<i64>) {
        self.lock_compaction().next_horizon_ms = unix_ms;
    }

    /// For a segment that takes the place of others.
    pub(crate) fn next_generation(&self) -> u64 {
        let mut compaction = self.lock_compaction();
        compaction.generation += 1;
        compaction.generation
    }

    /// Compaction has seen all before it, and left these batches.
    pub(crate) fn compacted(&self) -> (i64, Option<Stale>) {
        let record = &self.lock_writer().record;
        let is_there = |it: &Stale| it.last_offset >= record.start_offset;
        (record.clean_offset, record.stale.filter(is_there))
    }

    /// Everything before the offset was compacted, durably, but for these batches. A crash may
    /// bring back what was known before.
    pub(crate) fn set_compacted(
        &self,
        clean_offset: i64,
        stale: Option<Stale>,
    ) -> Result<(), LogError> {
        let _one = self.lock_restructuring();
        let record = PartitionRecord { clean_offset, stale, ..self.lock_writer().record.clone() };
        record.save(&*self.volume.device, self.number)?;
        self.lock_writer().record = record;
        Ok(())
    }

    /// The first segments, as long as they are complete, stable, all of their transactions have
    /// ended, and the caller wants them. The last segment is never among them.
    pub(crate) fn decided_segments(&self, wanted: impl Fn(&Segment) -> bool) -> Vec<Arc<Segment>> {
        let end_offset = self.last_stable_offset().min(self.holds.offset());
        let view = self.view();
        let followed = view.segments.windows(2).map(|pair| (&pair[0], &pair[1]));
        followed
            .take_while(|(it, next)| next.header.base_offset <= end_offset && wanted(it))
            .map(|(it, _)| Arc::clone(it))
            .collect()
    }

    pub(crate) fn last_batches(&self) -> Vec<LastBatch> {
        self.lock_writer().producers.last_batches()
    }

    /// Puts a segment in the place of others. All of it but its header is durable: an opening finds
    /// either them or, once the header is written, the new one. Their memory is given back when the
    /// header is durable and their last reader has left. The first of them may have been deleted
    /// meanwhile; `false` where all were.
    pub(crate) fn replace(
        &self,
        old: &[Arc<Segment>],
        new: Arc<Segment>,
    ) -> Result<bool, LogError> {
        let one = self.lock_restructuring();
        let Some((place, old)) = self.view().place_of(old) else {
            self.volume.retire(vec![new]);
            return Ok(false);
        };
        if let Err(error) = new.header.save(&*self.volume.device, new.slot) {
            // Without memory nothing was written. After other errors that is not known, and the
            // slot is left to the next opening: it finds a complete segment, or a free slot.
            if error.kind == LogErrorKind::NoSpace {
                self.volume.retire(vec![new]);
            }
            return Err(error);
        }
        {
            let mut writer = self.lock_writer();
            self.view_to_change().segments.splice(place, [new]);
            writer.drop_checkpoints_of(old);
        }
        self.volume.lock_slots().supersede(old);
        drop(one);
        self.volume.flush_slots().map(|()| true)
    }

    fn lock_compaction(&self) -> MutexGuard<'_, CompactionState> {
        self.compaction.lock().expect("nothing panics with it locked")
    }

    pub(crate) fn lock_restructuring(&self) -> MutexGuard<'_, ()> {
        self.restructuring.lock().expect("nothing panics while segments are taken out")
    }

    /// Has the segment that is appended to hold as much memory as is reserved, as far as there is
    /// some. Returns how much it holds.
    fn reserve_active(&self) -> Result<u64, LogError> {
        let mut writer = self.lock_writer();
        match writer.make_room(&self.volume, 0) {
            Ok(begun) => self.view_to_change().segments.extend(begun),
            Err(error) => return error.ignore_no_space().map(|()| 0),
        }
        writer.reserve(&self.volume)
    }

    /// Part that the flush that begins now makes stable.
    pub(crate) fn begin_flush(&self) -> FlushedPart {
        let stable_offset = self.stable_offset();
        let mut writer = self.lock_writer();
        writer.producers.note_stable(stable_offset);
        writer.begin_flush(&self.volume)
    }

    /// A flush has made it stable.
    pub(crate) fn end_flush(&self, part: &FlushedPart) {
        let mut view = self.view_to_change();
        view.stable_offset = view.stable_offset.max(part.offset);
    }

    /// The flush has failed: all of it is to be flushed again.
    pub(crate) fn fail_flush(&self, part: FlushedPart) {
        let mut writer = self.lock_writer();
        writer.fail_flush(part);
        self.note_dirty(&mut writer);
    }

    /// Returns the offset of the batch's first record.
    fn write(
        &self,
        writer: &mut Writer,
        batch: &mut Batch<'_>,
        unix_ms: i64,
    ) -> Result<i64, LogError> {
        let size_bytes = batch.header().size_bytes;
        if let Some(begun) = writer.make_room(&self.volume, size_bytes as u64)? {
            self.view_to_change().segments.push(begun);
        }
        let base_offset = writer.next_offset;
        batch.place(base_offset, writer.record.epoch());
        writer.write(&self.volume, batch, unix_ms)?;
        self.note_dirty(writer);
        Ok(base_offset)
    }

    fn note_dirty(&self, writer: &mut Writer) {
        if !std::mem::replace(&mut writer.is_dirty, true) {
            self.volume.note_dirty(self.number);
        }
    }

    pub(crate) fn lock_writer(&self) -> MutexGuard<'_, Writer> {
        lock(&self.writer).expect("nothing panics with the writer locked")
    }

    pub(crate) fn view(&self) -> RwLockReadGuard<'_, View> {
        self.view.read().expect("nothing panics with the view locked")
    }

    fn view_to_change(&self) -> RwLockWriteGuard<'_, View> {
        self.view.write().expect("nothing panics with the view locked")
    }
}
