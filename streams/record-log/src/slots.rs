//! Free slots of a topic's volume.
//!
//! ```text
//! free ──take──▶ in use ──retire──▶ retired ──last reader leaves──▶ discarded ──flush──▶ free
//!                   └──supersede──▶ superseded ──flush──┘
//! ```
//!
//! A slot is used again only after its discard is as durable as the volume makes it: nothing of its
//! last life comes back after a loss of power.

use std::collections::BTreeSet;
use std::sync::Arc;

use block_device::{BlockDevice, ByteRange};

use crate::error::{LogError, LogErrorKind};
use crate::layout::{BLOCK, SLOT_BYTES, Slot, log_bytes};
use crate::records::TopicRecord;
use crate::segment::Segment;

/// Slots that are called used at once, so that the topic's record seldom changes.
const SLOTS_AHEAD: u32 = 16;

/// A slot that nothing is in, with memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spare {
    pub(crate) slot: Slot,
    /// Blocks of batches up to here hold filler.
    pub(crate) filled: u64,
}

#[derive(Debug)]
pub(crate) struct Slots {
    pub(crate) record: TopicRecord,
    /// Slots that the volume has room for.
    count: u32,
    free: BTreeSet<Slot>,
    /// True if memory of segments is kept for others.
    pub(crate) keeps_memory: bool,
    /// One with memory for the next segment; also among those that are free, or will be after the
    /// next flush.
    pub(crate) spare: Option<Spare>,
    /// Segments in whose place others are, which are not known to be durable.
    superseded: Vec<Arc<Segment>>,
    retired: Vec<Arc<Segment>>,
    discarded: Vec<Slot>,
}

impl Slots {
    /// All slots that were ever used are in use, until [`Slots::give_back`] says otherwise.
    pub(crate) fn new(device: &dyn BlockDevice, record: TopicRecord) -> Self {
        let count =
            u32::try_from(log_bytes(device.geometry().size_bytes) / SLOT_BYTES).unwrap_or(u32::MAX);
        Self {
            record,
            count,
            free: BTreeSet::new(),
            keeps_memory: false,
            spare: None,
            superseded: Vec::new(),
            retired: Vec::new(),
            discarded: Vec::new(),
        }
    }

    /// The spare slot, or the lowest of those that are free.
    pub(crate) fn take(&mut self, device: &dyn BlockDevice) -> Result<Spare, LogError> {
        if let Some(spare) = self.spare.take_if(|it| self.free.remove(&it.slot)) {
            return Ok(spare);
        }
        if self.free.is_empty() {
            let first = self.record.unused_from;
            let end = Slot(first.0.saturating_add(SLOTS_AHEAD).min(self.count));
            if first >= end {
                let what = format!("all {} segments of the volume are in use", self.count - 1);
                return Err(LogError::new(LogErrorKind::NoSpace, what));
            }
            // A loss of power may have left segments here and not the record that told of them. The
            // new record is durable with the first batch in one of these slots, and they are empty
            // before.
            for slot in (first.0..end.0).map(Slot) {
                discard(device, slot)?;
            }
            flush(device)?;
            let record = TopicRecord { unused_from: end, ..self.record };
            record.save(device)?;
            self.record = record;
            self.free.extend((first.0..end.0).map(Slot));
        }
        Ok(Spare { slot: self.free.pop_first().expect("there is one"), filled: 0 })
    }

    /// Returns whether memory of the next slot that is given up is to be kept.
    pub(crate) fn wants_spare(&self) -> bool {
        self.keeps_memory && self.spare.is_none()
    }

    /// A slot that was taken and not written to, or of which nothing but zeros is left.
    pub(crate) fn give_back(&mut self, slot: Slot) {
        self.free.insert(slot);
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

    /// Changes of a flush that begins now.
    pub(crate) fn begin_flush(&mut self) -> FlushedSlots {
        FlushedSlots {
            superseded: std::mem::take(&mut self.superseded),
            discarded: std::mem::take(&mut self.discarded),
        }
    }

    /// The flush is over; where it failed they wait for the next one.
    pub(crate) fn end_flush(&mut self, slots: FlushedSlots, is_durable: bool) {
        if is_durable {
            self.retired.extend(slots.superseded);
            self.free.extend(slots.discarded);
        } else {
            self.superseded.extend(slots.superseded);
            self.discarded.extend(slots.discarded);
        }
    }
}

/// Slots that wait for a flush that has begun.
#[derive(Debug)]
pub(crate) struct FlushedSlots {
    superseded: Vec<Arc<Segment>>,
    discarded: Vec<Slot>,
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
