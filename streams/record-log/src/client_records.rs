//! The records that a client put into a batch: each a length and its fields, numbers of variable
//! length as Protocol Buffers write them, signed ones zigzag. Source: Apache Kafka, "Message
//! Format".

use batch_compression::Codec;

use crate::batch::{BatchHeader, HEADER_BYTES, has_valid_checksum};

/// The most that the records of one batch may take when they are decompressed.
const RECORDS_BYTES_MAX: usize = 128 << 20;

/// The records of a batch, decompressed: bytes for [`records`]. `None` where they cannot be read.
pub(crate) fn decode(batch: &BatchHeader, bytes: &[u8]) -> Option<Vec<u8>> {
    if !has_valid_checksum(bytes) {
        return None;
    }
    let codec = Codec::of(batch.attributes)?;
    let decoded = codec.decompress(&bytes[HEADER_BYTES..], RECORDS_BYTES_MAX).ok()?;
    are_records(&decoded, batch.record_count, batch.last_offset_delta).then_some(decoded)
}

/// One record, where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    /// With its length.
    pub(crate) bytes: &'a [u8],
    pub(crate) attributes: u8,
    pub(crate) timestamp_delta: i64,
    pub(crate) offset_delta: i64,
    pub(crate) key: Option<&'a [u8]>,
    /// A record without one deletes its key: a tombstone.
    pub(crate) has_value: bool,
    /// From the offset delta on.
    after_timestamp: &'a [u8],
}

impl<'a> Record<'a> {
    /// Takes the first record off; `None` where there is none.
    pub(crate) fn take(bytes: &mut &'a [u8]) -> Option<Self> {
        let all = *bytes;
        let length = usize::try_from(take_varint(bytes)?).ok()?;
        let (mut rest, after) = bytes.split_at_checked(length)?;
        *bytes = after;
        let (attributes, fields) = rest.split_first()?;
        rest = fields;
        let timestamp_delta = take_varint(&mut rest)?;
        let after_timestamp = rest;
        let offset_delta = take_varint(&mut rest)?;
        let key = take_bytes(&mut rest)?;
        let value = take_bytes(&mut rest)?;
        // The headers: their count is there, and what they hold is not looked at.
        take_varint(&mut rest).filter(|count| *count >= 0)?;
        Some(Self {
            bytes: &all[..all.len() - after.len()],
            attributes: *attributes,
            timestamp_delta,
            offset_delta,
            key,
            has_value: value.is_some(),
            after_timestamp,
        })
    }

    /// Appends the record with another distance from the batch's first timestamp.
    pub(crate) fn put(&self, timestamp_delta: i64, into: &mut Vec<u8>) {
        if timestamp_delta == self.timestamp_delta {
            into.extend_from_slice(self.bytes);
            return;
        }
        let mut start = vec![self.attributes];
        put_varint(timestamp_delta, &mut start);
        let length = start.len() + self.after_timestamp.len();
        put_varint(i64::try_from(length).expect("a record fits memory"), into);
        into.extend_from_slice(&start);
        into.extend_from_slice(self.after_timestamp);
    }
}

/// Whether the bytes are `count` records with ascending offsets, up to `last_offset_delta`, and
/// nothing else.
fn are_records(mut bytes: &[u8], count: i32, last_offset_delta: i32) -> bool {
    let mut offset_before = -1;
    for _ in 0..count {
        match Record::take(&mut bytes) {
            Some(record) if record.offset_delta > offset_before => {
                offset_before = record.offset_delta;
            }
            _ => return false,
        }
    }
    bytes.is_empty() && offset_before <= i64::from(last_offset_delta)
}

/// The records of bytes that [`decode`] returned.
pub(crate) fn records(mut bytes: &[u8]) -> impl Iterator<Item = Record<'_>> {
    std::iter::from_fn(move || Record::take(&mut bytes))
}

/// `Some(None)` where there are no bytes, which is not the same as none of them.
fn take_bytes<'a>(rest: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    let length = take_varint(rest)?;
    if length == -1 {
        return Some(None);
    }
    let (bytes, after) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    *rest = after;
    Some(Some(bytes))
}

fn take_varint(rest: &mut &[u8]) -> Option<i64> {
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

fn put_varint(number: i64, into: &mut Vec<u8>) {
    let mut rest = ((number << 1) ^ (number >> 63)).cast_unsigned();
    while rest >= 0x80 {
        into.push(u8::try_from(rest & 0x7F).expect("seven bits") | 0x80);
        rest >>= 7;
    }
    into.push(u8::try_from(rest).expect("seven bits"));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record of attributes 0 with one header of no meaning.
    fn record(timestamp_delta: i64, offset_delta: i64, key: Option<&[u8]>) -> Vec<u8> {
        let mut fields = vec![0];
        put_varint(timestamp_delta, &mut fields);
        put_varint(offset_delta, &mut fields);
        for bytes in [key, None] {
            put_varint(bytes.map_or(-1, |it| i64::try_from(it.len()).expect("short")), &mut fields);
            fields.extend(bytes.unwrap_or_default());
        }
        fields.extend([2, 2, b'h', 2, b'v']);
        let mut bytes = Vec::new();
        put_varint(i64::try_from(fields.len()).expect("short"), &mut bytes);
        bytes.extend(fields);
        bytes
    }

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

    #[test]
    fn a_record_keeps_all_but_its_timestamp() {
        let bytes = record(5, 7, Some(b"key"));
        let found = Record::take(&mut &bytes[..]).expect("a record");
        assert_eq!((found.timestamp_delta, found.offset_delta), (5, 7));
        assert_eq!((found.key, found.has_value), (Some(&b"key"[..]), false));
        for delta in [5, -1_000_000, i64::MIN] {
            let mut moved = Vec::new();
            found.put(delta, &mut moved);
            assert_eq!(moved, record(delta, 7, Some(b"key")));
        }
    }

    #[test]
    fn records_are_as_many_as_is_said_in_order_and_whole() {
        let bytes = [record(0, 0, None), record(0, 3, Some(b""))].concat();
        assert!(are_records(&bytes, 2, 3));
        assert!(are_records(&[], 0, 9));
        for (count, last) in [(1, 3), (3, 3), (2, 2)] {
            assert!(!are_records(&bytes, count, last), "{count} up to {last}");
        }
        for length in 0..bytes.len() {
            assert!(!are_records(&bytes[..length], 2, 3), "{length} bytes");
        }
        let backward = [record(0, 3, None), record(0, 3, None)].concat();
        assert!(!are_records(&backward, 2, 3));
        assert_eq!(records(&bytes).count(), 2);
    }
}
