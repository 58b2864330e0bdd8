//! Tests with arbitrary bytes: decoding ends with a value or an error, and never trusts a length.

#[path = "support/storm.rs"]
mod storm;

use journal::format::{ENTRY_BYTES, Entry, TABLE_RECORD_BYTES, VolumeRecord};
use proptest::prelude::*;

proptest! {
    #[test]
    fn any_bytes_are_refused_or_decoded(bytes in prop::collection::vec(any::<u8>(), 0..9000)) {
        storm::decode(&bytes);
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
}
