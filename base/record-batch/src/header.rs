//! The fixed part of a batch, its checksum, and the few fields that a log fills in.

use std::ops::Range;

use crc_fast::CrcAlgorithm;

use crate::compression::Codec;

/// Bytes before the records.
pub const HEADER_BYTES: usize = 61;

/// Bytes before those that the length counts.
pub(crate) const LENGTH_END: usize = 12;

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
pub(crate) const IS_TRANSACTIONAL: i16 = 1 << 4;
const IS_CONTROL: i16 = 1 << 5;
pub(crate) const MARKER_ATTRIBUTES: i16 = IS_TRANSACTIONAL | IS_CONTROL;
const HAS_DELETE_HORIZON: i16 = 1 << 6;

/// Size of the batch at the start of `bytes`, as its length says; `None` where that is not there
/// yet. A length below zero counts as none, and no batch is so short.
pub fn declared_size(bytes: &[u8]) -> Option<usize> {
    let length = i32::from_be_bytes(bytes.get(LENGTH)?.try_into().ok()?);
    Some(usize::try_from(length).unwrap_or(0) + LENGTH_END)
}

/// The fixed part of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    pub base_offset: i64,
    /// Size of the whole batch, from its first byte on.
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
        let size_bytes = declared_size(header)?;
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

    /// Returns whether its record is a marker of the log's own instead of a client's data.
    pub fn is_control(&self) -> bool {
        self.attributes & IS_CONTROL != 0
    }

    /// Returns whether all of its records have the time of their append.
    pub fn has_append_time(&self) -> bool {
        self.attributes & TIMESTAMP_IS_OF_APPEND != 0
    }

    /// When its tombstones, or the marker that it holds, may go: Unix milliseconds. `None` where no
    /// compaction has met them. Source: KIP-534.
    pub fn delete_horizon_ms(&self) -> Option<i64> {
        self.has_delete_horizon().then_some(self.base_timestamp)
    }

    /// Returns whether compaction has noted when its tombstones may go; a producer does not.
    pub fn has_delete_horizon(&self) -> bool {
        self.attributes & HAS_DELETE_HORIZON != 0
    }

    /// The horizon takes the place of the first timestamp: those of the records are counted from
    /// it.
    pub fn with_delete_horizon(&self, horizon_ms: i64) -> Self {
        let attributes = self.attributes | HAS_DELETE_HORIZON;
        Self { attributes, base_timestamp: horizon_ms, ..*self }
    }

    /// The same batch, whose records are to be compressed by another codec.
    pub fn with_codec(&self, codec: Codec) -> Self {
        Self { attributes: self.attributes & !CODEC | codec.bits(), ..*self }
    }

    /// The same batch, all of whose records were taken out.
    pub fn without_records(&self) -> Self {
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

    /// The batch of this header, but for its size, and of records as its codec leaves them.
    pub fn with_records(&self, records: &[u8]) -> Vec<u8> {
        let mut batch = vec![0; HEADER_BYTES];
        batch.extend_from_slice(records);
        let length = i32::try_from(batch.len() - LENGTH_END).expect("batches have a limit");
        batch[BASE_OFFSET].copy_from_slice(&self.base_offset.to_be_bytes());
        batch[LENGTH].copy_from_slice(&length.to_be_bytes());
        batch[EPOCH].copy_from_slice(&self.epoch.to_be_bytes());
        batch[MAGIC] = 2;
        batch[ATTRIBUTES].copy_from_slice(&self.attributes.to_be_bytes());
        batch[LAST_OFFSET_DELTA].copy_from_slice(&self.last_offset_delta.to_be_bytes());
        batch[BASE_TIMESTAMP].copy_from_slice(&self.base_timestamp.to_be_bytes());
        batch[MAX_TIMESTAMP].copy_from_slice(&self.max_timestamp.to_be_bytes());
        batch[PRODUCER_ID].copy_from_slice(&self.producer_id.to_be_bytes());
        batch[PRODUCER_EPOCH].copy_from_slice(&self.producer_epoch.to_be_bytes());
        batch[BASE_SEQUENCE].copy_from_slice(&self.base_sequence.to_be_bytes());
        batch[RECORD_COUNT].copy_from_slice(&self.record_count.to_be_bytes());
        seal(&mut batch);
        batch
    }
}

/// The headers of all batches that lie one after the other.
pub fn headers(bytes: &[u8]) -> impl Iterator<Item = BatchHeader> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let header = BatchHeader::read(bytes.get(at..)?)?;
        at += header.size_bytes;
        Some(header)
    })
}

/// `count` numbers after `sequence`.
pub fn sequence_after(sequence: i32, count: i32) -> i32 {
    let sum = i64::from(sequence) + i64::from(count);
    i32::try_from(sum % (i64::from(i32::MAX) + 1)).unwrap_or(0)
}

/// Writes the checksum of a whole batch into it.
pub fn seal(batch: &mut [u8]) {
    let crc = crc32c(&batch[ATTRIBUTES.start..]);
    batch[CRC].copy_from_slice(&crc.to_be_bytes());
}

/// Gives a batch its place in a log. The checksum stays.
pub fn set_place(batch: &mut [u8], base_offset: i64, epoch: i32) {
    batch[BASE_OFFSET].copy_from_slice(&base_offset.to_be_bytes());
    batch[EPOCH].copy_from_slice(&epoch.to_be_bytes());
}

/// Says when a whole batch was appended, Unix milliseconds, instead of when its records were made.
pub fn set_append_time(batch: &mut [u8], unix_ms: i64) {
    let attributes = i16::from_be_bytes(field(batch, ATTRIBUTES)) | TIMESTAMP_IS_OF_APPEND;
    batch[ATTRIBUTES].copy_from_slice(&attributes.to_be_bytes());
    batch[MAX_TIMESTAMP].copy_from_slice(&unix_ms.to_be_bytes());
    seal(batch);
}

/// Says which of a batch's records is the newest, Unix milliseconds.
pub fn set_max_timestamp(batch: &mut [u8], unix_ms: i64) {
    batch[MAX_TIMESTAMP].copy_from_slice(&unix_ms.to_be_bytes());
    seal(batch);
}

/// Returns whether the checksum of a whole batch fits.
pub fn has_valid_checksum(batch: &[u8]) -> bool {
    u32::from_be_bytes(field(batch, CRC)) == crc32c(&batch[ATTRIBUTES.start..])
}

/// Returns whether a whole and undamaged batch names a last record before its first.
pub fn counts_backwards(batch: &[u8]) -> bool {
    batch.len() >= HEADER_BYTES
        && batch[MAGIC] == 2
        && i32::from_be_bytes(field(batch, LAST_OFFSET_DELTA)) < 0
        && declared_size(batch) == Some(batch.len())
        && has_valid_checksum(batch)
}

pub fn crc32c(bytes: &[u8]) -> u32 {
    let sum = crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes);
    u32::try_from(sum).expect("a sum of 32 bits")
}

fn field<const N: usize>(bytes: &[u8], range: Range<usize>) -> [u8; N] {
    bytes[range].try_into().expect("a field is as long as its number")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_no_batch() {
        assert_eq!(BatchHeader::read(&[0; 4096]), None);
    }

    #[test]
    fn the_checksum_is_castagnolis() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
    }

    #[test]
    fn sequences_begin_again_after_the_largest() {
        assert_eq!(sequence_after(i32::MAX, 0), i32::MAX);
        assert_eq!(sequence_after(i32::MAX, 1), 0);
        assert_eq!(sequence_after(5, 3), 8);
    }
}
