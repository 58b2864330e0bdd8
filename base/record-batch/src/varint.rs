//! Zigzag-encoded numbers of variable length (varints), as in Protocol Buffers.

/// Takes a number from the front. Returns `None` if it is truncated or longer than ten bytes.
#[inline]
pub(crate) fn take_varint(rest: &mut &[u8]) -> Option<i64> {
    let (number, end) = take_zigzag(rest, 0)?;
    *rest = &rest[end..];
    Some(from_zigzag(number))
}

/// Reads the number at `at` without decoding zigzag. Returns it and the position of its end, or
/// `None` if it is truncated or longer than ten bytes.
#[inline(always)]
pub(crate) fn take_zigzag(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    // Fast path: most numbers in a record take one byte, lengths of values two.
    let low = *bytes.get(at)?;
    if low < 0x80 {
        return Some((u64::from(low), at + 1));
    }
    let high = *bytes.get(at + 1)?;
    if high < 0x80 {
        return Some((u64::from(low & 0x7F) | u64::from(high) << 7, at + 2));
    }
    take_long(bytes, at)
}

#[cold]
#[inline(never)]
fn take_long(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let mut number = 0_u64;
    for (index, byte) in bytes.get(at..)?.iter().take(10).enumerate() {
        number |= u64::from(byte & 0x7F) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((number, at + index + 1));
        }
    }
    None
}

#[inline]
pub(crate) fn from_zigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}

pub(crate) fn put_varint(number: i64, into: &mut Vec<u8>) {
    let mut rest = ((number << 1) ^ (number >> 63)).cast_unsigned();
    while rest >= 0x80 {
        into.push(rest.to_le_bytes()[0] | 0x80);
        rest >>= 7;
    }
    into.push(rest.to_le_bytes()[0]);
}

/// Takes a byte string with a length prefix from the front. `Some(None)` is null, which differs
/// from an empty string.
#[inline]
pub(crate) fn take_bytes<'a>(rest: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    let length = take_varint(rest)?;
    if length == -1 {
        return Some(None);
    }
    let (bytes, after) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    *rest = after;
    Some(Some(bytes))
}

pub(crate) fn put_bytes(bytes: Option<&[u8]>, into: &mut Vec<u8>) {
    put_varint(bytes.map_or(-1, |bytes| length_of(bytes.len())), into);
    into.extend_from_slice(bytes.unwrap_or_default());
}

pub(crate) fn length_of(length: usize) -> i64 {
    i64::try_from(length).expect("lengths of memory fit")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_variable_length_come_back() {
        for number in [0, 1, -1, 63, -64, 64, 300, -70_000, i64::MAX, i64::MIN] {
            let mut bytes = Vec::new();
            put_varint(number, &mut bytes);
            let mut rest = &bytes[..];
            assert_eq!(take_varint(&mut rest), Some(number));
            assert!(rest.is_empty());
            assert_eq!(take_varint(&mut &bytes[..bytes.len() - 1]), None, "cut off");
        }
        assert_eq!(take_varint(&mut &[0x80; 11][..]), None, "it never ends");
    }
}
