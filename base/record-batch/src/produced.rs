//! Validation of produced records, each of which is read once before its batch is stored.

use crate::compression::Undecodable;
use crate::header::BatchHeader;
use crate::varint::{from_zigzag, take_zigzag};

/// Properties of a record that determine whether a log accepts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducedRecord {
    /// Index in the batch, from 0.
    pub index: i32,
    /// Timestamp, Unix milliseconds; -1 if the producer set none.
    pub timestamp_ms: i64,
    pub has_key: bool,
}

/// Calls `visit` for each of `records`, the decompressed records of a new batch. Fails if their
/// number differs from the header's or their offset deltas are not consecutive from 0, as Kafka's
/// `LogValidator` does.
pub fn each_produced(
    header: &BatchHeader,
    records: &[u8],
    mut visit: impl FnMut(ProducedRecord),
) -> Result<(), Undecodable> {
    let mut at = 0;
    for index in 0..header.record_count {
        let (record, end) = read(header, index, records, at).ok_or(Undecodable::Records)?;
        visit(record);
        at = end;
    }
    if at == records.len() { Ok(()) } else { Err(Undecodable::Records) }
}

/// Reads the record at position `at`. Returns it and the position of its end.
///
/// This function runs for every record of every produced batch. For speed, numbers remain
/// zigzag-encoded where possible, and positions are relative to the start of the records.
#[inline(always)]
fn read(
    header: &BatchHeader,
    index: i32,
    records: &[u8],
    at: usize,
) -> Option<(ProducedRecord, usize)> {
    let (length, at) = take_zigzag(records, at)?;
    let end = at.checked_add(length_of(length)?).filter(|end| *end <= records.len())?;
    // Skips one byte of attributes, none of which is defined.
    let (delta, at) = take_zigzag(records, at + 1)?;
    let timestamp_ms = header.base_timestamp.wrapping_add(from_zigzag(delta));
    let (number, at) = take_zigzag(records, at)?;
    if number != u64::from(index.cast_unsigned()) << 1 {
        return None;
    }
    let (has_key, at) = pass_bytes(records, at)?;
    let (_, at) = pass_bytes(records, at)?;
    let (header_count, at) = take_zigzag(records, at)?;
    let at = match length_of(header_count)? {
        0 => at,
        count => pass_headers(&records[..end], at, count)?,
    };
    (at == end).then_some((ProducedRecord { index, timestamp_ms, has_key }, end))
}

/// Skips the headers of a record, which ends where `record` does.
fn pass_headers(record: &[u8], mut at: usize, count: usize) -> Option<usize> {
    for _ in 0..count {
        let (has_name, value) = pass_bytes(record, at)?;
        if !has_name {
            return None;
        }
        (_, at) = pass_bytes(record, value)?;
    }
    Some(at)
}

/// Skips a byte string with a length prefix. Returns whether it is non-null, and the position of
/// its end. The position may be beyond `records`: reading there fails.
#[inline(always)]
fn pass_bytes(records: &[u8], at: usize) -> Option<(bool, usize)> {
    let (length, at) = take_zigzag(records, at)?;
    if length == NO_BYTES {
        return Some((false, at));
    }
    Some((true, at.checked_add(length_of(length)?)?))
}

/// Length -1 in zigzag encoding: null.
const NO_BYTES: u64 = 1;

/// Decodes a zigzag-encoded length. Returns `None` if it is negative.
#[inline(always)]
fn length_of(zigzag: u64) -> Option<usize> {
    if zigzag & 1 == 0 { usize::try_from(zigzag >> 1).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::header::HEADER_BYTES;
    use crate::{BatchOptions, Header, NewRecord, encode_batch};

    fn batch() -> Vec<u8> {
        let header = Header { name: "name".into(), value: Some(vec![1].into()) };
        let records: Vec<_> = (0..3)
            .map(|it| NewRecord {
                timestamp_ms: 1_000 - it,
                key: (it == 1).then(|| vec![7; 200].into()),
                value: Some(vec![8; 100].into()),
                headers: vec![header.clone(); usize::try_from(it).expect("small")],
            })
            .collect();
        encode_batch(&records, &BatchOptions::default()).expect("a batch").to_vec()
    }

    fn looked_at(header: &BatchHeader, records: &[u8]) -> Result<Vec<ProducedRecord>, Undecodable> {
        let mut found = Vec::new();
        each_produced(header, records, |record| found.push(record)).map(|()| found)
    }

    #[test]
    fn each_record_is_shown_in_order() {
        let batch = batch();
        let header = BatchHeader::read(&batch).expect("a header");
        let found = looked_at(&header, &batch[HEADER_BYTES..]).expect("good records");
        let expected = |index: i32| ProducedRecord {
            index,
            timestamp_ms: 1_000 - i64::from(index),
            has_key: index == 1,
        };
        assert_eq!(found, [expected(0), expected(1), expected(2)]);
    }

    #[test]
    fn records_that_are_not_those_of_the_header_are_told() {
        let batch = batch();
        let header = BatchHeader::read(&batch).expect("a header");
        let records = &batch[HEADER_BYTES..];
        for record_count in [1, 2, 4] {
            let other = BatchHeader { record_count, ..header };
            assert_eq!(looked_at(&other, records), Err(Undecodable::Records));
        }
        for length in 0..records.len() {
            looked_at(&header, &records[..length]).expect_err("they are cut off");
        }
        let longer = [records, &[0]].concat();
        assert_eq!(looked_at(&header, &longer), Err(Undecodable::Records));
        // The offset delta of the second record.
        let first = usize::from(records[0] >> 1) | usize::from(records[1]) << 6;
        let second = if records[0] & 0x80 == 0 { usize::from(records[0] >> 1) + 1 } else { first };
        let mut renumbered = records.to_vec();
        let at =
            (second..second + 8).find(|at| renumbered[*at] == 2).expect("offset 1 as a varint");
        renumbered[at] = 4;
        assert_eq!(looked_at(&header, &renumbered), Err(Undecodable::Records));
    }

    #[test]
    fn a_record_does_not_reach_into_the_next() {
        // Length, attributes, timestamp, offset, key, value, headers; then a second record.
        let second = [14, 0, 0, 2, 1, 2, 7, 0];
        let header = |record_count| BatchHeader {
            record_count,
            ..BatchHeader::read(&batch()).expect("a header")
        };
        let both = |first: [u8; 8]| looked_at(&header(2), &[first, second].concat());
        assert_eq!(both([14, 0, 0, 0, 1, 2, 7, 0]).map(|found| found.len()), Ok(2));
        for (place, byte) in
            [(0, 12), (0, 16), (0, 13), (4, 2), (4, 3), (5, 4), (5, 18), (5, 3), (7, 2)]
        {
            let mut first = [14, 0, 0, 0, 1, 2, 7, 0];
            first[place] = byte;
            assert_eq!(both(first), Err(Undecodable::Records), "{byte} at {place}");
        }
        // The maximum number of headers: reading stops at the end of the record.
        let many = [&[34, 0, 0, 0, 1, 2, 7][..], &[0xFE; 9], &[1, 0]].concat();
        assert_eq!(looked_at(&header(1), &many), Err(Undecodable::Records));
    }
}
