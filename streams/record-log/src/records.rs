//! Metadata records on the volume: of the topic, its partitions and segments, and the checkpoints
//! of segments.

use block_device::{BLOCK_BYTES, BlockDevice, IO_BYTES_MAX};

use crate::error::{LogError, LogErrorKind};
use crate::index::Index;
use crate::layout::{
    self, CHECKPOINT_BYTES_MAX, FRAME_BYTES, Fields, FrameKind, FrameStart, PARTITION_COUNT_MAX,
    PROPERTIES_CONTENTS_BYTES_MAX, Slot, TOPIC_RECORD, put_list,
};
use crate::producers::{Aborted, Producers};

/// Maximum number of leader epochs of a partition; the oldest are dropped. The record must fit one
/// block.
const EPOCH_COUNT_MAX: usize = 256;

/// Permanent id of a topic.
pub type TopicId = [u8; 16];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TopicRecord {
    pub(crate) id: TopicId,
    pub(crate) partition_count: u32,
    /// First slot of those that were never used.
    pub(crate) unused_from: Slot,
}

impl TopicRecord {
    pub(crate) fn save(&self, device: &dyn BlockDevice) -> Result<(), LogError> {
        let mut contents = self.id.to_vec();
        contents.extend(self.partition_count.to_le_bytes());
        contents.extend(self.unused_from.0.to_le_bytes());
        save(device, (FrameKind::Topic, TOPIC_RECORD), &contents)
    }

    /// Loads the record. Returns `None` if the volume was never written.
    pub(crate) fn load(device: &dyn BlockDevice) -> Result<Option<Self>, LogError> {
        load(device, (FrameKind::Topic, TOPIC_RECORD), |fields| {
            let (id, partition_count) = (fields.bytes()?, fields.u32()?);
            let unused_from = Slot(fields.u32()?);
            (partition_count <= PARTITION_COUNT_MAX).then_some(Self {
                id,
                partition_count,
                unused_from,
            })
        })
    }
}

/// Properties that the owner stores with the topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PropertiesRecord {
    /// Incremented with each change.
    pub(crate) sequence: u64,
    pub(crate) bytes: Vec<u8>,
}

impl PropertiesRecord {
    pub(crate) fn save(&self, device: &dyn BlockDevice) -> Result<(), LogError> {
        let mut contents = self.sequence.to_le_bytes().to_vec();
        contents.extend(&self.bytes);
        assert!(contents.len() <= PROPERTIES_CONTENTS_BYTES_MAX, "the owner's bytes have a limit");
        let at = layout::properties_record(self.sequence);
        save(device, (FrameKind::Properties, at), &contents)
    }

    /// Loads the newer version. Incomplete versions are ignored.
    pub(crate) fn load_newest(device: &dyn BlockDevice) -> Result<Option<Self>, LogError> {
        let found =
            load_both(device, FrameKind::Properties, layout::properties_record, |fields| {
                let sequence = fields.u64()?;
                Some(Self { sequence, bytes: std::mem::take(&mut fields.0).to_vec() })
            })?;
        Ok(found.into_iter().flatten().max_by_key(|it| it.sequence))
    }
}

/// Start of a leader epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EpochStart {
    pub(crate) epoch: i32,
    pub(crate) offset: i64,
}

/// Range of batches that compaction left unchanged, which may contain superseded or deleted values.
/// While they exist, tombstones after the first of them are retained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stale {
    pub(crate) first_offset: i64,
    /// Offset of the last of them.
    pub(crate) last_offset: i64,
}

impl Stale {
    /// Returns the range that covers both.
    pub(crate) fn and(self, other: Option<Self>) -> Self {
        other.map_or(self, |other| Self {
            first_offset: self.first_offset.min(other.first_offset),
            last_offset: self.last_offset.max(other.last_offset),
        })
    }
}

/// State of a partition that cannot be derived from its segments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PartitionRecord {
    /// Offset before which all records were deleted.
    pub(crate) start_offset: i64,
    /// Offset before which all records were compacted.
    pub(crate) clean_offset: i64,
    /// Ascending by epoch and by offset.
    pub(crate) epochs: Vec<EpochStart>,
    pub(crate) stale: Option<Stale>,
}

impl PartitionRecord {
    pub(crate) fn epoch(&self) -> i32 {
        self.epochs.last().map_or(-1, |last| last.epoch)
    }

    /// Begins a new epoch, as each opening does, so that earlier records are never mistaken for new
    /// ones.
    pub(crate) fn begin_epoch(&mut self, offset: i64, least: i32) {
        let epoch = least.max(self.epoch() + 1);
        // Epochs without batches are dropped.
        self.epochs.retain(|it| it.offset < offset);
        self.epochs.push(EpochStart { epoch, offset });
        let too_many = self.epochs.len().saturating_sub(EPOCH_COUNT_MAX);
        self.epochs.drain(..too_many);
    }

