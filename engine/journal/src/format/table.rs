//! Entry of a volume or snapshot in the journal's volume table.
//!
//! ```text
//! 0 id   8 size in bytes   16 shape   20 name length   21 kind (0 volume, 1 snapshot)
//! 22 zeros   24 name (64 bytes)   88 zeros to 96
//! ```

use crate::format::error::FormatError;
use crate::format::field::{is_zero, read_u32, read_u64, write};

/// Length of a record in the table.
pub const TABLE_RECORD_BYTES: usize = 96;

/// Maximum number of volumes and snapshots in a table.
pub const TABLE_COUNT_MAX: usize = 4096;

const KIND: usize = 21;
const NAME: usize = 24;
const NAME_BYTES: usize = 64;

/// Kind of a table record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    Volume,
    Snapshot,
}

/// Record of a volume of class `image` or `journal`, or of a snapshot of one, at the time of the
/// transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeRecord {
    pub id: u64,
    pub size_bytes: u64,
    pub kind: RecordKind,
    /// One byte each, from the lowest: sector size, reduction and durability, in the codes of the
    /// region's volume table, then the code of the capacity class plus one, where 0 means unknown.
    /// The highest bit means that the table also lists the volume's snapshots, the third highest
    /// that flushes of the volume are not mirrored.
    pub shape: u32,
    /// Name of 1 to 63 bytes. For a snapshot, its name without the volume's.
    pub name: String,
}

impl VolumeRecord {
    /// Appends the record to `into`. Panics if the name is longer than the format allows.
    pub fn encode(&self, into: &mut Vec<u8>) {
        assert!(is_name(self.name.as_bytes()), "a name has 1 to 63 bytes and no zero");
        let mut bytes = [0; TABLE_RECORD_BYTES];
        write(&mut bytes, 0, self.id.to_le_bytes());
        write(&mut bytes, 8, self.size_bytes.to_le_bytes());
        write(&mut bytes, 16, self.shape.to_le_bytes());
        bytes[20] = u8::try_from(self.name.len()).expect("63 at most");
        bytes[KIND] = u8::from(self.kind == RecordKind::Snapshot);
        write(&mut bytes, NAME, self.name.as_bytes());
        into.extend_from_slice(&bytes);
    }

    pub fn decode(bytes: &[u8; TABLE_RECORD_BYTES]) -> Result<Self, FormatError> {
        let damaged = || FormatError::damaged("a volume's record");
        let length = usize::from(bytes[20]);
        if length >= NAME_BYTES {
            return Err(damaged());
        }
        let (name, rest) = bytes[NAME..].split_at(length);
        if !is_name(name) || !is_zero(rest) || !is_zero(&bytes[KIND + 1..NAME]) {
            return Err(damaged());
        }
        let kind = match bytes[KIND] {
            0 => RecordKind::Volume,
            1 => RecordKind::Snapshot,
            _ => return Err(damaged()),
        };
        let name = String::from_utf8(name.to_vec()).map_err(|_| damaged())?;
        let (id, size_bytes) = (read_u64(bytes, 0), read_u64(bytes, 8));
        Ok(Self { id, size_bytes, kind, shape: read_u32(bytes, 16), name })
    }
}

fn is_name(name: &[u8]) -> bool {
    (1..NAME_BYTES).contains(&name.len()) && !name.contains(&0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_decoded_as_it_was_encoded() {
        let long = "x".repeat(63);
        for (name, kind) in [("a", RecordKind::Volume), (&long, RecordKind::Snapshot)] {
            let (size_bytes, shape) = (1 << 30, 0x8102_0001);
            let record = VolumeRecord { id: 5, size_bytes, kind, shape, name: name.into() };
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            let bytes = bytes.try_into().expect("one record");
            assert_eq!(VolumeRecord::decode(&bytes), Ok(record));
        }
    }

    #[test]
    fn names_of_impossible_length_are_refused() {
        for length in [0, 64, 65, 255] {
            let mut bytes = [0; TABLE_RECORD_BYTES];
            bytes[NAME..NAME + NAME_BYTES].fill(b'x');
            bytes[20] = length;
            assert!(VolumeRecord::decode(&bytes).is_err(), "{length}");
        }
    }
}
