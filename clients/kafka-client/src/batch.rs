//! Record batches of version 2: what producers send and consumers get.
//!
//! ```text
//! byte  0 base offset         i64      23 last offset delta  i32      57 record count  i32
//!       8 length after here   i32      27 base timestamp     i64      61 records …
//!      12 leader epoch        i32      35 max timestamp      i64
//!      16 magic, 2            i8       43 producer id        i64
//!      17 CRC-32C from 21 on  u32      51 producer epoch     i16
//!      21 attributes          i16      53 base sequence      i32
//! ```
//!
//! A record has a length, attributes, its distances in time and offset from the first one, key,
//! value and headers; numbers in it are zigzag varints. Source: Apache Kafka, "Message Format".

use batch_compression::Codec as Compression;
use bytes::Bytes;
use crc_fast::CrcAlgorithm;

use crate::error::ClientError;

pub(crate) const HEADER_BYTES: usize = 61;

/// Bytes before those that the length counts.
pub(crate) const LENGTH_END: usize = 12;

/// Bytes before those that the checksum covers.
const CRC_END: usize = 21;

const MAGIC: i8 = 2;
const IS_OF_APPEND: i16 = 1 << 3;
const IS_TRANSACTIONAL: i16 = 1 << 4;
const IS_CONTROL: i16 = 1 << 5;

/// The least that a record takes: its length and six fields of one byte.
const RECORD_BYTES_MIN: usize = 7;

/// A header of a record. Several may have one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    pub name: String,
    pub value: Option<Bytes>,
}

/// A record to be sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewRecord {
    pub key: Option<Bytes>,
    /// `None` deletes the key in a compacted topic.
    pub value: Option<Bytes>,
    pub headers: Vec<Header>,
    /// Milliseconds since 1970.
    pub timestamp_ms: i64,
}

/// A record as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub offset: i64,
    pub timestamp_ms: i64,
    pub key: Option<Bytes>,
    pub value: Option<Bytes>,
    pub headers: Vec<Header>,
}

/// Who sends a batch, for a broker that drops repetitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchProducer {
    pub id: i64,
    pub epoch: i16,
    pub sequence: i32,
}

/// What a batch is made with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchOptions {
    pub compression: Compression,
    pub producer: Option<BatchProducer>,
    /// Its records are seen when the producer's transaction is committed.
    pub is_transactional: bool,
}

/// One batch of `records`, which must not be empty.
pub fn encode_batch(records: &[NewRecord], options: &BatchOptions) -> Result<Bytes, ClientError> {
    let failed =
        || ClientError::invalid(format!("cannot make a batch of {} records", records.len()));
    let too_long = |_| failed().because("it is longer than the protocol allows");
    let count = i32::try_from(records.len()).map_err(too_long)?;
    let Some(first) = records.first() else { return Err(failed().because("it has none")) };
    let base_time = first.timestamp_ms;
    let time_max = records.iter().map(|it| it.timestamp_ms).fold(base_time, i64::max);

    let mut encoded = Vec::new();
    for (offset_delta, record) in (0..).zip(records) {
        encode_record(record, offset_delta, base_time, &mut encoded);
    }
    let compressed = options.compression.compress(&encoded);

    let length = i32::try_from(HEADER_BYTES - LENGTH_END + compressed.len()).map_err(too_long)?;
    let none = BatchProducer { id: -1, epoch: -1, sequence: -1 };
    let producer = options.producer.unwrap_or(none);
    let mut batch = Vec::with_capacity(HEADER_BYTES + compressed.len());
    batch.extend(0_i64.to_be_bytes());
    batch.extend(length.to_be_bytes());
    batch.extend((-1_i32).to_be_bytes());
    batch.extend(MAGIC.to_be_bytes());
    batch.extend([0; 4]);
    let transactional = if options.is_transactional { IS_TRANSACTIONAL } else { 0 };
    batch.extend((options.compression.bits() | transactional).to_be_bytes());
    batch.extend((count - 1).to_be_bytes());
    batch.extend(base_time.to_be_bytes());
    batch.extend(time_max.to_be_bytes());
    batch.extend(producer.id.to_be_bytes());
    batch.extend(producer.epoch.to_be_bytes());
    batch.extend(producer.sequence.to_be_bytes());
    batch.extend(count.to_be_bytes());
    batch.extend(compressed);
    seal(&mut batch);
    Ok(Bytes::from(batch))
}

/// Writes the checksum of a whole batch into it.
pub(crate) fn seal(batch: &mut [u8]) {
    let crc = crc32c(&batch[CRC_END..]);
    batch[CRC_END - 4..CRC_END].copy_from_slice(&crc.to_be_bytes());
}

fn crc32c(bytes: &[u8]) -> u32 {
    let sum = crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes);
    u32::try_from(sum).expect("the sum has 32 bits")
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

