//! A partition: an unbounded sequence of records, in segments of one topic's volume.
//!
//! One thread at a time appends. Readers do not wait for appends. They see stable records, which
//! survive all that the volume's durability class covers.
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

/// Result of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Offset of the first record of the batch.
    pub base_offset: i64,
    /// True if the batch is a duplicate, which was not appended again.
    pub was_there: bool,
}

#[derive(Debug)]
pub struct Partition {
    number: u32,
    volume: Arc<TopicVolume>,
    compaction: Mutex<CompactionState>,
    holds: Arc<Holds>,
    /// Shared with all pinned logs.
    pub(crate) pins: Arc<()>,
    /// Held by a thread that removes or replaces segments.
    restructuring: Mutex<()>,
    writer: Mutex<Writer>,
    view: RwLock<View>,
}

#[derive(Debug)]
struct CompactionState {
    is_running: bool,
    /// Generation of the newest segment written by compaction.
    generation: u64,
    /// Records before it may have been removed because of later records before it.
    reach_offset: i64,
    /// Next time at which the last pass requires another one for tombstones and markers, if known.
    next_horizon_ms: Option<i64>,
}

impl Partition {
    /// Opens a recovered partition, whose last segment is appended to. Required writes to the
    /// volume are done, but not flushed.
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
        // The reach of a pass that was running when the process died is unknown.
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

    /// Returns the id of the topic.
    pub fn topic_id(&self) -> TopicId {
        self.volume.id
    }

    /// Returns the area of the topic's volume for state that the owner derives from this partition.
    /// The log neither reads nor writes it.
    pub fn derived_area(&self) -> DerivedArea {
        DerivedArea::new(Arc::clone(&self.volume.device), self.number)
    }

    /// Returns the first available offset.
    pub fn start_offset(&self) -> i64 {
        self.view().start_offset
    }

    /// Returns the high watermark: the offset after the last record visible to readers.
    pub fn stable_offset(&self) -> i64 {
        self.view().stable_offset
    }

    /// Returns the offset of the next record.
    pub fn next_offset(&self) -> i64 {
        self.lock_writer().next_offset
    }

    /// Returns the last stable offset: all transactions before it are decided by a stable marker.
    pub fn last_stable_offset(&self) -> i64 {
        // Read first: a transaction that begins meanwhile starts at or after this offset.
        let stable_offset = self.stable_offset();
        let open = {
            let producers = &mut self.lock_writer().producers;
            producers.note_stable(stable_offset);
            producers.first_open_offset()
        };
        let decided_offset = open.map_or(stable_offset, |open| open.min(stable_offset));
        // The start of the transaction may have been deleted.
        decided_offset.max(self.start_offset())
    }

    /// Returns the size of all batches, including deleted ones that lie close before the first
    /// remaining one in its segment.
    pub fn size_bytes(&self) -> u64 {
        self.view().segments.iter().map(|segment| segment.extent().size_bytes()).sum()
    }

    /// Returns the leader epoch, which is incremented by each opening.
    pub fn epoch(&self) -> i32 {
        self.view().epochs.last().map_or(-1, |last| last.epoch)
    }

    /// Returns the last epoch with records that is not after `epoch`, and the offset after its last
    /// record; `None` for an epoch that is negative or after all known ones. An epoch before all of
    /// them ends where the first one begins, as in Kafka's `LeaderEpochFileCache.endOffsetFor`.
    pub fn end_of_epoch(&self, epoch: i32) -> Option<(i32, i64)> {
        let view = self.view();
        // Epochs all of whose records are deleted are ignored, as in Kafka.
        let gone = view.epochs.partition_point(|it| it.offset <= view.start_offset);
        let epochs = &view.epochs[gone.saturating_sub(1)..];
        let after = epochs.partition_point(|it| it.epoch <= epoch);
        let next = epochs.get(after).map(|next| next.offset.max(view.start_offset));
        let found = after.checked_sub(1).map_or(epoch, |last| epochs[last].epoch);
        let last = view.epochs.last().map_or(-1, |last| last.epoch);
        (0..=last).contains(&epoch).then_some((found, next.unwrap_or(view.stable_offset)))
    }

