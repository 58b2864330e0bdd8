//! The header of a segment.
//!
//! ```text
//!  0 magic   8 checksum   16 version   20 bytes of the segment   24 set id (16 bytes)   40 epoch
//! 48 number of the segment   52 abandoned sequences   56 first sequence
//! 64 previous segment   68 where that one ends   72 to 4096 zeros
//! ```
//! The checksum covers everything after it.

use crate::format::error::{FormatError, FormatErrorKind, VERSION};
use crate::format::field::{is_zero, read_u32, read_u64, write};
use crate::format::seal::{Seal, SetId};

/// Bytes of a segment's header, a block.
pub const SEGMENT_HEADER_BYTES: usize = 4096;

const MAGIC: u64 = u64::from_le_bytes(*b"MEMLJSEG");
const CHECKSUM: usize = 8;
const COVERED: usize = 16;
const USED: usize = 72;

/// Header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    pub set_id: SetId,
    pub epoch: u64,
    pub number: u32,
    pub segment_bytes: u32,
    /// The sequence of the first transaction here.
    pub first_sequence: u64,
    /// Number of sequences before the first one that were given to transactions whose write failed.
    pub abandoned: u32,
    /// Where the journal ended when this segment was begun. `None` in the very first one.
    pub previous: Option<PreviousEnd>,
}

/// The known end of the segment before: what lies past it there is not part of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreviousEnd {
    pub number: u32,
    pub end: u32,
}

impl SegmentHeader {
    /// The checksums of the transactions here.
    pub fn seal(&self) -> Seal {
        Seal::new(self.set_id, self.epoch)
    }

    pub fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        let (previous, end) = self.previous.map_or((0, 0), |it| (it.number, it.end));
        write(&mut bytes, 0, MAGIC.to_le_bytes());
        write(&mut bytes, 16, VERSION.to_le_bytes());
        write(&mut bytes, 20, self.segment_bytes.to_le_bytes());
        write(&mut bytes, 24, self.set_id);
        write(&mut bytes, 40, self.epoch.to_le_bytes());
        write(&mut bytes, 48, self.number.to_le_bytes());
        write(&mut bytes, 52, self.abandoned.to_le_bytes());
        write(&mut bytes, 56, self.first_sequence.to_le_bytes());
        write(&mut bytes, 64, previous.to_le_bytes());
        write(&mut bytes, 68, end.to_le_bytes());
        let checksum = self.seal().checksum(&bytes[COVERED..]);
        write(&mut bytes, CHECKSUM, checksum.to_le_bytes());
        bytes
    }

    /// Bytes that are too short are damaged. The set id is the caller's to compare.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        const WHAT: &str = "the segment's header";
        let Some(bytes) = bytes.get(..SEGMENT_HEADER_BYTES) else {
            return Err(FormatError::damaged(WHAT));
        };
        if is_zero(bytes) {
            return Err(FormatError::new(FormatErrorKind::Blank, WHAT));
        }
        if read_u64(bytes, 0) != MAGIC {
            return Err(FormatError::new(FormatErrorKind::Unknown, WHAT));
        }
        let version = read_u32(bytes, 16);
        if version > VERSION {
            return Err(FormatError::new(FormatErrorKind::Newer(version), WHAT));
        }
        let header = Self {
            set_id: bytes[24..40].try_into().expect("16 bytes"),
            epoch: read_u64(bytes, 40),
            number: read_u32(bytes, 48),
            segment_bytes: read_u32(bytes, 20),
            abandoned: read_u32(bytes, 52),
            first_sequence: read_u64(bytes, 56),
            previous: previous(read_u32(bytes, 64), read_u32(bytes, 68)),
        };
        let is_whole = header.seal().checksum(&bytes[COVERED..]) == read_u64(bytes, CHECKSUM);
        if !is_whole || version != VERSION || !is_zero(&bytes[USED..]) {
            return Err(FormatError::damaged(WHAT));
        }
        Ok(header)
    }
}

fn previous(number: u32, end: u32) -> Option<PreviousEnd> {
    (end != 0).then_some(PreviousEnd { number, end })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> SegmentHeader {
        SegmentHeader {
            set_id: *b"0123456789ABCDEF",
            epoch: 9,
            number: 3,
            segment_bytes: 64 << 20,
            first_sequence: 77,
            abandoned: 1,
            previous: Some(PreviousEnd { number: 2, end: 8192 }),
        }
    }

    #[test]
    fn a_header_is_decoded_as_it_was_encoded() {
        for previous in [None, header().previous] {
            let header = SegmentHeader { previous, ..header() };
            assert_eq!(SegmentHeader::decode(&header.encode()), Ok(header));
        }
    }

    #[test]
    fn a_change_of_any_byte_is_noticed() {
        let good = header().encode();
        for at in 0..good.len() {
            let mut bytes = good;
            bytes[at] ^= 0x40;
            assert!(SegmentHeader::decode(&bytes).is_err(), "byte {at}");
        }
    }

    #[test]
    fn a_later_version_is_refused_by_name() {
        let mut bytes = header().encode();
        write(&mut bytes, 16, 2_u32.to_le_bytes());
        let error = SegmentHeader::decode(&bytes).expect_err("version 2 is not known");
        assert_eq!(error.kind, FormatErrorKind::Newer(2));
        let text = error.to_string();
        assert!(text.contains("version 2") && text.contains("up to 1"), "{text}");
    }

    #[test]
    fn what_is_no_header_is_told_from_a_damaged_one() {
        let kind = |bytes: &[u8]| SegmentHeader::decode(bytes).expect_err("no header").kind;
        assert_eq!(kind(&[0; 4096]), FormatErrorKind::Blank);
        assert_eq!(kind(&[1; 4096]), FormatErrorKind::Unknown);
        assert_eq!(kind(&header().encode()[..4095]), FormatErrorKind::Damaged);
    }
}