fn length_of(length: usize) -> i64 {
    i64::try_from(length).expect("lengths of memory fit")
}

fn put_bytes(bytes: Option<&[u8]>, out: &mut Vec<u8>) {
    put_varint(bytes.map_or(-1, |bytes| length_of(bytes.len())), out);
    out.extend(bytes.unwrap_or_default());
}

fn put_varint(value: i64, out: &mut Vec<u8>) {
    let mut rest = ((value << 1) ^ (value >> 63)).cast_unsigned();
    while rest >= 0x80 {
        out.push(rest.to_le_bytes()[0] | 0x80);
        rest >>= 7;
    }
    out.push(rest.to_le_bytes()[0]);
}

/// The fixed part of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchHeader {
    pub(crate) base_offset: i64,
    /// Of the whole batch.
    pub(crate) size_bytes: usize,
    pub(crate) crc: u32,
    pub(crate) attributes: i16,
    pub(crate) last_offset_delta: i32,
    pub(crate) base_time: i64,
    pub(crate) time_max: i64,
    pub(crate) producer_id: i64,
    pub(crate) record_count: i32,
}

impl BatchHeader {
    /// The batch that `bytes` begin with; `None` where they end before its end, as they may in a
    /// response that the broker has cut.
    pub(crate) fn read(bytes: &[u8]) -> Result<Option<Self>, ClientError> {
        let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let mut fields = Fields(header);
        let base_offset = fields.i64();
        let length = fields.i32();
        let _leader_epoch = fields.i32();
        let magic = fields.take::<1>()[0];
        let least = HEADER_BYTES - LENGTH_END;
        let length = usize::try_from(length).ok().filter(|&length| length >= least);
        let (Some(length), 2) = (length, magic) else {
            let context = format!("offset {base_offset} begins no record batch of version 2");
            return Err(ClientError::protocol(context));
        };
        let crc = fields.i32().cast_unsigned();
        let attributes = i16::from_be_bytes(fields.take());
        let last_offset_delta = fields.i32();
        let (base_time, time_max) = (fields.i64(), fields.i64());
        let producer_id = fields.i64();
        let _epoch_and_sequence = fields.take::<6>();
        let record_count = fields.i32();
        let size_bytes = LENGTH_END + length;
        let header = Self {
            base_offset,
            size_bytes,
            crc,
            attributes,
            last_offset_delta,
            base_time,
            time_max,
            producer_id,
            record_count,
        };
        Ok((bytes.len() >= size_bytes).then_some(header))
    }

    pub(crate) fn last_offset(&self) -> i64 {
        self.base_offset.saturating_add(self.last_offset_delta.into())
    }

    pub(crate) fn is_control(&self) -> bool {
        self.attributes & IS_CONTROL != 0
    }

    pub(crate) fn is_transactional(&self) -> bool {
        self.attributes & IS_TRANSACTIONAL != 0
    }
}

/// The records of a whole batch, which takes not more than `bytes_max` when it is decompressed.
pub(crate) fn decode_records(batch: &Bytes, bytes_max: usize) -> Result<Vec<Record>, ClientError> {
    let header = BatchHeader::read(batch)?;
    let header = header.ok_or_else(|| ClientError::protocol("a record batch is cut"))?;
    let broken = |why: &str| {
        let context = format!("the record batch at offset {} is broken", header.base_offset);
        ClientError::protocol(context).because(why)
    };
    if header.crc != crc32c(&batch[CRC_END..header.size_bytes]) {
        return Err(broken("its checksum does not fit its bytes"));
    }
    let compression =
        Compression::of(header.attributes).ok_or_else(|| broken("its compression is unknown"))?;
    let records = batch.slice(HEADER_BYTES..header.size_bytes);
    let mut records = match compression {
        Compression::None => records,
        _ => {
            compression.decompress(&records, bytes_max).map_err(|e| broken(&e.to_string()))?.into()
        }
    };
    let count = usize::try_from(header.record_count).unwrap_or(usize::MAX);
    if count > records.len() / RECORD_BYTES_MIN {
        return Err(broken("it counts more records than it has room for"));
    }
    let mut decoded = Vec::with_capacity(count);
    for _ in 0..count {
        let record = decode_record(&mut records, &header);
        decoded.push(record.ok_or_else(|| broken("a record in it ends too early"))?);
    }
    Ok(decoded)
}

