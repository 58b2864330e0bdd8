//! Where the plain part of a string ends: what JSON's strings are mostly made of.
//!
//! Short strings by words of 8 bytes, long ones by blocks, whose loop compilers make vectors of. No
//! intrinsics: calls of those are unsafe.

const WORD_BYTES: usize = 8;
const BLOCK_BYTES: usize = 32;

/// The place of the first quote, backslash or control character of `text` at `at` or after it.
#[inline]
pub(super) fn next_special(text: &[u8], at: usize) -> Option<usize> {
    let rest = text.get(at..)?;
    match rest.first_chunk() {
        Some(word) => match special_of_word(u64::from_le_bytes(*word)) {
            Some(place) => Some(at + place),
            None => next_special_far(text, at + WORD_BYTES),
        },
        None => next_special_at_end(text, at),
    }
}

fn next_special_far(text: &[u8], mut at: usize) -> Option<usize> {
    // Ids and times are mostly shorter than two words: blocks come after the second one.
    while let Some(word) = text.get(at..)?.first_chunk() {
        if let Some(place) = special_of_word(u64::from_le_bytes(*word)) {
            return Some(at + place);
        }
        at += WORD_BYTES;
        while let Some(block) = text.get(at..)?.first_chunk() {
            if has_special(block) {
                break;
            }
            at += BLOCK_BYTES;
        }
    }
    next_special_at_end(text, at)
}

/// As [`next_special`], where less than a word is left.
fn next_special_at_end(text: &[u8], at: usize) -> Option<usize> {
    let left = text.len() - at;
    match text.last_chunk() {
        // Bytes before the rest fill the word, and are moved out of it.
        Some(word) if left > 0 => {
            let word = u64::from_le_bytes(*word) >> (8 * (WORD_BYTES - left));
            special_of_word(word).filter(|place| *place < left).map(|place| at + place)
        }
        _ => text[at..].iter().position(|byte| is_special(*byte)).map(|place| at + place),
    }
}

/// The place of the first special byte of a word, whose lowest byte stands first.
#[inline]
fn special_of_word(word: u64) -> Option<usize> {
    const ONES: u64 = u64::from_ne_bytes([1; WORD_BYTES]);
    const HIGH_BITS: u64 = ONES << 7;
    // The high bit of the first byte that is below `limit` is the lowest one that is set.
    let below = |word: u64, limit: u8| word.wrapping_sub(ONES * u64::from(limit)) & !word;
    let quotes = below(word ^ (ONES * u64::from(b'"')), 1);
    let escapes = below(word ^ (ONES * u64::from(b'\\')), 1);
    let found = (quotes | escapes | below(word, b' ')) & HIGH_BITS;
    (found != 0).then(|| found.trailing_zeros() as usize / 8)
}

fn has_special(block: &[u8; BLOCK_BYTES]) -> bool {
    block.iter().fold(false, |found, byte| found | is_special(*byte))
}

fn is_special(byte: u8) -> bool {
    (byte < b' ') | (byte == b'"') | (byte == b'\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every byte at every place, among others that are next to special ones.
    #[test]
    fn the_first_special_byte_is_found_wherever_it_stands() {
        const LENGTH_MAX: usize = 2 * BLOCK_BYTES + 2 * WORD_BYTES + 1;
        for plain in [b'a', b' ', b'!', b'#', b'[', b']', 0x7f, 0x80, 0xa2, 0xdc, 0xff] {
            for byte in [0, 1, 0x1f, b' ', b'!', b'"', b'#', b'[', b'\\', b']', 0x80, 0xa2, 0xdc] {
                for length in 0..=LENGTH_MAX {
                    check_each_place(vec![plain; length], byte);
                }
            }
        }
        for byte in 0..=u8::MAX {
            check_each_place(vec![b'a'; LENGTH_MAX], byte);
        }
    }

    fn check_each_place(mut text: Vec<u8>, byte: u8) {
        for place in 0..text.len() {
            let plain = std::mem::replace(&mut text[place], byte);
            let expected = matches!(byte, b'"' | b'\\' | 0..0x20).then_some(place);
            for at in [0, place / 2, place.saturating_sub(1), place] {
                assert_eq!(next_special(&text, at), expected, "{byte} at {place} of {text:?}");
            }
            // What stands before the start counts for nothing.
            let behind = place + 1;
            assert_eq!(next_special(&text, behind), None, "{byte} at {place} of {text:?}");
            text[place] = plain;
        }
    }
}
