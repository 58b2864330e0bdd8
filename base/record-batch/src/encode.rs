//! Encoding of new batches.

use bytes::Bytes;

use crate::compression::Codec;
use crate::header::{BatchHeader, HEADER_BYTES, IS_TRANSACTIONAL};
use crate::varint::{length_of, put_bytes, put_varint};

/// Header of a record. Several headers of a record may have the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    pub name: String,
    pub value: Option<Bytes>,
}

/// A record to encode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewRecord {
    pub key: Option<Bytes>,
    /// `None` is a tombstone: it deletes the key in a compacted topic.
    pub value: Option<Bytes>,
    pub headers: Vec<Header>,
    /// Unix milliseconds.
    pub timestamp_ms: i64,
}

/// Producer id, epoch and sequence of a batch, with which a broker detects duplicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchProducer {
    pub id: i64,
    pub epoch: i16,
    pub sequence: i32,
}

/// Settings of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchOptions {
    pub compression: Codec,
    pub producer: Option<BatchProducer>,
    /// The batch belongs to a transaction: its records become visible when that is committed.
    pub is_transactional: bool,
}

/// Maximum size of a batch's records: the length field is a signed 32-bit number.
const LENGTH_MAX: usize = i32::MAX as usize - HEADER_BYTES;

/// Reason for which records cannot be encoded as a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unencodable {
    #[error("a batch needs at least one record")]
    Empty,
    #[error("too many or too long records for one batch")]
    TooLong,
}

/// Encodes `records`, which must not be empty, as one batch.
pub fn encode_batch(records: &[NewRecord], options: &BatchOptions) -> Result<Bytes, Unencodable> {
    let count = i32::try_from(records.len()).map_err(|_| Unencodable::TooLong)?;
    let Some(first) = records.first() else { return Err(Unencodable::Empty) };
    let base_time = first.timestamp_ms;
    let time_max = records.iter().map(|it| it.timestamp_ms).fold(base_time, i64::max);

    let mut encoded = Vec::new();
    for (offset_delta, record) in (0..).zip(records) {
        encode_record(record, offset_delta, base_time, &mut encoded);
    }
    let compressed = options.compression.compress(&encoded);
    if compressed.len() > LENGTH_MAX {
        return Err(Unencodable::TooLong);
    }
    let none = BatchProducer { id: -1, epoch: -1, sequence: -1 };
    let producer = options.producer.unwrap_or(none);
    let transactional = if options.is_transactional { IS_TRANSACTIONAL } else { 0 };
    let header = BatchHeader {
        base_offset: 0,
        size_bytes: HEADER_BYTES + compressed.len(),
        epoch: -1,
        attributes: options.compression.bits() | transactional,
        last_offset_delta: count - 1,
        base_timestamp: base_time,
        max_timestamp: time_max,
        producer_id: producer.id,
        producer_epoch: producer.epoch,
        base_sequence: producer.sequence,
        record_count: count,
    };
    Ok(Bytes::from(header.with_records(&compressed)))
}

fn encode_record(record: &NewRecord, offset_delta: i64, base_time: i64, out: &mut Vec<u8>) {
    let mut body = vec![0];
    put_varint(record.timestamp_ms.wrapping_sub(base_time), &mut body);
    put_varint(offset_delta, &mut body);
    put_bytes(record.key.as_deref(), &mut body);
    put_bytes(record.value.as_deref(), &mut body);
    put_varint(length_of(record.headers.len()), &mut body);
    for header in &record.headers {
        put_bytes(Some(header.name.as_bytes()), &mut body);
        put_bytes(header.value.as_deref(), &mut body);
    }
    put_varint(length_of(body.len()), out);
    out.extend(body);
}

#[cfg(test)]
mod tests {
    use kafka_protocol::records::RecordBatchDecoder;

    use super::*;
    use crate::compression::Undecodable;
    use crate::header::seal;
    use crate::records::Records;

    const BYTES_MAX: usize = 1 << 20;

