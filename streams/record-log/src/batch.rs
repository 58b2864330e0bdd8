//! Record batches of version 2 as Kafka's clients send them: the fixed header, its checks, and the
//! few fields that a log fills in.
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
//! Numbers are big-endian. The checksum leaves out the first 21 bytes, so a log gives offsets and
//! epochs without computing it again. Source: Apache Kafka, "Message Format".

use std::ops::Range;

use crc_fast::CrcAlgorithm;

use crate::error::{LogError, LogErrorKind};

/// Bytes before the records.
pub const HEADER_BYTES: usize = 61;

/// Bytes before those that the length counts.
const LENGTH_END: usize = 12;

const BASE_OFFSET: Range<usize> = 0..8;
const LENGTH: Range<usize> = 8..12;
const EPOCH: Range<usize> = 12..16;
const MAGIC: usize = 16;
const CRC: Range<usize> = 17..21;
const ATTRIBUTES: Range<usize> = 21..23;
const LAST_OFFSET_DELTA: Range<usize> = 23..27;
const BASE_TIMESTAMP: Range<usize> = 27..35;
const MAX_TIMESTAMP: Range<usize> = 35..43;
const PRODUCER_ID: Range<usize> = 43..51;
const PRODUCER_EPOCH: Range<usize> = 51..53;
const BASE_SEQUENCE: Range<usize> = 53..57;
const RECORD_COUNT: Range<usize> = 57..61;

/// Bits of the attributes; the three lowest are the codec.
const CODEC: i16 = 7;

const TIMESTAMP_IS_OF_APPEND: i16 = 1 << 3;
const IS_TRANSACTIONAL: i16 = 1 << 4;
const IS_CONTROL: i16 = 1 << 5;
const HAS_DELETE_HORIZON: i16 = 1 << 6;

/// The fixed part of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    pub base_offset: i64,
    /// Of the whole batch, from its first byte on.
    pub size_bytes: usize,
    pub epoch: i32,
    pub attributes: i16,
    pub last_offset_delta: i32,
    pub base_timestamp: i64,
    pub max_timestamp: i64,
    /// -1 where the producer has none.
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    pub record_count: i32,
}

impl BatchHeader {
    /// Reads the header at the start of `bytes`, which may end anywhere after it. `None` where
    /// there is no batch of this version: zeros are none.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let header = bytes.get(..HEADER_BYTES)?;
        let length = i32::from_be_bytes(field(header, LENGTH));
        let size_bytes = usize::try_from(length).ok()? + LENGTH_END;
        if header[MAGIC] != 2 || size_bytes < HEADER_BYTES {
            return None;
        }
        let header = Self {
            base_offset: i64::from_be_bytes(field(header, BASE_OFFSET)),
            size_bytes,
            epoch: i32::from_be_bytes(field(header, EPOCH)),
            attributes: i16::from_be_bytes(field(header, ATTRIBUTES)),
            last_offset_delta: i32::from_be_bytes(field(header, LAST_OFFSET_DELTA)),
            base_timestamp: i64::from_be_bytes(field(header, BASE_TIMESTAMP)),
            max_timestamp: i64::from_be_bytes(field(header, MAX_TIMESTAMP)),
            producer_id: i64::from_be_bytes(field(header, PRODUCER_ID)),
            producer_epoch: i16::from_be_bytes(field(header, PRODUCER_EPOCH)),
            base_sequence: i32::from_be_bytes(field(header, BASE_SEQUENCE)),
            record_count: i32::from_be_bytes(field(header, RECORD_COUNT)),
        };
        (header.last_offset_delta >= 0 && header.base_offset >= 0).then_some(header)
    }

    /// The offset of the last record.
    pub fn last_offset(&self) -> i64 {
        self.base_offset.saturating_add(i64::from(self.last_offset_delta))
    }

    /// The offset of the record after the last one.
    pub fn next_offset(&self) -> i64 {
        self.last_offset().saturating_add(1)
    }

    pub fn is_transactional(&self) -> bool {
        self.attributes & IS_TRANSACTIONAL != 0
    }

    /// Whether its record is a marker of the log's own instead of a client's data.
    pub fn is_control(&self) -> bool {
        self.attributes & IS_CONTROL != 0
    }

    /// Whether all of its records have the time of their append.
    pub fn has_append_time(&self) -> bool {
        self.attributes & TIMESTAMP_IS_OF_APPEND != 0
    }

    /// When its tombstones, or the marker that it holds, may go: Unix milliseconds. `None` where no
    /// compaction has met them. Source: KIP-534.
    pub fn delete_horizon_ms(&self) -> Option<i64> {
        (self.attributes & HAS_DELETE_HORIZON != 0).then_some(self.base_timestamp)
    }

    /// The horizon takes the place of the first timestamp: those of the records are counted from
    /// it.
    pub(crate) fn with_delete_horizon(&self, horizon_ms: i64) -> Self {
        let attributes = self.attributes | HAS_DELETE_HORIZON;
        Self { attributes, base_timestamp: horizon_ms, ..*self }
    }

    /// The same batch, all of whose records were taken out.
    pub(crate) fn without_records(&self) -> Self {
        let attributes = self.attributes & !(CODEC | HAS_DELETE_HORIZON);
        Self { attributes, base_timestamp: -1, record_count: 0, ..*self }
    }

    pub fn has_producer(&self) -> bool {
        self.producer_id >= 0
    }

    /// The number of the last record in the producer's count, which goes from `i32::MAX` to 0.
    pub fn last_sequence(&self) -> i32 {
        sequence_after(self.base_sequence, self.last_offset_delta)
    }
}

