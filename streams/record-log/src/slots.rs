//! Allocation of slots of a topic's volume.
//!
//! ```text
//! free ──take──▶ in use ──retire──▶ retired ──last reader leaves──▶ discarded ──flush──▶ free
//!                   └──supersede──▶ superseded ──flush──┘
//! ```
//!
//! A slot is reused only after its discard is as durable as the volume allows, so that former
//! contents never reappear after a loss of power. Each flush prepares free slots in advance, so
//! that a new segment need not wait for a flush.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use block_device::{BlockDevice, ByteRange};

use crate::error::LogError;
use crate::layout::{BLOCK, SLOT_BYTES, Slot, log_bytes};
use crate::records::{TopicId, TopicRecord};
use crate::segment::Segment;

/// Free slots that each flush prepares, besides those for partitions without a segment.
const SLOTS_AHEAD: u32 = 16;

/// A free slot with memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spare {
    pub(crate) slot: Slot,
    /// Blocks of batches before this position contain filler.
    pub(crate) filled: u64,
}

/// Maximum number of slots prepared for such partitions. An opening reads every slot ever prepared.
const FIRST_SLOTS_MAX: u32 = 256;

#[derive(Debug)]
pub(crate) struct Slots {
    pub(crate) record: TopicRecord,
    /// Number of slots of the volume, including the one for metadata records.
    count: u32,
    free: BTreeSet<Slot>,
    /// True if memory of deleted segments is kept for new ones.
    pub(crate) keeps_memory: bool,
    /// True until the first flush of a log that was opened without one: its contents are not known
    /// to be durable.
    pub(crate) awaits_flush: bool,
    /// Slot with memory for the next segment. It is also in `free`, or will be after the next
    /// flush.
    pub(crate) spare: Option<Spare>,
    /// Replaced segments whose replacements are not known to be durable.
    superseded: Vec<Arc<Segment>>,
    retired: Vec<Arc<Segment>>,
    discarded: Vec<Slot>,
    /// Number of partitions without a segment.
    unbegun_count: u32,
    /// Number of flushes in progress.
    flush_count: u32,
}

impl Slots {
    /// Creates the state with all slots ever used marked as in use, until [`Slots::give_back`]
    /// frees them.
    pub(crate) fn new(device: &dyn BlockDevice, record: TopicRecord) -> Self {
        let (superseded, retired, discarded) = Default::default();
        Self {
            record,
            count: count_of(device),
            free: BTreeSet::new(),
            keeps_memory: false,
            awaits_flush: false,
            spare: None,
            superseded,
            retired,
            discarded,
            unbegun_count: 0,
            flush_count: 0,
        }
    }

    /// Creates the state of a new volume, whose record declares the first slots ready.
    pub(crate) fn of_new_topic(
        device: &dyn BlockDevice,
        id: TopicId,
        partition_count: u32,
    ) -> Self {
        let ready_count = SLOTS_AHEAD + partition_count.min(FIRST_SLOTS_MAX);
        let unused_from = Slot((1 + ready_count).min(count_of(device)));
        let record = TopicRecord { id, partition_count, unused_from };
        let free = (1..unused_from.0).map(Slot).collect();
        Self { free, ..Self::new(device, record) }
    }

    /// Takes the spare slot, or the lowest free one. Returns the reason if there is none.
    pub(crate) fn take(&mut self) -> Result<Spare, NoSlot> {
        if let Some(spare) = self.spare.take_if(|it| self.free.remove(&it.slot)) {
            return Ok(spare);
        }
        let lowest = self.free.pop_first().map(|slot| Spare { slot, filled: 0 });
        lowest.ok_or({
            if self.record.unused_from.0 >= self.count {
                NoSlot::AllInUse(self.count.saturating_sub(1))
            } else if self.flush_count > 0 || self.awaits_flush {
                NoSlot::BeforeFlushEnds
            } else {
                NoSlot::BeforeFlush
            }
        })
    }

    /// Counts a partition without a segment, whose first one must begin without waiting.
    pub(crate) fn note_unbegun(&mut self) {
        self.unbegun_count += 1;
    }

    /// Counts a partition as having a segment.
    pub(crate) fn note_begun(&mut self) {
        self.unbegun_count = self.unbegun_count.saturating_sub(1);
    }

    /// Returns whether the memory of the next freed slot is to be kept.
    pub(crate) fn wants_spare(&self) -> bool {
        self.keeps_memory && self.spare.is_none()
    }

    /// Frees a slot that was not written, or that contains only zeros.
    pub(crate) fn give_back(&mut self, slot: Slot) {
        self.free.insert(slot);
    }

    /// Frees a slot in which an opening found no segment.
    pub(crate) fn give_back_found(&mut self, slot: Slot) {
        match self.awaits_flush {
            true => self.note_discarded(slot),
            false => self.give_back(slot),
        }
    }

    /// Retires a segment that no new reader can find. Existing readers may still use it.
    pub(crate) fn retire(&mut self, segment: Arc<Segment>) {
        self.retired.push(segment);
    }

