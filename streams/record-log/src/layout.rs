//! Layout of a topic's volume.
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
//! Each slot has 2 GiB of address space, which takes no memory until it is written. Every record is
//! a frame: magic number, length, CRC-32C, contents. Zeros are not a valid frame. The volume writes
//! a block of 4 KiB atomically, and records of one block rely on nothing else.

use block_device::BLOCK_BYTES;

use record_batch::crc32c;

/// Address space of one slot.
pub(crate) const SLOT_BYTES: u64 = 2 << 30;

/// Maximum bytes of batches in a segment.
pub const SEGMENT_BYTES_MAX: u64 = 1 << 30;

/// Maximum number of partitions of a topic.
pub const PARTITION_COUNT_MAX: u32 = 65_536;

/// Positions of a segment's two checkpoints in its slot.
const CHECKPOINTS: [u64; 2] = [1 << 20, 32 << 20];

/// Maximum size of a checkpoint.
pub(crate) const CHECKPOINT_BYTES_MAX: usize = 31 << 20;

/// Position of a segment's batches in its slot.
const BATCHES: u64 = 64 << 20;

/// Positions of the two versions of a topic's properties.
const PROPERTIES: [u64; 2] = [64 << 10, 256 << 10];

/// Maximum size of the contents of their frame.
pub(crate) const PROPERTIES_CONTENTS_BYTES_MAX: usize = 128 << 10;

/// Space for batches in a slot. Compaction may use more of it than appends do, because recompressed
/// records may become longer.
pub(crate) const SEGMENT_ROOM_BYTES: u64 = SLOT_BYTES - BATCHES;

const PARTITION_RECORDS: u64 = 1 << 20;
const NOTES: u64 = 512 << 20;

/// Returns the address space of the slots. The owner uses the addresses behind it.
pub(crate) const fn log_bytes(size_bytes: u64) -> u64 {
    size_bytes / 2 / SLOT_BYTES * SLOT_BYTES
}

/// Size of a block.
pub(crate) const BLOCK: u64 = BLOCK_BYTES as u64;

/// Number of a slot. Slot 0 contains the records of the topic and its partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Slot(pub(crate) u32);

impl Slot {
    pub(crate) fn start(self) -> u64 {
        u64::from(self.0) * SLOT_BYTES
    }

    /// Returns the address of the byte at `position` of the segment's batches.
    pub(crate) fn batches(self, position: u64) -> u64 {
        self.start() + BATCHES + position
    }

    /// Returns the address of a checkpoint by its sequence number. Two places alternate.
    pub(crate) fn checkpoint(self, sequence: u64) -> u64 {
        self.start() + CHECKPOINTS[usize::from(sequence % 2 == 1)]
    }
}

pub(crate) const TOPIC_RECORD: u64 = 0;

/// Returns the address of the topic's properties by their sequence number. Two places alternate.
pub(crate) fn properties_record(sequence: u64) -> u64 {
    PROPERTIES[usize::from(sequence % 2 == 1)]
}

pub(crate) fn partition_record(partition: u32) -> u64 {
    PARTITION_RECORDS + BLOCK * u64::from(partition)
}

/// Returns the address of the owner's note on a partition.
pub(crate) fn note(partition: u32) -> u64 {
    NOTES + BLOCK * u64::from(partition)
}

/// Type of a frame.
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
    /// Returns the magic number. Its last character is the version of the format.
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

/// Size of a frame's header.
pub(crate) const FRAME_BYTES: usize = 16;

/// Builds a frame, padded to whole blocks.
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

/// Result of parsing the header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameStart {
    /// Only zeros.
    Empty,
    /// A frame with contents of this length.
    Contents(usize),
    /// Anything else.
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

/// Returns the contents of a whole frame if its checksum is correct.
pub(crate) fn contents(kind: FrameKind, frame: &[u8]) -> Option<&[u8]> {
    let FrameStart::Contents(length) = frame_start(kind, frame) else { return None };
    let contents = frame.get(FRAME_BYTES..FRAME_BYTES.checked_add(length)?)?;
    let sum = u32::from_le_bytes(frame[12..16].try_into().expect("four bytes"));
    (sum == frame_sum(kind, contents)).then_some(contents)
}

fn frame_sum(kind: FrameKind, contents: &[u8]) -> u32 {
    // Two sums, so that the checksum covers the type.
    crc32c(contents) ^ crc32c(&kind.magic())
}

/// Parser for the contents of a frame. All numbers are little-endian.
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

    /// Reads a list with a length prefix.
    pub(crate) fn list<T>(&mut self, item: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.u32()?;
        (0..count).map(|_| item(self)).collect()
    }
}

/// Appends a list with a length prefix.
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
