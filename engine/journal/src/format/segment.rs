//! Segment header.
//!
//! ```text
//!  0 magic   8 checksum   16 version   20 segment length   24 set id (16 bytes)   40 epoch
//! 48 segment number   52 abandoned sequences   56 first sequence
//! 64 previous segment   68 end of the previous segment
//! 72 salt (32 bytes)   104 data key id (16 bytes), both zero in version 1   120 zeros
//! ```
//! The checksum covers everything after it.

use sealing::{KeyId, SALT_BYTES, Salt, SetKey};

use crate::format::error::{FormatError, FormatErrorKind, SEALED_VERSION, VERSION};
use crate::format::field::{is_zero, read_u32, read_u64, write};
use crate::format::seal::{Seal, SetId};

/// Length of a segment's header: one block.
pub const SEGMENT_HEADER_BYTES: usize = 4096;

const MAGIC: u64 = u64::from_le_bytes(*b"MEMLJSEG");
const CHECKSUM: usize = 8;
const COVERED: usize = 16;
const USED: usize = 72;
const SALT: usize = USED;
const KEY_ID: usize = SALT + SALT_BYTES;
const SEALED_USED: usize = KEY_ID + 16;

/// Header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    pub set_id: SetId,
    pub epoch: u64,
    pub number: u32,
    pub segment_bytes: u32,
    /// Sequence number of the segment's first transaction.
    pub first_sequence: u64,
    /// Number of sequence numbers before the first one that were assigned to transactions whose
    /// write failed.
    pub abandoned: u32,
    /// End of the journal when this segment was created, or `None` in the very first one.
    pub previous: Option<PreviousEnd>,
    /// Encryption of everything after the header, if any.
    pub sealed: Option<SealedSegment>,
}

/// Inputs to the key derivation of a segment's sealer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealedSegment {
    pub data_key: KeyId,
    pub salt: Salt,
}

/// Known end of the previous segment. Bytes after it are not part of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreviousEnd {
    pub number: u32,
    pub end: u32,
}

impl SegmentHeader {
    /// Returns the checksums for the segment's transactions.
    pub fn checksums(&self) -> Seal {
        Seal::new(self.set_id, self.epoch)
    }

    /// Returns the checksums and encryption for the segment's transactions. A sealed segment needs
    /// its key. The header fields are bound into the sealer, so transactions do not decrypt under a
    /// modified header.
    pub fn seal(&self, key: Option<&SetKey>) -> Seal {
        let Some(SealedSegment { salt, .. }) = &self.sealed else { return self.checksums() };
        let key = key.expect("segments that do not match the key are refused before");
        self.checksums().with_sealer(key.sealer(salt, &self.encode()[COVERED..SALT]))
    }

    /// Returns whether the segment is encrypted with this key, or is unencrypted if there is no
    /// key.
    pub fn matches(&self, key: Option<&SetKey>) -> bool {
        self.sealed.map(|sealed| sealed.data_key) == key.map(SetKey::id)
    }

    pub fn encode(&self) -> [u8; SEGMENT_HEADER_BYTES] {
        let mut bytes = [0; SEGMENT_HEADER_BYTES];
        let (previous, end) = self.previous.map_or((0, 0), |it| (it.number, it.end));
        write(&mut bytes, 0, MAGIC.to_le_bytes());
        let version = if self.sealed.is_some() { SEALED_VERSION } else { VERSION };
        write(&mut bytes, 16, version.to_le_bytes());
        write(&mut bytes, 20, self.segment_bytes.to_le_bytes());
        write(&mut bytes, 24, self.set_id);
        write(&mut bytes, 40, self.epoch.to_le_bytes());
        write(&mut bytes, 48, self.number.to_le_bytes());
        write(&mut bytes, 52, self.abandoned.to_le_bytes());
        write(&mut bytes, 56, self.first_sequence.to_le_bytes());
        write(&mut bytes, 64, previous.to_le_bytes());
        write(&mut bytes, 68, end.to_le_bytes());
        if let Some(SealedSegment { data_key, salt }) = self.sealed {
            write(&mut bytes, SALT, salt);
            write(&mut bytes, KEY_ID, data_key.0);
        }
        let checksum = self.checksums().checksum(&bytes[COVERED..]);
        write(&mut bytes, CHECKSUM, checksum.to_le_bytes());
        bytes
    }

