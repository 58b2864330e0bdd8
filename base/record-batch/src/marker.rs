//! Control batches that end transactions.

use crate::header::{BatchHeader, HEADER_BYTES, MARKER_ATTRIBUTES};
use crate::varint::take_varint;

/// Outcome of a transaction, as its end marker records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marker {
    Abort,
    Commit,
}

impl Marker {
    /// Parses the marker of a control batch. Returns `None` for other types of control records.
    pub fn read(batch: &[u8]) -> Option<Self> {
        // One record: length, attributes, timestamp and offset deltas, then the length of the key.
        let mut rest = batch.get(HEADER_BYTES..)?;
        take_varint(&mut rest)?;
        rest = rest.get(1..)?;
        for _ in 0..3 {
            take_varint(&mut rest)?;
        }
        match i16::from_be_bytes(rest.get(2..4)?.try_into().ok()?) {
            0 => Some(Self::Abort),
            1 => Some(Self::Commit),
            _ => None,
        }
    }

    /// Encodes the control batch that ends a producer's transaction.
    pub fn to_batch(self, end: TransactionEnd) -> Vec<u8> {
        let kind: i16 = match self {
            Self::Abort => 0,
            Self::Commit => 1,
        };
        // Key: version 0 and type. Value: version 0 and the coordinator's epoch. Zigzag encodes a
        // length below 64 as one byte of twice its value.
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
            attributes: MARKER_ATTRIBUTES,
            last_offset_delta: 0,
            base_timestamp: end.unix_ms,
            max_timestamp: end.unix_ms,
            producer_id: end.producer_id,
            producer_epoch: end.producer_epoch,
            base_sequence: -1,
            record_count: 1,
        };
        header.with_records(&records)
    }
}

/// Producer and time of a transaction's end marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransactionEnd {
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub coordinator_epoch: i32,
    pub unix_ms: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_read_as_it_was_written() {
        for marker in [Marker::Abort, Marker::Commit] {
            let end = TransactionEnd {
                producer_id: 7,
                producer_epoch: 2,
                coordinator_epoch: 9,
                unix_ms: 5,
            };
            let bytes = marker.to_batch(end);
            let header = BatchHeader::read(&bytes).expect("a batch");
            assert!(header.is_control() && header.is_transactional());
            assert_eq!((header.producer_id, header.producer_epoch), (7, 2));
            assert_eq!(header.size_bytes, bytes.len());
            assert_eq!(Marker::read(&bytes), Some(marker));
        }
    }
}