    pub(crate) fn save(&self, device: &dyn BlockDevice, partition: u32) -> Result<(), LogError> {
        let mut contents = self.start_offset.to_le_bytes().to_vec();
        contents.extend(self.clean_offset.to_le_bytes());
        put_list(&mut contents, &self.epochs, |into, it| {
            into.extend(it.epoch.to_le_bytes());
            into.extend(it.offset.to_le_bytes());
        });
        if let Some(stale) = self.stale {
            contents.extend(stale.first_offset.to_le_bytes());
            contents.extend(stale.last_offset.to_le_bytes());
        }
        save(device, (FrameKind::Partition, layout::partition_record(partition)), &contents)
    }

    pub(crate) fn load(device: &dyn BlockDevice, partition: u32) -> Result<Option<Self>, LogError> {
        load(device, (FrameKind::Partition, layout::partition_record(partition)), |fields| {
            let (start_offset, clean_offset) = (fields.i64()?, fields.i64()?);
            let epochs = fields
                .list(|fields| Some(EpochStart { epoch: fields.i32()?, offset: fields.i64()? }))?;
            let stale = match fields.0.is_empty() {
                true => None,
                false => Some(Stale { first_offset: fields.i64()?, last_offset: fields.i64()? }),
            };
            Some(Self { start_offset, clean_offset, epochs, stale })
        })
    }
}

/// Owner of a slot's batches, and their first offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) topic: TopicId,
    pub(crate) partition: u32,
    pub(crate) base_offset: i64,
    /// Leader epoch of its first batch. Batches of earlier epochs are remains of a former use of
    /// the slot.
    pub(crate) epoch: i32,
    /// Set if compaction wrote the segment.
    pub(crate) replacement: Option<Replacement>,
}

/// Segments that this one replaces: those of an earlier generation whose base offset is in its
/// range. A replacement was durable as a whole before its header was written, and is never appended
/// to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Replacement {
    /// Incremented with each replacement in the partition; never 0.
    pub(crate) generation: u64,
    /// Offset after the last record of the segment.
    pub(crate) end_offset: i64,
    /// Size of its batches.
    pub(crate) size_bytes: u64,
}

impl SegmentHeader {
    pub(crate) fn save(&self, device: &dyn BlockDevice, slot: Slot) -> Result<(), LogError> {
        let mut contents = self.topic.to_vec();
        contents.extend(self.partition.to_le_bytes());
        contents.extend(self.base_offset.to_le_bytes());
        contents.extend(self.epoch.to_le_bytes());
        let replacement =
            self.replacement.unwrap_or(Replacement { generation: 0, end_offset: 0, size_bytes: 0 });
        contents.extend(replacement.generation.to_le_bytes());
        contents.extend(replacement.end_offset.to_le_bytes());
        contents.extend(replacement.size_bytes.to_le_bytes());
        save(device, (FrameKind::Segment, slot.start()), &contents)
    }

    /// Header of a free slot with memory: its partition exists in no topic.
    pub(crate) fn spare(topic: TopicId) -> Self {
        Self { topic, partition: u32::MAX, base_offset: 0, epoch: 0, replacement: None }
    }

    pub(crate) fn is_spare(&self) -> bool {
        self.partition == u32::MAX
    }

    /// Loads the header. Returns `None` if the slot is free.
    pub(crate) fn load(device: &dyn BlockDevice, slot: Slot) -> Result<Option<Self>, LogError> {
        load(device, (FrameKind::Segment, slot.start()), |fields| {
            let (topic, partition) = (fields.bytes()?, fields.u32()?);
            let base_offset = fields.i64()?;
            let epoch = fields.i32()?;
            let (generation, end_offset) = (fields.u64()?, fields.i64()?);
            let replacement = Replacement { generation, end_offset, size_bytes: fields.u64()? };
            let replacement = Some(replacement).filter(|it| it.generation > 0);
            Some(Self { topic, partition, base_offset, epoch, replacement })
        })
    }

    /// Returns the generation; 0 for a segment that was appended to.
    pub(crate) fn generation(&self) -> u64 {
        self.replacement.map_or(0, |it| it.generation)
    }
}

/// State derived from the first bytes of a segment, which shortens an opening.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    /// Incremented with each checkpoint of the segment.
    pub(crate) sequence: u64,
    /// Same as in the segment header. Otherwise the checkpoint is of a former use of the slot.
    pub(crate) base_offset: i64,
    pub(crate) epoch: i32,
    /// Bytes of batches covered. They were durable before the checkpoint was written.
    pub(crate) position: u64,
    pub(crate) next_offset: i64,
    pub(crate) index: Index,
    pub(crate) aborted: Vec<Aborted>,
    pub(crate) producers: Producers,
}

