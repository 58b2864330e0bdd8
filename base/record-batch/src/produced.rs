//! Records as producers send them, each looked at once before the batch is kept.

use crate::compression::Undecodable;
use crate::header::BatchHeader;
use crate::varint::{take_bytes, take_varint};

/// Facts of a record that decide whether a log takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducedRecord {
    /// Place in the batch, from 0 on.
    pub index: i32,
    /// When it was made, Unix milliseconds; -1 where the producer does not say.
    pub timestamp_ms: i64,
    pub has_key: bool,
}

/// Shows each record of `records`, which are those of a new batch, decompressed. Fails where they
/// are not exactly as many as the header says, or not numbered from 0 on without gaps, as Kafka's
/// `LogValidator` does.
pub fn each_produced(
    header: &BatchHeader,
    mut records: &[u8],
    mut visit: impl FnMut(ProducedRecord),
) -> Result<(), Undecodable> {
    for index in 0..header.record_count {
        let length = take_varint(&mut records).ok_or(Undecodable::Records)?;
        let length = usize::try_from(length).map_err(|_| Undecodable::Records)?;
        let (record, rest) = records.split_at_checked(length).ok_or(Undecodable::Records)?;
        records = rest;
        let found = read(header, index, record).ok_or(Undecodable::Records)?;
        visit(found);
    }
    if records.is_empty() { Ok(()) } else { Err(Undecodable::Records) }
}

fn read(header: &BatchHeader, index: i32, record: &[u8]) -> Option<ProducedRecord> {
    let (_attributes, mut rest) = record.split_first()?;
    let timestamp_ms = header.base_timestamp.wrapping_add(take_varint(&mut rest)?);
    if take_varint(&mut rest)? != i64::from(index) {
        return None;
    }
    let has_key = take_bytes(&mut rest)?.is_some();
    take_bytes(&mut rest)?;
    let header_count = take_varint(&mut rest).filter(|count| *count >= 0)?;
    for _ in 0..header_count {
        take_bytes(&mut rest)??;
        take_bytes(&mut rest)?;
    }
    rest.is_empty().then_some(ProducedRecord { index, timestamp_ms, has_key })
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
        // The offset of the second record.
        let first = usize::from(records[0] >> 1) | usize::from(records[1]) << 6;
        let second = if records[0] & 0x80 == 0 { usize::from(records[0] >> 1) + 1 } else { first };
        let mut renumbered = records.to_vec();
        let at =
            (second..second + 8).find(|at| renumbered[*at] == 2).expect("offset 1 as a varint");
        renumbered[at] = 4;
        assert_eq!(looked_at(&header, &renumbered), Err(Undecodable::Records));
    }
}
