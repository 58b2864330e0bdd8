//! Search for the end of the plain part of a JSON string, which most strings consist of.
//!
//! Short strings are scanned in words of 8 bytes, long ones in blocks, whose loop compilers
//! vectorize. Intrinsics are not used because they require unsafe code.

const WORD_BYTES: usize = 8;
const BLOCK_BYTES: usize = 32;

/// Returns the position of the first quote, backslash or control character from `at` on.
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
    // Most ids and times are shorter than two words, so blocks are used after the second word.
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

/// Same as [`next_special`] if less than a word remains.
fn next_special_at_end(text: &[u8], at: usize) -> Option<usize> {
    let left = text.len() - at;
    match text.last_chunk() {
        // Preceding bytes fill the word and are shifted out.
        Some(word) if left > 0 => {
            let word = u64::from_le_bytes(*word) >> (8 * (WORD_BYTES - left));
            special_of_word(word).filter(|place| *place < left).map(|place| at + place)
        }
        _ => text[at..].iter().position(|byte| is_special(*byte)).map(|place| at + place),
    }
}

/// Returns the position of the first special byte of a little-endian word.
#[inline]
fn special_of_word(word: u64) -> Option<usize> {
    const ONES: u64 = u64::from_ne_bytes([1; WORD_BYTES]);
    const HIGH_BITS: u64 = ONES << 7;
    // The lowest bit set is the high bit of the first byte below `limit`.
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

    /// Tests every byte at every position, also next to special bytes.
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
            // Bytes before the start are ignored.
            let behind = place + 1;
            assert_eq!(next_special(&text, behind), None, "{byte} at {place} of {text:?}");
            text[place] = plain;
        }
    }
}
