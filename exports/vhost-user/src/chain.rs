//! Descriptor chains: the guest buffers of one request.
//!
//! Each descriptor is copied before it is checked. A chain is rejected as a whole if it loops,
//! leaves its table, or mixes device-readable and device-writable descriptors.

use virtio_bindings::bindings::virtio_ring::{
    VRING_DESC_F_INDIRECT, VRING_DESC_F_NEXT, VRING_DESC_F_WRITE,
};
use vm_memory::{Address, GuestAddress};

use crate::memory::Ram;

/// Maximum length of a chain: twice the limit that drivers are told.
pub(crate) const DESCRIPTOR_COUNT_MAX: usize = 256;

const DESCRIPTOR_BYTES: u32 = 16;

/// A contiguous range of guest memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) address: GuestAddress,
    pub(crate) bytes: u32,
}

/// An invalid descriptor chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    #[error("a descriptor lies outside the guest's memory")]
    Unreadable,
    #[error("a descriptor refers to an index outside its table")]
    OutsideTable,
    #[error("a descriptor chain is longer than {DESCRIPTOR_COUNT_MAX}, or a loop")]
    TooLong,
    #[error("an indirect descriptor table has an invalid address or length")]
    BadTable,
    #[error("a readable descriptor follows a writable one")]
    Mixed,
    #[error("a request lacks its header, or space for its status")]
    Incomplete,
    #[error("the front end has removed the guest's memory")]
    MemoryLost,
}

/// The buffers of one request, in order. The allocation is reused for the next request.
#[derive(Debug, Default)]
pub(crate) struct Chain {
    /// Segments that the device may read.
    pub(crate) readable: Vec<Segment>,
    /// Segments that the device may write.
    pub(crate) writable: Vec<Segment>,
}

/// Descriptor table that a chain is read from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    pub(crate) address: GuestAddress,
    pub(crate) count: u32,
}

#[derive(Clone, Copy)]
struct Descriptor {
    address: u64,
    bytes: u32,
    flags: u32,
    next: u16,
}

impl Chain {
    /// Reads the chain that starts with descriptor `head` of `table`.
    pub(crate) fn read(&mut self, ram: &Ram, table: Table, head: u16) -> Result<(), Malformed> {
        self.readable.clear();
        self.writable.clear();
        let (mut table, mut index, mut is_indirect) = (table, head, false);
        // The number of steps is bounded, so a loop ends.
        for _ in 0..DESCRIPTOR_COUNT_MAX {
            let descriptor = table.descriptor(ram, index)?;
            if descriptor.flags & VRING_DESC_F_INDIRECT != 0 {
                if is_indirect {
                    return Err(Malformed::BadTable);
                }
                (table, index, is_indirect) = (descriptor.as_table()?, 0, true);
                continue;
            }
            self.add(descriptor)?;
            if descriptor.flags & VRING_DESC_F_NEXT == 0 {
                return Ok(());
            }
            index = descriptor.next;
        }
        Err(Malformed::TooLong)
    }

    fn add(&mut self, descriptor: Descriptor) -> Result<(), Malformed> {
        let Descriptor { address, bytes, flags, .. } = descriptor;
        let segment = Segment { address: GuestAddress(address), bytes };
        if flags & VRING_DESC_F_WRITE != 0 {
            self.writable.push(segment);
        } else if self.writable.is_empty() {
            self.readable.push(segment);
        } else {
            return Err(Malformed::Mixed);
        }
        Ok(())
    }
}

impl Table {
    fn descriptor(self, ram: &Ram, index: u16) -> Result<Descriptor, Malformed> {
        let index = u32::from(index);
        if index >= self.count {
            return Err(Malformed::OutsideTable);
        }
        let offset = u64::from(index * DESCRIPTOR_BYTES);
        let address = self.address.checked_add(offset).ok_or(Malformed::Unreadable)?;
        let mut bytes = [0; 16];
        ram.copy_in(&mut bytes, address).map_err(|_| Malformed::Unreadable)?;
        let [a0, a1, a2, a3, a4, a5, a6, a7, l0, l1, l2, l3, f0, f1, n0, n1] = bytes;
        Ok(Descriptor {
            address: u64::from_le_bytes([a0, a1, a2, a3, a4, a5, a6, a7]),
            bytes: u32::from_le_bytes([l0, l1, l2, l3]),
            flags: u32::from(u16::from_le_bytes([f0, f1])),
            next: u16::from_le_bytes([n0, n1]),
        })
    }
}

