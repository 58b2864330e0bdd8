//! Bytes of any kind: decoding ends with a value or an error, and never believes a length.

use journal::format::{
    Address, ENTRY_BYTES, Entry, SegmentHeader, Sizes, TABLE_RECORD_BYTES, Transaction,
    TransactionHead, VolumeRecord, seal_head,
};
use proptest::prelude::*;

const ADDRESS: Address = Address { sequence: 1, epoch: 1, segment: 0, offset: 4096 };

fn seal() -> journal::format::Seal {
    journal::format::Seal::new([7; 16], 1)
}

proptest! {
    #[test]
    fn any_bytes_are_refused_or_decoded(bytes in prop::collection::vec(any::<u8>(), 0..9000)) {
        prop_assert!(SegmentHeader::decode(&bytes).is_err());
        prop_assert!(Transaction::decode(&bytes, seal(), ADDRESS).is_err());
    }

    #[test]
    fn an_entry_has_one_encoding(bytes: [u8; ENTRY_BYTES]) {
        if let Ok(entry) = Entry::decode(&bytes) {
            prop_assert_eq!(entry.encode(), bytes);
        }
    }

    #[test]
    fn a_record_has_one_encoding(bytes: [u8; TABLE_RECORD_BYTES]) {
        if let Ok(record) = VolumeRecord::decode(&bytes) {
            let mut encoded = Vec::new();
            record.encode(&mut encoded);
            prop_assert_eq!(&encoded[..], &bytes[..]);
        }
    }

    /// Whoever knows the checksum can say anything, and is still not believed a length or a place.
    #[test]
    fn sealed_bytes_are_checked_like_others(
        body in prop::collection::vec(any::<u8>(), 4032),
        counts in (0_u32..4, 0_u32..60, 0_u32..4000, 0_u32..3),
        small in any::<bool>(),
    ) {
        let (table, entry_count, packed_bytes, whole_count) = counts;
        let table_count = table.checked_sub(1);
        let sizes = Sizes { table_count, entry_count, packed_bytes, whole_count };
        let mut bytes = vec![0; 64];
        bytes.extend_from_slice(&body);
        bytes.resize(sizes.head_bytes().max(64), 0);
        if small {
            // Kinds that exist, so that more than the first check is reached.
            for entry in bytes[64..].chunks_mut(ENTRY_BYTES) {
                entry[0] = 1 + entry[0] % 6;
                entry[1..].iter_mut().for_each(|byte| *byte &= 1);
            }
        }
        seal_head(&mut bytes, seal(), ADDRESS, sizes);
        bytes.resize(sizes.total_bytes(), 1);
        prop_assert!(TransactionHead::decode(&bytes).is_ok());
        if let Ok(transaction) = Transaction::decode(&bytes, seal(), ADDRESS) {
            transaction.has_whole_pages();
        }
    }
}