/// A batch of this header, but for its size, and of records as its codec leaves them.
pub(crate) fn assemble(header: &BatchHeader, records: &[u8]) -> Vec<u8> {
    let mut batch = vec![0; HEADER_BYTES];
    batch.extend_from_slice(records);
    let length = i32::try_from(batch.len() - LENGTH_END).expect("batches have a limit");
    batch[BASE_OFFSET].copy_from_slice(&header.base_offset.to_be_bytes());
    batch[LENGTH].copy_from_slice(&length.to_be_bytes());
    batch[EPOCH].copy_from_slice(&header.epoch.to_be_bytes());
    batch[MAGIC] = 2;
    batch[ATTRIBUTES].copy_from_slice(&header.attributes.to_be_bytes());
    batch[LAST_OFFSET_DELTA].copy_from_slice(&header.last_offset_delta.to_be_bytes());
    batch[BASE_TIMESTAMP].copy_from_slice(&header.base_timestamp.to_be_bytes());
    batch[MAX_TIMESTAMP].copy_from_slice(&header.max_timestamp.to_be_bytes());
    batch[PRODUCER_ID].copy_from_slice(&header.producer_id.to_be_bytes());
    batch[PRODUCER_EPOCH].copy_from_slice(&header.producer_epoch.to_be_bytes());
    batch[BASE_SEQUENCE].copy_from_slice(&header.base_sequence.to_be_bytes());
    batch[RECORD_COUNT].copy_from_slice(&header.record_count.to_be_bytes());
    let crc = crc32c(&batch[ATTRIBUTES.start..]);
    batch[CRC].copy_from_slice(&crc.to_be_bytes());
    batch
}

/// `count` numbers after `sequence`.
pub(crate) fn sequence_after(sequence: i32, count: i32) -> i32 {
    let sum = i64::from(sequence) + i64::from(count);
    i32::try_from(sum % (i64::from(i32::MAX) + 1)).unwrap_or(0)
}

/// A batch whose sizes and checksum were verified, ready to be appended.
#[derive(Debug)]
pub struct Batch<'a> {
    header: BatchHeader,
    bytes: &'a mut [u8],
}

