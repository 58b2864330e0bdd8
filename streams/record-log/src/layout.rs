//! Where things lie on the volume of a topic.
//!
//! ```text
//! slot 0      0            topic record
//!             64 KiB       properties, even ones
//!             256 KiB      properties, odd ones
//!             1 MiB + 4 KiB * P   record of partition P
//!             512 MiB + 4 KiB * P note of the owner on partition P
//! slot 1..    0            segment header
//!             1 MiB        checkpoint, even ones
//!             32 MiB       checkpoint, odd ones
//!             64 MiB       batches, end to end
//! 2nd half                 what the owner derives from the log
//! ```
//!
//! Slots are of 2 GiB of addresses, which take no memory until they are written. Every record is a
//! frame: magic number, length, CRC-32C, bytes. Zeros are no frame. The volume replaces a block of
//! 4 KiB as a whole or not at all, and that is all that a record of one block relies on.

use block_device::BLOCK_BYTES;

use record_batch::crc32c;

/// Addresses of one slot.
pub(crate) const SLOT_BYTES: u64 = 2 << 30;

/// The most that a segment holds.
pub const SEGMENT_BYTES_MAX: u64 = 1 << 30;

/// The most partitions of one topic.
pub const PARTITION_COUNT_MAX: u32 = 65_536;

/// Where the two checkpoints of a segment lie in its slot.
const CHECKPOINTS: [u64; 2] = [1 << 20, 32 << 20];

/// The most that a checkpoint may take.
pub(crate) const CHECKPOINT_BYTES_MAX: usize = 31 << 20;

/// Where a segment's batches begin in its slot.
const BATCHES: u64 = 64 << 20;

/// Where the two versions of a topic's properties lie.
const PROPERTIES: [u64; 2] = [64 << 10, 256 << 10];

/// The most that the contents of their frame may take.
pub(crate) const PROPERTIES_CONTENTS_BYTES_MAX: usize = 128 << 10;

/// The most bytes of batches that fit a slot. Compaction may fill it beyond what an append does:
/// records that are compressed again may become longer.
pub(crate) const SEGMENT_ROOM_BYTES: u64 = SLOT_BYTES - BATCHES;

const PARTITION_RECORDS: u64 = 1 << 20;
const NOTES: u64 = 512 << 20;

/// Addresses of the volume that slots take; those behind them are the owner's.
pub(crate) const fn log_bytes(size_bytes: u64) -> u64 {
    size_bytes / 2 / SLOT_BYTES * SLOT_BYTES
}

/// One block of bytes.
pub(crate) const BLOCK: u64 = BLOCK_BYTES as u64;

/// The number of a slot; slot 0 holds the records of the topic and its partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Slot(pub(crate) u32);

impl Slot {
    pub(crate) fn start(self) -> u64 {
        u64::from(self.0) * SLOT_BYTES
    }

    /// Where the byte at `position` of the segment's batches lies.
    pub(crate) fn batches(self, position: u64) -> u64 {
        self.start() + BATCHES + position
    }

    /// Where the checkpoint of this sequence number lies: two take turns.
    pub(crate) fn checkpoint(self, sequence: u64) -> u64 {
        self.start() + CHECKPOINTS[usize::from(sequence % 2 == 1)]
    }
}

pub(crate) const TOPIC_RECORD: u64 = 0;

/// Where the topic's properties of this sequence number lie: two take turns.
pub(crate) fn properties_record(sequence: u64) -> u64 {
    PROPERTIES[usize::from(sequence % 2 == 1)]
}

pub(crate) fn partition_record(partition: u32) -> u64 {
    PARTITION_RECORDS + BLOCK * u64::from(partition)
}

/// The block of what the owner notes of a partition.
pub(crate) fn note(partition: u32) -> u64 {
    NOTES + BLOCK * u64::from(partition)
}

/// Kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameKind {
    Topic,
    Properties,
    Partition,
    Segment,
    Checkpoint,
    Note,
}

impl FrameKind {
    /// The last character is the version of the format.
    const fn magic(self) -> [u8; 8] {
        match self {
            Self::Topic => *b"MLNtopi1",
            Self::Properties => *b"MLNprop1",
            Self::Partition => *b"MLNpart1",
            Self::Segment => *b"MLNsegm1",
            Self::Checkpoint => *b"MLNchkp1",
            Self::Note => *b"MLNnote1",
        }
    }
}

/// Bytes of a frame before its contents.
pub(crate) const FRAME_BYTES: usize = 16;

