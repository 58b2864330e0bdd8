//! The decoder with bytes that no encoder produced.

use codec::{BLOCK_BYTES, DecodeError, decode};
use lz4_flex::block::decompress;
use proptest::collection::vec;
use proptest::prelude::*;

/// Returns a sequence of `count` literals without a match.
fn literals(count: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    push_nibble_and_count(&mut bytes, count);
    bytes.extend((0..count).map(|index| u8::try_from(index % 251).expect("below 251")));
    bytes
}

fn push_nibble_and_count(bytes: &mut Vec<u8>, count: usize) {
    bytes.push(u8::try_from(count.min(15) << 4).expect("four bits"));
    let Some(mut left) = count.checked_sub(15) else { return };
    while left >= 255 {
        bytes.push(255);
        left -= 255;
    }
    bytes.push(u8::try_from(left).expect("below 255"));
}

/// Returns `count` literals, then a match of `length` bytes from `offset` back, then literals to
/// the end.
fn with_match(count: usize, offset: u16, length: usize) -> Vec<u8> {
    let mut bytes = literals(count);
    bytes[0] |= u8::try_from((length - 4).min(15)).expect("four bits");
    bytes.extend(offset.to_le_bytes());
    if let Some(mut left) = (length - 4).checked_sub(15) {
        while left >= 255 {
            bytes.push(255);
            left -= 255;
        }
        bytes.push(u8::try_from(left).expect("below 255"));
    }
    bytes.extend(literals(BLOCK_BYTES.saturating_sub(count + length)));
    bytes
}

#[track_caller]
fn check_refused(what: &str, bytes: &[u8]) {
    assert_eq!(decode(bytes, &mut [0; BLOCK_BYTES]), Err(DecodeError), "{what}");
}

#[test]
fn matches_from_before_the_block_and_from_no_distance_are_refused() {
    for length in [4, 18, 19, 40, 64, 65, 300] {
        for count in [1, 7, 14, 15, 16, 64, 65, 400] {
            let reach = u16::try_from(count).expect("short");
            let mut block = [0; BLOCK_BYTES];
            assert_eq!(decode(&with_match(count, reach, length), &mut block), Ok(()));
            check_refused("too far", &with_match(count, reach + 1, length));
            check_refused("much too far", &with_match(count, u16::MAX, length));
            check_refused("no distance", &with_match(count, 0, length));
        }
    }
}

#[test]
fn a_block_too_short_or_too_long_by_any_part_is_refused() {
    let mut block = [0; BLOCK_BYTES];
    assert_eq!(decode(&literals(BLOCK_BYTES), &mut block), Ok(()));
    for count in [0, 1, 14, 15, 270, BLOCK_BYTES - 1, BLOCK_BYTES + 1, 2 * BLOCK_BYTES] {
        check_refused("literals alone", &literals(count));
    }
    for length in [BLOCK_BYTES - 19, BLOCK_BYTES, 60_000] {
        check_refused("a match over the end", &with_match(20, 20, length));
    }
}

#[test]
fn bytes_that_end_in_the_middle_or_go_on_past_the_end_are_refused() {
    for whole in [literals(BLOCK_BYTES), with_match(30, 3, 50), with_match(9, 8, 2000)] {
        for length in 0..whole.len() {
            check_refused("cut off", &whole[..length]);
        }
        check_refused("more after", &[&whole[..], &[0]].concat());
    }
}

#[test]
fn counts_that_never_end_are_refused() {
    for first in [0xF0, 0x0F, 0xFF] {
        for length in [1, 30, 3000, 1 << 20] {
            let mut bytes = vec![255; length];
            bytes[0] = first;
            check_refused("nothing but 255", &bytes);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_decoded_as_by_the_reference(bytes in vec(any::<u8>(), 0..4000)) {
        let mut block = [0; BLOCK_BYTES];
        let decoded = decode(&bytes, &mut block).is_ok().then(|| block.to_vec());
        let by_reference = decompress(&bytes, BLOCK_BYTES).ok();
        prop_assert_eq!(decoded, by_reference.filter(|bytes| bytes.len() == BLOCK_BYTES));
    }
}
