//! Bytes determined by a number, and reports of differences.

use random::scramble;

/// Maps a number to one below `bound`.
pub(super) fn below(number: u64, bound: usize) -> usize {
    let wide = u128::from(scramble(number)) * bound as u128;
    usize::try_from(wide >> 64).expect("it is below a usize")
}

/// Returns bytes without zeros, so that none is mistaken for a hole.
pub(super) fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let words = (0..length.div_ceil(8) as u64).map(|index| scramble(seed ^ scramble(index)));
    let mut bytes: Vec<u8> =
        words.flat_map(|word| (word | 0x0101_0101_0101_0101).to_le_bytes()).collect();
    bytes.truncate(length);
    bytes
}

/// Returns a block whose words all have one value.
pub(super) fn stamped(stamp: u64, length: usize) -> Vec<u8> {
    stamp.to_le_bytes().repeat(length / 8)
}

/// Returns the value of all words of a block.
#[track_caller]
pub(super) fn stamp_of(block: &[u8]) -> u64 {
    let words = block.as_chunks::<8>().0;
    let other = words.iter().position(|word| *word != words[0]);
    assert_eq!(other, None, "the block holds two writes: {:?} and others", words[0]);
    u64::from_le_bytes(words[0])
}

#[track_caller]
pub(super) fn check_same(offset: u64, found: &[u8], expected: &[u8]) {
    assert_eq!(found.len(), expected.len());
    if let Some(place) = found.iter().zip(expected).position(|(one, other)| one != other) {
        let (found, expected) = (found[place], expected[place]);
        let at = offset + place as u64;
        panic!("byte {at} ({place} bytes into the read) is {found:#04x}, not {expected:#04x}");
    }
}
