//! Random operations determined by a seed.

use block_device::{BLOCK_BYTES, ByteRange, SectorSize, Zeroes};
use random::Random;

use crate::contents::{Contents, Texture};
use crate::pool::Shrink;
use crate::request::Request;

/// Number of volumes of a schedule, each with its own name.
pub const SLOT_COUNT: usize = 4;

/// Number of snapshots of each volume of a schedule.
pub const SNAPSHOT_COUNT: usize = 3;

/// Number of bytes that one leaf of a map covers. Many requests cross leaf boundaries.
const LEAF_BYTES: u64 = 512 * BLOCK_BYTES as u64;

/// Kind of end before a pool is opened again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reopening {
    /// Closed cleanly.
    Clean,
    /// Killed between two operations.
    Unclean,
}

/// One step of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Request {
        slot: usize,
        request: Request,
    },
    /// `reduction` is the number of a reduction, below four.
    Create {
        slot: usize,
        size_bytes: u64,
        reduction: usize,
        sector: SectorSize,
        is_guaranteed: bool,
    },
    Delete {
        slot: usize,
    },
    Rename {
        slot: usize,
        to: usize,
    },
    Resize {
        slot: usize,
        size_bytes: u64,
        shrink: Shrink,
    },
    SetReduction {
        slot: usize,
        reduction: usize,
    },
    /// Creates snapshots of one instant: of one volume, if both slots are the same.
    Snapshot {
        slots: [usize; 2],
        snapshot: usize,
    },
    RenameSnapshot {
        slot: usize,
        snapshot: usize,
        to: usize,
    },
    DeleteSnapshot {
        slot: usize,
        snapshot: usize,
    },
    SnapshotRequest {
        slot: usize,
        snapshot: usize,
        request: Request,
    },
    /// Creates a copy of a volume, or of its snapshot, as another volume.
    Clone {
        slot: usize,
        snapshot: Option<usize>,
        to: usize,
    },
    /// Restores the volume from its snapshot.
    Restore {
        slot: usize,
        snapshot: usize,
    },
    Maintain {
        steps: usize,
    },
    /// Begins an idle period, and compresses some idle pages.
    CompressIdle {
        steps: usize,
    },
    Reopen(Reopening),
    SetCapacity {
        slot: usize,
        is_guaranteed: bool,
    },
    /// `durability` is the number of a class, below three.
    SetDurability {
        slot: usize,
        durability: usize,
    },
    /// Replaces the frozen copies by new ones of one instant: of one volume, if both slots are the
    /// same.
    Freeze {
        slots: [usize; 2],
    },
    /// Resizes the pool to a number of eighths of its initial size.
    ResizePool {
        eighths: u64,
    },
    /// Writes noise from the volume's start until the pool is full.
    FillUp {
        slot: usize,
        seed: u64,
    },
}

/// Parameters of a schedule.
#[derive(Clone, Copy, Debug)]
pub struct ScheduleShape {
    pub operation_count: usize,
    /// Maximum length of most volumes.
    pub size_bytes_max: u64,
    /// Maximum length of most requests.
    pub length_max: usize,
    /// One in this many operations fills the pool. 0: none.
    pub fill_up_one_in: u64,
    /// One in this many operations concerns copies of volumes. 0: none.
    pub copies_one_in: u64,
    /// One in this many operations concerns classes of volumes, frozen copies or the pool's size.
    /// 0: none.
    pub promises_one_in: u64,
}

/// A list of operations.
#[derive(Clone, Debug)]
pub struct Schedule {
    pub operations: Vec<Operation>,
}

impl Schedule {
    pub fn random(seed: u64, shape: ScheduleShape) -> Self {
        let mut author = Author {
            random: Random::new(seed),
            shape,
            sizes: [shape.size_bytes_max; SLOT_COUNT],
            last_offset: 0,
        };
        let mut operations = Vec::with_capacity(shape.operation_count);
        operations.push(author.create(0));
        while operations.len() < shape.operation_count {
            let operation = author.operation();
            operations.push(operation);
        }
        Self { operations }
    }
}

