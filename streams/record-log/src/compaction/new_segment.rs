//! The segment that a group is copied to. Until its header is written it is nothing: an opening
//! gives the slot back.

use std::sync::Arc;

use block_device::BlockDevice;
use record_batch::BatchHeader;

use crate::error::LogError;
use crate::index::Index;
use crate::layout::{BLOCK, SEGMENT_ROOM_BYTES, Slot};
use crate::producers::{Aborted, Producers};
use crate::records::{Checkpoint, Replacement, SegmentHeader};
use crate::segment::Segment;

/// What is written at once.
const WRITE_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub(crate) struct NewSegment {
    slot: Slot,
    /// Of the first segment of the group.
    first: SegmentHeader,
    /// It takes no more bytes of batches than this.
    room_bytes: u64,
    /// Bytes of batches.
    position: u64,
    /// The last of them, which are not written yet. They begin on a block.
    buffer: Vec<u8>,
    index: Index,
}

impl NewSegment {
    pub(crate) fn new(slot: Slot, first: SegmentHeader, room_bytes: u64) -> Self {
        let room_bytes = room_bytes.min(SEGMENT_ROOM_BYTES);
        Self { slot, first, room_bytes, position: 0, buffer: Vec::new(), index: Index::default() }
    }

    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    pub(crate) fn has_room_for(&self, size_bytes: usize) -> bool {
        self.position + size_bytes as u64 <= self.room_bytes
    }

    /// Takes the next batch, for which there is room.
    pub(crate) fn push(&mut self, device: &dyn BlockDevice, bytes: &[u8]) -> Result<(), LogError> {
        let batch = BatchHeader::read(bytes).expect("it was one, or was made one");
        self.index.note(&batch, self.position);
        self.buffer.extend_from_slice(bytes);
        self.position += bytes.len() as u64;
        if self.buffer.len() < WRITE_BYTES {
            return Ok(());
        }
        let block = usize::try_from(BLOCK).expect("it fits memory");
        self.write(device, self.buffer.len() / block * block)
    }

    /// Writes all but the header: the rest of the batches, and what the batches do not say of
    /// transactions and producers at their end.
    pub(crate) fn finish(
        mut self,
        device: &dyn BlockDevice,
        generation: u64,
        known: Known,
    ) -> Result<Arc<Segment>, LogError> {
        let length = self.buffer.len();
        let block = usize::try_from(BLOCK).expect("it fits memory");
        let padded = length.next_multiple_of(block);
        self.buffer.resize(padded, 0);
        self.position += (padded - length) as u64;
        self.write(device, padded)?;
        self.position -= (padded - length) as u64;
        let (end_offset, size_bytes) = (known.end_offset, self.position);
        let replacement = Replacement { generation, end_offset, size_bytes };
        let header = SegmentHeader { replacement: Some(replacement), ..self.first };
        let checkpoint = Checkpoint {
            sequence: 0,
            base_offset: header.base_offset,
            epoch: header.epoch,
            position: self.position,
            next_offset: end_offset,
            index: self.index,
            aborted: known.aborted,
            producers: known.producers,
        };
        checkpoint.save(device, self.slot)?;
        let segment = Segment::new(self.slot, header);
        segment.set_extent(checkpoint);
        Ok(Arc::new(segment))
    }

    /// Remains of it where it takes nothing's place.
    pub(crate) fn abandon(&self) -> Arc<Segment> {
        Arc::new(Segment::new(self.slot, self.first))
    }

    /// Writes the first so many bytes of the buffer: whole blocks.
    fn write(&mut self, device: &dyn BlockDevice, length: usize) -> Result<(), LogError> {
        if length == 0 {
            return Ok(());
        }
        let at = self.slot.batches(self.position - self.buffer.len() as u64);
        device.write(at, &self.buffer[..length]).map_err(|error| {
            let base_offset = self.first.base_offset;
            let what = format!(
                "cannot write what compaction leaves of partition {} from offset {base_offset} on",
                self.first.partition
            );
            LogError::device(what, error)
        })?;
        self.buffer.drain(..length);
        Ok(())
    }
}

/// State at the end of a group.
#[derive(Debug)]
pub(crate) struct Known {
    /// Offset of the next segment's first record.
    pub(crate) end_offset: i64,
    pub(crate) aborted: Vec<Aborted>,
    pub(crate) producers: Producers,
}