impl<'a> Batch<'a> {
    /// Verifies the batch at the start of `bytes`; what follows it is returned beside it.
    pub fn split_first(bytes: &'a mut [u8]) -> Result<(Self, &'a mut [u8]), LogError> {
        let invalid = |what: &str| {
            LogError::new(LogErrorKind::InvalidBatch, format!("cannot take the batch: {what}"))
        };
        if bytes.len() >= BASE_OFFSET.end {
            // Clients count from 0; what they put here means nothing to a log.
            bytes[BASE_OFFSET].copy_from_slice(&0_i64.to_be_bytes());
        }
        let header = BatchHeader::read(bytes)
            .ok_or_else(|| invalid("it is cut off, or not of version 2 of the format"))?;
        if header.size_bytes > bytes.len() {
            return Err(invalid("it is shorter than its length says"));
        }
        let (bytes, rest) = bytes.split_at_mut(header.size_bytes);
        if header.record_count < 1 || header.last_offset_delta != header.record_count - 1 {
            return Err(invalid("its count of records does not fit its offsets"));
        }
        if header.has_producer() && (header.base_sequence < 0 && !header.is_control()) {
            return Err(invalid("its producer counts from a negative number"));
        }
        if header.has_producer() && header.producer_epoch < 0 {
            return Err(invalid("its producer has no epoch"));
        }
        if header.is_transactional() && !header.has_producer() {
            return Err(invalid("it belongs to a transaction, and to no producer"));
        }
        if !has_valid_checksum(bytes) {
            return Err(invalid("its CRC-32C does not fit its bytes"));
        }
        Ok((Self { header, bytes }, rest))
    }

    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes
    }

    /// Gives the batch its place in the log.
    pub(crate) fn place(&mut self, base_offset: i64, epoch: i32) {
        self.header.base_offset = base_offset;
        self.header.epoch = epoch;
        self.bytes[BASE_OFFSET].copy_from_slice(&base_offset.to_be_bytes());
        self.bytes[EPOCH].copy_from_slice(&epoch.to_be_bytes());
    }

    /// Says when it was appended, instead of when its records were made.
    pub fn set_append_time(&mut self, unix_ms: i64) {
        self.header.attributes |= TIMESTAMP_IS_OF_APPEND;
        self.header.max_timestamp = unix_ms;
        self.bytes[ATTRIBUTES].copy_from_slice(&self.header.attributes.to_be_bytes());
        self.bytes[MAX_TIMESTAMP].copy_from_slice(&unix_ms.to_be_bytes());
        let crc = crc32c(&self.bytes[ATTRIBUTES.start..]);
        self.bytes[CRC].copy_from_slice(&crc.to_be_bytes());
    }
}

/// Whether the checksum of a whole batch fits.
pub(crate) fn has_valid_checksum(batch: &[u8]) -> bool {
    u32::from_be_bytes(field(batch, CRC)) == crc32c(&batch[ATTRIBUTES.start..])
}

pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    let sum = crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes);
    u32::try_from(sum).expect("a sum of 32 bits")
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marker {
    Abort,
    Commit,
}

impl Marker {
    /// The marker in a control batch; `None` for control records of other kinds.
    pub(crate) fn read(batch: &[u8]) -> Option<Self> {
        // One record: length, attributes, time and offset deltas, then the length of the key.
        let mut rest = batch.get(HEADER_BYTES..)?;
        skip_varint(&mut rest)?;
        rest = rest.get(1..)?;
        for _ in 0..3 {
            skip_varint(&mut rest)?;
        }
        match i16::from_be_bytes(rest.get(2..4)?.try_into().ok()?) {
            0 => Some(Self::Abort),
            1 => Some(Self::Commit),
            _ => None,
        }
    }

