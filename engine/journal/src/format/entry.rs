//! Block entries of a transaction.
//!
//! ```text
//!  0 kind   1 zero   2 length   4 count   8 first block   16 target   24 page check
//!
//!  kind            length   count    target
//!  1 volume        0        0        id of the volume that the following entries concern
//!  2 hole          0        blocks   0
//!  3 fill          0        blocks   pattern (32 bits)
//!  4 packed here   bytes    1        offset in the transaction's packed pages
//!  5 whole here    4096     1        index among the transaction's whole pages
//!  6 elsewhere     bytes    1        segment (low 32 bits), offset in it (high 32 bits)
//!  7 lost          0        blocks   0
//! ```
//!
//! Entries of sealed segments have 40 bytes, because their check is a 16-byte tag.

use crate::format::error::FormatError;
use crate::format::field::{read_u16, read_u32, read_u64, write};
use crate::format::seal::PageCheck;
use crate::format::segment::SEGMENT_HEADER_BYTES;

/// Length of an entry.
pub const ENTRY_BYTES: usize = 32;

/// Length of an entry in a sealed segment.
pub const SEALED_ENTRY_BYTES: usize = 40;

/// Upper bound on the number of blocks of a volume.
pub const BLOCK_COUNT_MAX: u64 = 1 << 40;

const PAGE_BYTES: u16 = 4096;

/// An entry of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    Volume(u64),
    Hole {
        block: u64,
        count: u32,
    },
    Fill {
        block: u64,
        count: u32,
        pattern: u32,
    },
    Page {
        block: u64,
        place: Place,
        length: u16,
        check: PageCheck,
    },
    /// The blocks' contents were lost in memory. Older contents in the journal no longer apply.
    Lost {
        block: u64,
        count: u32,
    },
}

/// Location of a page's stored bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// In this transaction, at this offset in its packed pages.
    Packed(u32),
    /// In this transaction, the whole page with this index.
    Whole(u32),
    /// In an earlier transaction, or earlier in this one.
    Elsewhere(Location),
}

/// A location in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Location {
    pub segment: u32,
    pub offset: u32,
}

struct Fields {
    kind: u8,
    length: u16,
    count: u32,
    block: u64,
    target: u64,
    check: PageCheck,
}

impl Entry {
    pub fn encode(&self) -> [u8; ENTRY_BYTES] {
        let bytes = self.encode_sealed();
        *bytes.first_chunk().expect("a sealed entry is longer")
    }

    /// Encodes the entry for a sealed segment.
    pub fn encode_sealed(&self) -> [u8; SEALED_ENTRY_BYTES] {
        let fields = self.fields();
        let mut bytes = [0; SEALED_ENTRY_BYTES];
        bytes[0] = fields.kind;
        write(&mut bytes, 2, fields.length.to_le_bytes());
        write(&mut bytes, 4, fields.count.to_le_bytes());
        write(&mut bytes, 8, fields.block.to_le_bytes());
        write(&mut bytes, 16, fields.target.to_le_bytes());
        write(&mut bytes, 24, fields.check.0);
        bytes
    }

    /// Decodes an entry. The caller checks that its locations exist in the transaction.
    pub fn decode(bytes: &[u8; ENTRY_BYTES]) -> Result<Self, FormatError> {
        let mut longer = [0; SEALED_ENTRY_BYTES];
        longer[..ENTRY_BYTES].copy_from_slice(bytes);
        Self::decode_sealed(&longer)
    }

    /// Decodes an entry of a sealed segment.
    pub fn decode_sealed(bytes: &[u8; SEALED_ENTRY_BYTES]) -> Result<Self, FormatError> {
        let fields = Fields {
            kind: bytes[0],
            length: read_u16(bytes, 2),
            count: read_u32(bytes, 4),
            block: read_u64(bytes, 8),
            target: read_u64(bytes, 16),
            check: PageCheck(bytes[24..].try_into().expect("16 bytes")),
        };
        // The encoding is canonical. An entry that encodes differently has undefined bits set.
        let entry = fields.to_entry().filter(|entry| entry.encode_sealed() == *bytes);
        entry.ok_or(FormatError::damaged("an entry"))
    }

