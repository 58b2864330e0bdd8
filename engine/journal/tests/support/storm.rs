//! Decoding of arbitrary bytes. Shared with the fuzzer.

use journal::format::{
    Address, ENTRY_BYTES, Entry, Form, Seal, SegmentHeader, Sizes, Transaction, TransactionHead,
    seal_head,
};

const ADDRESS: Address = Address { sequence: 1, epoch: 1, segment: 0, offset: 4096 };

/// Decodes the bytes as a header and as a transaction: first as they are, then with a valid
/// checksum, as from a malicious writer. Ends with values or errors.
pub(crate) fn decode(bytes: &[u8]) {
    let seal = Seal::new([7; 16], 1);
    assert!(SegmentHeader::decode(bytes).is_err(), "no checksum is guessed");
    assert!(Transaction::decode(bytes, &seal, ADDRESS).is_err(), "no checksum is guessed");
    let Some((choices, body)) = bytes.split_first_chunk::<6>() else { return };
    let [tables, entries, packed_low, packed_high, wholes, kinds] = *choices;
    let sizes = Sizes {
        form: Form::Plain,
        table_count: (tables % 4).checked_sub(1).map(u32::from),
        entry_count: u32::from(entries),
        packed_bytes: u32::from(u16::from_le_bytes([packed_low, packed_high]) % 8192),
        whole_count: u32::from(wholes % 3),
    };
    let mut transaction = vec![0; 64];
    transaction.extend_from_slice(body);
    transaction.resize(sizes.head_bytes(), kinds);
    if kinds % 2 == 0 {
        make_plausible(&mut transaction[64..]);
    }
    seal_head(&mut transaction, &seal, ADDRESS, sizes);
    transaction.resize(sizes.total_bytes(), kinds);
    let head = TransactionHead::decode(&transaction).expect("a sealed head is one");
    assert_eq!((head.address, head.sizes), (ADDRESS, sizes));
    if let Ok(transaction) = Transaction::decode(&transaction, &seal, ADDRESS) {
        transaction.has_whole_pages();
        let first = transaction.entries().first();
        assert!(first.is_none_or(|first| matches!(first, Entry::Volume(_))));
    }
}

/// Gives entries valid kinds and small numbers, so that decoding passes the first checks.
fn make_plausible(entries: &mut [u8]) {
    for entry in entries.chunks_mut(ENTRY_BYTES) {
        entry[0] = 1 + entry[0] % 6;
        entry[1..].iter_mut().for_each(|byte| *byte &= 1);
    }
}