    /// The control batch that ends a producer's transaction, as consumers expect it.
    pub fn to_batch(self, end: TransactionEnd) -> Vec<u8> {
        let kind: i16 = match self {
            Self::Abort => 0,
            Self::Commit => 1,
        };
        // Key: version 0 and kind. Value: version 0 and the coordinator's epoch. Lengths of less
        // than 64 are one byte, twice the number.
        let mut record = vec![0, 0, 0, 4 * 2, 0, 0];
        record.extend(kind.to_be_bytes());
        record.extend([6 * 2, 0, 0]);
        record.extend(end.coordinator_epoch.to_be_bytes());
        record.push(0);
        let mut records = vec![u8::try_from(record.len() * 2).expect("a short record")];
        records.extend(record);
        let header = BatchHeader {
            base_offset: 0,
            size_bytes: HEADER_BYTES + records.len(),
            epoch: 0,
            attributes: IS_TRANSACTIONAL | IS_CONTROL,
            last_offset_delta: 0,
            base_timestamp: end.unix_ms,
            max_timestamp: end.unix_ms,
            producer_id: end.producer_id,
            producer_epoch: end.producer_epoch,
            base_sequence: -1,
            record_count: 1,
        };
        assemble(&header, &records)
    }
}

/// The producer whose transaction ends, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransactionEnd {
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub coordinator_epoch: i32,
    pub unix_ms: i64,
}

/// Leaves out one number of Protocol Buffers' variable length; ten bytes at most.
fn skip_varint(bytes: &mut &[u8]) -> Option<()> {
    let end = bytes.iter().take(10).position(|byte| byte & 0x80 == 0)?;
    *bytes = &bytes[end + 1..];
    Some(())
}

fn field<const N: usize>(bytes: &[u8], range: Range<usize>) -> [u8; N] {
    bytes[range].try_into().expect("a field is as long as its number")
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: TransactionEnd =
        TransactionEnd { producer_id: 7, producer_epoch: 2, coordinator_epoch: 9, unix_ms: 5 };

    #[test]
    fn zeros_are_no_batch() {
        assert_eq!(BatchHeader::read(&[0; 4096]), None);
    }

    #[test]
    fn the_checksum_is_castagnolis() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
    }

    #[test]
    fn a_marker_is_read_as_it_was_written() {
        for marker in [Marker::Abort, Marker::Commit] {
            let mut bytes = marker.to_batch(END);
            let (batch, rest) = Batch::split_first(&mut bytes).expect("a good batch");
            assert!(rest.is_empty());
            let header = *batch.header();
            assert!(header.is_control() && header.is_transactional());
            assert_eq!((header.producer_id, header.producer_epoch), (7, 2));
            assert_eq!(Marker::read(batch.bytes()), Some(marker));
        }
    }

    #[test]
    fn a_flipped_bit_after_the_epoch_is_noticed_and_offsets_are_not_part_of_the_sum() {
        let good = Marker::Commit.to_batch(END);
        for byte in MAGIC..good.len() {
            let mut bytes = good.clone();
            bytes[byte] ^= 1;
            let error = Batch::split_first(&mut bytes).expect_err("a damaged batch");
            assert_eq!(error.kind, LogErrorKind::InvalidBatch, "byte {byte}");
        }
        let mut bytes = good;
        bytes[3] ^= 1;
        bytes[13] ^= 1;
        Batch::split_first(&mut bytes).expect("the log fills these in");
    }

    #[test]
    fn a_producer_has_an_epoch_and_a_transaction_a_producer() {
        for end in [
            TransactionEnd { producer_epoch: -1, ..END },
            TransactionEnd { producer_id: -1, ..END },
        ] {
            let mut bytes = Marker::Commit.to_batch(end);
            let error = Batch::split_first(&mut bytes).expect_err("it is neither");
            assert_eq!(error.kind, LogErrorKind::InvalidBatch);
        }
    }

    #[test]
    fn a_batch_that_is_cut_off_is_refused() {
        let good = Marker::Commit.to_batch(END);
        for length in 0..good.len() {
            let mut bytes = good[..length].to_vec();
            let error = Batch::split_first(&mut bytes).expect_err("a part of a batch");
            assert_eq!(error.kind, LogErrorKind::InvalidBatch, "{length} bytes");
        }
    }

    #[test]
    fn sequences_begin_again_after_the_largest() {
        assert_eq!(sequence_after(i32::MAX, 0), i32::MAX);
        assert_eq!(sequence_after(i32::MAX, 1), 0);
        assert_eq!(sequence_after(5, 3), 8);
    }
}