/// A frame of whole blocks around the contents.
pub(crate) fn frame(kind: FrameKind, contents: &[u8]) -> Vec<u8> {
    let mut bytes =
        Vec::with_capacity((FRAME_BYTES + contents.len()).next_multiple_of(BLOCK_BYTES));
    bytes.extend(kind.magic());
    bytes.extend(u32::try_from(contents.len()).expect("contents have a limit").to_le_bytes());
    bytes.extend(frame_sum(kind, contents).to_le_bytes());
    bytes.extend(contents);
    bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES), 0);
    bytes
}

/// First bytes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameStart {
    /// Nothing but zeros.
    Empty,
    /// So many bytes of contents follow.
    Contents(usize),
    /// Neither.
    Foreign,
}

pub(crate) fn frame_start(kind: FrameKind, block: &[u8]) -> FrameStart {
    if block.iter().all(|byte| *byte == 0) {
        return FrameStart::Empty;
    }
    let length = u32::from_le_bytes(block[8..12].try_into().expect("four bytes"));
    match usize::try_from(length) {
        Ok(length) if block[..8] == kind.magic() => FrameStart::Contents(length),
        _ => FrameStart::Foreign,
    }
}

/// The contents of a whole frame, if its checksum fits.
pub(crate) fn contents(kind: FrameKind, frame: &[u8]) -> Option<&[u8]> {
    let FrameStart::Contents(length) = frame_start(kind, frame) else { return None };
    let contents = frame.get(FRAME_BYTES..FRAME_BYTES.checked_add(length)?)?;
    let sum = u32::from_le_bytes(frame[12..16].try_into().expect("four bytes"));
    (sum == frame_sum(kind, contents)).then_some(contents)
}

fn frame_sum(kind: FrameKind, contents: &[u8]) -> u32 {
    // Two sums, so that the kind is a part of what is checked.
    crc32c(contents) ^ crc32c(&kind.magic())
}

/// Reads the fields of a frame's contents in order; every number is little-endian.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl Fields<'_> {
    pub(crate) fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_le_bytes)
    }

    pub(crate) fn i32(&mut self) -> Option<i32> {
        self.bytes().map(i32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_le_bytes)
    }

    pub(crate) fn i64(&mut self) -> Option<i64> {
        self.bytes().map(i64::from_le_bytes)
    }

    pub(crate) fn i16(&mut self) -> Option<i16> {
        self.bytes().map(i16::from_le_bytes)
    }

    /// A list whose length stands before it.
    pub(crate) fn list<T>(&mut self, item: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.u32()?;
        (0..count).map(|_| item(self)).collect()
    }
}

/// Appends a list with its length before it.
pub(crate) fn put_list<T>(into: &mut Vec<u8>, items: &[T], put: impl Fn(&mut Vec<u8>, &T)) {
    into.extend(u32::try_from(items.len()).expect("lists have limits").to_le_bytes());
    items.iter().for_each(|item| put(into, item));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_gives_its_contents_back_and_notices_every_flipped_bit() {
        let good = frame(FrameKind::Topic, b"contents");
        assert_eq!(contents(FrameKind::Topic, &good), Some(&b"contents"[..]));
        assert_eq!(contents(FrameKind::Segment, &good), None);
        for bit in 0..8 * (FRAME_BYTES + 8) {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(contents(FrameKind::Topic, &bytes), None, "bit {bit}");
        }
    }

    #[test]
    fn zeros_are_an_empty_frame() {
        assert_eq!(frame_start(FrameKind::Segment, &[0; BLOCK_BYTES]), FrameStart::Empty);
        assert_eq!(contents(FrameKind::Segment, &[0; BLOCK_BYTES]), None);
    }

    #[test]
    fn the_parts_of_a_slot_do_not_meet() {
        let most = u64::try_from(CHECKPOINT_BYTES_MAX).expect("small");
        assert!(CHECKPOINTS[0] + most <= CHECKPOINTS[1]);
        assert!(CHECKPOINTS[1] + most <= BATCHES);
        let frame_bytes =
            u64::try_from(FRAME_BYTES + PROPERTIES_CONTENTS_BYTES_MAX).expect("small");
        assert!(PROPERTIES[0] >= TOPIC_RECORD + BLOCK);
        assert!(PROPERTIES[0] + frame_bytes <= PROPERTIES[1]);
        assert!(PROPERTIES[1] + frame_bytes <= PARTITION_RECORDS);
        const { assert!(BATCHES + SEGMENT_BYTES_MAX <= SLOT_BYTES) };
        assert!(partition_record(PARTITION_COUNT_MAX) <= NOTES);
        assert!(note(PARTITION_COUNT_MAX) <= SLOT_BYTES);
    }
}
