//! Verification of batches that clients send.

use record_batch::{
    BatchHeader, counts_backwards, has_valid_checksum, set_append_time, set_max_timestamp,
    set_place,
};
use shares::Owner;

use crate::error::{LogError, LogErrorKind};

/// A batch whose sizes and checksum were verified, ready to be appended.
#[derive(Debug)]
pub struct Batch<'a> {
    header: BatchHeader,
    owner: Owner,
    bytes: &'a mut [u8],
}

impl<'a> Batch<'a> {
    /// Verifies the batch at the start of `bytes`. Returns it and the remaining bytes.
    pub fn split_first(bytes: &'a mut [u8]) -> Result<(Self, &'a mut [u8]), LogError> {
        let invalid = |what: &str| {
            LogError::new(LogErrorKind::InvalidBatch, format!("invalid record batch: {what}"))
        };
        let impossible = |what: &str| {
            LogError::new(LogErrorKind::InvalidRecord, format!("invalid record batch: {what}"))
        };
        if let Some(base_offset) = bytes.first_chunk_mut::<8>() {
            // Clients count from 0. The log assigns the offset.
            *base_offset = [0; 8];
        }
        let header = BatchHeader::read(bytes).ok_or_else(|| match counts_backwards(bytes) {
            true => impossible("its last offset is before its first"),
            false => invalid("it is truncated, or not of message format version 2"),
        })?;
        if header.size_bytes > bytes.len() {
            return Err(invalid("it is shorter than its length says"));
        }
        let (bytes, rest) = bytes.split_at_mut(header.size_bytes);
        if !has_valid_checksum(bytes) {
            return Err(invalid("its CRC-32C does not match"));
        }
        if header.record_count < 1 || header.last_offset_delta != header.record_count - 1 {
            return Err(impossible("its number of records does not match its offsets"));
        }
        if header.has_producer() && (header.base_sequence < 0 && !header.is_control()) {
            return Err(impossible("its producer sequence is negative"));
        }
        if header.has_producer() && header.producer_epoch < 0 {
            return Err(impossible("its producer epoch is missing"));
        }
        if header.is_transactional() && !header.has_producer() {
            return Err(impossible("it is transactional, but has no producer id"));
        }
        Ok((Self { header, owner: Owner::NOBODY, bytes }, rest))
    }

    pub fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// Sets the owner that sent the batch. Each owner has a share of the remembered producers.
    pub fn set_owner(&mut self, owner: Owner) {
        self.owner = owner;
    }

    pub(crate) fn owner(&self) -> Owner {
        self.owner
    }

    /// Returns the encoded batch, including its header.
    pub fn bytes(&self) -> &[u8] {
        self.bytes
    }

    /// Sets the batch's base offset and leader epoch.
    pub(crate) fn place(&mut self, base_offset: i64, epoch: i32) {
        self.header.base_offset = base_offset;
        self.header.epoch = epoch;
        set_place(self.bytes, base_offset, epoch);
    }

    /// Sets the maximum timestamp of the batch, if the producer's is missing or wrong.
    pub fn set_max_timestamp(&mut self, unix_ms: i64) {
        if self.header.max_timestamp != unix_ms {
            set_max_timestamp(self.bytes, unix_ms);
            self.header.max_timestamp = unix_ms;
        }
    }

    /// Sets the append time, which overrides the timestamps of the records.
    pub fn set_append_time(&mut self, unix_ms: i64) {
        set_append_time(self.bytes, unix_ms);
        self.header = BatchHeader::read(self.bytes).expect("it was one before");
    }
}

#[cfg(test)]
mod tests {
    use record_batch::{Marker, TransactionEnd};

    use super::*;

    const END: TransactionEnd =
        TransactionEnd { producer_id: 7, producer_epoch: 2, coordinator_epoch: 9, unix_ms: 5 };

    #[test]
    fn a_flipped_bit_after_the_epoch_is_noticed_and_offsets_are_not_part_of_the_sum() {
        let good = Marker::Commit.to_batch(END);
        for byte in 16..good.len() {
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
            assert_eq!(error.kind, LogErrorKind::InvalidRecord);
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
}