    /// Appends a batch. It is on the volume when this returns, and stable after the next flush of
    /// the topic.
    pub fn append(&self, batch: &mut Batch<'_>, unix_ms: i64) -> Result<Appended, LogError> {
        self.append_if(batch, unix_ms, |_| Ok(()))
    }

    /// Same as [`Partition::append`], for a transactional batch. If the producer has no open
    /// transaction here, its coordinator must have admitted the batch after
    /// [`Partition::next_offset`] returned `admitted_at`. A marker since then means that the
    /// transaction has ended. The batch is then rejected, because no marker would ever follow it.
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
            let what =
                format!("the transaction of producer {id} ended before its batch was appended");
            Err(LogError::new(LogErrorKind::TransactionState, what))
        })
    }

    /// Records that the owner rejected a batch. Later batches of its producer are rejected, too,
    /// until the batch was sent again.
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

    /// Reserves memory for `bytes` of batches in the active segment and as many in a spare one.
    /// Returns the bytes reserved in both, which are fewer if the pool is full; the next call
    /// retries. Only for logs of one partition opened by [`crate::Topic::open_reserved`].
    pub fn reserve(&self, bytes: u64) -> Result<u64, LogError> {
        let bytes = bytes.next_multiple_of(BLOCK);
        self.volume.set_reserved(bytes);
        let filled = self.reserve_active()?;
        Ok(filled.min(self.volume.reserve_spare()?))
    }

    /// Makes the next batch begin a new segment, so that retention can delete the current one.
    pub fn roll(&self) {
        self.lock_writer().roll();
    }

    /// Begins a new segment immediately, so that retention can delete all existing records before
    /// the next append. If the pool is full, the next batch begins it.
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

    /// Reads whole stable batches of up to `bytes_max` bytes, starting with the one that contains
    /// `offset`, from one segment. The first batch is returned even if it is longer. The batches
    /// are in the returned range of `buffer`, which is reused. The range is empty at the end of the
    /// log, or if compaction has removed all records from `offset` on.
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

    /// Same as [`Partition::read`], including records that are not stable yet.
    pub fn read_appended(
        &self,
        offset: i64,
        bytes_max: usize,
        buffer: &mut Vec<u8>,
    ) -> Result<Range<usize>, LogError> {
        let wanted = Wanted { end_offset: self.next_offset(), ..Wanted::new(offset, bytes_max) };
        read(&*self.volume.device, wanted, buffer, |offset| self.view().segment_at(offset))
    }

    /// Pins the current log, for a reader that must see records that are deleted or compacted
    /// later.
    pub fn pin(&self) -> PinnedLog {
        // Counted before the view is copied, so that no segment in it is cut.
        let view = self.view();
        let pin = Arc::clone(&self.pins);
        PinnedLog::new(self.number, Arc::clone(&self.volume), view.clone(), pin)
    }

    /// Returns the aborted transactions with records in a range of offsets.
    pub fn aborted(&self, offsets: Range<i64>) -> Vec<Aborted> {
        self.view().aborted(offsets)
    }

    /// Permanently deletes the stable records before an offset. Returns the new start offset.
    /// Memory of whole segments is freed now, or with the first flush after their last reader.
    /// [`Partition::cut`] frees the memory before the start offset in the first segment.
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
            // Flushed first: an opening that still finds the old record must find its segments.
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

    /// Returns the remembered producers.
    pub fn producers(&self) -> Vec<ProducerState> {
        self.lock_writer().producers.states().collect()
    }

    /// Returns whether a producer's transaction is open here, so that records appended now belong
    /// to it.
    pub fn is_in_transaction(&self, producer_id: i64, epoch: i16) -> bool {
        self.lock_writer().producers.is_in_transaction(producer_id, epoch)
    }

    /// Forgets producers without an open transaction that were idle for `idle_ms`. The idle time of
    /// producers found by an opening starts with the first call.
    pub fn forget_idle_producers(&self, now_unix_ms: i64, idle_ms: i64) {
        self.lock_writer().producers.forget_idle(now_unix_ms, idle_ms);
    }

    pub(crate) fn volume(&self) -> &Arc<TopicVolume> {
        &self.volume
    }

    /// Returns the offset before which records may have been removed by compaction because of later
    /// records before it. The state of all keys is reconstructible at any offset from here on.
    pub fn compacted_before(&self) -> i64 {
        self.lock_compaction().reach_offset
    }

    /// Returns the generation of the newest segment written by compaction; 0 without any. While it
    /// stays the same, no record was removed.
    pub fn compaction_generation(&self) -> u64 {
        self.lock_compaction().generation
    }

    /// Prevents compaction passes from processing records from an offset on, while the hold exists.
    /// A follower of the log up to this offset misses no tombstone.
    pub fn hold_compaction(&self, before_offset: i64) -> CompactionHold {
        self.holds.add(before_offset)
    }

    /// Atomically replaces the owner's note on this partition, of up to [`NOTE_BYTES_MAX`]. The
    /// next flush of the topic makes it durable.
    pub fn set_note(&self, note: &[u8]) -> Result<(), LogError> {
        records::save_note(&*self.volume.device, self.number, note)
    }

    /// Returns the last note, or `None` if there is none.
    pub fn note(&self) -> Result<Option<Vec<u8>>, LogError> {
        records::load_note(&*self.volume.device, self.number)
    }

    /// Allows replacement of segments by a pass that has processed records before the offset.
    pub(crate) fn extend_compaction(&self, offset: i64) {
        let mut compaction = self.lock_compaction();
        compaction.reach_offset = compaction.reach_offset.max(offset);
    }

    /// Marks compaction as running. Returns `false` if it already was. The caller must end it.
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

    /// Allocates the generation of a replacement segment.
    pub(crate) fn next_generation(&self) -> u64 {
        let mut compaction = self.lock_compaction();
        compaction.generation += 1;
        compaction.generation
    }

    /// Returns the clean offset, and the batches before it that compaction left unchanged.
    pub(crate) fn compacted(&self) -> (i64, Option<Stale>) {
        let record = &self.lock_writer().record;
        let is_there = |it: &Stale| it.last_offset >= record.start_offset;
        (record.clean_offset, record.stale.filter(is_there))
    }

    /// Durably sets the clean offset, and the batches before it that compaction left unchanged. A
    /// crash may revert it.
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

    /// Returns the first segments that are complete, stable, fully decided and wanted. The last
    /// segment is never among them.
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

    /// Replaces segments by a new one. All of it but its header must be durable: an opening finds
    /// the old segments or, once the header is written, the new one. Memory of the old ones is
    /// freed when the header is durable and their last reader is done. Leading ones may have been
    /// deleted meanwhile; `false` if all were.
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
            // Without memory, nothing was written. After other errors that is unknown, and the slot
            // is left to the next opening: it finds a complete segment or a free slot.
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

    /// Extends the active segment's reserve if memory is available. Returns its size.
    fn reserve_active(&self) -> Result<u64, LogError> {
        let mut writer = self.lock_writer();
        match writer.make_room(&self.volume, 0) {
            Ok(begun) => self.view_to_change().segments.extend(begun),
            Err(error) => return error.ignore_no_space().map(|()| 0),
        }
        writer.reserve(&self.volume)
    }

    /// Returns the part that a starting flush will make stable.
    pub(crate) fn begin_flush(&self) -> FlushedPart {
        let stable_offset = self.stable_offset();
        let mut writer = self.lock_writer();
        writer.producers.note_stable(stable_offset);
        writer.begin_flush(&self.volume)
    }

    /// Marks a part as stable after a successful flush.
    pub(crate) fn end_flush(&self, part: &FlushedPart) {
        let mut view = self.view_to_change();
        view.stable_offset = view.stable_offset.max(part.offset);
    }

    /// Restores a part after a failed flush.
    pub(crate) fn fail_flush(&self, part: FlushedPart) {
        let mut writer = self.lock_writer();
        writer.fail_flush(part);
        self.note_dirty(&mut writer);
    }

    /// Returns the base offset of the batch.
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
