//! Header of a batch, its checksum, and the fields that a log sets.

use std::ops::Range;

use crc_fast::CrcAlgorithm;

use crate::compression::Codec;

/// Size of the header, which precedes the records.
pub const HEADER_BYTES: usize = 61;

/// End of the length field. The length counts the bytes after it.
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

/// Bits of the attributes. The three lowest contain the codec.
const CODEC: i16 = 7;

const TIMESTAMP_IS_OF_APPEND: i16 = 1 << 3;
pub(crate) const IS_TRANSACTIONAL: i16 = 1 << 4;
const IS_CONTROL: i16 = 1 << 5;
pub(crate) const MARKER_ATTRIBUTES: i16 = IS_TRANSACTIONAL | IS_CONTROL;
const HAS_DELETE_HORIZON: i16 = 1 << 6;

/// Returns the size of the batch at the start of `bytes` according to its length field, or `None`
/// if the field is incomplete. A negative length counts as 0, which is too short for any batch.
pub fn declared_size(bytes: &[u8]) -> Option<usize> {
    let length = i32::from_be_bytes(bytes.get(LENGTH)?.try_into().ok()?);
    Some(usize::try_from(length).unwrap_or(0) + LENGTH_END)
}

/// Header of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    pub base_offset: i64,
    /// Size of the whole batch, including the header.
    pub size_bytes: usize,
    pub epoch: i32,
    pub attributes: i16,
    pub last_offset_delta: i32,
    pub base_timestamp: i64,
    pub max_timestamp: i64,
    /// -1 if the producer has no id.
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub base_sequence: i32,
    pub record_count: i32,
}

impl BatchHeader {
    /// Parses the header at the start of `bytes`, which need not contain the whole batch. Returns
    /// `None` if there is no batch of version 2: zeros are none.
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

    /// Returns the offset of the last record.
    pub fn last_offset(&self) -> i64 {
        self.base_offset.saturating_add(i64::from(self.last_offset_delta))
    }

    /// Returns the offset after the last record.
    pub fn next_offset(&self) -> i64 {
        self.last_offset().saturating_add(1)
    }

    pub fn is_transactional(&self) -> bool {
        self.attributes & IS_TRANSACTIONAL != 0
    }

    /// Returns whether this is a control batch: it contains a marker instead of data of a client.
    pub fn is_control(&self) -> bool {
        self.attributes & IS_CONTROL != 0
    }

    /// Returns whether the timestamp of all records is the time of their append (LogAppendTime).
    pub fn has_append_time(&self) -> bool {
        self.attributes & TIMESTAMP_IS_OF_APPEND != 0
    }

    /// Returns the delete horizon: the Unix time in milliseconds from which compaction may remove
    /// tombstones or the marker in the batch. `None` before the first compaction. Source: KIP-534.
    pub fn delete_horizon_ms(&self) -> Option<i64> {
        self.has_delete_horizon().then_some(self.base_timestamp)
    }

    /// Returns whether compaction has set a delete horizon. Producers never set one.
    pub fn has_delete_horizon(&self) -> bool {
        self.attributes & HAS_DELETE_HORIZON != 0
    }

    /// Sets the delete horizon, which replaces the base timestamp. The records' timestamp deltas
    /// must then be relative to it.
    pub fn with_delete_horizon(&self, horizon_ms: i64) -> Self {
        let attributes = self.attributes | HAS_DELETE_HORIZON;
        Self { attributes, base_timestamp: horizon_ms, ..*self }
    }

    /// Returns the header with another codec in the attributes.
    pub fn with_codec(&self, codec: Codec) -> Self {
        Self { attributes: self.attributes & !CODEC | codec.bits(), ..*self }
    }

    /// Returns the header of the same batch after all its records were removed.
    pub fn without_records(&self) -> Self {
        let attributes = self.attributes & !(CODEC | HAS_DELETE_HORIZON);
        Self { attributes, base_timestamp: -1, record_count: 0, ..*self }
    }

    pub fn has_producer(&self) -> bool {
        self.producer_id >= 0
    }

    /// Returns the sequence number of the last record. Sequence numbers wrap from `i32::MAX` to 0.
    pub fn last_sequence(&self) -> i32 {
        sequence_after(self.base_sequence, self.last_offset_delta)
    }

    /// Encodes a batch of this header and of `records`, which must already be compressed by its
    /// codec. Size and checksum are computed.
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

/// Iterates over the headers of consecutive batches.
pub fn headers(bytes: &[u8]) -> impl Iterator<Item = BatchHeader> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let header = BatchHeader::read(bytes.get(at..)?)?;
        at += header.size_bytes;
        Some(header)
    })
}

/// Adds `count` to a sequence number, which wraps from `i32::MAX` to 0.
pub fn sequence_after(sequence: i32, count: i32) -> i32 {
    let sum = i64::from(sequence) + i64::from(count);
    i32::try_from(sum % (i64::from(i32::MAX) + 1)).unwrap_or(0)
}

/// Computes and writes the checksum of a whole batch.
pub fn seal(batch: &mut [u8]) {
    let crc = crc32c(&batch[ATTRIBUTES.start..]);
    batch[CRC].copy_from_slice(&crc.to_be_bytes());
}

/// Sets base offset and leader epoch of a batch. The checksum does not cover them.
pub fn set_place(batch: &mut [u8], base_offset: i64, epoch: i32) {
    batch[BASE_OFFSET].copy_from_slice(&base_offset.to_be_bytes());
    batch[EPOCH].copy_from_slice(&epoch.to_be_bytes());
}

/// Sets the append time of a whole batch in Unix milliseconds, which overrides its records'
/// timestamps.
pub fn set_append_time(batch: &mut [u8], unix_ms: i64) {
    let attributes = i16::from_be_bytes(field(batch, ATTRIBUTES)) | TIMESTAMP_IS_OF_APPEND;
    batch[ATTRIBUTES].copy_from_slice(&attributes.to_be_bytes());
    batch[MAX_TIMESTAMP].copy_from_slice(&unix_ms.to_be_bytes());
    seal(batch);
}

/// Sets the maximum timestamp of a batch, Unix milliseconds.
pub fn set_max_timestamp(batch: &mut [u8], unix_ms: i64) {
    batch[MAX_TIMESTAMP].copy_from_slice(&unix_ms.to_be_bytes());
    seal(batch);
}

/// Verifies the checksum of a whole batch.
pub fn has_valid_checksum(batch: &[u8]) -> bool {
    u32::from_be_bytes(field(batch, CRC)) == crc32c(&batch[ATTRIBUTES.start..])
}

/// Returns whether a whole and undamaged batch has a negative last offset delta.
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