    fn records() -> Vec<NewRecord> {
        let header = |value: Option<&'static [u8]>| Header {
            name: "h".to_owned(),
            value: value.map(Bytes::from_static),
        };
        vec![
            NewRecord { value: Some("a".into()), timestamp_ms: 1000, ..NewRecord::default() },
            NewRecord {
                key: Some("k".into()),
                headers: vec![header(Some(b"1")), header(None)],
                timestamp_ms: 900,
                ..NewRecord::default()
            },
            NewRecord { value: Some(vec![7; 3000].into()), ..NewRecord::default() },
        ]
    }

    fn batch(compression: Codec) -> Bytes {
        let options = BatchOptions { compression, ..BatchOptions::default() };
        encode_batch(&records(), &options).expect("three records")
    }

    fn decode(batch: &[u8]) -> Result<Records<'_>, Undecodable> {
        let header = BatchHeader::read(batch).expect("a header");
        let records = Records::decode(&header, batch, BYTES_MAX)?;
        records.check()?;
        Ok(records)
    }

    #[test]
    fn records_come_back_from_their_batch() {
        for codec in Codec::ALL {
            let batch = batch(codec);
            let decoded = decode(&batch).expect("it is whole");
            let mut found = decoded.iter();
            for (offset, sent) in (0..).zip(records()) {
                let found = found.next().expect("a record").expect("whole");
                assert_eq!(found.offset, offset);
                assert_eq!((found.key, found.value), (sent.key.as_deref(), sent.value.as_deref()));
                assert_eq!(found.timestamp_ms, sent.timestamp_ms);
                let headers: Vec<_> = found.headers.iter().collect();
                let sent = sent.headers.iter();
                let sent: Vec<_> =
                    sent.map(|it| (it.name.as_bytes(), it.value.as_deref())).collect();
                assert_eq!(headers, sent);
            }
            assert!(found.next().is_none());
        }
    }

    #[test]
    fn another_implementation_reads_the_same_records() {
        let producer = BatchProducer { id: 7, epoch: 1, sequence: 40 };
        let options = BatchOptions { producer: Some(producer), ..BatchOptions::default() };
        let mut batch = encode_batch(&records(), &options).expect("three records");
        let set = RecordBatchDecoder::decode(&mut batch).expect("it is whole");
        assert_eq!(set.records.len(), 3);
        for (index, (found, sent)) in (0..).zip(set.records.iter().zip(records())) {
            assert_eq!((&found.key, &found.value), (&sent.key, &sent.value));
            assert_eq!((found.offset, found.timestamp), (i64::from(index), sent.timestamp_ms));
            assert_eq!((found.producer_id, found.producer_epoch), (7, 1));
            assert_eq!(found.sequence, 40 + index);
        }
    }

    #[test]
    fn a_record_keeps_all_but_its_timestamp() {
        let batch = batch(Codec::None);
        let decoded = decode(&batch).expect("it is whole");
        for record in decoded.iter().map(|it| it.expect("whole")) {
            for delta in [record.timestamp_delta(), -1_000_000, i64::MIN] {
                let mut moved = Vec::new();
                record.put(delta, &mut moved);
                let header = BatchHeader {
                    base_timestamp: 0,
                    base_offset: 0,
                    record_count: 1,
                    ..BatchHeader::read(&batch).expect("a header")
                };
                let again = header.with_records(&moved);
                let header = BatchHeader::read(&again).expect("a header");
                let again = Records::decode(&header, &again, BYTES_MAX).expect("a batch");
                let found = again.iter().next().expect("one").expect("whole");
                assert_eq!(found.timestamp_ms, delta);
                assert_eq!((found.key, found.value), (record.key, record.value));
                assert_eq!((found.offset, found.headers), (record.offset, record.headers));
            }
        }
    }

    #[test]
    fn a_changed_byte_is_found() {
        let mut bytes = batch(Codec::None).to_vec();
        bytes[HEADER_BYTES + 5] ^= 1;
        assert_eq!(decode(&bytes).err(), Some(Undecodable::Checksum));
    }

    #[test]
    fn counts_and_lengths_that_lie_are_refused() {
        let whole = batch(Codec::None);
        for (at, value) in [
            (57, [0x7F, 0xFF, 0xFF, 0xFF]),
            (57, [0, 0, 0, 4]),
            (57, [0, 0, 0, 2]),
            (23, [0, 0, 0, 1]),
            (61, [0xFE; 4]),
        ] {
            let mut bytes = whole.to_vec();
            bytes[at..at + 4].copy_from_slice(&value);
            seal(&mut bytes);
            assert_eq!(decode(&bytes).err(), Some(Undecodable::Records), "{at} {value:?}");
        }
        for (at, value) in [(8, 3), (8, -1)] {
            let mut bytes = whole.to_vec();
            bytes[at..at + 4].copy_from_slice(&i32::to_be_bytes(value));
            assert_eq!(BatchHeader::read(&bytes), None, "no batch is so short");
        }
        let header = BatchHeader::read(&whole).expect("a header");
        for length in 0..whole.len() {
            let cut = Records::decode(&header, &whole[..length], BYTES_MAX);
            assert_eq!(cut.err(), Some(Undecodable::Records), "cut at {length}");
        }
    }

    #[test]
    fn records_that_are_cut_or_go_back_are_refused() {
        let batch = batch(Codec::None);
        let header = BatchHeader::read(&batch).expect("a header");
        let records = &batch[HEADER_BYTES..];
        for length in 0..records.len() {
            decode(&header.with_records(&records[..length])).expect_err("it is cut");
        }
        let count = BatchHeader { record_count: 6, ..header };
        decode(&count.with_records(&records.repeat(2))).expect_err("offsets go back");
    }

    #[test]
    fn no_records_make_no_batch() {
        let none = encode_batch(&[], &BatchOptions::default());
        assert_eq!(none.err(), Some(Unencodable::Empty));
    }
}
