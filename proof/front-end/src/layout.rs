//! Layout of the shared memory.
//!
//! ```text
//! queue 0: descriptors │ available │ used │ slot 0: header, status, table, data │ slot 1 …
//! queue 1 …
//! ```

/// A descriptor of a ring or of an indirect table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    pub address: u64,
    pub bytes: u32,
    pub flags: u16,
    pub next: u16,
}

impl Descriptor {
    pub const NEXT: u16 = 1;
    pub const WRITE: u16 = 2;
    pub const INDIRECT: u16 = 4;

    pub(crate) fn raw(self) -> [u8; 16] {
        let mut raw = [0; 16];
        raw[..8].copy_from_slice(&self.address.to_le_bytes());
        raw[8..12].copy_from_slice(&self.bytes.to_le_bytes());
        raw[12..14].copy_from_slice(&self.flags.to_le_bytes());
        raw[14..].copy_from_slice(&self.next.to_le_bytes());
        raw
    }
}

const DESCRIPTOR_BYTES: u64 = 16;

/// Number of descriptors reserved for each slot: header, data, status, and one more.
pub(crate) const DESCRIPTORS_PER_SLOT: u16 = 4;

const STATUS_AT: u64 = 64;
const TABLE_AT: u64 = 128;
const DATA_AT: u64 = 512;

/// Positions of the parts of one queue, as guest addresses.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    pub(crate) base: u64,
    pub(crate) ring_size: u16,
    pub(crate) data_bytes_max: u32,
}

impl Layout {
    pub(crate) fn new(queue: usize, ring_size: u16, data_bytes_max: u32) -> Self {
        let first = Self { base: 0, ring_size, data_bytes_max };
        Self { base: first.bytes() * queue as u64, ..first }
    }

    /// Number of bytes of memory of one queue.
    pub(crate) fn bytes(self) -> u64 {
        (self.slot_offset(self.slot_count())).next_multiple_of(1 << 16)
    }

    pub fn slot_count(self) -> u16 {
        self.ring_size / DESCRIPTORS_PER_SLOT
    }

    pub fn descriptors(self) -> u64 {
        self.base
    }

    pub fn available(self) -> u64 {
        self.base + u64::from(self.ring_size) * DESCRIPTOR_BYTES
    }

    pub fn used(self) -> u64 {
        (self.available() + 8 + u64::from(self.ring_size) * 2).next_multiple_of(64)
    }

    fn slot_offset(self, slot: u16) -> u64 {
        let rings = self.used() - self.base + 8 + u64::from(self.ring_size) * 8;
        let slot_bytes = (DATA_AT + u64::from(self.data_bytes_max)).next_multiple_of(4096);
        rings.next_multiple_of(4096) + u64::from(slot) * slot_bytes
    }

    pub fn header(self, slot: u16) -> u64 {
        self.base + self.slot_offset(slot)
    }

    pub fn status(self, slot: u16) -> u64 {
        self.header(slot) + STATUS_AT
    }

    pub fn table(self, slot: u16) -> u64 {
        self.header(slot) + TABLE_AT
    }

    pub fn data(self, slot: u16) -> u64 {
        self.header(slot) + DATA_AT
    }
}