    fn fields(&self) -> Fields {
        let check = PageCheck::NONE;
        let none = Fields { kind: 0, length: 0, count: 0, block: 0, target: 0, check };
        match *self {
            Self::Volume(id) => Fields { kind: 1, target: id, ..none },
            Self::Hole { block, count } => Fields { kind: 2, count, block, ..none },
            Self::Lost { block, count } => Fields { kind: 7, count, block, ..none },
            Self::Fill { block, count, pattern } => {
                Fields { kind: 3, count, block, target: u64::from(pattern), ..none }
            }
            Self::Page { block, place, length, check } => {
                let (kind, target) = match place {
                    Place::Packed(offset) => (4, u64::from(offset)),
                    Place::Whole(index) => (5, u64::from(index)),
                    Place::Elsewhere(at) => {
                        (6, u64::from(at.segment) | (u64::from(at.offset) << 32))
                    }
                };
                Fields { kind, length, count: 1, block, target, check }
            }
        }
    }
}

impl Fields {
    fn to_entry(&self) -> Option<Entry> {
        let &Self { length, count, block, target, .. } = self;
        let low = u32::try_from(target & u64::from(u32::MAX)).ok()?;
        let high = u32::try_from(target >> 32).ok()?;
        if self.kind == 1 {
            return Some(Entry::Volume(target));
        }
        let is_run = count > 0 && block < BLOCK_COUNT_MAX;
        if !is_run || u64::from(count) > BLOCK_COUNT_MAX - block {
            return None;
        }
        let place = match self.kind {
            2 => return Some(Entry::Hole { block, count }),
            7 => return Some(Entry::Lost { block, count }),
            3 => return Some(Entry::Fill { block, count, pattern: low }),
            4 if length < PAGE_BYTES => Place::Packed(low),
            5 if length == PAGE_BYTES => Place::Whole(low),
            6 => Place::Elsewhere(Location { segment: low, offset: high }.checked(length)?),
            _ => return None,
        };
        let is_length = (1..=PAGE_BYTES).contains(&length);
        is_length.then_some(Entry::Page { block, place, length, check: self.check })
    }
}

impl Location {
    /// Returns the location if a page of this length fits there.
    fn checked(self, length: u16) -> Option<Self> {
        let is_past_header = self.offset as usize >= SEGMENT_HEADER_BYTES;
        let has_end = self.offset.checked_add(u32::from(length)).is_some();
        (is_past_header && has_end).then_some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(place: Place, length: u16) -> Entry {
        Entry::Page { block: 12, place, length, check: PageCheck::of_word(0xABCD) }
    }

    fn examples() -> [Entry; 7] {
        [
            Entry::Volume(7),
            Entry::Hole { block: 3, count: 5 },
            Entry::Fill { block: BLOCK_COUNT_MAX - 1, count: 1, pattern: 0xDEAD_BEEF },
            page(Place::Packed(300), 81),
            page(Place::Whole(2), 4096),
            page(Place::Elsewhere(Location { segment: 9, offset: 4096 }), 4096),
            Entry::Lost { block: 9, count: 2 },
        ]
    }

    #[test]
    fn entries_are_decoded_as_they_were_encoded() {
        for entry in examples() {
            assert_eq!(Entry::decode(&entry.encode()), Ok(entry));
        }
    }

    #[test]
    fn what_no_entry_can_say_is_refused() {
        let location = |offset| Place::Elsewhere(Location { segment: 1, offset });
        let impossible = [
            Entry::Hole { block: 3, count: 0 },
            Entry::Hole { block: BLOCK_COUNT_MAX, count: 1 },
            Entry::Fill { block: BLOCK_COUNT_MAX - 1, count: 2, pattern: 0 },
            page(Place::Packed(0), 0),
            page(Place::Packed(0), 4096),
            page(Place::Whole(0), 4095),
            page(location(4095), 100),
            page(location(u32::MAX - 50), 100),
            page(location(4096), 4097),
        ];
        for entry in impossible {
            assert!(Entry::decode(&entry.encode()).is_err(), "{entry:?}");
        }
        for kind in [0, 8, 255] {
            let mut bytes = examples()[1].encode();
            bytes[0] = kind;
            assert!(Entry::decode(&bytes).is_err(), "kind {kind}");
        }
    }

    #[test]
    fn bits_that_mean_nothing_are_refused() {
        for entry in examples() {
            let mut bytes = entry.encode();
            bytes[1] = 1;
            assert!(Entry::decode(&bytes).is_err(), "{entry:?}");
        }
    }
}
