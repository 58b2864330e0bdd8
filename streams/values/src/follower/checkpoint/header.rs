//! Header of a checkpoint: one block, written last.

use block_device::{BLOCK_BYTES, BlockDevice};
use record_batch::crc32c;
use record_log::{Partition, TopicId};

use crate::error::ValuesError;
use crate::key_hash::Secret;

/// Magic number. Its last character is the version of the format.
const MAGIC: [u8; 8] = *b"MLNvalu1";

/// Position of the first frame, relative to the place of the checkpoint.
pub(super) const FRAMES_START: u64 = BLOCK_BYTES as u64;

const FIELDS_BYTES: usize = 8 + 16 + 4 + 16 + 8 + 4 + 8 + 8 + 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CheckpointHeader {
    /// Incremented with each checkpoint.
    pub(super) sequence: u64,
    pub(super) topic: TopicId,
    pub(super) partition: u32,
    pub(super) secret: Secret,
    /// Compaction generation of the log when the checkpoint was begun.
    pub(super) generation: u64,
    pub(super) epoch: i32,
    /// All parts contain the records before this offset. The log is followed from here.
    pub(super) follow_from: i64,
    /// Offset of the log when the live offsets were copied. The parts agree once the log is
    /// followed up to here.
    pub(super) serve_from: i64,
    pub(super) frame_count: u64,
}

impl CheckpointHeader {
    pub(super) fn save(&self, device: &dyn BlockDevice, place: u64) -> Result<(), ValuesError> {
        let mut fields = Vec::with_capacity(BLOCK_BYTES);
        fields.extend(self.sequence.to_le_bytes());
        fields.extend(self.topic);
        fields.extend(self.partition.to_le_bytes());
        fields.extend(self.secret.0);
        fields.extend(self.generation.to_le_bytes());
        fields.extend(self.epoch.to_le_bytes());
        fields.extend(self.follow_from.to_le_bytes());
        fields.extend(self.serve_from.to_le_bytes());
        fields.extend(self.frame_count.to_le_bytes());
        assert_eq!(fields.len(), FIELDS_BYTES, "each field has its place");
        let mut block = MAGIC.to_vec();
        block.extend(crc32c(&fields).to_le_bytes());
        block.extend(fields);
        block.resize(BLOCK_BYTES, 0);
        device.write(place, &block).map_err(ValuesError::writing)
    }

    /// Reads the header. Returns `None` if there is no valid one.
    pub(super) fn load(device: &dyn BlockDevice, place: u64) -> Option<Self> {
        let mut block = [0; BLOCK_BYTES];
        device.read(place, &mut block).ok()?;
        let (magic, rest) = block.split_first_chunk::<8>()?;
        let (sum, rest) = rest.split_first_chunk::<4>()?;
        let fields = &rest[..FIELDS_BYTES];
        if *magic != MAGIC || u32::from_le_bytes(*sum) != crc32c(fields) {
            return None;
        }
        let mut rest = fields;
        Some(Self {
            sequence: u64::from_le_bytes(take(&mut rest)?),
            topic: take(&mut rest)?,
            partition: u32::from_le_bytes(take(&mut rest)?),
            secret: Secret(take(&mut rest)?),
            generation: u64::from_le_bytes(take(&mut rest)?),
            epoch: i32::from_le_bytes(take(&mut rest)?),
            follow_from: i64::from_le_bytes(take(&mut rest)?),
            serve_from: i64::from_le_bytes(take(&mut rest)?),
            frame_count: u64::from_le_bytes(take(&mut rest)?),
        })
    }

    /// Returns the reason if the checkpoint belongs to another log or the log was changed since.
    pub(super) fn refusal(&self, partition: &Partition) -> Option<&'static str> {
        if (self.topic, self.partition) != (partition.topic_id(), partition.number()) {
            return Some("it belongs to another log");
        }
        let end = partition.end_of_epoch(self.epoch).map(|(_, end)| end);
        let ordered = 0 <= self.follow_from && self.follow_from <= self.serve_from;
        if !ordered || end.is_none_or(|end| end < self.serve_from) {
            return Some("the log lacks records that it refers to");
        }
        if self.generation != partition.compaction_generation() {
            return Some("the log was compacted since");
        }
        None
    }
}

fn take<const N: usize>(fields: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = fields.split_first_chunk::<N>()?;
    *fields = rest;
    Some(*first)
}
