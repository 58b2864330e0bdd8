//! Numbers of variable length as Protocol Buffers write them, zigzag.

/// Takes a number off the front; `None` where it is cut or has more than ten bytes.
#[inline]
pub(crate) fn take_varint(rest: &mut &[u8]) -> Option<i64> {
    // Most numbers of a record take one byte.
    if let Some((&byte @ ..0x80, after)) = rest.split_first() {
        *rest = after;
        return Some(i64::from(byte >> 1) ^ -i64::from(byte & 1));
    }
    take_long_varint(rest)
}

fn take_long_varint(rest: &mut &[u8]) -> Option<i64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        number |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return Some((number >> 1).cast_signed() ^ -(number & 1).cast_signed());
        }
    }
    None
}

pub(crate) fn put_varint(number: i64, into: &mut Vec<u8>) {
    let mut rest = ((number << 1) ^ (number >> 63)).cast_unsigned();
    while rest >= 0x80 {
        into.push(rest.to_le_bytes()[0] | 0x80);
        rest >>= 7;
    }
    into.push(rest.to_le_bytes()[0]);
}

/// Takes bytes behind their length off the front; `Some(None)` where there are none, which is not
/// the same as no bytes.
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