impl Descriptor {
    fn as_table(self) -> Result<Table, Malformed> {
        let count = self.bytes / DESCRIPTOR_BYTES;
        let is_whole = self.bytes.is_multiple_of(DESCRIPTOR_BYTES);
        let goes_on = self.flags & VRING_DESC_F_NEXT != 0;
        if count == 0 || count > u32::from(u16::MAX) || !is_whole || goes_on {
            return Err(Malformed::BadTable);
        }
        Ok(Table { address: GuestAddress(self.address), count })
    }
}

#[cfg(test)]
mod tests {
    use vm_memory::Bytes;

    use super::*;

    const NEXT: u16 = 1;
    const WRITE: u16 = 2;
    const INDIRECT: u16 = 4;
    const TABLE: Table = Table { address: GuestAddress(0x1000), count: 8 };

    fn put(ram: &Ram, table: u64, index: u64, (address, bytes, flags, next): (u64, u32, u16, u16)) {
        let mut raw = address.to_le_bytes().to_vec();
        raw.extend(bytes.to_le_bytes());
        raw.extend(flags.to_le_bytes());
        raw.extend(next.to_le_bytes());
        ram.write_slice(&raw, GuestAddress(table + index * 16)).expect("inside");
    }

    fn ram_with(descriptors: &[(u64, u32, u16, u16)]) -> Ram {
        let ram = Ram::of_bytes(0x10000);
        for (index, descriptor) in (0..).zip(descriptors) {
            put(&ram, 0x1000, index, *descriptor);
        }
        ram
    }

    #[track_caller]
    fn check(descriptors: &[(u64, u32, u16, u16)], expected: Result<(usize, usize), Malformed>) {
        let mut chain = Chain::default();
        let read = chain.read(&ram_with(descriptors), TABLE, 0);
        assert_eq!(read.map(|()| (chain.readable.len(), chain.writable.len())), expected);
    }

    #[test]
    fn a_chain_is_split_into_what_is_read_and_what_is_written() {
        check(&[(0, 16, NEXT, 3), (0, 0, 0, 0), (0, 0, 0, 0), (64, 1, WRITE, 9)], Ok((1, 1)));
        check(&[(0, 16, NEXT, 1), (32, 8, NEXT, 2), (64, 1, WRITE, 0)], Ok((2, 1)));
    }

    #[test]
    fn circles_end() {
        check(&[(0, 16, NEXT, 0)], Err(Malformed::TooLong));
        check(&[(0, 16, NEXT | WRITE, 1), (0, 16, NEXT | WRITE, 0)], Err(Malformed::TooLong));
    }

    #[test]
    fn what_leaves_its_table_is_refused() {
        check(&[(0, 16, NEXT, 8)], Err(Malformed::OutsideTable));
        check(&[(0x2000, 32, INDIRECT, 0)], Ok((1, 0)));
        check(&[(0x2000, 33, INDIRECT, 0)], Err(Malformed::BadTable));
        check(&[(0x2000, 0, INDIRECT, 0)], Err(Malformed::BadTable));
        check(&[(0x2000, 32, INDIRECT | NEXT, 0)], Err(Malformed::BadTable));
        check(&[(u64::MAX, 32, INDIRECT, 0)], Err(Malformed::Unreadable));
        check(&[(0xFFF8, 32, INDIRECT, 0)], Err(Malformed::Unreadable));
        check(&[(0x1000, 128, INDIRECT, 0)], Err(Malformed::BadTable));
    }

    #[test]
    fn nothing_to_be_read_follows_what_is_written() {
        check(&[(0, 16, NEXT | WRITE, 1), (0, 16, 0, 0)], Err(Malformed::Mixed));
    }
}