struct Author {
    random: Random,
    shape: ScheduleShape,
    /// Last requested size of each volume.
    sizes: [u64; SLOT_COUNT],
    last_offset: u64,
}

impl Author {
    fn operation(&mut self) -> Operation {
        let slot = self.slot();
        if self.shape.fill_up_one_in > 0 && self.random.one_in(self.shape.fill_up_one_in) {
            return Operation::FillUp { slot, seed: self.random.number() };
        }
        if self.shape.copies_one_in > 0 && self.random.one_in(self.shape.copies_one_in) {
            return self.copies(slot);
        }
        if self.shape.promises_one_in > 0 && self.random.one_in(self.shape.promises_one_in) {
            return self.promises(slot);
        }
        match self.random.below(100) {
            0..5 => self.create(slot),
            5..7 => Operation::Delete { slot },
            7..9 => Operation::Rename { slot, to: self.slot() },
            9..12 => self.resize(slot),
            12..14 => Operation::SetReduction { slot, reduction: self.random.index(4) },
            14..24 => Operation::Maintain { steps: 1 + self.random.index(6) },
            24 => Operation::Reopen(Reopening::Clean),
            25..27 => Operation::Reopen(Reopening::Unclean),
            27..30 => Operation::CompressIdle { steps: 1 + self.random.index(20) },
            _ => Operation::Request { slot, request: self.request(slot) },
        }
    }

    fn copies(&mut self, slot: usize) -> Operation {
        let snapshot = self.random.index(SNAPSHOT_COUNT);
        match self.random.below(20) {
            0..7 => {
                let second = if self.random.one_in(3) { self.slot() } else { slot };
                Operation::Snapshot { slots: [slot, second], snapshot }
            }
            7..11 => Operation::DeleteSnapshot { slot, snapshot },
            11 => {
                Operation::RenameSnapshot { slot, snapshot, to: self.random.index(SNAPSHOT_COUNT) }
            }
            12..14 => {
                let request = self.request(slot);
                Operation::SnapshotRequest { slot, snapshot, request }
            }
            14..17 => {
                let snapshot = Some(snapshot).filter(|_| self.random.one_in(2));
                let to = self.random.index(SLOT_COUNT);
                self.sizes[to] = self.sizes[slot];
                Operation::Clone { slot, snapshot, to }
            }
            _ => Operation::Restore { slot, snapshot },
        }
    }

    fn promises(&mut self, slot: usize) -> Operation {
        match self.random.below(10) {
            0..4 => Operation::SetCapacity { slot, is_guaranteed: !self.random.one_in(3) },
            4..6 => Operation::SetDurability { slot, durability: self.random.index(3) },
            6..8 => Operation::Freeze { slots: [slot, self.slot()] },
            _ => Operation::ResizePool { eighths: 4 + self.random.below(13) },
        }
    }

    /// Returns a slot, mostly one of the first two.
    fn slot(&mut self) -> usize {
        let limit = if self.random.one_in(3) { SLOT_COUNT } else { 2 };
        self.random.index(limit)
    }

    fn create(&mut self, slot: usize) -> Operation {
        self.sizes[slot] = self.size();
        Operation::Create {
            slot,
            size_bytes: self.sizes[slot],
            reduction: self.random.pick(&[0, 0, 0, 1, 2, 3]),
            sector: self.random.pick(&[SectorSize::Bytes512, SectorSize::Bytes4096]),
            is_guaranteed: self.shape.promises_one_in > 0 && self.random.one_in(3),
        }
    }

    fn resize(&mut self, slot: usize) -> Operation {
        let size_bytes = self.size();
        let shrink = self.random.pick(&[Shrink::KeepData, Shrink::DropData]);
        if shrink == Shrink::DropData {
            self.sizes[slot] = size_bytes;
        }
        Operation::Resize { slot, size_bytes, shrink }
    }

