//! Free slots of a topic's volume.
//!
//! ```text
//! free ──take──▶ in use ──retire──▶ retired ──last reader leaves──▶ discarded ──flush──▶ free
//!                   └──supersede──▶ superseded ──flush──┘
//! ```
//!
//! A slot is used again only after its discard is as durable as the volume makes it: nothing of its
//! last life comes back after a loss of power. Each flush makes slots ready that are used next, so
//! that a segment begins without waiting for one.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use block_device::{BlockDevice, ByteRange};

use crate::error::LogError;
use crate::layout::{BLOCK, SLOT_BYTES, Slot, log_bytes};
use crate::records::{TopicId, TopicRecord};
use crate::segment::Segment;

/// Slots that each flush leaves free, beside those for partitions without a segment.
const SLOTS_AHEAD: u32 = 16;

/// A slot that nothing is in, with memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spare {
    pub(crate) slot: Slot,
    /// Blocks of batches up to here hold filler.
    pub(crate) filled: u64,
}

/// Of the slots for such partitions: an opening looks at all that were ever ready.
const FIRST_SLOTS_MAX: u32 = 256;

#[derive(Debug)]
pub(crate) struct Slots {
    pub(crate) record: TopicRecord,
    /// Slots that the volume has room for, that of the records included.
    count: u32,
    free: BTreeSet<Slot>,
    /// True if memory of segments is kept for others.
    pub(crate) keeps_memory: bool,
    /// True until the first flush of a log that was opened without one: what it holds is not known
    /// to be durable.
    pub(crate) awaits_flush: bool,
    /// One with memory for the next segment; also among those that are free, or will be after the
    /// next flush.
    pub(crate) spare: Option<Spare>,
    /// Segments in whose place others are, which are not known to be durable.
    superseded: Vec<Arc<Segment>>,
    retired: Vec<Arc<Segment>>,
    discarded: Vec<Slot>,
    /// Partitions without a segment.
    unbegun_count: u32,
    /// Flushes that go on.
    flush_count: u32,
}

impl Slots {
    /// All slots that were ever used are in use, until [`Slots::give_back`] says otherwise.
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

    /// Those of a volume that was never written to, whose record says that the first ones are
    /// ready.
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

    /// The spare slot, or the lowest of those that are free, or why there is none.
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

    /// A partition that has no segment yet: its first one is to begin without waiting.
    pub(crate) fn note_unbegun(&mut self) {
        self.unbegun_count += 1;
    }

    /// Such a partition has one now.
    pub(crate) fn note_begun(&mut self) {
        self.unbegun_count = self.unbegun_count.saturating_sub(1);
    }

    /// Returns whether memory of the next slot that is given up is to be kept.
    pub(crate) fn wants_spare(&self) -> bool {
        self.keeps_memory && self.spare.is_none()
    }

    /// A slot that was taken and not written to, or of which nothing but zeros is left.
    pub(crate) fn give_back(&mut self, slot: Slot) {
        self.free.insert(slot);
    }

    /// A slot in which an opening found no segment.
    pub(crate) fn give_back_found(&mut self, slot: Slot) {
        match self.awaits_flush {
            true => self.note_discarded(slot),
            false => self.give_back(slot),
        }
    }

    /// A segment that no new reader finds. Others may be in the middle of it.
    pub(crate) fn retire(&mut self, segment: Arc<Segment>) {
        self.retired.push(segment);
    }

    /// Takes those retired segments out that no reader has any more, to be discarded.
    pub(crate) fn take_unread(&mut self) -> Vec<Arc<Segment>> {
        self.retired.extract_if(.., |segment| Arc::strong_count(segment) == 1).collect()
    }

    /// A slot of which nothing is left, which the next flush makes free.
    pub(crate) fn note_discarded(&mut self, slot: Slot) {
        self.discarded.push(slot);
    }

    /// Segments whose memory is needed until their replacement is durable.
    pub(crate) fn supersede(&mut self, segments: &[Arc<Segment>]) {
        self.superseded.extend_from_slice(segments);
    }

    /// Returns whether slots wait for a flush, or for the last reader.
    pub(crate) fn has_to_flush(&self) -> bool {
        !(self.retired.is_empty() && self.superseded.is_empty() && self.discarded.is_empty())
    }

    /// Changes of a flush that begins now. A loss of power may have left segments where none were
    /// ever used, and not the record that told of them: those that are to be ready are emptied.
    pub(crate) fn begin_flush(&mut self, device: &dyn BlockDevice) -> FlushedSlots {
        self.flush_count += 1;
        let wanted = SLOTS_AHEAD + self.unbegun_count.min(FIRST_SLOTS_MAX);
        let lacking = wanted.saturating_sub(u32::try_from(self.free.len()).unwrap_or(u32::MAX));
        let first = self.record.unused_from.0;
        let ready = first..first.saturating_add(lacking).min(self.count).max(first);
        let emptied = ready.clone().try_for_each(|slot| discard(device, Slot(slot)));
        FlushedSlots {
            superseded: std::mem::take(&mut self.superseded),
            discarded: std::mem::take(&mut self.discarded),
            ready: emptied.map(|()| ready),
        }
    }

    /// The flush is over; where it failed they wait for the next one. Returns why no slots are
    /// ready that were to be. The record that tells of them is durable with the first batch in one.
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
        // Another flush beside this one may have been first.
        if !ready.is_empty() && ready.start == self.record.unused_from.0 {
            let record = TopicRecord { unused_from: Slot(ready.end), ..self.record };
            record.save(device)?;
            self.record = record;
            self.free.extend(ready.map(Slot));
        }
        Ok(())
    }
}

/// Reason why no slot is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoSlot {
    /// The volume has no more than so many.
    AllInUse(u32),
    /// A flush makes some ready.
    BeforeFlush,
    /// One that goes on does.
    BeforeFlushEnds,
}

/// Slots that wait for a flush that has begun.
#[derive(Debug)]
pub(crate) struct FlushedSlots {
    superseded: Vec<Arc<Segment>>,
    discarded: Vec<Slot>,
    /// Numbers of those that were never used, and are empty.
    ready: Result<Range<u32>, LogError>,
}

fn count_of(device: &dyn BlockDevice) -> u32 {
    u32::try_from(log_bytes(device.geometry().size_bytes) / SLOT_BYTES).unwrap_or(u32::MAX)
}

/// Gives a slot's memory back. The header goes last: until then the segment is there, empty, and is
/// discarded again by the next opening.
pub(crate) fn discard(device: &dyn BlockDevice, slot: Slot) -> Result<(), LogError> {
    for (start, length) in [(BLOCK, SLOT_BYTES - BLOCK), (0, BLOCK)] {
        let range = ByteRange::new(slot.start() + start, length);
        device.discard(range).map_err(|error| {
            LogError::device(format!("cannot give back segment {} of the volume", slot.0), error)
        })?;
    }
    Ok(())
}

/// Makes durable what the volume holds.
pub(crate) fn flush(device: &dyn BlockDevice) -> Result<(), LogError> {
    device.flush().map_err(|error| LogError::device("cannot flush the volume of the topic", error))
}