fn decode_record(records: &mut Bytes, header: &BatchHeader) -> Option<Record> {
    let length = usize::try_from(get_varint(records)?).ok()?;
    let mut body = split_to(records, length)?;
    split_to(&mut body, 1)?;
    let time = get_varint(&mut body)?;
    let offset = get_varint(&mut body)?;
    let key = get_bytes(&mut body)?;
    let value = get_bytes(&mut body)?;
    let mut headers = Vec::new();
    for _ in 0..get_varint(&mut body)? {
        let name = get_bytes(&mut body)??;
        let name = String::from_utf8_lossy(&name).into_owned();
        headers.push(Header { name, value: get_bytes(&mut body)? });
    }
    let is_of_append = header.attributes & IS_OF_APPEND != 0;
    Some(Record {
        offset: header.base_offset.checked_add(offset)?,
        timestamp_ms: match is_of_append {
            true => header.time_max,
            false => header.base_time.wrapping_add(time),
        },
        key,
        value,
        headers,
    })
}

fn split_to(bytes: &mut Bytes, length: usize) -> Option<Bytes> {
    (length <= bytes.len()).then(|| bytes.split_to(length))
}

/// Bytes behind their length; the inner `None` where they are null.
fn get_bytes(from: &mut Bytes) -> Option<Option<Bytes>> {
    match get_varint(from)? {
        -1 => Some(None),
        length => split_to(from, usize::try_from(length).ok()?).map(Some),
    }
}

fn get_varint(from: &mut Bytes) -> Option<i64> {
    let mut value = 0_u64;
    for (index, &byte) in from.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7F) << (7 * index);
        if byte < 0x80 {
            let _ = from.split_to(index + 1);
            return Some((value >> 1).cast_signed() ^ -(value & 1).cast_signed());
        }
    }
    None
}

/// Big-endian fields one after the other.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (field, rest) = self.0.split_first_chunk().expect("the header has all its fields");
        self.0 = rest;
        *field
    }

    fn i32(&mut self) -> i32 {
        i32::from_be_bytes(self.take())
    }

    fn i64(&mut self) -> i64 {
        i64::from_be_bytes(self.take())
    }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::records::RecordBatchDecoder;

    use super::*;

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

    fn batch(compression: Compression) -> Bytes {
        let options = BatchOptions { compression, ..BatchOptions::default() };
        encode_batch(&records(), &options).expect("three records")
    }

    #[test]
    fn records_come_back_from_their_batch() {
        for compression in Compression::ALL {
            let found = decode_records(&batch(compression), BYTES_MAX).expect("it is whole");
            assert_eq!(found.iter().map(|it| it.offset).collect::<Vec<_>>(), [0, 1, 2]);
            for (found, sent) in found.iter().zip(records()) {
                assert_eq!((&found.key, &found.value), (&sent.key, &sent.value));
                assert_eq!(found.headers, sent.headers);
                assert_eq!(found.timestamp_ms, sent.timestamp_ms);
            }
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
    fn a_changed_byte_is_found() {
        let mut bytes = batch(Compression::None).to_vec();
        bytes[HEADER_BYTES + 5] ^= 1;
        let error = decode_records(&bytes.into(), BYTES_MAX).expect_err("it was changed");
        assert!(error.to_string().contains("offset 0"), "{error}");
    }

    #[test]
    fn counts_and_lengths_that_lie_are_refused() {
        let whole = batch(Compression::None);
        for (at, value) in [(57, [0x7F, 0xFF, 0xFF, 0xFF]), (57, [0, 0, 0, 4]), (61, [0xFE; 4])] {
            let mut bytes = whole.to_vec();
            bytes[at..at + 4].copy_from_slice(&value);
            seal(&mut bytes);
            decode_records(&bytes.into(), BYTES_MAX).expect_err("it lies");
        }
        for (at, value) in [(8, 3), (8, -1)] {
            let mut bytes = whole.to_vec();
            bytes[at..at + 4].copy_from_slice(&i32::to_be_bytes(value));
            BatchHeader::read(&bytes).expect_err("no batch is so short");
        }
    }

    #[test]
    fn a_cut_batch_is_told_apart_from_a_broken_one() {
        let whole = batch(Compression::None);
        for length in [0, 11, 60, whole.len() - 1] {
            assert_eq!(BatchHeader::read(&whole[..length]).expect("it is cut"), None);
        }
        let mut old = whole.to_vec();
        old[16] = 1;
        BatchHeader::read(&old).expect_err("version 1 is not read");
    }

    #[test]
    fn numbers_of_all_sizes_come_back() {
        for value in [0, -1, 1, 63, -64, 64, i64::from(i32::MAX), i64::MAX, i64::MIN] {
            let mut bytes = Vec::new();
            put_varint(value, &mut bytes);
            let mut bytes = Bytes::from(bytes);
            assert_eq!(get_varint(&mut bytes), Some(value));
            assert!(bytes.is_empty());
        }
        assert_eq!(get_varint(&mut Bytes::from_static(&[0x80; 11])), None);
    }

    #[test]
    fn no_records_make_no_batch() {
        encode_batch(&[], &BatchOptions::default()).expect_err("it would be empty");
    }
}