    fn size(&mut self) -> u64 {
        let block_bytes = BLOCK_BYTES as u64;
        match self.random.below(12) {
            0 => block_bytes,
            1 => 64 << 40,
            2 => LEAF_BYTES << self.random.below(20),
            3 => LEAF_BYTES,
            _ => (1 + self.random.below(self.shape.size_bytes_max / block_bytes)) * block_bytes,
        }
    }

    fn request(&mut self, slot: usize) -> Request {
        let (offset, length) = (self.offset(slot), self.length());
        let bytes = length as u64;
        let range = ByteRange::new(offset, bytes);
        match self.random.below(20) {
            0..4 => Request::Read { offset, length },
            4..6 => Request::ReadInPlace(range),
            6..14 => {
                Request::Write { offset, length, contents: Contents::random(&mut self.random) }
            }
            14 => Request::WriteZeroes(self.long(range, slot), Zeroes::Unmap),
            15 => Request::WriteZeroes(range, Zeroes::KeepAllocated),
            16..18 => Request::Discard(self.long(range, slot)),
            18 => Request::Extents {
                range: self.long(range, slot),
                count_max: 1 + self.random.index(20),
            },
            _ => self.odd(range, slot),
        }
    }

    /// Returns a request at the limits of what is allowed.
    fn odd(&mut self, range: ByteRange, slot: usize) -> Request {
        let size = self.sizes[slot];
        match self.random.below(5) {
            0 => Request::Flush,
            1 => Request::Write {
                offset: size.saturating_sub(range.length / 2),
                length: usize::try_from(range.length).expect("a short range"),
                contents: Contents::new(Texture::Mixed, range.start),
            },
            2 => Request::Read { offset: size, length: self.random.index(2) },
            3 => Request::Discard(ByteRange::new(range.start, u64::MAX - self.random.below(9))),
            _ => Request::Write {
                offset: size + 4096,
                length: 0,
                contents: Contents::new(Texture::Zeros, 0),
            },
        }
    }

    /// Sometimes extends the range to the volume's end.
    fn long(&mut self, range: ByteRange, slot: usize) -> ByteRange {
        match self.random.one_in(6) {
            true => ByteRange::new(range.start, self.sizes[slot].saturating_sub(range.start)),
            false => range,
        }
    }

    fn offset(&mut self, slot: usize) -> u64 {
        let size = self.sizes[slot];
        let leaf_border = self.random.below(size.div_ceil(LEAF_BYTES) + 1) * LEAF_BYTES;
        let offset = match self.random.below(8) {
            0 => self.random.below(64 << 10),
            1 => leaf_border.saturating_sub(self.random.below(32 << 10)),
            2 => size.saturating_sub(self.random.below(128 << 10)),
            3..6 => self.last_offset.wrapping_add(self.random.below(32 << 10)) % size,
            _ => self.random.below(size.min(self.shape.size_bytes_max)),
        };
        self.last_offset = offset;
        match self.random.below(4) {
            0 => offset,
            1 => offset / 512 * 512,
            _ => offset / BLOCK_BYTES as u64 * BLOCK_BYTES as u64,
        }
    }

    fn length(&mut self) -> usize {
        match self.random.below(10) {
            0 => self.random.index(600),
            1 => 512 * (1 + self.random.index(20)),
            2 => self.random.index(self.shape.length_max),
            3 => BLOCK_BYTES * (1 + self.random.index(self.shape.length_max / BLOCK_BYTES)),
            _ => BLOCK_BYTES * (1 + self.random.index(12)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_always_makes_the_same_schedule() {
        let shape = ScheduleShape {
            operation_count: 500,
            size_bytes_max: 8 << 20,
            length_max: 256 << 10,
            fill_up_one_in: 100,
            copies_one_in: 10,
            promises_one_in: 10,
        };
        let one = Schedule::random(3, shape).operations;
        assert_eq!(one, Schedule::random(3, shape).operations);
        assert_ne!(one, Schedule::random(4, shape).operations);
        assert_eq!(one.len(), 500);
    }
}