    /// Takes the retired segments without readers, which are to be discarded.
    pub(crate) fn take_unread(&mut self) -> Vec<Arc<Segment>> {
        self.retired.extract_if(.., |segment| Arc::strong_count(segment) == 1).collect()
    }

    /// Records a discarded slot. The next flush makes it free.
    pub(crate) fn note_discarded(&mut self, slot: Slot) {
        self.discarded.push(slot);
    }

    /// Keeps segments until their replacement is durable.
    pub(crate) fn supersede(&mut self, segments: &[Arc<Segment>]) {
        self.superseded.extend_from_slice(segments);
    }

    /// Returns whether slots wait for a flush, or for their last reader.
    pub(crate) fn has_to_flush(&self) -> bool {
        !(self.retired.is_empty() && self.superseded.is_empty() && self.discarded.is_empty())
    }

    /// Starts a flush. A loss of power may leave segments in slots that the record declares as
    /// unused. Therefore newly prepared slots are discarded first.
    pub(crate) fn begin_flush(&mut self, device: &dyn BlockDevice) -> FlushedSlots {
        self.flush_count += 1;
        let wanted = SLOTS_AHEAD + self.unbegun_count.min(FIRST_SLOTS_MAX);
        let lacking = wanted.saturating_sub(u32::try_from(self.free.len()).unwrap_or(u32::MAX));
        let first = self.record.unused_from.0;
        let ready = first..first.saturating_add(lacking).min(self.count).max(first);
        let prepared: Vec<_> = ready.clone().map(Slot).collect();
        let emptied = discard_without_segment(device, &prepared);
        FlushedSlots {
            superseded: std::mem::take(&mut self.superseded),
            discarded: std::mem::take(&mut self.discarded),
            ready: emptied.map(|()| ready),
        }
    }

    /// Ends a flush. If it failed, the slots wait for the next one. Returns an error if slots could
    /// not be prepared. Their record becomes durable with the first batch in one of them.
    pub(crate) fn end_flush(
        &mut self,
        device: &dyn BlockDevice,
        slots: FlushedSlots,
        is_durable: bool,
    ) -> Result<(), LogError> {
        self.flush_count -= 1;
        if !is_durable {
            self.superseded.extend(slots.superseded);
            self.discarded.extend(slots.discarded);
            return Ok(());
        }
        self.awaits_flush = false;
        self.retired.extend(slots.superseded);
        self.free.extend(slots.discarded);
        let ready = slots.ready?;
        // A concurrent flush may have prepared slots first.
        if !ready.is_empty() && ready.start == self.record.unused_from.0 {
            let record = TopicRecord { unused_from: Slot(ready.end), ..self.record };
            record.save(device)?;
            self.record = record;
            self.free.extend(ready.map(Slot));
        }
        Ok(())
    }
}

/// Reason for which no slot is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoSlot {
    /// All slots of the volume are in use: this many.
    AllInUse(u32),
    /// A flush will prepare slots.
    BeforeFlush,
    /// A flush in progress will prepare slots.
    BeforeFlushEnds,
}

/// Slots that wait for a flush in progress.
#[derive(Debug)]
pub(crate) struct FlushedSlots {
    superseded: Vec<Arc<Segment>>,
    discarded: Vec<Slot>,
    /// Numbers of discarded slots that were never used.
    ready: Result<Range<u32>, LogError>,
}

fn count_of(device: &dyn BlockDevice) -> u32 {
    u32::try_from(log_bytes(device.geometry().size_bytes) / SLOT_BYTES).unwrap_or(u32::MAX)
}

/// Frees a slot's memory. The header is discarded last: until then the segment exists, empty, and
/// the next opening discards it again.
pub(crate) fn discard(device: &dyn BlockDevice, slot: Slot) -> Result<(), LogError> {
    for (start, length) in [(BLOCK, SLOT_BYTES - BLOCK), (0, BLOCK)] {
        let range = ByteRange::new(slot.start() + start, length);
        device.discard(range).map_err(|error| {
            LogError::device(format!("cannot discard segment {} of the volume", slot.0), error)
        })?;
    }
    Ok(())
}

/// Frees the memory of slots that contain no segment, in ascending order: consecutive ones by one
/// request, because an opening finds many. What an interruption leaves is no segment either.
pub(crate) fn discard_without_segment(
    device: &dyn BlockDevice,
    slots: &[Slot],
) -> Result<(), LogError> {
    for run in slots.chunk_by(|one, next| one.0 + 1 == next.0) {
        let (first, count) = (run[0], run.len() as u64);
        let range = ByteRange::new(first.start(), count * SLOT_BYTES);
        device.discard(range).map_err(|error| {
            let what = format!("cannot discard segments of the volume from {} on", first.0);
            LogError::device(what, error)
        })?;
    }
    Ok(())
}

/// Makes the contents of the volume durable.
pub(crate) fn flush(device: &dyn BlockDevice) -> Result<(), LogError> {
    device.flush().map_err(|error| LogError::device("cannot flush the volume of the topic", error))
}
