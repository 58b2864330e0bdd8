//! New segment to which a group is copied. Until its header is written it is not part of the log,
//! and an opening frees its slot.

use std::sync::Arc;

use block_device::BlockDevice;
use record_batch::BatchHeader;

use crate::error::LogError;
use crate::index::Index;
use crate::layout::{BLOCK, SEGMENT_ROOM_BYTES, Slot};
use crate::producers::{Aborted, Producers};
use crate::records::{Checkpoint, Replacement, SegmentHeader};
use crate::segment::Segment;

/// Maximum bytes of one write.
const WRITE_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub(crate) struct NewSegment {
    slot: Slot,
    /// Header of the first segment of the group.
    first: SegmentHeader,
    /// Maximum bytes of batches.
    room_bytes: u64,
    /// Bytes of batches so far.
    position: u64,
    /// Batches at the end that were not written yet, aligned to a block.
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

    /// Appends a batch, for which there must be room.
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

    /// Writes everything except the header: the remaining batches, and a checkpoint of transactions
    /// and producers, because removed batches no longer describe them.
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

    /// Returns the segment as an empty one if it replaces nothing, so that its slot is freed.
    pub(crate) fn abandon(&self) -> Arc<Segment> {
        Arc::new(Segment::new(self.slot, self.first))
    }

    /// Writes the first `length` bytes of the buffer, which are whole blocks.
    fn write(&mut self, device: &dyn BlockDevice, length: usize) -> Result<(), LogError> {
        if length == 0 {
            return Ok(());
        }
        let at = self.slot.batches(self.position - self.buffer.len() as u64);
        device.write(at, &self.buffer[..length]).map_err(|error| {
            let base_offset = self.first.base_offset;
            let what = format!(
                "cannot write the compacted segment of partition {} at offset {base_offset}",
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
    /// Base offset of the next segment.
    pub(crate) end_offset: i64,
    pub(crate) aborted: Vec<Aborted>,
    pub(crate) producers: Producers,
}