impl Checkpoint {
    pub(crate) fn save(&self, device: &dyn BlockDevice, slot: Slot) -> Result<(), LogError> {
        let mut contents = Vec::new();
        contents.extend(self.sequence.to_le_bytes());
        contents.extend(self.base_offset.to_le_bytes());
        contents.extend(self.epoch.to_le_bytes());
        contents.extend(self.position.to_le_bytes());
        contents.extend(self.next_offset.to_le_bytes());
        self.index.put(&mut contents);
        put_list(&mut contents, &self.aborted, |into, it| it.put(into));
        self.producers.put(&mut contents);
        assert!(contents.len() + FRAME_BYTES <= CHECKPOINT_BYTES_MAX, "its lists have limits");
        save(device, (FrameKind::Checkpoint, slot.checkpoint(self.sequence)), &contents)
    }

    /// Loads the newest checkpoint that matches the segment. Incomplete ones are ignored.
    pub(crate) fn load_newest(
        device: &dyn BlockDevice,
        slot: Slot,
        header: &SegmentHeader,
    ) -> Result<Option<Self>, LogError> {
        let found =
            load_both(device, FrameKind::Checkpoint, |place| slot.checkpoint(place), Self::take)?;
        let fits = |it: &Self| (it.base_offset, it.epoch) == (header.base_offset, header.epoch);
        Ok(found.into_iter().flatten().filter(fits).max_by_key(|it| it.sequence))
    }

    fn take(fields: &mut Fields<'_>) -> Option<Self> {
        Some(Self {
            sequence: fields.u64()?,
            base_offset: fields.i64()?,
            epoch: fields.i32()?,
            position: fields.u64()?,
            next_offset: fields.i64()?,
            index: Index::take(fields)?,
            aborted: fields.list(Aborted::take)?,
            producers: Producers::take(fields)?,
        })
    }
}

/// Maximum size of a note on a partition: its frame is one block.
pub const NOTE_BYTES_MAX: usize = BLOCK_BYTES - FRAME_BYTES;

pub(crate) fn save_note(
    device: &dyn BlockDevice,
    partition: u32,
    note: &[u8],
) -> Result<(), LogError> {
    assert!(note.len() <= NOTE_BYTES_MAX, "a note is one block");
    save(device, (FrameKind::Note, layout::note(partition)), note)
}

pub(crate) fn load_note(
    device: &dyn BlockDevice,
    partition: u32,
) -> Result<Option<Vec<u8>>, LogError> {
    load(device, (FrameKind::Note, layout::note(partition)), |fields| {
        Some(std::mem::take(&mut fields.0).to_vec())
    })
}

fn save(
    device: &dyn BlockDevice,
    (kind, at): (FrameKind, u64),
    contents: &[u8],
) -> Result<(), LogError> {
    let frame = layout::frame(kind, contents);
    device
        .write(at, &frame)
        .map_err(|error| LogError::device(format!("cannot write the {kind:?} record"), error))
}

/// Loads both of two alternating places; `None` for an empty or incomplete one.
fn load_both<T>(
    device: &dyn BlockDevice,
    kind: FrameKind,
    place_of: impl Fn(u64) -> u64,
    take: impl Fn(&mut Fields<'_>) -> Option<T>,
) -> Result<[Option<T>; 2], LogError> {
    let load_one = |sequence| match load(device, (kind, place_of(sequence)), &take) {
        Err(error) if error.kind == LogErrorKind::NotALog => Ok(None),
        other => other,
    };
    Ok([load_one(0)?, load_one(1)?])
}

/// Loads the contents of a frame, or `None` if there are only zeros. Anything that is not a frame
/// of the type is an error of kind [`LogErrorKind::NotALog`].
fn load<T>(
    device: &dyn BlockDevice,
    (kind, at): (FrameKind, u64),
    take: impl Fn(&mut Fields<'_>) -> Option<T>,
) -> Result<Option<T>, LogError> {
    let failed = |error| LogError::device(format!("cannot read the {kind:?} record"), error);
    let foreign = || {
        let what = format!(
            "byte {at} of the volume does not contain a {kind:?} record of this version: it is \
             corrupt, or of a later version"
        );
        LogError::new(LogErrorKind::NotALog, what)
    };
    let mut bytes = vec![0; BLOCK_BYTES];
    device.read(at, &mut bytes).map_err(failed)?;
    let length = match layout::frame_start(kind, &bytes) {
        FrameStart::Empty => return Ok(None),
        FrameStart::Foreign => return Err(foreign()),
        FrameStart::Contents(length) => length,
    };
    if length > CHECKPOINT_BYTES_MAX.min(IO_BYTES_MAX) - FRAME_BYTES {
        return Err(foreign());
    }
    if length > BLOCK_BYTES - FRAME_BYTES {
        bytes.resize(FRAME_BYTES + length, 0);
        device.read(at, &mut bytes).map_err(failed)?;
    }
    let contents = layout::contents(kind, &bytes).ok_or_else(foreign)?;
    take(&mut Fields(contents)).map(Some).ok_or_else(foreign)
}