    /// Decodes a header. Input that is too short is an error of kind damaged. The caller compares
    /// the set id.
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
        if version > SEALED_VERSION {
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
            sealed: (version == SEALED_VERSION).then(|| SealedSegment {
                data_key: KeyId(bytes[KEY_ID..SEALED_USED].try_into().expect("16 bytes")),
                salt: bytes[SALT..KEY_ID].try_into().expect("32 bytes"),
            }),
        };
        let is_whole = header.checksums().checksum(&bytes[COVERED..]) == read_u64(bytes, CHECKSUM);
        let used = if header.sealed.is_some() { SEALED_USED } else { USED };
        if !is_whole || version == 0 || !is_zero(&bytes[used..]) {
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
    use sealing::{DataKey, WrappingKey};

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
            sealed: None,
        }
    }

    fn sealed_header() -> SegmentHeader {
        let sealed = SealedSegment { data_key: KeyId([7; 16]), salt: [8; 32] };
        SegmentHeader { sealed: Some(sealed), ..header() }
    }

    #[test]
    fn a_header_is_decoded_as_it_was_encoded() {
        for previous in [None, header().previous] {
            for header in [header(), sealed_header()] {
                let header = SegmentHeader { previous, ..header };
                assert_eq!(SegmentHeader::decode(&header.encode()), Ok(header));
            }
        }
    }

    #[test]
    fn nothing_is_opened_under_another_header_than_it_was_sealed_under() {
        let key = SetKey::wrap(DataKey::new([1; 32]), &WrappingKey::new([2; 32]));
        let key = key.expect("Linux has random bytes");
        let seal = |header: SegmentHeader| {
            let mut bytes = *b"entries of a transaction";
            let seal = header.seal(Some(&key));
            let tag = seal.sealer().expect("it is sealed").seal(4096, b"", &mut bytes);
            (bytes, tag)
        };
        let good = sealed_header();
        let others = [
            SegmentHeader { set_id: [9; 16], ..good },
            SegmentHeader { epoch: 8, ..good },
            SegmentHeader { number: 4, ..good },
            SegmentHeader { segment_bytes: 32 << 20, ..good },
            SegmentHeader { first_sequence: 76, ..good },
            SegmentHeader { abandoned: 2, ..good },
            SegmentHeader { previous: None, ..good },
            SegmentHeader { previous: Some(PreviousEnd { number: 2, end: 4096 }), ..good },
        ];
        assert_eq!(seal(good), seal(good));
        for other in others {
            assert_ne!(seal(other), seal(good), "{other:?}");
        }
    }

    #[test]
    fn a_change_of_any_byte_is_noticed() {
        for good in [header().encode(), sealed_header().encode()] {
            for at in 0..good.len() {
                let mut bytes = good;
                bytes[at] ^= 0x40;
                assert!(SegmentHeader::decode(&bytes).is_err(), "byte {at}");
            }
        }
    }

    #[test]
    fn a_later_version_is_refused_by_name() {
        let mut bytes = header().encode();
        write(&mut bytes, 16, 3_u32.to_le_bytes());
        let error = SegmentHeader::decode(&bytes).expect_err("version 3 is not known");
        assert_eq!(error.kind, FormatErrorKind::Newer(3));
        let text = error.to_string();
        assert!(text.contains("version 3") && text.contains("up to 2"), "{text}");
    }

    #[test]
    fn what_is_no_header_is_told_from_a_damaged_one() {
        let kind = |bytes: &[u8]| SegmentHeader::decode(bytes).expect_err("no header").kind;
        assert_eq!(kind(&[0; 4096]), FormatErrorKind::Blank);
        assert_eq!(kind(&[1; 4096]), FormatErrorKind::Unknown);
        assert_eq!(kind(&header().encode()[..4095]), FormatErrorKind::Damaged);
    }
}
